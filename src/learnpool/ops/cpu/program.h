// A tree as tree.py flattens it: one code per node, breadth first from the root.
#pragma once

#include <cstdint>
#include <vector>

namespace learnpool {

// As in tree.py.
enum class Code : int64_t { Max, Avg, Filter, Mix, Gate, FixedMix, Min };

// Every question about a code is a switch without a default, so that the compiler names the ones a new code must answer.
constexpr bool has_weight(Code code) {
  switch (code) {
    case Code::Filter:
    case Code::Gate: return true;
    case Code::Max:
    case Code::Min:
    case Code::Avg:
    case Code::Mix:
    case Code::FixedMix: return false;
  }
  return false;
}

constexpr bool has_children(Code code) {
  switch (code) {
    case Code::Mix:
    case Code::Gate:
    case Code::FixedMix: return true;
    case Code::Max:
    case Code::Min:
    case Code::Avg:
    case Code::Filter: return false;
  }
  return false;
}

// Whether a leaf needs the maximum, the minimum or the mean of a region.
constexpr bool has_statistic(Code code) {
  switch (code) {
    case Code::Max:
    case Code::Min:
    case Code::Avg: return true;
    case Code::Filter:
    case Code::Mix:
    case Code::Gate:
    case Code::FixedMix: return false;
  }
  return false;
}

constexpr bool is_code(int64_t number) {
  switch (Code(number)) {
    case Code::Max:
    case Code::Min:
    case Code::Avg:
    case Code::Filter:
    case Code::Mix:
    case Code::Gate:
    case Code::FixedMix: return true;
  }
  return false;
}

struct Node {
  Code code;
  int32_t parameter;    // row of weight (Filter, Gate) or mix (Mix), -1 for the others
  int32_t left, right;  // places of the children, -1 for a leaf
  double a;             // of a fixed Mix
};

struct Program {
  std::vector<Node> nodes;
  int64_t weights = 0, mixes = 0;  // rows of either parameter
  bool has_min = false;
};

// The program of a list of numbers; an error that names the node if it is not a tree.
Program decode(const std::vector<int64_t>& numbers);

}  // namespace learnpool
