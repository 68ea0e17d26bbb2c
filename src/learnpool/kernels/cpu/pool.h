// How a region becomes its responses, its value and its gradient: the reference, with a vector of regions at a time.
//
// Contiguous input: a vector is neighbouring outputs of a row. Each input row is copied once into scratch, split by
// stride phase (for stride 2: even cells, odd cells) with zeros for the padding, so that every tap of every output vector
// is one contiguous load. Gradients collect in rows of the same shape and are merged once at the end.
// channels_last input: a vector is neighbouring channels of one output; every tap is a contiguous load as it is.
//
// Names are the reference's: respond, evaluate, and what reaches each response on the way back.
// Included once per instruction set, inside its namespace.

// The few numbers a tree needs to know of a vector of regions, and the tree's own values.
template <class A>
struct Region {
  using V = Vec<A>;
  V maximum, mean, count;
  V* dots;         // [D]
  V* values;       // [nodes]
  V* proportions;  // [nodes]
  V* reaching;     // [nodes]
  V* to_dot;       // [D]
  V* to_mix;       // [M]
  V to_max, to_mean;
};

// p left + (1 - p) right; a proportion of exactly 1 or 0 does not read the other side.
template <class A>
INLINE Vec<A> blend(Vec<A> p, Vec<A> left, Vec<A> right) {
  const Vec<A> both = p * left + (A(1) - p) * right;
  return p == A(1) ? left : (p == A(0) ? right : both);
}

// The value of every node, from the back of the program to its root. mix(row) gives a learned proportion.
template <class A, class Mixes>
INLINE Vec<A> evaluate(const Plan& plan, Region<A>& region, Mixes mix) {
  for (int64_t i = int64_t(plan.nodes.size()) - 1; i >= 0; --i) {
    const Node& node = plan.nodes[i];
    if (node.code == MAX) {
      region.values[i] = region.maximum;
    } else if (node.code == AVG) {
      region.values[i] = region.mean;
    } else if (node.code == FILTER) {
      region.values[i] = region.dots[node.parameter];
    } else {
      Vec<A> p;
      if (node.code == GATE) p = sigmoid<A>(region.dots[node.parameter]);
      else if (node.code == FIXED) p = all<A>(A(node.a));
      else p = mix(node.parameter);
      region.proportions[i] = p;
      region.values[i] = blend<A>(p, region.values[node.left], region.values[node.right]);
    }
  }
  return region.values[0];
}

// Down the tree: what of delta reaches each response.
template <class A>
INLINE void descend(const Plan& plan, Region<A>& region, Vec<A> delta) {
  using V = Vec<A>;
  const V zero{};
  region.to_max = region.to_mean = zero;
  region.reaching[0] = delta;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const Node& node = plan.nodes[i];
    const V reached = region.reaching[i];
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
  region.to_mean = region.to_mean / region.count;
}

// v wins a maximum so far: it is larger, or NaN, which always wins.
template <class A>
INLINE Mask<A> wins(Vec<A> v, Vec<A> best) {
  return (v > best) | (v != v);
}

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

template <class A>
Region<A> make_region(const Plan& plan, Scratch& scratch) {
  Region<A> region{};
  const int64_t nodes = int64_t(plan.nodes.size());
  region.dots = scratch.take<Vec<A>>(plan.weights);
  region.values = scratch.take<Vec<A>>(nodes);
  region.proportions = scratch.take<Vec<A>>(nodes);
  region.reaching = scratch.take<Vec<A>>(nodes);
  region.to_dot = scratch.take<Vec<A>>(plan.weights);
  region.to_mix = scratch.take<Vec<A>>(plan.mixes);
  return region;
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

#include "rows.h"
#include "channels.h"

template <bool BACKWARD>
void run(const Call& call, int64_t begin, int64_t end) {
  auto go = [&](auto element) {
    using T = decltype(element);
    if (call.channels_last) run_channels<T, BACKWARD>(call, begin, end);
    else run_rows<T, BACKWARD>(call, begin, end);
  };
  switch (call.type) {
    case Type::Float: return go(float{});
    case Type::Double: return go(double{});
    case Type::Half: return go(Half{});
    case Type::BFloat16: return go(BFloat16{});
  }
}
