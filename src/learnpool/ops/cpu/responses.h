// The kinds of responses: every number that is read from a region, with its gradients. The twin of responses.py.
//
// A unit is one kind. It sees the cells of a vector of regions tap by tap:
//   PASSES                    how often it has to see the taps
//   SLOTS                     numbers kept for each region; slot 0 is the response, after send() what gather needs
//   TAP_SLOTS                 numbers kept for each of its taps, behind these, in backward alone
//   begin<PASS>, add<PASS, LACKS>   LACKS: some of the cells may not exist; x is then 0
//   finish(region, slots)     writes the slots; returns a number that is infinite or NaN where a unit that is not CAREFUL is wrong
//   send(c, region, slots)    from c, what reaches the response, to what its cells need; returns the gradient of theta
//   receive(slots, cell)      what one cell gets
//   DERIVED, derive(x, theta, to)   numbers of a cell that do not depend on the region, computed once; the first is 0 of no cell
// theta is the learned number of a unit, w the weight of a tap, n the cells of a region that exist. A unit that is not CAREFUL may
// assume that all numbers are finite. DOT: a cell gets c w, which is gathered together with the others of this sort.
#pragma once

#include "means.h"
#include "rank.h"
#include "stochastic.h"

namespace learnpool::LEARNPOOL_ISA {

// y = max x. The first maximum receives the gradient; NaN wins, the last of several.
template <class A, bool CAREFUL>
struct Max : Winner<A> {
  static constexpr bool PLAIN = true;
  Vec<A> best, total;

  INLINE Max() : best(broadcast<A>(-std::numeric_limits<A>::infinity())), total{} {
    if (CAREFUL) this->winner = Mask<A>{} - 1;  // of a region without a cell
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    const Vec<A> seen = LACKS ? (Vec<A>)((Mask<A>)cell.x | cell.lacks) : cell.x;
    Mask<A> won = seen > best;
    if constexpr (CAREFUL) won = cell.template take<LACKS>(won | (seen != seen) | (this->winner < 0));
    this->winner = won ? Mask<A>{} + cell.tap : this->winner;
    if constexpr (CAREFUL) best = won ? seen : best;
    else best = larger(seen, best);
    total += cell.x;
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    this->store_winner(best, slots);
    return total;
  }
};

// y = min x: minus the maximum of -x.
template <class A, bool CAREFUL>
struct Min : Max<A, CAREFUL> {
  INLINE Min() {}
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    Max<A, CAREFUL>::template add<PASS, LACKS>({-cell.x, cell.lacks, cell.w, cell.tap});
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    this->store_winner(-this->best, slots);
    return this->total;
  }
};

// y = the mean of x.
template <class A, bool CAREFUL>
struct Avg : Unit<A> {
  Vec<A> total{};

  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    total += cell.x;
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    slots.store(0, total / region.divisor);
    return total;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>& region, const Slots& slots) {
    slots.store(0, c / region.divisor);
    return Vec<A>{};
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>&) {
    return slots.load(0);
  }
};

// y = sum w x: a filter, or a gate's mask.
template <class A, bool CAREFUL>
struct Dot : Unit<A> {
  static constexpr bool DOT = true, PLAIN = true;
  Vec<A> total{};

  // Where there is no cell x is zero, so only a weight that is not finite would show.
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    total += cell.template keep < LACKS && CAREFUL > (cell.w * cell.x);
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    slots.store(0, total);
    return total;
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    return slots.load(0) * cell.w;
  }
};

// y = sum w x / sum w over the cells that exist. The weights are constants.
template <class A, bool CAREFUL>
struct Blur : Dot<A, CAREFUL> {
  static constexpr int SLOTS = 2;
  static constexpr bool PLAIN = false;
  Vec<A> weights{};

  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    Dot<A, CAREFUL>::template add<PASS, LACKS>(cell);
    weights += cell.template keep<LACKS>(cell.w);
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    slots.store(0, this->total / weights);
    slots.store(1, weights);
    return this->total;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    slots.store(0, c / slots.load(1));
    return Vec<A>{};
  }
};

// y = the standard deviation of x: with d = x - the first cell, y^2 = mean d^2 - (mean d)^2. A cell gets c (x - mean) / (n y),
// nothing where all cells are equal.
template <class A, bool CAREFUL>
struct Std : Unit<A> {
  static constexpr int SLOTS = 3;
  Vec<A> star{}, sum{}, squares{};
  Mask<A> found{};

  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    star = found ? star : cell.x;
    found |= cell.template take<LACKS>(~Mask<A>{});
    const Vec<A> d = cell.template keep<LACKS>(cell.x - star);
    sum += d;
    squares += d * d;
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    const Vec<A> mean = sum / region.n, variance = squares / region.n - mean * mean;
    const Vec<A> y = take_root<A>(variance < A(0) ? Vec<A>{} : variance);
    slots.store(0, y);
    slots.store(1, star + mean);
    slots.store(2, y == A(0) ? Vec<A>{} : A(1) / (region.n * y));
    return squares;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    const Vec<A> scale = slots.load(2);
    slots.store(0, scale == A(0) ? Vec<A>{} : c * scale);
    return Vec<A>{};
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    const Vec<A> scale = slots.load(0);
    return scale == A(0) ? Vec<A>{} : scale * (cell.x - slots.load(1));
  }
};

// A unit as an argument, and a new one.
template <class U>
struct UnitType {
  using Unit = U;
};
template <class U, class A>
INLINE U make_unit(const Region<A>& region) {
  if constexpr (U::OWN_WEIGHTS) return U(region);
  else return U();
}

// f(UnitType) with the unit of this kind. In float64 units are always careful: half of them need not be compiled.
template <class A, bool WANTS_CARE, class F>
INLINE auto with_unit(Kind kind, F f) {
  constexpr bool CAREFUL = WANTS_CARE || sizeof(A) == 8;
  switch (kind) {
    case Kind::Max: return f(UnitType<Max<A, CAREFUL>>{});
    case Kind::Min: return f(UnitType<Min<A, CAREFUL>>{});
    case Kind::Avg: return f(UnitType<Avg<A, CAREFUL>>{});
    case Kind::Dot: return f(UnitType<Dot<A, CAREFUL>>{});
    case Kind::Blur: return f(UnitType<Blur<A, CAREFUL>>{});
    case Kind::Std: return f(UnitType<Std<A, CAREFUL>>{});
    case Kind::Soft: return f(UnitType<Soft<A, CAREFUL>>{});
    case Kind::LogSumExp: return f(UnitType<LogSumExp<A, CAREFUL>>{});
    case Kind::Power: return f(UnitType<Power<A, CAREFUL, false>>{});
    case Kind::AbsPower: return f(UnitType<Power<A, CAREFUL, true>>{});
    case Kind::Rank: return f(UnitType<Rank<A, CAREFUL, false>>{});
    case Kind::Median: return f(UnitType<Rank<A, CAREFUL, true>>{});
    case Kind::Pick: return f(UnitType<Pick<A, CAREFUL>>{});
    case Kind::Expect: return f(UnitType<Expect<A, CAREFUL>>{});
  }
  __builtin_unreachable();
}

}  // namespace learnpool::LEARNPOOL_ISA
