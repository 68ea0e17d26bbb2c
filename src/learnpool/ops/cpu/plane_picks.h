// Stochastic pooling of contiguous input: what planes.h does with a band whose cells are in scratch.
#pragma once

#include "headers.h"
#include "isa.h"
#include "plane.h"
#include "stochastic.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// The taps of a vector of outputs. COUNT: how many, if known (else -1); EDGE: some outputs or cells do not exist.
template <class A, int COUNT, bool EDGE>
struct BlockTaps {
  static constexpr int KNOWN = COUNT;
  const Plane<A>& plane;
  const Block<A>& block;

  INLINE int64_t size() const { return COUNT > 0 ? COUNT : plane.layout.taps; }
  INLINE int64_t number(int64_t i) const { return COUNT > 0 ? i : plane.layout.number[i]; }
  INLINE Vec<A> cell(int64_t i) const { return load<Vec<A>>(plane.x + block.at + plane.layout.shift[i]); }
  INLINE Mask<A> exists(int64_t i) const {
    if constexpr (EDGE) return load<Mask<A>>(plane.layout.outside + block.at + plane.layout.shift[i]) == 0;
    else return ~Mask<A>{};
  }
  INLINE Vec<A> count() const { return EDGE ? block.edge->count : broadcast<A>(A(plane.call.pool.taps())); }
};

// One vector of outputs: its values, or what a cell's gradient is made of.
template <Rule RULE, bool BACKWARD, class A, class Taps>
INLINE void pick_block(const Plane<A>& plane, const Taps& taps, Mask<A> live) {
  using V = Vec<A>;
  using M = Mask<A>;
  const int64_t at = taps.block.at;
  const ResponseGrads<A>& grads = plane.grads;
  auto if_live = [&](V v) ALWAYS_INLINE -> V { return (V)((M)v & live); };
  Picks<A> picks;
  if constexpr (RULE == Rule::Pick) {
    const Bits<A> bits = hash<Bits<A>>(load<Bits<A>>(plane.order + at), plane.key.low - Bits<A>{}, plane.key.high - Bits<A>{});
    picks = pick_cells<A>(taps, to_uniform<A>(bits));
  } else {
    picks = expect_cells<A>(taps);
  }
  if constexpr (!BACKWARD) {
    store(plane.outputs + at, picks.value);
  } else if constexpr (RULE == Rule::Pick) {
    store(grads.to_max + at, if_live(load<V>(plane.outputs + at)));
    store(grads.winner + at, picks.winner);
  } else {
    const ExpectedGrad<A> grad(picks, load<V>(plane.outputs + at));
    store(grads.to_mean + at, if_live(grad.flat));
    store(grads.to_max + at, if_live(grad.slope));
    store(grads.to_dot + at, if_live(grad.offset));
  }
}

template <class A, Rule RULE, bool BACKWARD, int TAPS>
bool pick_band(Plane<A>& plane, const Band& band) {
  for (int64_t b = band.begin; b < band.end; ++b) {
    const Block<A>& block = plane.layout.blocks[b];
    plane.template prefetch<BACKWARD>(b);
    if (block.edge != nullptr) pick_block<RULE, BACKWARD>(plane, BlockTaps<A, TAPS, true>{plane, block}, block.edge->live);
    else pick_block<RULE, BACKWARD>(plane, BlockTaps<A, TAPS, false>{plane, block}, ~Mask<A>{});
  }
  return true;
}

// The gradients of cells of map m, at the positions of a band.
template <Rule RULE, class A>
INLINE void gather_pick_grad(const Plane<A>& plane, int64_t m, const Band& band) {
  using V = Vec<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const ResponseGrads<A>& grads = plane.grads;
  const int64_t end = std::min(band.to, layout.end[m]);
  for (int64_t i = band.from; i < end; i += LANES<A>) {
    V received{};
    ExpectedGrad<A> sum{};
    for (int64_t j = layout.begin[m]; j < layout.begin[m + 1]; ++j) {
      const int64_t t = layout.readers[j], at = i - layout.back[t];
      if constexpr (RULE == Rule::Pick) {
        received += load<Mask<A>>(grads.winner + at) == Lane<A>(layout.number[t]) ? load<V>(grads.to_max + at) : V{};
      } else {
        sum.flat += load<V>(grads.to_mean + at);
        sum.slope += load<V>(grads.to_max + at);
        sum.offset += load<V>(grads.to_dot + at);
      }
    }
    if constexpr (RULE == Rule::Expect) received = sum.at(load<V>(plane.x + m * layout.map + i));
    store(plane.gradients + m * layout.map + i, received);
  }
}

template <class A, Rule RULE>
void compute_pick_grads(Plane<A>& plane, const Band& band) {
  for (int64_t m = 0; m < plane.layout.maps; ++m) gather_pick_grad<RULE>(plane, m, band);
}

template <class A, Rule RULE, bool BACKWARD, int TAPS>
constexpr Steps<A> make_pick_steps() {
  if constexpr (BACKWARD) return {pick_band<A, RULE, true, TAPS>, false, compute_pick_grads<A, RULE>};
  else return {pick_band<A, RULE, false, TAPS>, false, nullptr};
}

template <class A, Rule RULE, bool BACKWARD>
Steps<A> choose_pick_steps(const Plane<A>& plane) {
  const int64_t window = plane.call.pool.taps();
  if (plane.layout.taps == window && window == 9) return make_pick_steps<A, RULE, BACKWARD, 9>();
  if (plane.layout.taps == window && window == 4) return make_pick_steps<A, RULE, BACKWARD, 4>();
  return make_pick_steps<A, RULE, BACKWARD, -1>();
}

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
