// The kinds of responses: every number that is read from a region, with its gradients. The twin of responses.py.
//
// A unit is one kind. It sees the cells of a vector of regions tap by tap:
//   PASSES                    how often it has to see the taps
//   SLOTS                     numbers kept for each region; slot 0 is the response, after send() what gather needs
//   begin<PASS>, add<PASS, LACKS>   LACKS: some of the cells may not exist; x is then 0
//   finish(region, slots)     writes the slots; returns a number that is infinite or NaN if any cell is, and the unit is not
//   CAREFUL send(c, region, slots)    from c, what reaches the response, to what its cells need; returns the gradient of theta
//   receive(slots, x, w, tap) what one cell gets
// theta is the learned number of a unit, w the weight of a tap, n the cells of a region that exist. A unit that is not CAREFUL may
// assume that all numbers are finite. DOT: a cell gets c w, which is gathered together with the others of this sort.
#pragma once

#include "cell.h"
#include "exponential.h"
#include "headers.h"
#include "isa.h"
#include "rank.h"
#include "stochastic.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// y = max x. The first maximum receives the gradient; NaN wins, the last of several.
template <class A, bool CAREFUL>
struct Max {
  static constexpr int PASSES = 1, SLOTS = 2;
  static constexpr bool DOT = false;
  Vec<A> best, total;
  Mask<A> winner;

  INLINE Max() : best(broadcast<A>(-std::numeric_limits<A>::infinity())), total{}, winner{} {}
  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    if constexpr (CAREFUL) winner = region.first;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    const Vec<A> seen = LACKS ? (Vec<A>)((Mask<A>)cell.x | cell.lacks) : cell.x;
    const Mask<A> won = CAREFUL ? (seen > best) | (seen != seen) : seen > best;
    winner = won ? Mask<A>{} + cell.tap : winner;
    if constexpr (CAREFUL) best = won ? seen : best;
    else best = larger(seen, best);
    total += cell.x;
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    slots.store(0, best);
    slots.store(1, (Vec<A>)winner);
    return total;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    slots.store(0, c);
    return Vec<A>{};
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A>, Vec<A>, Lane<A> tap) {
    return (Mask<A>)slots.load(1) == tap ? slots.load(0) : Vec<A>{};
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
    slots.store(0, -this->best);
    slots.store(1, (Vec<A>)this->winner);
    return this->total;
  }
};

// y = the mean of x.
template <class A, bool CAREFUL>
struct Avg {
  static constexpr int PASSES = 1, SLOTS = 1;
  static constexpr bool DOT = false;
  Vec<A> total{};

  template <int PASS>
  INLINE void begin(const Region<A>&) {}
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
  static INLINE Vec<A> receive(const Slots& slots, Vec<A>, Vec<A>, Lane<A>) {
    return slots.load(0);
  }
};

// y = sum w x: a filter, or a gate's mask.
template <class A, bool CAREFUL>
struct Dot {
  static constexpr int PASSES = 1, SLOTS = 1;
  static constexpr bool DOT = true;
  Vec<A> total{};

  template <int PASS>
  INLINE void begin(const Region<A>&) {}
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
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    slots.store(0, c);
    return Vec<A>{};
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A>, Vec<A> w, Lane<A>) {
    return slots.load(0) * w;
  }
};

// y = sum w x / sum w over the cells that exist. The weights are constants.
template <class A, bool CAREFUL>
struct Blur : Dot<A, CAREFUL> {
  static constexpr int SLOTS = 2;
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
struct Std {
  static constexpr int PASSES = 1, SLOTS = 3;
  static constexpr bool DOT = false;
  Vec<A> star{}, sum{}, squares{};
  Mask<A> found{};

  template <int PASS>
  INLINE void begin(const Region<A>&) {}
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
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A>) {
    const Vec<A> scale = slots.load(0);
    return scale == A(0) ? Vec<A>{} : scale * (x - slots.load(1));
  }
};

// What Soft and LogSumExp share: x* with the largest theta x, d = x - x*, e = exp(theta d), and sums of e, e d and e d^2. A cell
// whose e is 0 counts for nothing, be it -inf.
template <class A, bool CAREFUL>
struct Exponentials {
  static constexpr int PASSES = 2;
  static constexpr bool DOT = false;
  Vec<A> theta, star, key, e0, e1, e2;
  Mask<A> found;

  INLINE Exponentials() : theta{}, star{}, key(broadcast<A>(-std::numeric_limits<A>::infinity())), e0{}, e1{}, e2{}, found{} {}
  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    theta = region.theta;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    if constexpr (PASS == 0) {
      const Vec<A> product = theta * cell.x;
      Mask<A> wins = product > key;
      if constexpr (CAREFUL) wins |= (product != product) | ~found;
      wins = cell.template take<LACKS>(wins);
      if constexpr (CAREFUL) found |= wins;
      key = wins ? product : key;
      star = wins ? cell.x : star;
    } else {
      Vec<A> d = cell.x - star;
      const Vec<A> e = cell.template keep<LACKS>(exponentiate<A>(theta * d));
      if constexpr (CAREFUL) d = e == A(0) ? Vec<A>{} : d;
      e0 += e;
      e1 += e * d;
      e2 += e * d * d;
    }
  }
  // Of a cell, with slots 1: x*, 2: theta.
  template <class Slots>
  static INLINE void weigh(const Slots& slots, Vec<A> x, Vec<A>& d, Vec<A>& e) {
    const Vec<A> theta = slots.load(2);
    d = x - slots.load(1);
    e = exponentiate<A>(theta * d);
    if constexpr (CAREFUL) d = e == A(0) ? Vec<A>{} : d;
  }
};

// y = sum x e / sum e = x* + E[d], E the mean by e. A cell gets c e / sum e (1 + theta (d - E[d])), theta E[d^2] - E[d]^2.
template <class A, bool CAREFUL>
struct Soft : Exponentials<A, CAREFUL> {
  static constexpr int SLOTS = 6;

  INLINE Soft() {}
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    const Vec<A> inverse = A(1) / this->e0, mean = this->e1 * inverse;
    slots.store(0, this->star + mean);
    slots.store(1, this->star);
    slots.store(2, this->theta);
    slots.store(3, inverse);
    slots.store(4, mean);
    slots.store(5, this->e2 * inverse - mean * mean);
    return this->star + mean;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>& region, const Slots& slots) {
    const Vec<A> share = c * slots.load(3);
    slots.store(3, share * (A(1) - region.theta * slots.load(4)));
    slots.store(4, share * region.theta);
    return c * slots.load(5);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A>) {
    Vec<A> d, e;
    Exponentials<A, CAREFUL>::weigh(slots, x, d, e);
    return e * (slots.load(3) + slots.load(4) * d);
  }
};

// y = x* + ln(sum e / n) / theta. A cell gets c e / sum e, theta (E[d] - ln(sum e / n) / theta) / theta.
template <class A, bool CAREFUL>
struct LogSumExp : Exponentials<A, CAREFUL> {
  static constexpr int SLOTS = 5;

  INLINE LogSumExp() {}
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    const Vec<A> log = take_logarithm<A>(this->e0 / region.n) / this->theta, y = this->star + log;
    slots.store(0, y);
    slots.store(1, this->star);
    slots.store(2, this->theta);
    slots.store(3, A(1) / this->e0);
    slots.store(4, (this->e1 / this->e0 - log) / this->theta);
    return y;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    slots.store(3, c * slots.load(3));
    return c * slots.load(4);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A>) {
    Vec<A> d, e;
    Exponentials<A, CAREFUL>::weigh(slots, x, d, e);
    return e * slots.load(3);
  }
};

// y = (mean u^theta)^(1/theta), u = x but at least 1e-6, or |x|: with v = u / max u, s = sum v^theta and t = sum v^theta ln v,
// y = max u (s/n)^(1/theta). A cell gets c (u/y)^(theta-1) / n, nothing below 1e-6; theta (y/theta) (t/s - ln(s/n)/theta).
template <class A, bool CAREFUL, bool ABSOLUTE>
struct Power {
  static constexpr int PASSES = 2, SLOTS = 4;
  static constexpr bool DOT = false;
  static constexpr A LEAST = A(1e-6);
  Vec<A> top, inverse, s, t, theta;

  INLINE Power() : top(broadcast<A>(LEAST)), inverse{}, s{}, t{}, theta{} {}
  static INLINE Vec<A> get_magnitude(Vec<A> x) { return ABSOLUTE ? (x < A(0) ? -x : x) : x; }
  static INLINE Vec<A> lift(Vec<A> x) { return larger(broadcast<A>(LEAST), get_magnitude(x)); }  // NaN stays

  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    theta = region.theta;
    if constexpr (PASS == 1) inverse = A(1) / top;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    const Vec<A> u = lift(cell.x);  // of a cell that does not exist the least
    if constexpr (PASS == 0) {
      top = CAREFUL ? ((u > top) | (u != u) ? u : top) : larger(top, u);
    } else {
      const Vec<A> log = take_logarithm<A>(u * inverse), v = cell.template keep<LACKS>(exponentiate<A>(theta * log));
      s += v;
      t += cell.template keep<LACKS>(v * log);
    }
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    const Vec<A> log = take_logarithm<A>(s / region.n) / theta, y = top * exponentiate<A>(log);
    slots.store(0, y);
    slots.store(1, A(1) / y);
    slots.store(2, theta - A(1));
    slots.store(3, y / theta * (t / s - log));
    return y;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>& region, const Slots& slots) {
    slots.store(0, c / region.n);
    return c * slots.load(3);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A>) {
    const Vec<A> c = slots.load(0), share = c * exponentiate<A>(slots.load(2) * take_logarithm<A>(lift(x) * slots.load(1)));
    const Vec<A> signed_share = ABSOLUTE ? (x < A(0) ? -share : share) : share;
    return get_magnitude(x) <= LEAST ? (CAREFUL ? share * A(0) : Vec<A>{}) : signed_share;
  }
};

// A unit as an argument, and a new one.
template <class U>
struct UnitType {
  using Unit = U;
};
template <class U, class A>
INLINE U make_unit(const Region<A>& region) {
  if constexpr (HAS_OWN_WEIGHTS<U>) return U(region);
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
    case Kind::Rank: return f(UnitType<Rank<A, CAREFUL>>{});
    case Kind::Pick: return f(UnitType<Pick<A, CAREFUL>>{});
    case Kind::Expect: return f(UnitType<Expect<A, CAREFUL>>{});
  }
  __builtin_unreachable();
}

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
