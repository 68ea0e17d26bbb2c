// The rank response: y = sum of share_j x_(j), x_(0) the largest; equal cells by tap, NaN largest.
//
// With K taps and n cells, share_j = sum_k w_k K |[j/n, (j+1)/n) and [k/K, (k+1)/K)|; for n = K that is w_j. The median has no
// weights: the middle cell has the share 1, or the middle two 1/2 each. Slots: the response,
// then what each tap's cell gets of it, then the sorted cells. Up to nine finite cells are sorted in registers by straight code;
// for backward each pair of them is compared, which gives every cell its place and so its share. More cells, or cells that are not
// finite, are inserted one after another and carry their tap numbers along.
#pragma once

#include "cell.h"

namespace learnpool::LEARNPOOL_ISA {

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

// visit(j, k, share of weight k in cell j) for n cells of a window of K taps: quotients of integers, 1 if n = K.
template <class A, class Visit>
INLINE void for_each_overlap(int64_t n, int64_t taps, Visit visit) {
  for (int64_t j = 0, k = 0, from = 0; j < n;) {
    const int64_t end_of_cell = (j + 1) * taps, end_of_weight = (k + 1) * n, to = std::min(end_of_cell, end_of_weight);
    visit(j, k, A(to - from) / A(n));
    from = to;
    j += to == end_of_cell;
    k += to == end_of_weight;
  }
}

struct Exchange {
  int first, second;
};

// The fewest exchanges that sort so many numbers.
template <int COUNT>
constexpr Exchange FEWEST[] = {{0, 2}, {1, 3}, {0, 1}, {2, 3}, {1, 2}};
template <>
constexpr Exchange FEWEST<9>[] = {{0, 3}, {1, 7}, {2, 5}, {4, 8}, {0, 7}, {2, 4}, {3, 8}, {5, 6}, {0, 2},
                                  {1, 3}, {4, 5}, {7, 8}, {1, 4}, {3, 6}, {5, 7}, {0, 1}, {2, 4}, {3, 5},
                                  {6, 8}, {2, 3}, {4, 5}, {6, 7}, {1, 2}, {3, 4}, {5, 6}};

// Pair number i of two cells: (0, 1), (0, 2), (1, 2), (0, 3) ...
constexpr Exchange get_pair(int i) {
  int second = 1;
  while (i >= second) i -= second++;
  return {i, second};
}

template <class A, bool CAREFUL, bool MEDIAN>
struct Rank : Unit<A> {
  static constexpr int TAP_SLOTS = 2;
  static constexpr bool OWN_WEIGHTS = true;
  using V = Vec<A>;
  using M = Mask<A>;

  TapVectors<V> cells;   // -inf where there is none
  TapVectors<M> absent;  // only if careful
  TapVectors<int64_t> taps;
  int64_t count = 0;
  V total{};

  INLINE explicit Rank(const Region<A>& region) : cells(region.taps), absent(CAREFUL ? region.taps : 0), taps(region.taps) {}

  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    cells[count] = LACKS ? (V)((M)cell.x | cell.lacks) : cell.x;
    if constexpr (CAREFUL) absent[count] = LACKS ? cell.lacks != 0 : M{};
    taps[count++] = cell.tap;
    total += cell.x;
  }

  template <class Slots>
  INLINE V finish(const Region<A>& region, const Slots& slots) {
    TapVectors<V> shares(region.taps);
    compute_shares(region, shares);
    if constexpr (CAREFUL) finish_many(region, shares, slots);
    else if (count <= 4) finish_few<4>(region, shares, slots);
    else if (count <= 9) finish_few<9>(region, shares, slots);
    else finish_many(region, shares, slots);
    return total;
  }
  template <class Slots>
  static INLINE V receive(const Slots& slots, const Cell<A>& cell) {
    const V share = slots.load(1 + cell.tap), product = slots.load(0) * share;
    return CAREFUL ? (share == A(0) ? V{} : product) : product;
  }
  // add(k, what weight k gets).
  template <class Slots, class Add>
  static INLINE void weigh(const Slots& slots, const Region<A>& region, Add add) {
    const int64_t taps = region.taps;
    const V c = slots.load(0);
    const M whole = region.n == A(taps);
    TapVectors<V> grads(taps);
    for (int64_t k = 0; k < taps; ++k) grads[k] = whole ? c * slots.load(1 + taps + k) : V{};
    for_each_small_count(region, [&](int64_t n, M has_so_many) ALWAYS_INLINE {
      for_each_overlap<A>(n, taps, [&](int64_t j, int64_t k, A part) ALWAYS_INLINE {
        grads[k] += has_so_many ? part * (c * slots.load(1 + taps + j)) : V{};
      });
    });
    for (int64_t k = 0; k < taps; ++k) add(k, grads[k]);
  }

 private:
  // visit(n, which regions have so many cells), for those that lack cells, but not all of them.
  template <class Visit>
  static INLINE void for_each_small_count(const Region<A>& region, Visit visit) {
    M left = (region.n > A(0)) & (region.n < A(region.taps));
    for (int64_t n = 1; n < region.taps && has_nan<A>((V)left); ++n) {  // a lane of ones is a NaN
      const M has_so_many = region.n == A(n);
      left &= ~has_so_many;
      if (has_nan<A>((V)has_so_many)) visit(n, has_so_many);
    }
  }

  // Of the cells at these places.
  static INLINE V find_median_share(const Region<A>& region, V place) {
    const V distance = A(2) * place + A(1) - region.n;  // 0 in the middle, 1 and -1 beside it
    const M beside = (distance * distance == A(1)) & (place < region.n);
    return distance == A(0) ? broadcast<A>(A(1)) : beside ? broadcast<A>(A(0.5)) : V{};
  }

  static INLINE void compute_shares(const Region<A>& region, TapVectors<V>& shares) {
    for (int64_t j = 0; MEDIAN && j < region.taps; ++j) shares[j] = find_median_share(region, broadcast<A>(A(j)));
    if (MEDIAN) return;
    const M whole = region.n == A(region.taps);
    for (int64_t j = 0; j < region.taps; ++j) shares[j] = whole ? region.weight(j) : V{};
    for_each_small_count(region, [&](int64_t n, M has_so_many) ALWAYS_INLINE {
      for_each_overlap<A>(n, region.taps, [&](int64_t j, int64_t k, A part) ALWAYS_INLINE {
        shares[j] += has_so_many ? part * region.weight(k) : V{};
      });
    });
  }

  // At most COUNT cells. Adding 0 makes -0 equal to 0 in all its bits.
  template <int COUNT, class Slots>
  INLINE void finish_few(const Region<A>& region, TapVectors<V>& shares, const Slots& slots) {
    for (int64_t j = count; j < COUNT; ++j) cells[j] = broadcast<A>(-std::numeric_limits<A>::infinity());
    for (int64_t j = region.taps; j < COUNT; ++j) shares[j] = V{};
    V x[COUNT], y{};
    for (int j = 0; j < COUNT; ++j) x[j] = cells[j] + A(0);
    if (region.tap_slots.first != nullptr) store_shares(region, shares, x, slots);
    sort_few<COUNT>(x, std::make_index_sequence<std::size(FEWEST<COUNT>)>());
    for (int j = 0; j < COUNT; ++j) {
      x[j] = larger(broadcast<A>(std::numeric_limits<A>::lowest()), x[j]);  // of no cell, whose share is 0
      y += shares[j] * x[j];
    }
    slots.store(0, y);
    if (region.tap_slots.first == nullptr) return;
    for (int64_t j = 0; j < count; ++j) slots.store(1 + region.taps + j, x[j]);
  }
  template <int COUNT, size_t... I>
  static INLINE void sort_few(V (&x)[COUNT], std::index_sequence<I...>) {
    auto exchange = [](V& a, V& b) ALWAYS_INLINE {
      const V low = smaller(a, b);
      a = larger(a, b);
      b = low;
    };
    (exchange(x[FEWEST<COUNT>[I].first], x[FEWEST<COUNT>[I].second]), ...);
  }

  // Each cell's share, by its place. Where all lanes have the same weights, those with as many cells have the same shares.
  template <int COUNT, class Slots>
  INLINE void store_shares(const Region<A>& region, const TapVectors<V>& shares, const V (&x)[COUNT], const Slots& slots) {
    M place[COUNT];
    V share[COUNT];
    for (int i = 0; i < COUNT; ++i) place[i] = M{} + i;
    count_places(x, place, std::make_index_sequence<COUNT*(COUNT - 1) / 2>());
    if constexpr (MEDIAN) {
      for (int i = 0; i < COUNT; ++i) share[i] = find_median_share(region, __builtin_convertvector(place[i], V));
    } else if (region.per_lane) {
      for (int i = 0; i < COUNT; ++i) {
        share[i] = shares[0];
        for (int j = 1; j < COUNT; ++j) share[i] = place[i] == j ? shares[j] : share[i];
      }
    } else {
      A table[16] = {};
      for (int64_t k = 0; k < region.taps && k < COUNT; ++k) table[k] = region.weights[k * region.step];
      for (int i = 0; i < COUNT; ++i) share[i] = look_up(table, place[i]);
      for_each_small_count(region, [&](int64_t n, M has_so_many) ALWAYS_INLINE {
        int64_t lane = 0;
        while (has_so_many[lane] == 0) ++lane;
        for (int64_t j = 0; j < n && j < COUNT; ++j) table[j] = shares[j][lane];
        for (int i = 0; i < COUNT; ++i) share[i] = has_so_many ? look_up(table, place[i]) : share[i];
      });
    }
    for (int64_t i = 0; i < count; ++i) slots.store(1 + taps[i], share[i]);
  }
  // A cell goes before another if it is larger, or as large and of an earlier tap: the sign of their difference.
  template <int COUNT, size_t... I>
  static INLINE void count_places(const V (&x)[COUNT], M (&place)[COUNT], std::index_sequence<I...>) {
    auto compare = [&](int i, int j) ALWAYS_INLINE {
      const M is_smaller = (M)(x[i] - x[j]) >> 31;
      place[i] -= is_smaller;
      place[j] += is_smaller;
    };
    (compare(get_pair(I).first, get_pair(I).second), ...);
  }

  // A cell that does not exist has tap -1 and goes behind all others.
  template <class Slots>
  INLINE void finish_many(const Region<A>& region, const TapVectors<V>& shares, const Slots& slots) {
    TapVectors<V> sorted(count);
    TapVectors<M> order(count);
    for (int64_t i = 0; i < count; ++i) {
      V x = cells[i];
      M tap = M{} + Lane<A>(taps[i]), moved{};
      if constexpr (CAREFUL) tap |= absent[i];
      for (int64_t j = 0; j < i; ++j) {
        const V other = sorted[j];
        const M other_tap = order[j];
        M is_larger = x > other;
        if constexpr (CAREFUL) is_larger = (is_larger | ((x != x) & (other == other)) | (other_tap < 0)) & (tap >= 0);
        moved |= is_larger;
        sorted[j] = moved ? x : other;
        order[j] = moved ? tap : other_tap;
        x = moved ? other : x;
        tap = moved ? other_tap : tap;
      }
      sorted[i] = x;
      order[i] = tap;
    }
    V y{};
    for (int64_t j = 0; j < count; ++j) {
      sorted[j] = A(j) < region.n ? sorted[j] : V{};
      const V product = shares[j] * sorted[j];
      y += CAREFUL ? (shares[j] == A(0) ? V{} : product) : product;
    }
    slots.store(0, y);
    if (region.tap_slots.first == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      V share{};
      for (int64_t j = 0; j < count; ++j) share = order[j] == Lane<A>(taps[i]) ? shares[j] : share;
      slots.store(1 + taps[i], share);
      slots.store(1 + region.taps + i, sorted[i]);
    }
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
