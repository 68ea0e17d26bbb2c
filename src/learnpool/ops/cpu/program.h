// A tree as nodes.py flattens it, decoded: what is read from a region (responses), and how that is combined (nodes).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace learnpool {

// As in leaves.py.
enum class Code : int64_t {
  Max = 0,
  Avg = 1,
  Filter = 2,
  Mix = 3,
  Gate = 4,
  FixedMix = 5,
  Min = 6,
  Std = 7,
  Soft = 8,
  LogSumExp = 9,
  Power = 10,
  AbsPower = 11,
  Rank = 12,
  ConstantFilter = 13,
  Blur = 14,
  GateBy = 15,
  Median = 16,
};
constexpr int64_t LAST_CODE = int64_t(Code::Median);

// As in leaves.py; behind them stochastic pooling, which no program has: a cell picked at random, and the expected pick.
enum class Kind : int32_t {
  Max = 0,
  Min = 1,
  Avg = 2,
  Dot = 3,
  Std = 4,
  Soft = 5,
  LogSumExp = 6,
  Power = 7,
  AbsPower = 8,
  Rank = 9,
  Blur = 10,
  Median = 11,
  Pick = 100,
  Expect = 101,
};

// Where a learned number may lie.
struct Domain {
  double low, high;
};
constexpr Domain UNBOUNDED{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
constexpr Domain PROPORTION{0, 1}, SHARPNESS{0.1, 100}, EXPONENT{1, 64};

// How a leaf is read: with nothing but the cells, with a row of weight (learned, constant, or as the program says), or with a
// number from a domain.
enum class Takes { Nothing, LearnedTaps, ConstantTaps, Taps, Number };
struct Leaf {
  Code code;
  Kind kind;
  Takes takes = Takes::Nothing;
  Domain domain = UNBOUNDED;
};
constexpr Leaf LEAVES[] = {
    {Code::Max, Kind::Max},
    {Code::Min, Kind::Min},
    {Code::Avg, Kind::Avg},
    {Code::Filter, Kind::Dot, Takes::LearnedTaps},
    {Code::ConstantFilter, Kind::Dot, Takes::ConstantTaps},
    {Code::Std, Kind::Std},
    {Code::Soft, Kind::Soft, Takes::Number},
    {Code::LogSumExp, Kind::LogSumExp, Takes::Number, SHARPNESS},
    {Code::Power, Kind::Power, Takes::Number, EXPONENT},
    {Code::AbsPower, Kind::AbsPower, Takes::Number, EXPONENT},
    {Code::Rank, Kind::Rank, Takes::Taps},
    {Code::Median, Kind::Median},
    {Code::Blur, Kind::Blur, Takes::ConstantTaps},
};

// One number read from every region.
struct Response {
  Kind kind;
  int32_t weight = -1, scalar = -1;  // rows of weight and mix, or -1
  int32_t uses = 0;                  // nodes that read it

  bool is_same(const Response& other) const { return kind == other.kind && weight == other.weight && scalar == other.scalar; }
};

// A response; p left + (1 - p) right with p = mix[row]; the same with p = sigmoid(response), and with
// p = sigmoid(mix[row] by + mix[bias]).
enum class Op : int32_t { Leaf, Mix, Gate, GateBy };

struct Node {
  Op op;
  int32_t response = -1, row = -1, bias = -1, left = -1, right = -1, by = -1;  // -1: it has no such part
};

struct Program {
  std::vector<Response> responses;
  std::vector<Node> nodes;                   // children behind their parents
  int64_t weights = 0;                       // rows of weight that learn
  std::vector<Domain> domains;               // of the rows of mix that learn
  std::vector<std::vector<double>> filters;  // constant rows of weight, behind those that learn
  std::vector<double> scalars;               // constant rows of mix, behind those that learn

  int64_t mixes() const { return int64_t(domains.size()); }
  int64_t weight_rows() const { return weights + int64_t(filters.size()); }
  int64_t mix_rows() const { return mixes() + int64_t(scalars.size()); }
};

// The program of a list of numbers; an error that names the node if it is not a tree.
Program decode(const std::vector<int64_t>& numbers);

// One response and nothing else.
Program make_program(Kind kind);

}  // namespace learnpool
