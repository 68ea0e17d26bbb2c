// Means with a number theta: soft, log-sum-exp and power. If not careful, the exponential of a cell is derived once for all regions
// that read it. Else it is taken of its distance to the region's extreme, and once more in gather.
#pragma once

#include "cell.h"
#include "exponential.h"

namespace learnpool::LEARNPOOL_ISA {

// What Soft and LogSumExp share: d = x - x*, e = exp(theta d), and sums of e, e d and e d^2. Careful: x* has the largest theta x,
// and a cell whose e is 0 counts for nothing, be it -inf. Not careful: e is exp(theta x), which is derived of x and 0 of a cell
// that does not exist; x* has the largest.
template <class A, bool CAREFUL>
struct Exponentials : Unit<A> {
  static constexpr int PASSES = 2, DERIVED = CAREFUL ? 0 : 1;
  Vec<A> theta{}, star{}, key, e0{}, e1{}, e2{};
  Mask<A> found{};

  INLINE Exponentials() : key(broadcast<A>(CAREFUL ? -std::numeric_limits<A>::infinity() : A(0))) {}

  static INLINE void derive(Vec<A> x, Vec<A> theta, Vec<A>* to) { to[0] = raise_two_to_product(x, theta * LOG2E<A>); }
  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    theta = region.theta;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    if constexpr (PASS == 1) {
      Vec<A> e, d = cell.x - star;
      get_exponential(cell, theta, d, e);
      e = CAREFUL ? cell.template keep<LACKS>(e) : e;
      e0 += e;
      e1 += e * d;
      e2 += e * d * d;
    } else if constexpr (CAREFUL) {
      const Vec<A> product = theta * cell.x;
      const Mask<A> wins = cell.template take<LACKS>((product > key) | (product != product) | ~found);
      found |= wins;
      key = wins ? product : key;
      star = wins ? cell.x : star;
    } else {
      star = cell.derived[0] > key ? cell.x : star;
      key = larger(cell.derived[0], key);
    }
  }
  static INLINE void get_exponential(const Cell<A>& cell, Vec<A> theta, Vec<A>& d, Vec<A>& e) {
    e = CAREFUL ? exponentiate<A>(theta * d) : cell.derived[0];
    if constexpr (CAREFUL) d = e == A(0) ? Vec<A>{} : d;
  }
  // Of a cell, with slots 1: x*, 2: theta.
  template <class Slots>
  static INLINE void load(const Slots& slots, const Cell<A>& cell, Vec<A>& d, Vec<A>& e) {
    d = cell.x - slots.load(1);
    get_exponential(cell, slots.load(2), d, e);
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
    return mean;
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>& region, const Slots& slots) {
    const Vec<A> share = c * slots.load(3);
    slots.store(3, share * (A(1) - region.theta * slots.load(4)));
    slots.store(4, share * region.theta);
    return c * slots.load(5);
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    Vec<A> d, e;
    Exponentials<A, CAREFUL>::load(slots, cell, d, e);
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
    const Vec<A> e_star = CAREFUL ? broadcast<A>(1) : this->key;
    const Vec<A> log = take_logarithm<A>(this->e0 / (e_star * region.n)) / this->theta, y = this->star + log;
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
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    Vec<A> d, e;
    Exponentials<A, CAREFUL>::load(slots, cell, d, e);
    return e * slots.load(3);
  }
};

// y = (mean u^theta)^(1/theta), u = x but at least 1e-6, or |x|: with r = u / max u, p = r^(theta-1), s = sum p r and t = sum p r
// log2 r, y = max u (s/n)^(1/theta). A cell gets c p y / (max u s), nothing below 1e-6; theta (y/theta) (ln 2 t/s - ln(s/n)/theta).
// As theta is at least 1, p is at most 1.
template <class A, bool ABSOLUTE>
struct Magnitude {
  static constexpr A LEAST = A(1e-6);

  static INLINE Vec<A> get(Vec<A> x) { return ABSOLUTE ? (x < A(0) ? -x : x) : x; }
  static INLINE Vec<A> lift(Vec<A> x) { return larger(broadcast<A>(LEAST), get(x)); }  // NaN stays
  // p with the sign of du/dx, 0 where u does not depend on x.
  static INLINE Vec<A> weigh(Vec<A> x, Vec<A> p) { return get(x) <= LEAST ? Vec<A>{} : ABSOLUTE ? (x < A(0) ? -p : p) : p; }
};

// Not careful: u^theta, log2 u and what the cell weighs, u^(theta-1), are derived of it.
template <class A, bool CAREFUL, bool ABSOLUTE>
struct Power : Unit<A> {
  using U = Magnitude<A, ABSOLUTE>;
  static constexpr int PASSES = 2, SLOTS = 4, DERIVED = CAREFUL ? 0 : 3;
  Vec<A> top, inverse{}, log_star{}, s{}, t{}, theta{};

  INLINE Power() : top(broadcast<A>(U::LEAST)) {}

  static INLINE void derive(Vec<A> x, Vec<A> theta, Vec<A>* to) {
    const Vec<A> u = U::lift(x), log = take_log2<A>(u);
    to[0] = raise_two_to_product(log, theta);
    to[1] = log;
    to[2] = U::weigh(x, to[0] / u);
  }
  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    theta = region.theta;
    if constexpr (PASS == 1 && CAREFUL) inverse = A(1) / top;
    if constexpr (PASS == 1 && !CAREFUL) log_star = take_log2<A>(top);
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    if constexpr (PASS == 0) {
      const Vec<A> u = U::get(cell.x);  // 0 of a cell that does not exist
      if constexpr (CAREFUL) top = (u > top) | (u != u) ? u : top;
      else top = larger(u, top);
    } else if constexpr (CAREFUL) {
      const Vec<A> r = U::lift(cell.x) * inverse, log = take_log2<A>(r), p = raise_two<A>((theta - A(1)) * log);
      const Vec<A> v = cell.template keep<LACKS>(p * r);
      s += v;
      t += v * log;
    } else {
      s += cell.derived[0];
      t += cell.derived[0] * (cell.derived[1] - log_star);
    }
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>& region, const Slots& slots) const {
    Vec<A> scale = broadcast<A>(1);
    if constexpr (!CAREFUL) scale = raise_two_to_product(log_star, theta);
    const Vec<A> log = take_logarithm<A>(s / (scale * region.n)) / theta, ratio = exponentiate<A>(log), y = top * ratio;
    slots.store(0, y);
    slots.store(1, inverse);
    slots.store(2, (CAREFUL ? ratio : y) / s);
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
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    if constexpr (!CAREFUL) return slots.load(0) * cell.derived[2];
    else return slots.load(0) * U::weigh(cell.x, raise_two<A>(slots.load(3) * take_log2<A>(U::lift(cell.x) * slots.load(1))));
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
