// Exponential, logarithm and sigmoid of a vector.
#pragma once

#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// exp(-r) for |r| <= ln(2) / 2, by powers of r: among polynomials of that degree that begin with 1 (float64: 1 - r), the one whose
// largest relative error is the smallest, 9.2e-8 and 1.1e-17. A Taylor series needs two terms more.
template <class A>
constexpr A EXPONENTIAL[] = {1,
                             -1,
                             0.5000000000000011,
                             -0.16666666666666413,
                             0.04166666666652995,
                             -0.008333333333494721,
                             0.0013888888943693835,
                             -0.00019841269506163292,
                             2.4801493025459697e-05,
                             -2.7557586603557855e-06,
                             2.7630276922091397e-07,
                             -2.5000035272457677e-08};
template <>
constexpr float EXPONENTIAL<float>[] = {1, -0.9999997f, 0.4999915f, -0.16667648f, 0.041897867f, -0.008289733f};

// exp(-z), for z whose exponential is a normal number; one place beyond, infinity. Its steps wait for each other, but those of the
// next vectors do not: the fewest operations are the fastest.
template <class A>
INLINE Vec<A> exponentiate_negative(Vec<A> z) {
  using V = Vec<A>;
  using I = Mask<A>;
  constexpr bool wide = sizeof(A) == 8;
  constexpr int bits = wide ? 52 : 23, bias = wide ? 1023 : 127;
  constexpr A magic = wide ? 6755399441055744.0 : 12582912.0;  // adding it rounds to an integer, which are then the last bits
  constexpr A ln2_high = wide ? 6.93147180369123816490e-01 : 0.693359375f;
  constexpr A ln2_low = wide ? 1.90821492927058770002e-10 : -2.12194440e-4f;
  const V shifted = z * A(-1.44269504088896340736) + magic, n = shifted - magic;
  const V r = z + n * ln2_high + n * ln2_low;
  constexpr int DEGREE = int(std::size(EXPONENTIAL<A>)) - 1;
  V power = broadcast<A>(EXPONENTIAL<A>[DEGREE]);
#pragma GCC unroll 16
  for (int k = DEGREE - 1; k >= 0; --k) power = power * r + EXPONENTIAL<A>[k];
  return power * (V)(((I)shifted << bits) + (Lane<A>(bias) << bits));
}

// 1 / (1 + exp(-z)) to three and a half units in the last place, exactly 0 and 1 beyond the range; NaN stays NaN.
template <class A>
INLINE Vec<A> sigmoid(Vec<A> z) {
  constexpr bool wide = sizeof(A) == 8;
  // From where the exponential of -z is infinite, to where it is too small to be added to 1.
  z = smaller(broadcast<A>(wide ? 700.0 : 87.0), larger(broadcast<A>(wide ? -710.0 : -89.0), z));
  return A(1) / (A(1) + exponentiate_negative<A>(z));
}

// exp(z); 0 where that is below the smallest normal number, and above exp(88) or exp(709) that; NaN stays NaN.
template <class A>
INLINE Vec<A> exponentiate(Vec<A> z) {
  constexpr A least = sizeof(A) == 8 ? -708.0 : -87.0f, most = sizeof(A) == 8 ? 709.0 : 88.0f;
  const Vec<A> inside = smaller(broadcast<A>(most), larger(broadcast<A>(least), z));
  return (Vec<A>)((Mask<A>)exponentiate_negative<A>(-inside) & ~(z < least));
}

// ln(u) of normal positive numbers: u is m 2^e with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh(s), s = (m - 1) / (m + 1). NaN
// for infinity and NaN.
template <class A>
INLINE Vec<A> take_logarithm(Vec<A> u) {
  using V = Vec<A>;
  using I = Mask<A>;
  constexpr bool wide = sizeof(A) == 8;
  constexpr int bits = wide ? 52 : 23;
  constexpr Lane<A> root = wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3;  // the bits of sqrt(1/2)
  const I offset = (I)u - root, e = offset >> bits;
  const V m = (V)((I)u - (e << bits)), s = (m - A(1)) / (m + A(1)), square = s * s;
  constexpr int TERMS = wide ? 11 : 5;
  V series = broadcast<A>(A(1) / (2 * TERMS + 1));
#pragma GCC unroll 16
  for (int k = TERMS - 1; k >= 1; --k) series = series * square + A(1) / (2 * k + 1);
  const V small = A(2) * s + A(2) * s * square * series;
  return __builtin_convertvector(e, V) * A(0.693147180559945309417) + small + (u - u);
}

// sqrt(v).
template <class A>
INLINE Vec<A> take_root(Vec<A> v) {
  Vec<A> root;
  for (int64_t i = 0; i < LANES<A>; ++i) root[i] = sizeof(A) == 8 ? __builtin_sqrt(v[i]) : __builtin_sqrtf(v[i]);
  return root;
}

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
