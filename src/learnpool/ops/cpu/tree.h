// From the responses of a vector of regions to the tree's value, and back: the reference's evaluate and backward.
#pragma once

#include "headers.h"
#include "isa.h"
#include "scratch.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// A program known to the compiler: its tree is unrolled into straight code over registers.
template <Code... CODES>
struct KnownProgram {
  static constexpr Rule rule = Rule::Tree;
  static constexpr int nodes = sizeof...(CODES), weights = (has_weight(CODES) + ...);
  static constexpr int mixes = ((CODES == Code::Mix) + ...);
  static constexpr bool known = true, statistics = (has_statistic(CODES) || ...), minimum = ((CODES == Code::Min) || ...);
  static constexpr Code codes[] = {CODES...};

  static constexpr Node node(int i) {
    int row = 0, mix = 0, inner = 0;
    for (int j = 0; j < i; ++j) {
      row += has_weight(codes[j]);
      mix += codes[j] == Code::Mix;
      inner += has_children(codes[j]);
    }
    return {codes[i], codes[i] == Code::Mix ? mix : row, 2 * inner + 1, 2 * inner + 2, 0.0};
  }
  static bool matches(const Program& program) {
    if (program.nodes.size() != nodes) return false;
    for (int i = 0; i < nodes; ++i) {
      if (program.nodes[i].code != codes[i]) return false;
    }
    return true;
  }
};

// Any other program, read node by node.
struct AnyProgram {
  static constexpr Rule rule = Rule::Tree;
  static constexpr int nodes = -1, weights = -1, mixes = -1;
  static constexpr bool known = false, statistics = true, minimum = true;
};

// No tree at all.
template <Rule RULE>
struct Stochastic {
  static constexpr Rule rule = RULE;
  static constexpr int nodes = 0, weights = 0, mixes = 0;
  static constexpr bool known = true, statistics = false, minimum = false;
};

// Rows of weight whose inner products with a vector of regions are summed up at once: as many as there are registers for.
constexpr int SUMMED_ROWS = LEARNPOOL_BYTES == 64 ? 8 : 4;

// f(program) with the paper's pools known to the compiler; everything else is general.
template <class F>
void with_program(const Program& program, F f) {
  using C = Code;
  auto is = [&](auto known) { return decltype(known)::matches(program) && (f(known), true); };
  if (is(KnownProgram<C::FixedMix, C::Max, C::Avg>{}) || is(KnownProgram<C::Mix, C::Max, C::Avg>{}) ||
      is(KnownProgram<C::Gate, C::Max, C::Avg>{}) || is(KnownProgram<C::Filter>{}) ||
      is(KnownProgram<C::Gate, C::Filter, C::Filter>{}) ||
      is(KnownProgram<C::Gate, C::Gate, C::Gate, C::Filter, C::Filter, C::Filter, C::Filter>{})) {
    return;
  }
  f(AnyProgram{});
}

// The few numbers a tree needs to know of a vector of regions, the tree's own values, and the gradients of all of them.
template <class A, class P>
struct Region {
  using V = Vec<A>;
  template <int N>
  using Array = std::conditional_t<P::known, V[(N > 0 ? N : 1)], V*>;
  V maximum, minimum, mean, count, to_max, to_min, to_mean;
  Array<P::weights> dots, to_dot;
  Array<P::mixes> to_mix;
  Array<P::nodes> values, proportions, to_node;

  Region() = default;
  Region(const Program& program, Scratch& scratch) {
    if constexpr (!P::known) {
      for (V** array : {&dots, &to_dot}) *array = scratch.take<V>(program.weights);
      for (V** array : {&values, &proportions, &to_node, &to_mix}) *array = scratch.take<V>(int64_t(program.nodes.size()));
    }
  }
};

// p left + (1 - p) right; a proportion of exactly 1 or 0 does not read the other side. FINITE: it may, as that only matters where
// the result is infinite or NaN, and then the caller computes everything again, or -0.
template <bool FINITE, class A>
INLINE Vec<A> blend(Vec<A> p, Vec<A> left, Vec<A> right) {
  const Vec<A> both = p * left + (A(1) - p) * right;
  return FINITE ? both : (p == A(1) ? left : (p == A(0) ? right : both));
}

template <bool FINITE, class A, class R, class Mix, class Gate>
INLINE void evaluate_node(const Node& node, int64_t i, double fixed, R& region, Mix mix, Gate gate) {
  auto set_blend = [&](Vec<A> p, auto finite) ALWAYS_INLINE {
    region.proportions[i] = p;
    region.values[i] = blend<decltype(finite)::value, A>(p, region.values[node.left], region.values[node.right]);
  };
  constexpr std::bool_constant<FINITE> finite{};
  constexpr std::false_type exact{};  // a mix of 1 is a maximum to the last bit, the sign of a zero included
  switch (node.code) {
    case Code::Max: region.values[i] = region.maximum; break;
    case Code::Min: region.values[i] = region.minimum; break;
    case Code::Avg: region.values[i] = region.mean; break;
    case Code::Filter: region.values[i] = region.dots[node.parameter]; break;
    case Code::Mix: set_blend(mix(node.parameter), exact); break;
    case Code::Gate: set_blend(gate(node.parameter), finite); break;
    case Code::FixedMix: set_blend(broadcast<A>(A(fixed)), exact); break;
  }
}

template <bool FINITE, class A, class R>
INLINE void backpropagate_node(const Node& node, int64_t i, R& region) {
  using V = Vec<A>;
  const V zero{}, grad = region.to_node[i];
  // What reaches both children, and the proportion.
  auto unblend = [&]() ALWAYS_INLINE -> V {
    const V p = region.proportions[i];
    const V to_left = grad * p, to_right = grad * (A(1) - p);
    region.to_node[node.left] = FINITE ? to_left : (p == A(0) ? zero : to_left);
    region.to_node[node.right] = FINITE ? to_right : (p == A(1) ? zero : to_right);
    return grad * (region.values[node.left] - region.values[node.right]);
  };
  switch (node.code) {
    case Code::Max: region.to_max += grad; break;
    case Code::Min: region.to_min += grad; break;
    case Code::Avg: region.to_mean += grad; break;
    case Code::Filter: region.to_dot[node.parameter] = grad; break;
    case Code::Mix: region.to_mix[node.parameter] = unblend(); break;
    case Code::Gate: {
      const V p = region.proportions[i], slope = unblend() * (p * (A(1) - p));
      region.to_dot[node.parameter] = FINITE ? slope : (p == A(0) ? zero : (p == A(1) ? zero : slope));
      break;
    }
    case Code::FixedMix: unblend(); break;
  }
}

// f(0), f(1), ..., each with its number as a type.
template <class F, int... I>
INLINE void for_each_index(F f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}

// The value of every node, from the back of the program to its root. mix(row) and gate(row) give the proportions.
template <bool FINITE, class A, class P, class Mix, class Gate>
INLINE Vec<A> evaluate(const Program& program, Region<A, P>& region, Mix mix, Gate gate) {
  if constexpr (P::known) {
    auto evaluate_one = [&](auto from_back) ALWAYS_INLINE {
      constexpr int i = P::nodes - 1 - decltype(from_back)::value;
      constexpr Node node = P::node(i);
      evaluate_node<FINITE, A>(node, i, program.nodes[i].a, region, mix, gate);
    };
    for_each_index(evaluate_one, std::make_integer_sequence<int, P::nodes>{});
  } else {
    for (int64_t i = int64_t(program.nodes.size()) - 1; i >= 0; --i) {
      evaluate_node<FINITE, A>(program.nodes[i], i, program.nodes[i].a, region, mix, gate);
    }
  }
  return region.values[0];
}

// The same with gates whose inner products are among the responses.
template <bool FINITE, class A, class P, class Mix>
INLINE Vec<A> evaluate(const Program& program, Region<A, P>& region, Mix mix) {
  return evaluate<FINITE>(program, region, mix, [&](int64_t row) ALWAYS_INLINE -> Vec<A> { return sigmoid<A>(region.dots[row]); });
}

// In stages, inner products of gates may become proportions before the trees are evaluated: where there are few registers, the
// numbers of an exponential and of a tree do not fit into them together.
constexpr bool GATES_FIRST = LEARNPOOL_BYTES < 64;

// f(row of weight) for every gate of a known program, if this is to be done first.
template <class P, class F>
INLINE void for_each_early_gate(F f) {
  auto call = [&](auto index) ALWAYS_INLINE {
    constexpr Node node = P::node(decltype(index)::value);
    if constexpr (GATES_FIRST && node.code == Code::Gate) f(node.parameter);
  };
  for_each_index(call, std::make_integer_sequence<int, P::nodes>{});
}

// evaluate() after that, for ordinary numbers.
template <class A, class P, class Mix>
INLINE Vec<A> evaluate_in_stages(const Program& program, Region<A, P>& region, Mix mix) {
  if constexpr (GATES_FIRST)
    return evaluate<true>(program, region, mix, [&](int64_t row) ALWAYS_INLINE -> Vec<A> { return region.dots[row]; });
  else return evaluate<true>(program, region, mix);
}

// Down the tree: what of `grad` reaches each response.
template <bool FINITE, class A, class P>
INLINE void backpropagate(const Program& program, Region<A, P>& region, Vec<A> grad) {
  region.to_max = region.to_min = region.to_mean = Vec<A>{};
  region.to_node[0] = grad;
  if constexpr (P::known) {
    auto backpropagate_one = [&](auto index) ALWAYS_INLINE {
      constexpr int i = decltype(index)::value;
      constexpr Node node = P::node(i);
      backpropagate_node<FINITE, A>(node, i, region);
    };
    for_each_index(backpropagate_one, std::make_integer_sequence<int, P::nodes>{});
  } else {
    for (size_t i = 0; i < program.nodes.size(); ++i) backpropagate_node<FINITE, A>(program.nodes[i], int64_t(i), region);
  }
  region.to_mean = region.to_mean / region.count;
}

// Where v replaces the largest value so far: it is larger, or NaN, which always wins.
template <class A>
INLINE Mask<A> is_new_maximum(Vec<A> v, Vec<A> best) {
  return (v > best) | (v != v);
}

// Gradients of parameters that all lanes share.
template <class A>
struct SharedSums {
  Vec<A>*weight, *mix;  // [weights, taps], [mixes]

  SharedSums(const Pooling& pool, Scratch& scratch)
      : weight(scratch.take<Vec<A>>(pool.program.weights * pool.taps())), mix(scratch.take<Vec<A>>(pool.program.mixes)) {}

  // Add up the lanes into a slice, and begin again.
  void flush(const Call& call, A* dweight, A* dmix) {
    const Pooling& pool = call.pool;
    const Parameter &w = call.memory.dweight, &m = call.memory.dmix;
    for (int64_t d = 0; pool.weight_grad && d < pool.program.weights; ++d) {
      for (int64_t tap = 0; tap < pool.taps(); ++tap) {
        Vec<A>& lanes = weight[d * pool.taps() + tap];
        dweight[d * w.row + tap * w.tap] += A(sum_lanes<A>(lanes));
        lanes = Vec<A>{};
      }
    }
    for (int64_t i = 0; pool.mix_grad && i < pool.program.mixes; ++i) {
      dmix[i * m.row] += A(sum_lanes<A>(mix[i]));
      mix[i] = Vec<A>{};
    }
  }
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
