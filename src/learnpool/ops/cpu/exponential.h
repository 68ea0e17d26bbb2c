// Exponential, logarithm and sigmoid of a vector.
#pragma once

#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// exp(-r) for |r| <= ln(2) / 2, by powers of r: among polynomials of that degree that begin with 1 (float64: 1 - r), the one whose
// largest relative error is the smallest, 9.2e-8 and 1.1e-17. A Taylor series needs two terms more.
// clang-format off
template <class A>
constexpr A EXPONENTIAL[] = {
    1, -1, 0.5000000000000011, -0.16666666666666413, 0.04166666666652995, -0.008333333333494721, 0.0013888888943693835,
    -0.00019841269506163292, 2.4801493025459697e-05, -2.7557586603557855e-06, 2.7630276922091397e-07, -2.5000035272457677e-08};
// clang-format on
template <>
constexpr float EXPONENTIAL<float>[] = {1, -0.9999997f, 0.4999915f, -0.16667648f, 0.041897867f, -0.008289733f};

template <int N, class A>
INLINE Vec<A> evaluate(const A (&coefficients)[N], Vec<A> r) {
  Vec<A> power = broadcast<A>(coefficients[N - 1]);
#pragma GCC unroll 16
  for (int k = N - 2; k >= 0; --k) power = power * r + coefficients[k];
  return power;
}

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
  return evaluate(EXPONENTIAL<A>, r) * (V)(((I)shifted << bits) + (Lane<A>(bias) << bits));
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

template <class A>
constexpr A LN2 = A(0.693147180559945309417);
template <class A>
constexpr A LOG2E = A(1.44269504088896340736);

// 2^r for |r| <= 1/2, by powers of r: the largest relative error is 9.2e-8.
constexpr float POWER_OF_TWO[] = {1, 0.693147f, 0.24022242f, 0.055507336f, 0.009671513f, 0.0013264727f};

// 2^z for z up to 0, at least the smallest normal number; of NaN anything.
template <class A>
INLINE Vec<A> raise_two(Vec<A> z) {
  if constexpr (sizeof(A) == 8) {
    return exponentiate_negative<A>(larger(broadcast<A>(-1021), z) * -LN2<A>);
  } else {
    const Vec<A> inside = larger(broadcast<A>(-125), z), shifted = inside + 12582912.0f;  // as above
    return (Vec<A>)((Mask<A>)evaluate(POWER_OF_TWO, inside - (shifted - 12582912.0f)) + ((Mask<A>)shifted << 23));
  }
}

// 2^(x t); NaN unless that is between 2^-120 and 2^60, so that sums of it, their inverses and what reaches them are finite. Of the
// product only what is above the nearest integer counts, and where there are fused multiply-adds it is not rounded before.
INLINE Vec<float> raise_two_to_product(Vec<float> x, Vec<float> t) {
  const Vec<float> shifted = x * t + 12582912.0f, n = shifted - 12582912.0f;
  const Mask<float> power = (Mask<float>)evaluate(POWER_OF_TWO, x * t - n) + ((Mask<float>)shifted << 23);
  return (n > -120.0f) & (n < 60.0f) ? (Vec<float>)power : broadcast<float>(std::numeric_limits<float>::quiet_NaN());
}

// log2(1 + f) / f by powers of f: for 1 + f in [sqrt(1/2), sqrt(2)) with a relative error of at most 2.6e-8, from -1/31 to 1/16 of
// 1.2e-7.
constexpr float LOGARITHM[] = {1.442695f,    -0.72134733f, 0.48091063f,  -0.36070368f, 0.28791624f,
                               -0.23894481f, 0.21571562f,  -0.20726982f, 0.12583706f};
constexpr float LOGARITHM_NEAR_1[] = {1.442695f, -0.72136223f, 0.48115522f, -0.34435794f};

// 1 / c and log2(c) for one c in each 16th of [1, 2): its middle, but 1 in the first and 2 in the last, so that log2 is exact at 1.
// clang-format off
constexpr float INVERSES[] = {
    1, 0.914285719f, 0.864864886f, 0.820512831f, 0.780487776f, 0.744186044f, 0.711111128f, 0.680851042f, 0.653061211f,
    0.627451003f, 0.603773594f, 0.581818163f, 0.561403513f, 0.542372882f, 0.524590135f, 0.5f};
constexpr float LOGARITHMS[] = {
    0, 0.129283011f, 0.209453329f, 0.285402209f, 0.357552052f, 0.426264763f, 0.491853058f, 0.554588914f, 0.614709854f,
    0.67242527f, 0.727920413f, 0.781359732f, 0.832889974f, 0.882643044f, 0.930737436f, 1};
// clang-format on

// log2(u) of normal positive numbers; of others anything. u is m 2^e. In float64 m is in [sqrt(1/2), sqrt(2)), and ln m = 2
// artanh(s), s = (m - 1) / (m + 1). In float32 a polynomial takes less time than the division, and 16 shorter ones, if a register
// holds what differs between them, take less still.
template <class A>
INLINE Vec<A> take_log2(Vec<A> u) {
  using V = Vec<A>;
  using I = Mask<A>;
#if defined(__x86_64__) && LEARNPOOL_BYTES == 64
  if constexpr (sizeof(A) == 4) {
    const I part = (I)u >> 19;  // its last four bits
    const V m = _mm512_getmant_ps(u, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
    const V f = m * look_up(INVERSES, part) - A(1);
    return f * evaluate(LOGARITHM_NEAR_1, f) + (look_up(LOGARITHMS, part) + _mm512_getexp_ps(u));
  }
#endif
  constexpr bool wide = sizeof(A) == 8;
  constexpr int bits = wide ? 52 : 23;
  constexpr Lane<A> root = wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3;  // the bits of sqrt(1/2)
  const I offset = (I)u - root, e = offset >> bits;
  const V f = (V)((I)u - (e << bits)) - A(1), whole = __builtin_convertvector(e, V);
  if constexpr (wide) {
    const V s = f / (f + A(2)), square = s * s;
    constexpr int TERMS = 11;
    V series = broadcast<A>(A(1) / (2 * TERMS + 1));
#pragma GCC unroll 16
    for (int k = TERMS - 1; k >= 1; --k) series = series * square + A(1) / (2 * k + 1);
    return whole + (A(2) * s + A(2) * s * square * series) * LOG2E<A>;
  } else {
    return whole + f * evaluate(LOGARITHM, f);
  }
}

// ln(u) of normal positive numbers; NaN for infinity and NaN.
template <class A>
INLINE Vec<A> take_logarithm(Vec<A> u) {
  return take_log2<A>(u) * LN2<A> + (u - u);
}

// sqrt(v).
template <class A>
INLINE Vec<A> take_root(Vec<A> v) {
  Vec<A> root;
  for (int64_t i = 0; i < LANES<A>; ++i) root[i] = sizeof(A) == 8 ? __builtin_sqrt(v[i]) : __builtin_sqrtf(v[i]);
  return root;
}

}  // namespace learnpool::LEARNPOOL_ISA
