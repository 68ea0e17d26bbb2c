// The rank response: y = sum of share_j x_(j), x_(0) the largest; equal cells by tap, NaN largest.
//
// With K taps and n cells, share_j = sum_k w_k K |[j/n, (j+1)/n) and [k/K, (k+1)/K)|; for n = K that is w_j. Slots: the response,
// then what each tap's cell gets of it, then the sorted cells. Cells are inserted one after another, each vector of regions at
// once, and carry their tap numbers along.
#pragma once

#include "cell.h"
#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// Vectors for every tap of a window; on the stack if they are few.
template <class V>
class TapVectors {
 public:
  explicit TapVectors(int64_t taps) {
    if (taps <= FEW) return;
    many_.reset(static_cast<V*>(::operator new(taps * sizeof(V), std::align_val_t(64))));
    data_ = many_.get();
  }
  INLINE V& operator[](int64_t i) { return data_[i]; }
  INLINE const V& operator[](int64_t i) const { return data_[i]; }

 private:
  static constexpr int64_t FEW = 25;
  struct Free {
    void operator()(V* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  V few_[FEW];
  std::unique_ptr<V, Free> many_;
  V* data_ = few_;
};

// visit(k, share of weight k) for the j-th of n cells, of K taps: quotients of integers, 1 if n = K.
template <class A, class Visit>
INLINE void for_each_overlap(int64_t j, int64_t n, int64_t taps, Visit visit) {
  for (int64_t k = j * taps / n; k < taps && k * n < (j + 1) * taps; ++k) {
    const int64_t overlap = std::min((j + 1) * taps, (k + 1) * n) - std::max(j * taps, k * n);
    if (overlap > 0) visit(k, A(overlap) / A(n));
  }
}

template <class A, bool CAREFUL>
struct Rank {
  static constexpr int PASSES = 1, SLOTS = 0;
  static constexpr bool DOT = false;
  using V = Vec<A>;
  using M = Mask<A>;

  TapVectors<V> sorted;
  TapVectors<M> taps;
  int64_t count = 0;
  V total{};

  INLINE explicit Rank(const Region<A>& region) : sorted(region.taps), taps(region.taps) {}

  template <int PASS>
  INLINE void begin(const Region<A>&) {}

  // A cell that does not exist has tap -1 and goes behind all others.
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    V x = LACKS ? (V)((M)cell.x | cell.lacks) : cell.x;
    M tap = M{} + cell.tap, moved{};
    if constexpr (LACKS) tap = cell.lacks == 0 ? tap : M{} - 1;
    total += cell.x;
    for (int64_t j = 0; j < count; ++j) {
      const V other = sorted[j];
      const M other_tap = taps[j];
      M larger_one = x > other;
      if constexpr (CAREFUL) larger_one |= (x != x) & (other == other);
      if constexpr (CAREFUL && LACKS) larger_one = (larger_one | (other_tap < 0)) & (tap >= 0);
      moved |= larger_one;
      sorted[j] = moved ? x : other;
      taps[j] = moved ? tap : other_tap;
      x = moved ? other : x;
      tap = moved ? other_tap : tap;
    }
    sorted[count] = x;
    taps[count++] = tap;
  }

  template <class Slots>
  INLINE V finish(const Region<A>& region, const Slots& slots) {
    TapVectors<V> shares(region.taps);
    for (int64_t j = 0; j < count; ++j) shares[j] = region.n == A(region.taps) ? region.weight(j) : V{};
    for_each_small(region, [&](int64_t lane, int64_t n) {
      for (int64_t j = 0; j < n; ++j) {
        A share = 0;
        for_each_overlap<A>(j, n, region.taps, [&](int64_t k, A part) { share += part * region.weight(k, lane); });
        shares[j][lane] = share;
      }
    });
    V y{};
    for (int64_t j = 0; j < count; ++j) {
      sorted[j] = taps[j] < 0 ? V{} : sorted[j];
      const V product = shares[j] * sorted[j];
      y += CAREFUL ? (shares[j] == A(0) ? V{} : product) : product;
    }
    slots.store(0, y);
    if (!region.backward) return total;
    for (int64_t k = 0; k < region.taps; ++k) {
      V share{};
      for (int64_t j = 0; j < count; ++j) share = taps[j] == Lane<A>(k) ? shares[j] : share;
      slots.store(1 + k, share);
      slots.store(1 + region.taps + k, k < count ? sorted[k] : V{});
    }
    return total;
  }
  template <class Slots>
  static INLINE V send(V c, const Region<A>&, const Slots& slots) {
    slots.store(0, c);
    return V{};
  }
  template <class Slots>
  static INLINE V receive(const Slots& slots, V, V, Lane<A> tap) {
    const V share = slots.load(1 + tap), product = slots.load(0) * share;
    return CAREFUL ? (share == A(0) ? V{} : product) : product;
  }
  // add(k, what weight k gets).
  template <class Slots, class Add>
  static INLINE void weigh(const Slots& slots, const Region<A>& region, Add add) {
    const int64_t taps = region.taps;
    const V c = slots.load(0);
    TapVectors<V> grads(taps);
    const M whole = region.n == A(taps);
    for (int64_t k = 0; k < taps; ++k) grads[k] = whole ? c * slots.load(1 + taps + k) : V{};
    for_each_small(region, [&](int64_t lane, int64_t n) {
      for (int64_t j = 0; j < n; ++j) {
        const A product = c[lane] * slots.first[(1 + taps + j) * slots.size + lane];
        for_each_overlap<A>(j, n, taps, [&](int64_t k, A part) { grads[k][lane] += part * product; });
      }
    });
    for (int64_t k = 0; k < taps; ++k) add(k, grads[k]);
  }

 private:
  // visit(lane, n) for regions that lack cells, but not all of them.
  template <class Visit>
  static INLINE void for_each_small(const Region<A>& region, Visit visit) {
    for (int64_t lane = 0; lane < LANES<A>; ++lane) {
      const int64_t n = int64_t(region.n[lane]);
      if (n > 0 && n < region.taps) visit(lane, n);
    }
  }
};

template <class A, bool CAREFUL>
constexpr bool HAS_OWN_WEIGHTS<Rank<A, CAREFUL>> = true;

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
