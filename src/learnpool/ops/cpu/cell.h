// What a kind of response sees of a vector of regions, and where it keeps its numbers.
#pragma once

#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// The cells under one tap.
template <class A>
struct Cell {
  Vec<A> x;
  Mask<A> lacks;  // the bits of -inf where there is no cell, else 0
  Vec<A> w;
  Lane<A> tap;
  Vec<A> derived[3];  // what the unit derives of x

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

// The slots of taps, for gather; none in forward.
template <class A>
struct TapSlots {
  A* first = nullptr;
  int64_t size = 0;  // from one slot to the next

  INLINE void store(int64_t s, Vec<A> v) const {
    if (first != nullptr) LEARNPOOL_ISA::store(first + s * size, v);
  }
};

// A vector of regions, beside their cells.
template <class A>
struct Region {
  Vec<A> n, divisor;  // cells that exist; what an average divides by
  Vec<A> theta;
  Vec<A> sample;  // uniform random numbers
  TapSlots<A> tap_slots;
  // The row of weight, for kinds that do not see it tap by tap.
  int64_t taps = 0;            // of the window
  const A* weights = nullptr;  // of the first lane
  int64_t step = 0;            // from tap to tap
  bool per_lane = false;       // every lane has its own

  INLINE Vec<A> weight(int64_t k) const { return per_lane ? load<Vec<A>>(weights + k * step) : broadcast<A>(weights[k * step]); }
};

// The slots of a vector of regions, in memory. Regions that are not live have zeros in them.
template <class A>
struct SlotsAt {
  A* first;
  int64_t size;  // from one slot to the next
  Mask<A> live;

  INLINE Vec<A> load(int64_t s) const { return LEARNPOOL_ISA::load<Vec<A>>(first + s * size); }
  INLINE void store(int64_t s, Vec<A> v) const { LEARNPOOL_ISA::store(first + s * size, (Vec<A>)((Mask<A>)v & live)); }
};

// What most units begin with: one pass, one slot, and what reaches the response goes on as it is.
template <class A>
struct Unit {
  static constexpr int PASSES = 1, SLOTS = 1, TAP_SLOTS = 0, DERIVED = 0;
  static constexpr bool DOT = false;          // a cell gets c w
  static constexpr bool PLAIN = false;        // send() only passes on what reaches it
  static constexpr bool OWN_WEIGHTS = false;  // treats weights in its own way
  static constexpr bool SAMPLED = false;      // needs random numbers

  template <int PASS>
  INLINE void begin(const Region<A>&) {}
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    slots.store(0, c);
    return Vec<A>{};
  }
};

// A response that is one of the cells, which gets all that reaches it.
template <class A>
struct Winner : Unit<A> {
  static constexpr int SLOTS = 2;
  Mask<A> winner{};  // its tap

  template <class Slots>
  INLINE void store_winner(Vec<A> value, const Slots& slots) const {
    slots.store(0, value);
    slots.store(1, (Vec<A>)winner);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    return (Mask<A>)slots.load(1) == cell.tap ? slots.load(0) : Vec<A>{};
  }
};

// How many numbers a unit keeps for the taps of a region.
template <class U>
constexpr int64_t count_tap_slots(int64_t taps, bool backward) {
  return backward ? U::TAP_SLOTS * taps : 0;
}

}  // namespace learnpool::LEARNPOOL_ISA
