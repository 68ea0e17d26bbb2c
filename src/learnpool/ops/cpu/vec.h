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

// a > b ? a : b, and a < b ? a : b. As one instruction, which the compiler does not find: it compares into a mask and blends by
// that, and each of several waits for the one before.
#if defined(__x86_64__)
#if LEARNPOOL_BYTES == 64
#define LEARNPOOL_INTRINSIC(name) _mm512_##name
#elif LEARNPOOL_BYTES == 32
#define LEARNPOOL_INTRINSIC(name) _mm256_##name
#else
#define LEARNPOOL_INTRINSIC(name) _mm_##name
#endif
INLINE Vec<float> larger(Vec<float> a, Vec<float> b) { return LEARNPOOL_INTRINSIC(max_ps)(a, b); }
INLINE Vec<double> larger(Vec<double> a, Vec<double> b) { return LEARNPOOL_INTRINSIC(max_pd)(a, b); }
INLINE Vec<float> smaller(Vec<float> a, Vec<float> b) { return LEARNPOOL_INTRINSIC(min_ps)(a, b); }
INLINE Vec<double> smaller(Vec<double> a, Vec<double> b) { return LEARNPOOL_INTRINSIC(min_pd)(a, b); }
#undef LEARNPOOL_INTRINSIC
#else
template <class V>
INLINE V larger(V a, V b) {
  return a > b ? a : b;
}
template <class V>
INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}
#endif

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

// 1 / (1 + exp(-z)) to three and a half units in the last place, exactly 0 and 1 beyond the range; NaN stays NaN. Its steps wait
// for each other, but those of the next vectors do not: the fewest operations are the fastest.
template <class A>
INLINE Vec<A> sigmoid(Vec<A> z) {
  using V = Vec<A>;
  using I = Mask<A>;
  constexpr bool wide = sizeof(A) == 8;
  constexpr int bits = wide ? 52 : 23, bias = wide ? 1023 : 127;
  constexpr A magic = wide ? 6755399441055744.0 : 12582912.0;  // adding it rounds to an integer, which are then the last bits
  constexpr A ln2_high = wide ? 6.93147180369123816490e-01 : 0.693359375f;
  constexpr A ln2_low = wide ? 1.90821492927058770002e-10 : -2.12194440e-4f;
  // From where the exponential of -z is infinite, to where it is too small to be added to 1.
  z = smaller(broadcast<A>(wide ? 700.0 : 87.0), larger(broadcast<A>(wide ? -710.0 : -89.0), z));
  const V shifted = z * A(-1.44269504088896340736) + magic, n = shifted - magic;
  const V r = z + n * ln2_high + n * ln2_low;
  constexpr int DEGREE = int(std::size(EXPONENTIAL<A>)) - 1;
  V power = broadcast<A>(EXPONENTIAL<A>[DEGREE]);
#pragma GCC unroll 16
  for (int k = DEGREE - 1; k >= 0; --k) power = power * r + EXPONENTIAL<A>[k];
  const V two_to_n = (V)(((I)shifted << bits) + (Lane<A>(bias) << bits));
  return A(1) / (A(1) + power * two_to_n);
}

// Halves are torch's types. They are converted here, because loops over torch's own conversions do not become vectors.
typedef uint16_t HalfBits __attribute__((vector_size(LEARNPOOL_BYTES / 2)));
typedef uint32_t FloatBits __attribute__((vector_size(LEARNPOOL_BYTES)));

// A number as it is in memory; and as many as a vector of sums has lanes.
template <class T>
using RawNumber = std::conditional_t<sizeof(T) == 2, uint16_t, T>;
template <class T>
using Raw = std::conditional_t<sizeof(T) == 2, HalfBits, Vec<Accumulator<T>>>;

template <class T>
INLINE Vec<Accumulator<T>> widen(Raw<T> raw) {
  return raw;
}
template <class T>
INLINE Raw<T> narrow(Vec<Accumulator<T>> v) {
  return v;
}

template <>
INLINE Vec<float> widen<BFloat16>(HalfBits raw) {
#if LEARNPOOL_BYTES == 64  // the compiler would widen two halves and join them
  return (Vec<float>)((FloatBits)_mm512_cvtepu16_epi32((__m256i)raw) << 16);
#elif LEARNPOOL_BYTES == 32
  return (Vec<float>)((FloatBits)_mm256_cvtepu16_epi32((__m128i)raw) << 16);
#else
  return (Vec<float>)(__builtin_convertvector(raw, FloatBits) << 16);
#endif
}
// Floats rounded to bfloat16, to nearest, ties to even: the upper halves of their bits. Below them there is anything.
template <class Bits, class V>
INLINE Bits round_to_bfloat16(V v) {
  const Bits bits = (Bits)v, rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return v != v ? Bits{} + 0x7fc00000 : rounded;
}
template <>
INLINE HalfBits narrow<BFloat16>(Vec<float> v) {
#if LEARNPOOL_BYTES == 64
  return (HalfBits)_mm512_cvtepi32_epi16((__m512i)(round_to_bfloat16<FloatBits>(v) >> 16));
#else
  return __builtin_convertvector(round_to_bfloat16<FloatBits>(v) >> 16, HalfBits);
#endif
}

// Two neighbours in memory are the two halves of a word, and a float is one in the upper half.
template <class V, class Words>
INLINE void split_words(Words words, V& even, V& odd) {
  even = (V)(words << 16);
  odd = (V)(words & 0xffff0000);
}
template <class Words, class V>
INLINE Words join_words(V even, V odd) {
  return (round_to_bfloat16<Words>(even) >> 16) | (round_to_bfloat16<Words>(odd) & 0xffff0000);
}

template <>
INLINE Vec<float> widen<Half>(HalfBits raw) {
#if LEARNPOOL_BYTES == 64
  return (Vec<float>)_mm512_cvtph_ps((__m256i)raw);
#elif LEARNPOOL_BYTES == 32
  return (Vec<float>)_mm256_cvtph_ps((__m128i)raw);
#else
  const FloatBits bits = __builtin_convertvector(raw, FloatBits), sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
  // Shift exponent and mantissa into place and scale by 2^112; subnormals come out right, inf and NaN need their exponent.
  const Vec<float> scaled = (Vec<float>)(rest << 13) * 0x1p112f;
  return (Vec<float>)((rest >= 0x7c00 ? (rest << 13) | 0x7f800000 : (FloatBits)scaled) | sign);
#endif
}
template <>
INLINE HalfBits narrow<Half>(Vec<float> v) {
#if LEARNPOOL_BYTES == 64
  return (HalfBits)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif LEARNPOOL_BYTES == 32
  return (HalfBits)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const FloatBits bits = (FloatBits)v, sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  // Ordinary numbers: round the mantissa to 10 bits. Subnormals: let the float adder round them in place.
  const FloatBits normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  const FloatBits small = (FloatBits)((Vec<float>)magnitude + 0.5f) - 0x3f000000;
  FloatBits half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x477ff000 ? FloatBits{} + 0x7c00 : half;
  half = magnitude > 0x7f800000 ? FloatBits{} + 0x7e00 : half;
  return __builtin_convertvector(half | sign, HalfBits);
#endif
}

// The first `count` lanes, and zeros.
template <class A>
INLINE Vec<A> first_lanes(Vec<A> v, int64_t count) {
  Mask<A> lane;
  for (int64_t i = 0; i < LANES<A>; ++i) lane[i] = Lane<A>(i);
  return (Vec<A>)((Mask<A>)v & (lane < Lane<A>(count)));
}

// The first `count` numbers of a vector in memory, then zeros; and back.
template <class V, class E>
INLINE V load_first(const E* p, int64_t count) {
#if LEARNPOOL_BYTES == 64
  const uint32_t mask = (1u << count) - 1;
  if constexpr (sizeof(E) == 8) return (V)_mm512_maskz_loadu_pd(__mmask8(mask), p);
  else if constexpr (sizeof(E) == 4) return (V)_mm512_maskz_loadu_ps(__mmask16(mask), p);
  else return (V)_mm256_maskz_loadu_epi16(__mmask16(mask), p);
#else
  E lanes[sizeof(V) / sizeof(E)] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  V v;
  __builtin_memcpy(&v, lanes, sizeof v);
  return v;
#endif
}

template <class E, class V>
INLINE void store_first(E* p, V v, int64_t count) {
#if LEARNPOOL_BYTES == 64
  const uint32_t mask = (1u << count) - 1;
  if constexpr (sizeof(E) == 8) _mm512_mask_storeu_pd(p, __mmask8(mask), (__m512d)v);
  else if constexpr (sizeof(E) == 4) _mm512_mask_storeu_ps(p, __mmask16(mask), (__m512)v);
  else _mm256_mask_storeu_epi16(p, __mmask16(mask), (__m256i)v);
#else
  E lanes[sizeof(V) / sizeof(E)];
  __builtin_memcpy(lanes, &v, sizeof v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
#endif
}

// A vector of A from and to memory of type T; at a ragged end only `count` lanes exist.
template <class A, bool FULL, class T>
INLINE Vec<A> load_as(const T* p, int64_t count) {
  const auto* raw = reinterpret_cast<const RawNumber<T>*>(p);
  if constexpr (FULL) return widen<T>(load<Raw<T>>(raw));
  else return widen<T>(load_first<Raw<T>>(raw, count));
}

template <class A, bool FULL, class T>
INLINE void store_as(T* p, Vec<A> v, int64_t count) {
  auto* raw = reinterpret_cast<RawNumber<T>*>(p);
  if constexpr (FULL) store(raw, narrow<T>(v));
  else store_first(raw, narrow<T>(v), count);
}

// Two vectors of A from and to memory of type T, where it does not matter which number is in which lane: for bfloat16 the even
// and the odd ones, which takes no shuffle.
template <class T>
constexpr bool PAIRED = std::is_same_v<T, BFloat16>;

template <class A, class T>
INLINE void load_pair(const T* p, Vec<A>& a, Vec<A>& b) {
  if constexpr (PAIRED<T>) {
    split_words(load<FloatBits>(reinterpret_cast<const uint16_t*>(p)), a, b);
  } else {
    a = load_as<A, true>(p, LANES<A>);
    b = load_as<A, true>(p + LANES<A>, LANES<A>);
  }
}

template <class A, class T>
INLINE void store_pair(T* p, Vec<A> a, Vec<A> b) {
  if constexpr (PAIRED<T>) {
    store(reinterpret_cast<uint16_t*>(p), join_words<FloatBits>(a, b));
  } else {
    store_as<A, true>(p, a, LANES<A>);
    store_as<A, true>(p + LANES<A>, b, LANES<A>);
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
