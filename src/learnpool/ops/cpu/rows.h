// Rows of cells between memory and scratch: copied, or deinterleaved by stride phase.
#pragma once

#include "halves.h"
#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

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

// Fewer than 4 N cells, by narrower and narrower vectors.
template <To TO, int N, class A, class B>
INLINE void deinterleave_rest(A* cells, B* even, B* odd, int64_t n) {
  if constexpr (N > 1) {
    if (n >= 2 * N) {
      deinterleave_vector<TO, N>(cells, even, odd);
      cells += 2 * N, even += N, odd += N, n -= 2 * N;
    }
  }
  if constexpr (N > 2) {
    if (n > 0) deinterleave_rest<TO, N / 2>(cells, even, odd, n);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      B& place = i % 2 == 0 ? even[i / 2] : odd[i / 2];
      if constexpr (TO == To::Memory) cells[i] = place;
      else place = cells[i];
    }
  }
}

// Rows of n cells: the even ones of row r lie from scratch[row[r] + even] on, the odd ones from scratch[row[r] + odd] on.
template <To TO, int N, class A, class B>
INLINE void deinterleave(const int64_t* row, int64_t rows, int64_t even, int64_t odd, A* cells, B* scratch, int64_t n) {
  if constexpr (N > 4) {
    if (n < 2 * N) return deinterleave<TO, N / 2>(row, rows, even, odd, cells, scratch, n);
  }
  const int64_t whole = n / (2 * N) * N, rest = n - 2 * whole;
  for (int64_t r = 0; r < rows; ++r, cells += n) {
    B *evens = scratch + row[r] + even, *odds = scratch + row[r] + odd;
    for (int64_t i = 0; i < whole; i += N) deinterleave_vector<TO, N>(cells + 2 * i, evens + i, odds + i);
    if (rest > 0) deinterleave_rest<TO, N / 2>(cells + 2 * whole, evens + whole, odds + whole, rest);
  }
}

// Fewer than 2 N numbers, by narrower and narrower vectors.
template <int N, class T>
INLINE void copy_rest(const T* from, T* to, int64_t n) {
  using V = typename NarrowVec<T, N>::type;
  if (n >= N) {
    store(to, load<V>(from));
    from += N, to += N, n -= N;
  }
  if constexpr (N > 2) {
    if (n > 0) copy_rest<N / 2>(from, to, n);
  } else if (n > 0) {
    *to = *from;
  }
}

// n numbers from one row to another.
template <class A>
INLINE void copy_row(const A* from, A* to, int64_t n) {
  constexpr int64_t lanes = LANES<A>;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load<Vec<A>>(from + i));
  if (i < n) copy_rest<lanes / 2>(from + i, to + i, n - i);
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
