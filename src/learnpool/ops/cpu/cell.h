// What a kind of response sees of a vector of regions, and where it keeps its numbers.
#pragma once

#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// The cells under one tap.
template <class A>
struct Cell {
  Vec<A> x;
  Mask<A> lacks;  // the bits of -inf where there is no cell, else 0
  Vec<A> w;
  Lane<A> tap;

  // v where there is a cell, else 0.
  template <bool LACKS>
  INLINE Vec<A> keep(Vec<A> v) const {
    return LACKS ? (Vec<A>)((Mask<A>)v & (lacks == 0)) : v;
  }
  // Where `wins` and there is a cell.
  template <bool LACKS>
  INLINE Mask<A> take(Mask<A> wins) const {
    return LACKS ? wins & (lacks == 0) : wins;
  }
};

// A vector of regions, beside their cells.
template <class A>
struct Region {
  Vec<A> n, divisor;  // cells that exist; what an average divides by
  Vec<A> theta;
  Vec<A> sample;  // uniform random numbers
  Mask<A> first;  // number of the first tap that exists, -1 if none does
  // The row of weight, for kinds that do not see it tap by tap.
  int64_t taps = 0;            // of the window
  const A* weights = nullptr;  // of the first lane
  int64_t step = 0;            // from tap to tap
  bool per_lane = false;       // every lane has its own
  bool backward = false;

  INLINE Vec<A> weight(int64_t k) const { return per_lane ? load<Vec<A>>(weights + k * step) : broadcast<A>(weights[k * step]); }
  INLINE A weight(int64_t k, int64_t lane) const { return weights[k * step + (per_lane ? lane : 0)]; }
};

// The slots of a vector of regions, in memory. MASKED: regions that are not live have zeros in them.
template <class A, bool MASKED>
struct SlotsAt {
  A* first;
  int64_t size;  // from one slot to the next
  Mask<A> live;

  INLINE Vec<A> load(int64_t s) const { return LEARNPOOL_ISA::load<Vec<A>>(first + s * size); }
  INLINE void store(int64_t s, Vec<A> v) const { LEARNPOOL_ISA::store(first + s * size, MASKED ? (Vec<A>)((Mask<A>)v & live) : v); }
};

// Whether a unit needs random numbers; whether it treats weights in its own way.
template <class U>
constexpr bool NEEDS_SAMPLE = false;
template <class U>
constexpr bool HAS_OWN_WEIGHTS = false;

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
