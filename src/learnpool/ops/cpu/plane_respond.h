// Contiguous input: from the cells of a run of outputs to their responses.
#pragma once

#include "headers.h"
#include "isa.h"
#include "layout.h"
#include "plane.h"
#include "responses.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// The taps of a vector of outputs. EDGE: some outputs or cells do not exist.
template <class U, class A, bool PER_LANE, bool EDGE>
struct BlockTaps {
  const Plane<A>& plane;
  int64_t at, row;   // first output; row of weight, or -1
  const A* derived;  // of the first cell of the plane

  INLINE int64_t size() const { return plane.layout.taps; }
  INLINE Cell<A> cell(int64_t i) const {
    const int64_t shift = at + plane.layout.shift[i], number = plane.layout.number[i];
    Cell<A> cell;
    cell.x = load<Vec<A>>(plane.x + shift);
    if constexpr (EDGE) cell.lacks = load<Mask<A>>(plane.layout.outside + shift);
    for (int k = 0; k < U::DERIVED; ++k) cell.derived[k] = load<Vec<A>>(derived + k * plane.derived_step + shift);
    cell.tap = Lane<A>(number);
    if (row < 0) return cell;
    const Parameter& strides = plane.call.memory.weight;
    if constexpr (PER_LANE) cell.w = load<Vec<A>>(plane.weight + row * strides.row + number * strides.tap + at);
    else cell.w = broadcast<A>(plane.dense[row * plane.call.pool.taps() + number]);
    return cell;
  }
};

template <class U, bool PER_LANE, bool EDGE, class A>
INLINE Vec<A> respond_block(const Plane<A>& plane, const Response& response, int64_t r, const Block<A>& block) {
  using V = Vec<A>;
  const Responses<A>& responses = plane.responses;
  const int64_t at = block.at;
  Region<A> region = plane.describe_region(response, at);
  if constexpr (EDGE) region.first = block.edge->first;
  if constexpr (U::SAMPLED) {
    region.sample =
        to_uniform<A>(hash<Bits<A>>(load<Bits<A>>(plane.order + at), plane.key.low - Bits<A>{}, plane.key.high - Bits<A>{}));
  }
  const Mask<A> live = load<Mask<A>>(responses.live + at);
  const SlotsAt<A, EDGE> slots{responses.slot(r) + at, responses.size, live};
  region.tap_slots = responses.template tap_slots<U>(r, at);
  if constexpr (U::OWN_WEIGHTS) plane.describe_weights(response.weight, at, region);
  U unit = make_unit<U>(region);
  add_taps<EDGE>(
      unit,
      BlockTaps<U, A, PER_LANE, EDGE>{plane, at, response.weight, plane.derived_cells + plane.derived[r] * plane.derived_step},
      region);
  const V witness = unit.finish(region, slots);
  return EDGE ? (V)((Mask<A>)witness & live) : witness;
}

// One response of a run, whatever its kind.
template <class A>
template <class U, bool PER_LANE>
void Plane<A>::respond_alone(const Plane& plane, const Pass<Plane>& pass, const Run& run, Vec<A>& finite) {
  const Response& response = plane.call.pool.program.responses[pass.response];
  for (int64_t b = run.begin; b < run.end; ++b) {
    const Block<A>& block = plane.layout.blocks[b];
    if (pass.is_first) plane.prefetch(b);
    if (block.edge == nullptr) finite += respond_block<U, PER_LANE, false>(plane, response, pass.response, block) * A(0);
    else finite += respond_block<U, PER_LANE, true>(plane, response, pass.response, block) * A(0);
  }
}

// Which cells may lack: none, those of the first column of a window of three, any.
enum class Lacking { None, Left, Any };

// Maximum, mean and DOTS inner products of two vectors of outputs, for finite numbers.
template <int TAPS, Lacking LACKING, bool STATISTICS, int DOTS, bool BACKWARD, class A>
INLINE void respond_pair(const Plane<A>& plane, const Pass<Plane<A>>& pass, const Block<A>* const (&blocks)[2], Vec<A>& finite) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const int64_t taps = TAPS > 0 ? TAPS : layout.taps, all_taps = TAPS > 0 ? TAPS : plane.call.pool.taps();
  const A* weights = plane.dot_weights + pass.dot * all_taps;
  Max<A, false> max[2];
  Dot<A, false> dots[2][DOTS > 0 ? DOTS : 1];
#pragma GCC unroll 9
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t number = TAPS > 0 ? t : layout.number[t], shift = layout.shift[t];
    const bool may_lack = LACKING == Lacking::Any || (LACKING == Lacking::Left && t % 3 == 0);
    Cell<A> cell[2];
    for (int g = 0; g < 2; ++g) {
      cell[g].x = load<V>(plane.x + blocks[g]->at + shift);
      cell[g].tap = Lane<A>(number);
      if constexpr (STATISTICS) {
        if (may_lack) {
          cell[g].lacks = load<M>(layout.outside + blocks[g]->at + shift);
          max[g].template add<0, true>(cell[g]);
        } else {
          max[g].template add<0, false>(cell[g]);
        }
      }
    }
    for (int d = 0; d < DOTS; ++d) {
      const V w = broadcast<A>(weights[d * all_taps + number]);
      for (int g = 0; g < 2; ++g) {
        cell[g].w = w;
        dots[g][d].template add<0, false>(cell[g]);
      }
    }
  }
  for (int g = 0; g < 2; ++g) {
    const int64_t at = blocks[g]->at;
    if constexpr (STATISTICS) {
      const M live = LACKING == Lacking::None ? ~M{} : blocks[g]->edge->live;
      const V divisor = LACKING == Lacking::None ? broadcast<A>(A(all_taps)) : blocks[g]->edge->divisor;
      auto if_live = [&](V v) ALWAYS_INLINE -> V { return LACKING == Lacking::None ? v : (V)((M)v & live); };
      if (pass.max != nullptr) store(pass.max + at, if_live(max[g].best));
      if (BACKWARD && pass.winner != nullptr) store(pass.winner + at, (V)max[g].winner);
      if (pass.mean != nullptr) store(pass.mean + at, max[g].total / divisor);
      finite += max[g].total * A(0);
    } else {
      finite += dots[g][0].total * A(0);
    }
    for (int d = 0; d < DOTS; ++d) store(plane.to_dot + (pass.dot + d) * plane.responses.size + at, dots[g][d].total);
  }
}

template <int TAPS, Lacking LACKING, bool STATISTICS, int DOTS, bool BACKWARD, class A>
INLINE void respond_pairs(const Plane<A>& plane, const Pass<Plane<A>>& pass, int64_t begin, int64_t end, Vec<A>& finite) {
  const Block<A>* blocks = plane.layout.sorted;
  for (int64_t b = begin; b < end; b += 2) {
    const int64_t other = std::min(b + 1, end - 1);  // an odd one is its own neighbour
    if (pass.is_first) plane.prefetch(b);
    const Block<A>* const pair[2] = {blocks + b, blocks + other};
    respond_pair<TAPS, LACKING, STATISTICS, DOTS, BACKWARD>(plane, pass, pair, finite);
    if (pass.is_first && other != b) plane.prefetch(other);
  }
}

// Extremes, mean and inner products of a run together, for finite numbers and weights that all lanes share.
template <class A>
struct PlaneGroup {
  template <int TAPS, bool STATISTICS, int DOTS, bool BACKWARD>
  static void respond(const Plane<A>& plane, const Pass<Plane<A>>& pass, const Run& run, Vec<A>& all_finite) {
    Vec<A> finite{};
    if constexpr (!STATISTICS) {  // cells that lack are zeros
      respond_pairs<TAPS, Lacking::None, false, DOTS, BACKWARD>(plane, pass, run.begin, run.end, finite);
    } else {
      const int64_t whole = run.begin + run.whole, left = whole + (TAPS == 9 ? run.left : 0);
      respond_pairs<TAPS, Lacking::None, true, DOTS, BACKWARD>(plane, pass, run.begin, whole, finite);
      if constexpr (TAPS == 9) respond_pairs<TAPS, Lacking::Left, true, DOTS, BACKWARD>(plane, pass, whole, left, finite);
      respond_pairs<TAPS, Lacking::Any, true, DOTS, BACKWARD>(plane, pass, left, run.end, finite);
    }
    all_finite += finite;
  }
};

template <class A>
auto Plane<A>::choose_group(const Plane& plane, bool statistics, int64_t dots)
    -> void (*)(const Plane&, const Pass<Plane>&, const Run&, Vec<A>&) {
  // Straight code is for the whole window: the layout says how many of its taps there are.
  const int64_t window = plane.call.pool.taps();
  const bool backward = plane.call.pool.backward;
  if constexpr (sizeof(A) == 4) {
    if (plane.layout.taps == window && window == 9)
      return LEARNPOOL_ISA::choose_group<PlaneGroup<A>, 9>(statistics, dots, backward);
    if (plane.layout.taps == window && window == 4)
      return LEARNPOOL_ISA::choose_group<PlaneGroup<A>, 4>(statistics, dots, backward);
  }
  return LEARNPOOL_ISA::choose_group<PlaneGroup<A>, -1>(statistics, dots, backward);
}

}  // namespace learnpool::LEARNPOOL_ISA
