// Vectors by the compiler's own extension: the same source becomes SSE2, AVX2, AVX-512 or NEON.
#pragma once

#include "headers.h"
#include "isa.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;

template <class A>
struct VecOf;
template <>
struct VecOf<float> {
  typedef float type __attribute__((vector_size(LEARNPOOL_BYTES)));
  typedef int32_t mask __attribute__((vector_size(LEARNPOOL_BYTES)));
};
template <>
struct VecOf<double> {
  typedef double type __attribute__((vector_size(LEARNPOOL_BYTES)));
  typedef int64_t mask __attribute__((vector_size(LEARNPOOL_BYTES)));
};
template <class A>
using Vec = typename VecOf<A>::type;
template <class A>
using Mask = typename VecOf<A>::mask;
template <class A>
using Lane = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;  // of a mask
template <class A>
constexpr int64_t LANES = LEARNPOOL_BYTES / sizeof(A);

// N numbers, whatever the instruction set's own width.
template <class E, int N>
struct NarrowVec {
  typedef E type __attribute__((vector_size(N * sizeof(E))));
};

// Sums are kept in double for double, in float for everything else.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Through a vector type that may lie anywhere but is, for the compiler, still made of A: other types stay in registers.
template <class V, class A>
struct Anywhere {
  typedef A type __attribute__((vector_size(sizeof(V)), aligned(alignof(A))));
};

template <class V, class A>
INLINE V load(const A* p) {
  return (V) * reinterpret_cast<const typename Anywhere<V, A>::type*>(p);
}

template <class V, class A>
INLINE void store(A* p, V v) {
  *reinterpret_cast<typename Anywhere<V, A>::type*>(p) = (typename Anywhere<V, A>::type)v;
}

template <class A>
INLINE Vec<A> broadcast(A value) {
  return value - Vec<A>{};  // a scalar minus a vector of zeros is that scalar in every lane
}

template <class A>
INLINE double sum_lanes(Vec<A> v) {
  double total = 0;
  for (int64_t i = 0; i < LANES<A>; ++i) total += v[i];
  return total;
}

// Whether any lane is NaN; the one question the compiler's vectors answer slowly.
template <class A>
INLINE bool has_nan(Vec<A> v) {
#if defined(__x86_64__)
  constexpr bool wide = sizeof(A) == 8;
#if LEARNPOOL_BYTES == 64
  if constexpr (wide) return _mm512_cmp_pd_mask((__m512d)v, (__m512d)v, _CMP_UNORD_Q) != 0;
  else return _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q) != 0;
#elif LEARNPOOL_BYTES == 32
  if constexpr (wide) return _mm256_movemask_pd((__m256d)(v != v)) != 0;
  else return _mm256_movemask_ps((__m256)(v != v)) != 0;
#else
  if constexpr (wide) return _mm_movemask_pd((__m128d)(v != v)) != 0;
  else return _mm_movemask_ps((__m128)(v != v)) != 0;
#endif
#else
  bool found = false;
  for (int64_t i = 0; i < LANES<A>; ++i) found |= v[i] != v[i];
  return found;
#endif
}

constexpr double inverse_factorial(int k) { return k <= 1 ? 1.0 : inverse_factorial(k - 1) / k; }

// 1 / (1 + exp(-z)) to about two units in the last place, exactly 0 and 1 beyond the range; NaN stays NaN.
template <class A>
INLINE Vec<A> sigmoid(Vec<A> z) {
  using V = Vec<A>;
  using I = Mask<A>;
  constexpr bool wide = sizeof(A) == 8;
  constexpr int bits = wide ? 52 : 23, bias = wide ? 1023 : 127, terms = wide ? 13 : 7;
  constexpr A magic = wide ? 6755399441055744.0 : 12582912.0;  // adding it rounds to an integer, which are then the last bits
  constexpr A ln2_high = wide ? 6.93147180369123816490e-01 : 0.693359375f;
  constexpr A ln2_low = wide ? 1.90821492927058770002e-10 : -2.12194440e-4f;
  // Where the exponential of x = -z is neither infinite nor too small to be added to 1.
  const V high = broadcast<A>(wide ? 709.0 : 88.3), low = broadcast<A>(wide ? -700.0 : -87.0);
  V x = -z;
  x = high < x ? high : x;
  x = low > x ? low : x;
  const V shifted = x * A(1.44269504088896340736) + magic, n = shifted - magic;
  const V r = x - n * ln2_high - n * ln2_low, square = r * r;
  // Even and odd powers apart: two short chains instead of a long one.
  V odd = broadcast<A>(A(inverse_factorial(terms))), even = broadcast<A>(A(inverse_factorial(terms - 1)));
#pragma GCC unroll 16
  for (int k = terms - 2; k > 0; k -= 2) {
    odd = odd * square + A(inverse_factorial(k));
    even = even * square + A(inverse_factorial(k - 1));
  }
  const V two_to_n = (V)(((I)shifted << bits) + (Lane<A>(bias) << bits));
  const V p = A(1) / (A(1) + (odd * r + even) * two_to_n);
  return z < -high ? V{} : p;
}

// Halves are torch's types. They are converted here, because loops over torch's own conversions do not become vectors.
INLINE float widen(float v) { return v; }
INLINE double widen(double v) { return v; }

INLINE float from_bits(uint32_t bits) {
  float v;
  __builtin_memcpy(&v, &bits, 4);
  return v;
}
INLINE uint32_t to_bits(float v) {
  uint32_t bits;
  __builtin_memcpy(&bits, &v, 4);
  return bits;
}

INLINE float widen(BFloat16 v) { return from_bits(uint32_t(v.x) << 16); }

INLINE float widen(Half v) {
  const uint32_t sign = uint32_t(v.x & 0x8000) << 16, rest = v.x & 0x7fff;
  // Shift exponent and mantissa into place and scale by 2^112; subnormals come out right, inf and NaN need their exponent.
  const float scaled = from_bits(rest << 13) * from_bits(0x77800000);
  const uint32_t bits = rest >= 0x7c00 ? (rest << 13) | 0x7f800000 : to_bits(scaled);
  return from_bits(bits | sign);
}

template <class T>
INLINE T narrow(float v);
template <>
INLINE float narrow<float>(float v) {
  return v;
}
template <>
INLINE BFloat16 narrow<BFloat16>(float v) {
  const uint32_t bits = to_bits(v);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
  return BFloat16(uint16_t(v != v ? 0x7fc0 : rounded), BFloat16::from_bits());
}
template <>
INLINE Half narrow<Half>(float v) {
  const uint32_t bits = to_bits(v), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  // Ordinary numbers: round the mantissa to 10 bits. Subnormals: let the float adder round them in place.
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  const uint32_t small = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000;
  uint32_t half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return Half(uint16_t(half | sign), Half::from_bits());
}
template <class T>
INLINE T narrow(double v) {
  return v;
}

// A vector from and to memory of element type T; at a ragged end only `count` lanes exist.
template <class A, bool FULL, class T>
INLINE Vec<A> load_as(const T* p, int64_t count) {
  if constexpr (FULL && std::is_same_v<T, A>) return load<Vec<A>>(p);
  A lanes[LANES<A>] = {};
  for (int64_t i = 0; i < (FULL ? LANES<A> : count); ++i) lanes[i] = widen(p[i]);
  return load<Vec<A>>(lanes);
}

// The first `count` lanes, and zeros.
template <class A>
INLINE Vec<A> first_lanes(Vec<A> v, int64_t count) {
  Mask<A> lane;
  for (int64_t i = 0; i < LANES<A>; ++i) lane[i] = Lane<A>(i);
  return (Vec<A>)((Mask<A>)v & (lane < Lane<A>(count)));
}

template <class A, bool FULL, class T>
INLINE void store_as(T* p, Vec<A> v, int64_t count) {
  if constexpr (FULL && std::is_same_v<T, A>) {
    store(p, v);
  } else {
    A lanes[LANES<A>];
    store(lanes, v);
    for (int64_t i = 0; i < (FULL ? LANES<A> : count); ++i) p[i] = narrow<T>(lanes[i]);
  }
}

// Whether there is neither infinity nor NaN among n numbers.
template <class A>
INLINE bool all_finite(const A* x, int64_t n) {
  using V = Vec<A>;
  V a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * LANES<A> <= n; i += 4 * LANES<A>) {
    a += load<V>(x + i) * A(0);
    b += load<V>(x + i + LANES<A>) * A(0);
    c += load<V>(x + i + 2 * LANES<A>) * A(0);
    d += load<V>(x + i + 3 * LANES<A>) * A(0);
  }
  for (; i + LANES<A> <= n; i += LANES<A>) a += load<V>(x + i) * A(0);
  for (; i < n; ++i) a[0] += x[i] * A(0);
  return !has_nan<A>((a + b) + (c + d));  // each is zero or NaN
}

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
