#include "program.h"

#include <torch/headeronly/util/Exception.h>

#include <cstring>

namespace learnpool {

namespace {
constexpr int64_t MOST_NODES = 4096;
}

Program decode(const std::vector<int64_t>& numbers) {
  Program program;
  int64_t inner = 0;
  for (size_t at = 0; at < numbers.size(); ++at) {
    const int64_t place = int64_t(program.nodes.size());
    STD_TORCH_CHECK(is_code(numbers[at]), "learnpool: invalid program: node ", place, " has code ", numbers[at]);
    STD_TORCH_CHECK(place <= 2 * inner, "learnpool: invalid program: node ", place, " has no parent");
    STD_TORCH_CHECK(place < MOST_NODES, "learnpool: invalid program: more than ", MOST_NODES, " nodes");
    Node node{Code(numbers[at]), -1, -1, -1, 0.0};
    if (node.code == Code::Min) program.has_min = true;
    if (has_weight(node.code)) node.parameter = int32_t(program.weights++);
    if (node.code == Code::Mix) node.parameter = int32_t(program.mixes++);
    if (node.code == Code::FixedMix) {
      STD_TORCH_CHECK(++at < numbers.size(), "learnpool: invalid program: node ", place, " is a fixed mix without its proportion");
      std::memcpy(&node.a, &numbers[at], sizeof node.a);
      STD_TORCH_CHECK(node.a >= 0 && node.a <= 1, "learnpool: invalid program: node ", place, " is a fixed mix of ", node.a);
    }
    if (has_children(node.code)) {
      node.left = int32_t(2 * inner + 1);
      node.right = int32_t(2 * inner + 2);
      ++inner;
    }
    program.nodes.push_back(node);
  }
  STD_TORCH_CHECK(int64_t(program.nodes.size()) == 2 * inner + 1, "learnpool: invalid program: ", inner, " inner nodes need ",
                  2 * inner + 1, " nodes in all, got ", program.nodes.size());
  return program;
}

}  // namespace learnpool
