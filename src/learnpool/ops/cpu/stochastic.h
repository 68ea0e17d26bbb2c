// Stochastic pooling of a vector of regions, by the equations of stochastic.py. Taps are what planes.h and channels.h make of a
// region: how many there are, and of each its cell, whether it exists, and its number in the window.
#pragma once

#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

template <class A>
struct Picks {
  Vec<A> value;    // the cell that was picked, or the expected one
  Vec<A> total;    // what likelihoods are divided by
  Mask<A> winner;  // the tap that was picked
  Mask<A> flat;    // no cell is positive: all are equally likely
};

// Zero for negative numbers; NaN stays NaN.
template <class A>
INLINE Vec<A> clamp_negative(Vec<A> v) {
  return v < A(0) ? Vec<A>{} : v;
}

// Before the choice: the sum of all likelihoods. With `before`, also what lies before each tap.
template <class A, class Taps>
INLINE Picks<A> sum_likelihoods(const Taps& taps, Vec<A>* before = nullptr) {
  const int64_t count = taps.size();
  Picks<A> picks;
  picks.value = picks.total = Vec<A>{};
  picks.winner = Mask<A>{} - 1;
#pragma GCC unroll 9
  for (int64_t i = 0; i < count; ++i) {
    if (before != nullptr) before[i] = picks.total;
    picks.total += clamp_negative<A>(taps.cell(i));
  }
  picks.flat = picks.total == A(0);
  picks.total = picks.flat ? taps.count() : picks.total;
  return picks;
}

// 1 for each cell of a region that is flat, to be added to its likelihood of 0.
template <class A>
INLINE Vec<A> get_flat_likelihood(const Picks<A>& picks) {
  return (Vec<A>)((Mask<A>)broadcast<A>(A(1)) & picks.flat);
}

// How far the random number reaches into the likelihoods, one after another: less than the total, so that the last tap that begins
// at or before it has a likelihood; NaN, which no tap begins before, where the total is not finite.
template <class A>
INLINE Vec<A> find_threshold(Vec<A> sample, Vec<A> total) {
  const Vec<A> threshold = sample * total, below = (Vec<A>)((Mask<A>)total - 1);
  return (threshold < total ? threshold : below) + (total - total);
}

// The last cell that begins at or before the threshold.
template <class A, class Taps>
INLINE Picks<A> pick_cells(const Taps& taps, Vec<A> sample) {
  using V = Vec<A>;
  using M = Mask<A>;
  constexpr int kept = Taps::KNOWN > 0 ? Taps::KNOWN : 1;
  const int64_t count = taps.size();
  V before[kept], passed{};
  Picks<A> picks = sum_likelihoods<A>(taps, Taps::KNOWN > 0 ? before : nullptr);
  const V threshold = find_threshold<A>(sample, picks.total), flat = get_flat_likelihood<A>(picks);
  picks.value = picks.total - picks.total;  // NaN where the total is not finite
#pragma GCC unroll 9
  for (int64_t i = 0; i < count; ++i) {
    const V v = taps.cell(i), same = (V)((M)flat & taps.exists(i));
    V begin = passed;
    if constexpr (Taps::KNOWN > 0) begin += before[i];
    const M reached = begin <= threshold;
    picks.value = reached ? v : picks.value;
    picks.winner = reached ? M{} + Lane<A>(taps.number(i)) : picks.winner;
    passed += Taps::KNOWN > 0 ? same : same + clamp_negative<A>(v);
  }
  return picks;
}

// The expected pick. Sums below the smallest normal number count as that, so that their inverse is finite.
template <class A, class Taps>
INLINE Picks<A> expect_cells(const Taps& taps) {
  using V = Vec<A>;
  constexpr A least = std::numeric_limits<A>::min();
  Picks<A> picks = sum_likelihoods<A>(taps);
  picks.total = picks.total < least ? broadcast<A>(least) : picks.total;
  const V inverse = A(1) / picks.total;
  const V flat = get_flat_likelihood<A>(picks);
  const int64_t count = taps.size();
#pragma GCC unroll 9
  for (int64_t i = 0; i < count; ++i) {
    const V v = taps.cell(i), likelihood = clamp_negative<A>(v) + (V)((Mask<A>)flat & taps.exists(i));
    picks.value += likelihood == A(0) ? V{} : likelihood * inverse * v;  // beside -inf too
  }
  return picks;
}

// What reaches a cell x of a region of which the expected pick was taken: flat + (2 x slope - offset if x > 0).
template <class A>
struct ExpectedGrad {
  Vec<A> flat, slope, offset;

  ExpectedGrad() = default;
  INLINE ExpectedGrad(const Picks<A>& picks, Vec<A> grad) {
    const Vec<A> share = grad / picks.total;
    flat = (picks.flat ? grad : Vec<A>{}) / picks.total;  // NaN where the total is
    slope = picks.flat ? Vec<A>{} : share;
    offset = slope * picks.value;
  }
  INLINE Vec<A> at(Vec<A> x) const {
    const Vec<A> rise = slope == A(0) ? Vec<A>{} : A(2) * x * slope;  // an infinite cell may be in no region
    return flat + (x > A(0) ? rise - offset : Vec<A>{});
  }
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
