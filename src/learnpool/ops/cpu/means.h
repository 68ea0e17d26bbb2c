// Means with a number theta: soft, log-sum-exp and power. What each tap weighs is kept for gather, if there are few taps; else it
// is computed again.
#pragma once

#include "cell.h"
#include "exponential.h"
#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// What Soft and LogSumExp share: x* with the largest theta x, d = x - x*, e = exp(theta d), and sums of e, e d and e d^2. A cell
// whose e is 0 counts for nothing, be it -inf.
template <class A, bool CAREFUL>
struct Exponentials : Unit<A> {
  static constexpr int PASSES = 2, TAP_SLOTS = 1;
  static constexpr bool RECOMPUTES = true;
  Vec<A> theta, star, key, e0, e1, e2;
  Mask<A> found;
  TapSlots<A> to;

  INLINE Exponentials() : theta{}, star{}, key(broadcast<A>(-std::numeric_limits<A>::infinity())), e0{}, e1{}, e2{}, found{} {}
  // exp(theta d); 0 where it is smaller than any normal number. Not CAREFUL: at least about the smallest, so that a far cell would
  // count; `find_witness` is infinite long before that shows, and where theta x overflows.
  static INLINE Vec<A> weigh(Vec<A> theta, Vec<A> d) {
    return CAREFUL ? exponentiate<A>(theta * d) : raise_two<A>(theta * LOG2E<A> * d);
  }
  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    theta = region.theta;
    to = region.tap_slots;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    if constexpr (PASS == 0) {
      const Vec<A> product = theta * cell.x;
      Mask<A> wins = product > key;
      if constexpr (CAREFUL) wins |= (product != product) | ~found;
      wins = cell.template take<LACKS>(wins);
      if constexpr (CAREFUL) found |= wins;
      key = CAREFUL || LACKS ? (wins ? product : key) : larger(product, key);  // the same, but faster
      star = wins ? cell.x : star;
    } else {
      Vec<A> d = cell.x - star;
      const Vec<A> e = cell.template keep<LACKS>(weigh(theta, d));
      if constexpr (CAREFUL) d = e == A(0) ? Vec<A>{} : d;
      to.store(cell.tap, e);
      e0 += e;
      e1 += e * d;
      e2 += e * d * d;
    }
  }
  INLINE Vec<A> find_witness(Vec<A> y) const { return y + key + e2 * A(1e30); }
  // Of a cell, with slots 1: x*, 2: theta, then e of each tap.
  template <int SLOTS, class Slots>
  static INLINE void load(const Slots& slots, Vec<A> x, Lane<A> tap, Vec<A>& d, Vec<A>& e) {
    d = x - slots.load(1);
    e = slots.keeps_taps ? slots.load(SLOTS + tap) : weigh(slots.load(2), d);
    if constexpr (CAREFUL) d = e == A(0) ? Vec<A>{} : d;
  }
};

// y = sum x e / sum e = x* + E[d], E the mean by e. A cell gets c e / sum e (1 + theta (d - E[d])), theta E[d^2] - E[d]^2.
template <class A, bool CAREFUL>
struct Soft : Exponentials<A, CAREFUL> {
  static constexpr int SLOTS = 6;

  INLINE Soft() {}
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    const Vec<A> inverse = A(1) / this->e0, mean = this->e1 * inverse;
    slots.store(0, this->star + mean);
    slots.store(1, this->star);
    slots.store(2, this->theta);
    slots.store(3, inverse);
    slots.store(4, mean);
    slots.store(5, this->e2 * inverse - mean * mean);
    return this->find_witness(mean);
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>& region, const Slots& slots) {
    const Vec<A> share = c * slots.load(3);
    slots.store(3, share * (A(1) - region.theta * slots.load(4)));
    slots.store(4, share * region.theta);
    return c * slots.load(5);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A> tap) {
    Vec<A> d, e;
    Exponentials<A, CAREFUL>::template load<SLOTS>(slots, x, tap, d, e);
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
    return this->find_witness(y);
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    slots.store(3, c * slots.load(3));
    return c * slots.load(4);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A> tap) {
    Vec<A> d, e;
    Exponentials<A, CAREFUL>::template load<SLOTS>(slots, x, tap, d, e);
    return e * slots.load(3);
  }
};

// y = (mean u^theta)^(1/theta), u = x but at least 1e-6, or |x|: with r = u / max u, p = r^(theta-1), s = sum p r and t = sum p r
// ln r, y = max u (s/n)^(1/theta). A cell gets c p y / (max u s), nothing below 1e-6; theta (y/theta) (t/s - ln(s/n)/theta). As
// theta is at least 1, p is at most 1.
template <class A, bool CAREFUL, bool ABSOLUTE>
struct Power : Unit<A> {
  static constexpr int PASSES = 2, SLOTS = 4, TAP_SLOTS = 1;
  static constexpr bool RECOMPUTES = true;
  static constexpr A LEAST = A(1e-6);
  Vec<A> top, inverse, s, t, theta;
  TapSlots<A> to;

  INLINE Power() : top(broadcast<A>(LEAST)), inverse{}, s{}, t{}, theta{} {}
  static INLINE Vec<A> get_magnitude(Vec<A> x) { return ABSOLUTE ? (x < A(0) ? -x : x) : x; }
  // p with the sign of du/dx, 0 where u does not depend on x.
  static INLINE Vec<A> weigh(Vec<A> x, Vec<A> p) {
    return get_magnitude(x) <= LEAST ? Vec<A>{} : ABSOLUTE ? (x < A(0) ? -p : p) : p;
  }
  static INLINE Vec<A> lift(Vec<A> x) { return larger(broadcast<A>(LEAST), get_magnitude(x)); }  // NaN stays

  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    theta = region.theta;
    to = region.tap_slots;
    if constexpr (PASS == 1) inverse = A(1) / top;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    if constexpr (PASS == 0) {
      const Vec<A> u = get_magnitude(cell.x);  // 0 of a cell that does not exist
      top = CAREFUL ? ((u > top) | (u != u) ? u : top) : larger(top, u);
    } else {
      const Vec<A> u = lift(cell.x);
      const Vec<A> r = u * inverse, log = take_log2<A>(r), p = raise_two<A>((theta - A(1)) * log);
      const Vec<A> v = cell.template keep<LACKS>(p * r);
      to.store(cell.tap, weigh(cell.x, p));
      s += v;
      t += v * log;
    }
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    const Vec<A> log = take_logarithm<A>(s / region.n) / theta, ratio = exponentiate<A>(log), y = top * ratio;
    slots.store(0, y);
    slots.store(1, inverse);
    slots.store(2, ratio / s);
    slots.store(3, y / theta * (LN2<A> * t / s - log));
    return y;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>& region, const Slots& slots) {
    const Vec<A> slope = c * slots.load(3);
    slots.store(0, c * slots.load(2));
    slots.store(3, region.theta - A(1));
    return slope;
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, Vec<A> x, Vec<A>, Lane<A> tap) {
    if (slots.keeps_taps) return slots.load(0) * slots.load(SLOTS + tap);
    return slots.load(0) * weigh(x, raise_two<A>(slots.load(3) * take_log2<A>(lift(x) * slots.load(1))));
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
