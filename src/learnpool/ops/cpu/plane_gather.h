// Contiguous input: from what reaches the responses of a piece to the gradients of its cells and of the weights.
#pragma once

#include "headers.h"
#include "isa.h"
#include "layout.h"
#include "plane.h"
#include "responses.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// The gradient of w_d[tap] is the sum of c_d x over all regions, here for ROWS inner products from number d on and STEP taps at a
// time, so that their sums stay in registers.
template <int STEP, int ROWS, bool CAREFUL, bool PER_LANE, class A>
void accumulate_weight_rows(const Plane<A>& plane, const Piece& piece, int64_t d) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const Parameter& strides = plane.call.memory.dweight;
  const int64_t all_taps = plane.call.pool.taps();
  const int64_t size = plane.responses.size;
  const A *x = plane.x, *c = plane.to_dot + d * size;
  for (int64_t t = 0; t < layout.taps; t += STEP) {
    V total[ROWS][STEP] = {};
    A* to = plane.dweight + plane.dot_row(d) * strides.row + layout.number[t] * strides.tap;
    for (int64_t b = piece.begin; b < piece.end; ++b) {
      const Block<A>& block = layout.blocks[b];
      V v[STEP];
      M exists[STEP];
      for (int k = 0; k < STEP; ++k) {
        const int64_t at = block.at + layout.shift[t + k];
        v[k] = load<V>(x + at);
        // Where there is no cell or no output one of the two is zero; only infinity or NaN would show.
        exists[k] = ~M{};
        if (CAREFUL && block.edge != nullptr) exists[k] = (load<M>(layout.outside + at) == 0) & block.edge->live;
      }
      for (int j = 0; j < ROWS; ++j) {
        const V to_dot = load<V>(c + j * size + block.at);
        for (int k = 0; k < STEP; ++k) {
          const V product = CAREFUL ? (V)((M)(to_dot * v[k]) & exists[k]) : to_dot * v[k];
          if constexpr (PER_LANE) store(to + block.at, load<V>(to + block.at) + product);
          else total[j][k] += product;
        }
      }
    }
    for (int j = 0; j < ROWS && !PER_LANE; ++j) {
      for (int k = 0; k < STEP; ++k) plane.sums.data[plane.dot_row(d + j) * all_taps + layout.number[t + k]] += total[j][k];
    }
  }
}

// As many taps and rows at a time as there are registers for.
template <int TAPS, class A>
void accumulate_weight_rows(const Plane<A>& plane, const Piece& piece, int64_t d, int64_t rows) {
  constexpr int step = TAPS == 9 ? 3 : TAPS;
  switch (rows) {
    case 1: return accumulate_weight_rows<TAPS, 1, false, false>(plane, piece, d);
    case 2: return accumulate_weight_rows<step, 2, false, false>(plane, piece, d);
    case 3: return accumulate_weight_rows<step, 3, false, false>(plane, piece, d);
    case 4: return accumulate_weight_rows<step, 4, false, false>(plane, piece, d);
    default: return accumulate_weight_rows<step, MOST_DOTS, false, false>(plane, piece, d);
  }
}

template <bool CAREFUL, class A>
void accumulate_weight_grad(const Plane<A>& plane, const Piece& piece, std::bool_constant<CAREFUL>) {
  const int64_t window = plane.call.pool.taps(), taps = plane.layout.taps == window && sizeof(A) == 4 ? window : -1;
  const int64_t count = plane.learned_dots;
  for (int64_t d = 0, rows; d < count; d += rows) {
    rows = plane.per_lane || CAREFUL ? 1 : taps == 4 ? std::min<int64_t>(2, count - d) : count_together(count - d);
    if (plane.per_lane) accumulate_weight_rows<1, 1, CAREFUL, true>(plane, piece, d);
    else if (CAREFUL) accumulate_weight_rows<1, 1, true, false>(plane, piece, d);
    else if (sizeof(A) == 4 && taps == 9) accumulate_weight_rows<9>(plane, piece, d, rows);
    else if (sizeof(A) == 4 && taps == 4) accumulate_weight_rows<4>(plane, piece, d, rows);
    else accumulate_weight_rows<1>(plane, piece, d, rows);
  }
}

// The gradient of the cells of map m: every cell receives c_max [tap is the maximum] + c_mean + sum_d c_d w_d[tap] from each tap
// that read it, here for the positions of a piece. Taps run backwards, so that a cell adds up in the order PyTorch's own pools do.
// READERS: how many taps, if known.
template <int READERS, bool PER_LANE, bool CAREFUL, class A>
INLINE void gather_map(const Plane<A>& plane, int64_t m, const Piece& piece) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const int64_t dots = int64_t(plane.dots.size());
  const int64_t *readers = layout.readers + layout.begin[m], many = READERS >= 0 ? READERS : layout.begin[m + 1] - layout.begin[m];
  const int64_t *back = layout.back, *number = layout.number, end = std::min(piece.to, layout.end[m]);
  const bool statistics = plane.has_statistics;
  const Parameter& strides = plane.call.memory.weight;
  const int64_t size = plane.responses.size, all_taps = plane.call.pool.taps();
  A* gradients = plane.gradients + m * layout.map;
  for (int64_t i = piece.from; i < end; i += LANES<A>) {
    V received{};
    for (int64_t j = 0; j < many; ++j) {
      const int64_t at = i - back[readers[j]], tap = number[readers[j]];
      if (statistics) {
        const M is_maximum = load<M>(reinterpret_cast<const Lane<A>*>(plane.winner) + at) == Lane<A>(tap);
        received += load<V>(plane.to_mean + at) + (is_maximum ? load<V>(plane.to_max + at) : V{});
      }
      // Where there is no output c is zero, so only a weight that is not finite would show.
      M exists{};
      if constexpr (CAREFUL) exists = load<M>(plane.responses.live + at);
      for (int64_t d = 0; d < dots; ++d) {
        const V c = load<V>(plane.to_dot + d * size + at);
        V product;
        if constexpr (PER_LANE) product = c * load<V>(plane.weight + plane.dot_row(d) * strides.row + tap * strides.tap + at);
        else product = c * plane.dot_weights[d * all_taps + tap];
        received += CAREFUL ? (V)((M)product & exists) : product;
      }
    }
    store(gradients + i, received);
  }
}

// The same for the maps of all four phases of a 3×3 window with stride 2, two vectors of each: what an output passes on is then
// loaded once for its nine cells, and a weight once for the pair. For finite numbers and weights that all lanes share. DOTS: how
// many, if known.
template <bool STATISTICS, int DOTS, class A>
INLINE void gather_phases(const Plane<A>& plane, int64_t i) {
  using V = Vec<A>;
  using M = Mask<A>;
  const int64_t dots = DOTS >= 0 ? DOTS : int64_t(plane.dots.size());
  V received[4][2] = {};
  // Outputs one row and one column before these positions read them by tap 8; and so on, last tap first.
#pragma GCC unroll 4
  for (int before = 3; before >= 0; --before) {
    const int64_t at = i - (before / 2 ? plane.call.memory.pitch.w : 0) - before % 2;
    auto for_each_tap = [&](auto f) ALWAYS_INLINE {
#pragma GCC unroll 9
      for (int tap = 8; tap >= 0; --tap) {
        const int h = tap / 3, w = tap % 3;
        if (2 * (h / 2) + w / 2 == before) f(tap, received[2 * (h % 2) + w % 2]);
      }
    };
    if constexpr (STATISTICS) {
      for (int g = 0; g < 2; ++g) {
        const V to_mean = load<V>(plane.to_mean + at + g * LANES<A>), to_max = load<V>(plane.to_max + at + g * LANES<A>);
        const M winner = load<M>(reinterpret_cast<const Lane<A>*>(plane.winner) + at + g * LANES<A>);
        for_each_tap([&](int tap, V* to) ALWAYS_INLINE { to[g] += to_mean + (winner == Lane<A>(tap) ? to_max : V{}); });
      }
    }
#pragma GCC unroll 8
    for (int64_t d = 0; d < dots; ++d) {
      const A *w = plane.dot_weights + d * 9, *c = plane.to_dot + d * plane.responses.size + at;
      V to_dot[2];
      for (int g = 0; g < 2; ++g) to_dot[g] = load<V>(c + g * LANES<A>);
      for_each_tap([&](int tap, V* to) ALWAYS_INLINE {
        for (int g = 0; g < 2; ++g) to[g] += to_dot[g] * broadcast<A>(w[tap]);
      });
    }
  }
  for (int m = 0; m < 4; ++m) {
    for (int g = 0; g < 2; ++g) store(plane.gradients + m * plane.layout.map + i + g * LANES<A>, received[m][g]);
  }
}

inline bool is_3x3_stride_2(const Pooling& pool) {
  auto is_such = [](const Axis& axis) { return axis.kernel == 3 && axis.stride == 2 && axis.dilation == 1; };
  return is_such(pool.h) && is_such(pool.w) && pool.d.kernel == 1 && pool.d.stride == 1;
}

template <bool STATISTICS, int DOTS, class A>
void gather_all_phases(const Plane<A>& plane, const Piece& piece) {
  const int64_t end = std::min(piece.to, plane.call.memory.pitch.size());
  for (int64_t i = piece.from; i < end; i += 2 * LANES<A>) gather_phases<STATISTICS, DOTS>(plane, i);
}

// What the cells of a piece receive from a response of any other kind.
template <class U, bool CAREFUL, class A>
void gather_alone(const Plane<A>& plane, int64_t r, const Piece& piece) {
  using V = Vec<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const Responses<A>& responses = plane.responses;
  const A *slots = responses.slot(r), *derived = plane.derived_cells + plane.derived[r] * plane.derived_step;
  for (int64_t m = 0; m < layout.maps; ++m) {
    const int64_t end = std::min(piece.to, layout.end[m]);
    for (int64_t i = piece.from; i < end; i += LANES<A>) {
      const int64_t place = m * layout.map + i;
      Cell<A> cell;
      cell.x = load<V>(plane.x + place);
      for (int k = 0; k < U::DERIVED; ++k) cell.derived[k] = load<V>(derived + k * plane.derived_step + place);
      V received = load<V>(plane.gradients + place);
      for (int64_t j = layout.begin[m]; j < layout.begin[m + 1]; ++j) {
        const int64_t t = layout.readers[j], at = i - layout.back[t];
        const SlotsAt<A, false> there{const_cast<A*>(slots) + at, responses.size, {}};
        cell.tap = Lane<A>(layout.number[t]);
        if constexpr (U::DOT) {
          const Parameter& strides = plane.call.memory.weight;
          const int64_t row = plane.call.pool.program.responses[r].weight, tap = layout.number[t];
          cell.w = plane.per_lane ? load<V>(plane.weight + row * strides.row + tap * strides.tap + at)
                                  : broadcast<A>(plane.dense[row * plane.call.pool.taps() + tap]);
        }
        const V share = U::receive(there, cell);
        // A cell that no region reads may be NaN.
        received += (V)((Mask<A>)share & load<Mask<A>>(responses.live + at));
      }
      store(plane.gradients + place, received);
    }
  }
}

template <bool PER_LANE, bool CAREFUL, class A>
void gather_maps(const Plane<A>& plane, const Piece& piece) {
  const PlaneLayout<A>& layout = plane.layout;
  for (int64_t m = 0; m < layout.maps; ++m) {
    switch (PER_LANE || CAREFUL || sizeof(A) == 8 ? -1 : layout.begin[m + 1] - layout.begin[m]) {
      case 1: gather_map<1, PER_LANE, CAREFUL>(plane, m, piece); break;
      case 2: gather_map<2, PER_LANE, CAREFUL>(plane, m, piece); break;
      case 4: gather_map<4, PER_LANE, CAREFUL>(plane, m, piece); break;
      default: gather_map<-1, PER_LANE, CAREFUL>(plane, m, piece);
    }
  }
}

template <bool CAREFUL, class A>
void gather_cells(const Plane<A>& plane, const Piece& piece, std::bool_constant<CAREFUL>) {
  const size_t dots = plane.dots.size();
  if (plane.per_lane) gather_maps<true, CAREFUL>(plane, piece);
  else if (CAREFUL || plane.layout.taps != 9 || !is_3x3_stride_2(plane.call.pool)) gather_maps<false, CAREFUL>(plane, piece);
  else if (plane.has_statistics && dots == 0) gather_all_phases<true, 0>(plane, piece);
  else if (plane.has_statistics && dots == 1) gather_all_phases<true, 1>(plane, piece);
  else if (plane.has_statistics) gather_all_phases<true, -1>(plane, piece);
  else if (dots == MOST_DOTS) gather_all_phases<false, MOST_DOTS>(plane, piece);
  else gather_all_phases<false, -1>(plane, piece);
  for (int64_t r : plane.others) {
    with_unit<A, CAREFUL>(plane.call.pool.program.responses[r].kind,
                          [&](auto unit) { gather_alone<typename decltype(unit)::Unit, CAREFUL>(plane, r, piece); });
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
