// Numbers of every type between memory and scratch: halves are widened to float and rounded back; rows are copied, or deinterleaved
// by stride phase.
#pragma once

#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

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

template <class V, int... I>
INLINE void unzip(V a, V b, V& even, V& odd, std::integer_sequence<int, I...>) {
  even = __builtin_shufflevector(a, b, (2 * I)...);
  odd = __builtin_shufflevector(a, b, (2 * I + 1)...);
}

template <class V, int... I>
INLINE void zip(V even, V odd, V& a, V& b, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  a = __builtin_shufflevector(even, odd, (I / 2 + I % 2 * n)...);
  b = __builtin_shufflevector(even, odd, (n / 2 + I / 2 + I % 2 * n)...);
}

// Cells into scratch, or gradients back out of it.
enum class To { Scratch, Memory };

// 2 N cells one after another, and every second of them in two rows of scratch.
template <To TO, int N, class C, class B>
INLINE void deinterleave_vector(C* cells, B* even, B* odd) {
  using V = typename NarrowVec<B, N>::type;
  if constexpr (std::is_same_v<std::remove_const_t<C>, BFloat16>) {
    using Words = typename NarrowVec<uint32_t, N>::type;
    if constexpr (TO == To::Memory) {
      store(reinterpret_cast<uint16_t*>(cells), join_words<Words>(load<V>(even), load<V>(odd)));
    } else {
      V a, b;
      split_words(load<Words>(reinterpret_cast<const uint16_t*>(cells)), a, b);
      store(even, a);
      store(odd, b);
    }
  } else {
    constexpr auto order = std::make_integer_sequence<int, N>{};
    V a, b;
    if constexpr (TO == To::Memory) {
      zip(load<V>(even), load<V>(odd), a, b, order);
      store(cells, a);
      store(cells + N, b);
    } else {
      unzip(load<V>(cells), load<V>(cells + N), a, b, order);
      store(even, a);
      store(odd, b);
    }
  }
}

// A row of n cells, its rest by narrower and narrower vectors.
template <To TO, int N, class A, class B>
INLINE void deinterleave_row(A* cells, B* even, B* odd, int64_t n) {
  for (; n >= 2 * N; cells += 2 * N, even += N, odd += N, n -= 2 * N) deinterleave_vector<TO, N>(cells, even, odd);
  if constexpr (N > 2) {
    if (n > 0) deinterleave_row<TO, N / 2>(cells, even, odd, n);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      B& place = i % 2 == 0 ? even[i / 2] : odd[i / 2];
      if constexpr (TO == To::Memory) cells[i] = place;
      else place = cells[i];
    }
  }
}

// n numbers from one row to another.
template <class A, int N = LANES<A>>
INLINE void copy_row(const A* from, A* to, int64_t n) {
  for (; n >= N; from += N, to += N, n -= N) store(to, load<typename NarrowVec<A, N>::type>(from));
  if constexpr (N > 2) {
    if (n > 0) copy_row<A, N / 2>(from, to, n);
  } else if (n > 0) {
    *to = *from;
  }
}

// n numbers from a row to one of another type.
template <class A, class T, class U>
INLINE void convert_row(const T* from, U* to, int64_t n) {
  constexpr int64_t lanes = LANES<A>;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_as<A, true>(to + i, load_as<A, true>(from + i, lanes), lanes);
  if (i < n) store_as<A, false>(to + i, load_as<A, false>(from + i, n - i), n - i);
}

// Numbers on their way between memory and scratch: halves pass through a row of floats.
template <class T>
INLINE const Accumulator<T>* widen_row(const T* from, int64_t n, Accumulator<T>* row) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    return from;
  } else {
    convert_row<Accumulator<T>>(from, row, n);
    return row;
  }
}

// fill(row) writes n numbers.
template <class T, class Fill>
INLINE void write_row(T* to, int64_t n, Accumulator<T>* row, Fill fill) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    fill(to);
  } else {
    fill(row);
    convert_row<Accumulator<T>>(row, to, n);
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
