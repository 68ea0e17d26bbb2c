#include "program.h"

#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "window.h"

namespace learnpool {
namespace {

constexpr size_t MOST_NODES = 4096;

// Reads a program from front to back.
class Decoder {
 public:
  explicit Decoder(const std::vector<int64_t>& numbers) : numbers_(numbers) {}

  Program decode() {
    std::vector<Node>& nodes = program_.nodes;
    while (at_ < numbers_.size()) {
      const int64_t code = read();
      STD_TORCH_CHECK(code >= 0 && code <= LAST_CODE, "learnpool: invalid program: node ", nodes.size(), " has code ", code);
      STD_TORCH_CHECK(int64_t(nodes.size()) < places_, "learnpool: invalid program: node ", nodes.size(), " has no parent");
      STD_TORCH_CHECK(nodes.size() < MOST_NODES, "learnpool: invalid program: more than ", MOST_NODES, " nodes");
      nodes.push_back(read_node(Code(code)));
    }
    STD_TORCH_CHECK(int64_t(nodes.size()) == places_, "learnpool: invalid program: its nodes need ", places_,
                    " places in all, got ", nodes.size());
    for (const std::vector<double>& filter : program_.filters) {
      STD_TORCH_CHECK(filter.size() == program_.filters[0].size(),
                      "learnpool: invalid program: its constant filters differ in size");
    }
    for (Response& response : program_.responses) {
      settle(response.weight, program_.weights);
      settle(response.scalar, program_.mixes());
    }
    for (Node& node : nodes) {
      settle(node.row, program_.mixes());
      if (node.response >= 0) ++program_.responses[node.response].uses;
    }
    return std::move(program_);
  }

 private:
  const std::vector<int64_t>& numbers_;
  size_t at_ = 0;
  int64_t places_ = 1;  // that the nodes so far have given to children, and the root's
  Program program_;

  int64_t read() {
    STD_TORCH_CHECK(at_ < numbers_.size(), "learnpool: invalid program: it ends within node ", program_.nodes.size());
    return numbers_[at_++];
  }

  bool read_flag() {
    const int64_t flag = read();
    STD_TORCH_CHECK(flag == 0 || flag == 1, "learnpool: invalid program: a switch of node ", program_.nodes.size(), " is ", flag);
    return flag == 1;
  }

  double read_value(const Domain& domain) {
    const int64_t bits = read();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    STD_TORCH_CHECK(value >= domain.low && value <= domain.high && std::isfinite(value), "learnpool: invalid program: node ",
                    program_.nodes.size(), " has the number ", value);
    return value;
  }

  // Constants are numbered -2, -3, ... until all learned rows are known.
  static void settle(int32_t& row, int64_t learned) {
    if (row < -1) row = int32_t(learned) - 2 - row;
  }

  template <class E>
  static int32_t add_constant(std::vector<E>& constants, const E& value) {
    const auto found = std::find(constants.begin(), constants.end(), value);
    if (found != constants.end()) return -2 - int32_t(found - constants.begin());
    constants.push_back(value);
    return -1 - int32_t(constants.size());
  }

  int32_t add_row(const Domain& domain) {
    program_.domains.push_back(domain);
    return int32_t(program_.mixes()) - 1;
  }

  int32_t add_response(const Response& response) {
    std::vector<Response>& all = program_.responses;
    // Those with learned rows of their own are new, so that a large tree is decoded in linear time.
    if (response.weight < 0 && response.scalar < 0) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].is_same(response)) return int32_t(i);
      }
    }
    all.push_back(response);
    return int32_t(all.size()) - 1;
  }

  int32_t read_filter(int64_t n) {
    STD_TORCH_CHECK(n > 0 && n <= MOST_TAPS, "learnpool: invalid program: node ", program_.nodes.size(), " has a filter of ", n,
                    " taps");
    std::vector<double> values;
    for (int64_t k = 0; k < n; ++k) values.push_back(read_value(UNBOUNDED));
    return add_constant(program_.filters, values);
  }

  Node read_leaf(const Leaf& leaf) {
    Response response{leaf.kind};
    switch (leaf.takes) {
      case Takes::Nothing: break;
      case Takes::LearnedTaps: response.weight = int32_t(program_.weights++); break;
      case Takes::ConstantTaps: response.weight = read_filter(read()); break;
      case Takes::Taps: {
        const int64_t n = read();
        response.weight = n == 0 ? int32_t(program_.weights++) : read_filter(n);
        break;
      }
      case Takes::Number:
        response.scalar = read_flag() ? add_row(leaf.domain) : add_constant(program_.scalars, read_value(leaf.domain));
    }
    return {Op::Leaf, add_response(response)};
  }

  Node read_node(Code code) {
    for (const Leaf& leaf : LEAVES) {
      if (leaf.code == code) return read_leaf(leaf);
    }
    Node node{Op::Mix};
    if (code == Code::Mix) node.row = add_row(PROPORTION);
    else if (code == Code::FixedMix) node.row = add_constant(program_.scalars, read_value(PROPORTION));
    else if (code == Code::Gate) node = {Op::Gate, add_response({Kind::Dot, int32_t(program_.weights++)})};
    else if (code == Code::GateBy) node.op = Op::GateBy;
    else STD_TORCH_CHECK(false, "learnpool: invalid program: node ", program_.nodes.size(), " has code ", int64_t(code));
    node.left = int32_t(places_++);
    node.right = int32_t(places_++);
    if (code == Code::GateBy) {
      const bool has_bias = read_flag();
      node.by = int32_t(places_++);
      node.row = add_row(UNBOUNDED);
      if (has_bias) node.bias = add_row(UNBOUNDED);
    }
    return node;
  }
};

}  // namespace

Program decode(const std::vector<int64_t>& numbers) { return Decoder(numbers).decode(); }

Program make_program(Kind kind) {
  Program program;
  program.responses.push_back({kind, -1, -1, 1});
  program.nodes.push_back({Op::Leaf, 0});
  return program;
}

}  // namespace learnpool
