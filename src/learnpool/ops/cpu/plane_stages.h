// Contiguous input, for ordinary numbers and trees known to the compiler: the vectors of a band in stages, as in channel_stages.h.
#pragma once

#include "headers.h"
#include "isa.h"
#include "layout.h"
#include "plane.h"
#include "tree.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// Which cells may lack: none, those of the first column of a window of three, any.
enum class Lacking { None, Left, Any };

// Maximum, sum and inner products of GROUP vectors of outputs, these with COUNT rows of weight from row FROM on, into the places of
// their gradients. For ordinary numbers.
template <int TAPS, int GROUP, Lacking LACKING, bool BACKWARD, class P, int FROM, int COUNT, class A>
INLINE void respond_together(const Plane<A>& plane, const Block<A>* blocks) {
  using V = Vec<A>;
  using M = Mask<A>;
  constexpr bool STATISTICS = P::statistics && FROM == 0;
  const PlaneLayout<A>& layout = plane.layout;
  const ResponseGrads<A>& grads = plane.grads;
  const int64_t taps = TAPS > 0 ? TAPS : layout.taps, all_taps = TAPS > 0 ? TAPS : plane.call.pool.taps();
  V z[GROUP][COUNT > 0 ? COUNT : 1] = {}, best[GROUP], total[GROUP] = {};
  M winner[GROUP] = {};
  for (int g = 0; g < GROUP; ++g) best[g] = broadcast<A>(-std::numeric_limits<A>::infinity());
#pragma GCC unroll 9
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t number = TAPS > 0 ? t : layout.number[t], shift = layout.shift[t];
    const bool may_lack = LACKING == Lacking::Any || (LACKING == Lacking::Left && (TAPS != 9 || t % 3 == 0));
    V v[GROUP];
    for (int g = 0; g < GROUP; ++g) {
      v[g] = load<V>(plane.x + blocks[g].at + shift);
      if constexpr (STATISTICS) {
        V seen = v[g];
        if (may_lack) seen = (V)((M)seen | load<M>(layout.outside + blocks[g].at + shift));
        if constexpr (BACKWARD) winner[g] = seen > best[g] ? M{} + Lane<A>(number) : winner[g];
        best[g] = larger(seen, best[g]);
        total[g] += v[g];
      }
    }
    for (int d = 0; d < COUNT; ++d) {
      const V w = broadcast<A>(plane.dense[(FROM + d) * all_taps + number]);
      for (int g = 0; g < GROUP; ++g) z[g][d] += w * v[g];
    }
  }
  for (int g = 0; g < GROUP; ++g) {
    const int64_t at = blocks[g].at;
    if constexpr (STATISTICS) {
      store(grads.to_max + at, best[g]);
      store(grads.to_mean + at, total[g]);
      if constexpr (BACKWARD) store(grads.winner + at, winner[g]);
    }
    for (int d = 0; d < COUNT; ++d) store(grads.to_dot + (FROM + d) * grads.size + at, z[g][d]);
  }
}

// The same for `count` vectors.
template <int TAPS, Lacking LACKING, bool BACKWARD, class P, int FROM, class A>
INLINE void respond_in_groups(const Plane<A>& plane, const Block<A>* blocks, int64_t count) {
  constexpr int COUNT = std::min(SUMMED_ROWS, P::weights - FROM);
  int64_t b = 0;
  for (; b + 2 <= count; b += 2) respond_together<TAPS, 2, LACKING, BACKWARD, P, FROM, COUNT>(plane, blocks + b);
  if (b < count) respond_together<TAPS, 1, LACKING, BACKWARD, P, FROM, COUNT>(plane, blocks + b);
  if constexpr (FROM + COUNT < P::weights) respond_in_groups<TAPS, LACKING, BACKWARD, P, FROM + COUNT>(plane, blocks, count);
}

// One vector of outputs whose responses are known: its value, or what reaches its responses, in place. `finite` becomes NaN if any
// of it is not finite.
template <class P, bool BACKWARD, class A>
INLINE void evaluate_block(const Plane<A>& plane, const Block<A>& block, Vec<A> taps, Vec<A>* mix_sums, Vec<A>& finite) {
  using V = Vec<A>;
  using M = Mask<A>;
  const Pooling& pool = plane.call.pool;
  const ResponseGrads<A>& grads = plane.grads;
  const int64_t at = block.at;
  Region<A, P> region;
  region.count = block.edge == nullptr ? taps : block.edge->count;
  if constexpr (P::statistics) {
    region.maximum = load<V>(grads.to_max + at);
    region.mean = load<V>(grads.to_mean + at) / region.count;
  }
  for (int d = 0; d < P::weights; ++d) region.dots[d] = load<V>(grads.to_dot + d * grads.size + at);
  auto mix = [&](int64_t m) ALWAYS_INLINE -> V { return broadcast<A>(plane.mix[m * plane.call.memory.mix.row]); };
  const V value = evaluate_in_stages(pool.program, region, mix);
  const M live = block.edge == nullptr ? ~M{} : block.edge->live;
  V all{};
  auto keep = [&](V v) ALWAYS_INLINE -> V {
    v = (V)((M)v & live);
    all += v;
    return v;
  };
  if constexpr (!BACKWARD) {
    store(plane.outputs + at, keep(value));
  } else {
    backpropagate<true>(pool.program, region, load<V>(plane.outputs + at));
    if constexpr (P::statistics) {
      store(grads.to_max + at, keep(region.to_max));
      store(grads.to_mean + at, keep(region.to_mean));
    }
    for (int d = 0; d < P::weights; ++d) store(grads.to_dot + d * grads.size + at, keep(region.to_dot[d]));
    for (int m = 0; m < P::mixes; ++m) mix_sums[m] += keep(region.to_mix[m]);
  }
  // A proportion of exactly 0 or 1 hides its other side from the value. Backward, where there is no output nothing reaches the
  // cells, but they are multiplied by that. The last row of weight is a filter's; a gate's product may be a proportion by now.
  if constexpr (P::statistics) all += region.mean;
  else all += region.dots[P::weights - 1];
  finite += all * A(0);
}

// All vectors of a band, for a known tree: first all responses, then all trees, as in channel_stages.h. Returns false if a result
// is infinite or NaN: then all of it has to be done again, carefully.
template <class A, class P, bool BACKWARD, int TAPS>
bool pool_band_in_stages(Plane<A>& plane, const Band& band) {
  using V = Vec<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const V taps = broadcast<A>(A(plane.call.pool.taps()));
  V finite{}, mix_sums[P::mixes > 0 ? P::mixes : 1] = {};
  for (int64_t begin = band.begin; begin < band.end; begin += BAND) {
    const int64_t end = std::min(begin + BAND, band.end);
    const auto& [whole, left] = layout.order[begin / BAND];
    const Block<A>* blocks = layout.sorted + begin;
    respond_in_groups<TAPS, Lacking::None, BACKWARD, P, 0>(plane, blocks, whole);
    respond_in_groups<TAPS, Lacking::Left, BACKWARD, P, 0>(plane, blocks + whole, left);
    respond_in_groups<TAPS, Lacking::Any, BACKWARD, P, 0>(plane, blocks + whole + left, end - begin - whole - left);
    for_each_early_gate<P>([&](int64_t row) ALWAYS_INLINE {
      A* z = plane.grads.to_dot + row * plane.grads.size;
      for (int64_t b = begin; b < end; ++b) store(z + layout.blocks[b].at, sigmoid<A>(load<V>(z + layout.blocks[b].at)));
    });
    for (int64_t b = begin; b < end; ++b) {
      plane.template prefetch<BACKWARD>(b);
      evaluate_block<P, BACKWARD>(plane, layout.blocks[b], taps, mix_sums, finite);
    }
  }
  if (has_nan<A>(finite)) return false;
  for (int m = 0; BACKWARD && plane.call.pool.mix_grad && m < P::mixes; ++m) plane.sums.mix[m] += mix_sums[m];
  return true;
}

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
