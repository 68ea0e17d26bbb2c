// How a region becomes its responses, its value and its gradient: the reference, with a vector of regions at a time.
//
// Contiguous input: a vector is neighbouring outputs of a plane. Each plane is copied once into scratch, split by stride
// phase (for stride 2: even cells, odd cells) with zeros for the padding, so that every tap of every output vector is one
// contiguous load. Backward keeps what reaches each region of a plane; each cell then gathers from the taps that read it.
// channels_last input: a vector is neighbouring channels of one output; every tap is a contiguous load as it is.
//
// Names are the reference's: respond, evaluate, and what reaches each response on the way back.
// Included once per instruction set, inside its namespace.

// Memory for one thread, aligned for vectors, given back at the end of its items.
class Scratch {
 public:
  template <class E>
  E* take(int64_t count) {
    const size_t bytes = (size_t(count) * sizeof(E) + 127) / 64 * 64;
    blocks_.emplace_back(static_cast<char*>(::operator new(bytes, std::align_val_t(64))));
    std::memset(blocks_.back().get(), 0, bytes);
    return reinterpret_cast<E*>(blocks_.back().get());
  }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::vector<std::unique_ptr<char, Free>> blocks_;
};

// A program known to the compiler: its tree is unrolled into straight code over registers.
template <Code... CODES>
struct Known {
  static constexpr int nodes = sizeof...(CODES), weights = ((CODES == FILTER || CODES == GATE) + ...);
  static constexpr int mixes = ((CODES == MIX) + ...);
  static constexpr bool known = true, extremes = ((CODES == MAX || CODES == AVG) || ...);
  static constexpr Code codes[] = {CODES...};

  static constexpr Node node(int i) {
    int row = 0, mix = 0, inner = 0;
    for (int j = 0; j < i; ++j) {
      row += codes[j] == FILTER || codes[j] == GATE;
      mix += codes[j] == MIX;
      inner += codes[j] == MIX || codes[j] == GATE || codes[j] == FIXED;
    }
    return {codes[i], codes[i] == MIX ? mix : row, 2 * inner + 1, 2 * inner + 2, 0.0};
  }
  static bool matches(const Plan& plan) {
    if (plan.nodes.size() != nodes) return false;
    for (int i = 0; i < nodes; ++i) {
      if (plan.nodes[i].code != codes[i]) return false;
    }
    return true;
  }
};

// Any other program, read node by node.
struct Any {
  static constexpr int nodes = -1, weights = -1, mixes = -1;
  static constexpr bool known = false, extremes = true;
};

// The few numbers a tree needs to know of a vector of regions, and the tree's own values.
template <class A, class P>
struct Region {
  using V = Vec<A>;
  template <int N>
  using Room = std::conditional_t<P::known, V[(N > 0 ? N : 1)], V*>;
  V maximum, mean, count, to_max, to_mean;
  Room<P::weights> dots, to_dot;
  Room<P::mixes> to_mix;
  Room<P::nodes> values, proportions, reaching;

  Region() = default;
  Region(const Plan& plan, Scratch& scratch) {
    if constexpr (!P::known) {
      for (V** room : {&dots, &to_dot}) *room = scratch.take<V>(plan.weights);
      for (V** room : {&values, &proportions, &reaching, &to_mix}) *room = scratch.take<V>(int64_t(plan.nodes.size()));
    }
  }
};

// p left + (1 - p) right; a proportion of exactly 1 or 0 does not read the other side.
template <class A>
INLINE Vec<A> blend(Vec<A> p, Vec<A> left, Vec<A> right) {
  const Vec<A> both = p * left + (A(1) - p) * right;
  return p == A(1) ? left : (p == A(0) ? right : both);
}

template <class A, class R, class Mixes>
INLINE void evaluate_node(const Node& node, int64_t i, double fixed, R& region, Mixes mix) {
  if (node.code == MAX) {
    region.values[i] = region.maximum;
  } else if (node.code == AVG) {
    region.values[i] = region.mean;
  } else if (node.code == FILTER) {
    region.values[i] = region.dots[node.parameter];
  } else {
    Vec<A> p;
    if (node.code == GATE) p = sigmoid<A>(region.dots[node.parameter]);
    else if (node.code == FIXED) p = all<A>(A(fixed));
    else p = mix(node.parameter);
    region.proportions[i] = p;
    region.values[i] = blend<A>(p, region.values[node.left], region.values[node.right]);
  }
}

template <class A, class R>
INLINE void descend_node(const Node& node, int64_t i, R& region) {
  using V = Vec<A>;
  const V zero{}, reached = region.reaching[i];
  if (node.code == MAX) {
    region.to_max += reached;
  } else if (node.code == AVG) {
    region.to_mean += reached;
  } else if (node.code == FILTER) {
    region.to_dot[node.parameter] = reached;
  } else {
    const V p = region.proportions[i];
    const V to_p = reached * (region.values[node.left] - region.values[node.right]);
    region.reaching[node.left] = p == A(0) ? zero : reached * p;
    region.reaching[node.right] = p == A(1) ? zero : reached * (A(1) - p);
    if (node.code == GATE) {
      const V slope = to_p * (p * (A(1) - p));
      region.to_dot[node.parameter] = p == A(0) ? zero : (p == A(1) ? zero : slope);
    } else if (node.code == MIX) {
      region.to_mix[node.parameter] = to_p;
    }
  }
}

// f(0), f(1), ..., each with its number as a type.
template <class F, int... I>
INLINE void each(F f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F>
INLINE void each(F f) {
  each(f, std::make_integer_sequence<int, N>{});
}

// The value of every node, from the back of the program to its root. mix(row) gives a learned proportion.
template <class A, class P, class Mixes>
INLINE Vec<A> evaluate(const Plan& plan, Region<A, P>& region, Mixes mix) {
  if constexpr (P::known) {
    each<P::nodes>([&](auto back) {
      constexpr int i = P::nodes - 1 - decltype(back)::value;
      constexpr Node node = P::node(i);
      evaluate_node<A>(node, i, plan.nodes[i].a, region, mix);
    });
  } else {
    for (int64_t i = int64_t(plan.nodes.size()) - 1; i >= 0; --i) {
      evaluate_node<A>(plan.nodes[i], i, plan.nodes[i].a, region, mix);
    }
  }
  return region.values[0];
}

// Down the tree: what of delta reaches each response.
template <class A, class P>
INLINE void descend(const Plan& plan, Region<A, P>& region, Vec<A> delta) {
  region.to_max = region.to_mean = Vec<A>{};
  region.reaching[0] = delta;
  if constexpr (P::known) {
    each<P::nodes>([&](auto at) {
      constexpr int i = decltype(at)::value;
      constexpr Node node = P::node(i);
      descend_node<A>(node, i, region);
    });
  } else {
    for (size_t i = 0; i < plan.nodes.size(); ++i) descend_node<A>(plan.nodes[i], int64_t(i), region);
  }
  region.to_mean = region.to_mean / region.count;
}

// v wins a maximum so far: it is larger, or NaN, which always wins.
template <class A>
INLINE Mask<A> wins(Vec<A> v, Vec<A> best) {
  return (v > best) | (v != v);
}

// Gradients of parameters that all lanes share: add up the lanes and begin again.
template <class A>
void flush(const Call& call, Vec<A>* sums, Vec<A>* mix_sums, A* dmasks, A* dmixes) {
  const int64_t taps = call.taps();
  for (int64_t d = 0; call.want_weight && d < call.plan.weights; ++d) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      dmasks[d * call.dweight.row + tap * call.dweight.tap] += A(sum<A>(sums[d * taps + tap]));
      sums[d * taps + tap] = Vec<A>{};
    }
  }
  for (int64_t m = 0; call.want_mix && m < call.plan.mixes; ++m) {
    dmixes[m * call.dmix.row] += A(sum<A>(mix_sums[m]));
    mix_sums[m] = Vec<A>{};
  }
}

#include "planes.h"
#include "channels.h"

// The paper's pools have code of their own; everything else is general.
template <class F>
void with_program(const Plan& plan, F f) {
  auto is = [&](auto program) { return decltype(program)::matches(plan) && (f(program), true); };
  if (is(Known<FIXED, MAX, AVG>{}) || is(Known<MIX, MAX, AVG>{}) || is(Known<GATE, MAX, AVG>{}) || is(Known<FILTER>{}) ||
      is(Known<GATE, FILTER, FILTER>{}) || is(Known<GATE, GATE, GATE, FILTER, FILTER, FILTER, FILTER>{})) {
    return;
  }
  f(Any{});
}

template <class T, bool BACKWARD>
void run(const Call& call, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  const bool per_lane = call.channels_last ? call.weight.channel != 0 || call.mix.channel != 0
                                           : call.weight.place != 0 || call.mix.place != 0;
  if (call.channels_last) {
    if (per_lane) return images<T, Any, BACKWARD, true>(call, begin, end);
    if constexpr (std::is_same_v<A, double>) return images<T, Any, BACKWARD, false>(call, begin, end);
    else return with_program(call.plan, [&](auto program) { images<T, decltype(program), BACKWARD, false>(call, begin, end); });
  }
  Plane<A> plane(call);
  Steps<A> fast = steps<A, Any, BACKWARD, -1, true, true>(), careful = steps<A, Any, BACKWARD, -1, true, false>();
  if (!per_lane) {
    fast = steps<A, Any, BACKWARD, -1, false, true>();
    careful = steps<A, Any, BACKWARD, -1, false, false>();
    if constexpr (!std::is_same_v<A, double>) {
      with_program(call.plan, [&](auto program) {
        using P = decltype(program);
        if constexpr (P::known) {
          // Straight code is for the whole window: the layout says how many of its taps there are.
          const bool whole = plane.layout.taps == call.taps();
          if (whole && call.taps() == 9) fast = steps<A, P, BACKWARD, 9, false, true>();
          else if (whole && call.taps() == 4) fast = steps<A, P, BACKWARD, 4, false, true>();
          else fast = steps<A, P, BACKWARD, -1, false, true>();
        }
      });
    }
  }
  planes<T, BACKWARD>(plane, fast, careful, begin, end);
}

template <bool BACKWARD>
void run(const Call& call, int64_t begin, int64_t end) {
  switch (call.type) {
    case Type::Float: return run<float, BACKWARD>(call, begin, end);
    case Type::Double: return run<double, BACKWARD>(call, begin, end);
    case Type::Half: return run<Half, BACKWARD>(call, begin, end);
    case Type::BFloat16: return run<BFloat16, BACKWARD>(call, begin, end);
  }
}
