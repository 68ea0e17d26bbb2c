// Vectors by the compiler's own extension: the same source becomes SSE2, AVX2, AVX-512 or NEON.
#pragma once

#include "headers.h"
#include "isa.h"

namespace learnpool::LEARNPOOL_ISA {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;

// N numbers, whatever the instruction set's own width.
template <class E, int N>
struct NarrowVec {
  typedef E type __attribute__((vector_size(N * sizeof(E))));
};
template <class A>
constexpr int64_t LANES = LEARNPOOL_BYTES / sizeof(A);
template <class A>
using Lane = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;  // of a mask
template <class A>
using Vec = typename NarrowVec<A, LANES<A>>::type;
template <class A>
using Mask = typename NarrowVec<Lane<A>, LANES<A>>::type;

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

// table[index] in each lane, of 16 numbers.
INLINE Vec<float> look_up(const float* table, Mask<float> index) {
#if defined(__x86_64__) && LEARNPOOL_BYTES == 64
  return _mm512_permutexvar_ps((__m512i)index, load<Vec<float>>(table));
#elif defined(__x86_64__) && LEARNPOOL_BYTES == 32
  const Vec<float> low = _mm256_permutevar8x32_ps(load<Vec<float>>(table), (__m256i)index);
  return index > 7 ? _mm256_permutevar8x32_ps(load<Vec<float>>(table + 8), (__m256i)index) : low;
#else
  Vec<float> found;
  for (int64_t i = 0; i < LANES<float>; ++i) found[i] = table[index[i]];
  return found;
#endif
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

}  // namespace learnpool::LEARNPOOL_ISA
