// What a thread keeps for the planes of contiguous input it works on, and how their cells are gathered.
#pragma once

#include "layout.h"
#include "pipeline.h"

namespace learnpool::LEARNPOOL_ISA {

// Scratch and layout, which the pipeline is made for.
template <class A>
struct PlaneMemory {
  Scratch scratch_memory;
  const PlaneLayout<A> layout;
  // In whole vectors: those of outputs then do not cross a line of the cache.
  const int64_t margin;

  explicit PlaneMemory(const Call& call) : layout(call, scratch_memory), margin(divide_up(layout.margin, LANES<A>) * LANES<A>) {}
};

template <class A>
struct Plane : PlaneMemory<A>, Pipeline<A> {
  using Number = A;
  using PlaneMemory<A>::layout;
  using Pipeline<A>::call;
  using Pipeline<A>::responses;
  static constexpr bool HAS_EDGES = true;
  A *x, *outputs, *gradients, *line;  // cells; values of outputs, or their gradients; gradients of cells; a row to widen halves
  A* derived_cells;                   // what units derive of cells
  TapList<A> taps;
  std::vector<Segment<A>> segments;
  uint32_t* order;  // at each position, which output it is: for random picks
  PlaneKey key;     // of random picks

  explicit Plane(const Call& call)
      : PlaneMemory<A>(call),
        Pipeline<A>(call, call.memory.weight.region != 0 || call.memory.mix.region != 0, this->scratch_memory,
                    this->margin + layout.map + LANES<A>, this->margin, PIECE) {
    const Pooling& pool = call.pool;
    Scratch& scratch = this->scratch_memory;
    const int64_t size = layout.maps * layout.map + LANES<A>;
    const bool halves = pool.type == Type::Half || pool.type == Type::BFloat16;
    x = scratch.take<A>(size);
    derived_cells = scratch.take<A>(size * this->derived_count);
    this->derived_step = size;
    gradients = scratch.take<A>(pool.backward ? size : 0);
    outputs = scratch.take<A>(layout.map + LANES<A>);
    line = scratch.take<A>(halves ? std::max(pool.cells(), pool.outputs()) : 0);  // with padding there may be more outputs
    taps = this->make_taps(layout.taps);
    taps.count = layout.taps;
    std::copy_n(layout.listed, taps.count, taps.taps);
    segments = layout.list_segments(scratch, responses.n, responses.divisor, responses.live);
    for (Segment<A>& segment : segments) {
      segment.taps = &taps;
      segment.x = x + segment.at;
      segment.derived = derived_cells + segment.at;
      segment.gradients = gradients + segment.at;
      segment.outside = layout.outside + segment.at;
    }
    if (this->picks()) number_outputs();
  }

  // Whether outputs list so many taps: all the same ones.
  bool may_list(int64_t count) const { return taps.count == count; }

  INLINE Vec<A> draw(const Segment<A>& segment, int64_t i) const {
    return to_uniform<A>(hash<Bits<A>>(load<Bits<A>>(order + segment.at + i), key.low - Bits<A>{}, key.high - Bits<A>{}));
  }

 private:
  void number_outputs() {
    const Pooling& pool = call.pool;
    order = this->scratch_memory.template take<uint32_t>(layout.map + LANES<A>);
    for (int64_t r = 0; r < pool.d.out * pool.h.out; ++r) {
      for (int64_t ow = 0; ow < pool.w.out; ++ow) order[layout.output_row[r] + ow] = uint32_t(r * pool.w.out + ow);
    }
  }
};

// Positions [from, to) of all maps, which nothing can reach any more when the segments of a piece and those before are done.
template <class A>
struct Piece {
  Span<A> span;
  int64_t from, to;
};

// The gradient of the cells of map m: every cell receives c_max [tap is the maximum] + c_mean + sum_d c_d w_d[tap] from each tap
// that read it, here for the positions of a piece. Taps run backwards, so that a cell adds up in the order PyTorch's own pools do.
// READERS: how many taps, if known.
template <int READERS, bool PER_LANE, class A>
INLINE void gather_map(const Plane<A>& plane, int64_t m, const Piece<A>& piece) {
  using V = Vec<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const int64_t dots = int64_t(plane.dots.size()), size = plane.responses.size, taps = plane.taps.count;
  const int64_t *readers = layout.readers + layout.begin[m], many = READERS >= 0 ? READERS : layout.begin[m + 1] - layout.begin[m];
  const int64_t first = m * layout.map, end = std::min(piece.to, layout.end[m]);
  const bool statistics = plane.has_statistics, adds = !plane.others.empty();
  const Parameter& strides = plane.call.memory.weight;
  A* gradients = plane.gradients + first;
  for (int64_t i = piece.from; i < end; i += LANES<A>) {
    V received = adds ? load<V>(gradients + i) : V{};
    for (int64_t j = 0; j < many; ++j) {
      const auto& [tap, place, fresh] = layout.listed[readers[j]];
      const int64_t at = i + first - place;
      if (statistics) {
        const Mask<A> is_maximum = load<Mask<A>>(reinterpret_cast<const Lane<A>*>(plane.winner) + at) == Lane<A>(tap);
        received += load<V>(plane.to_mean + at) + (is_maximum ? load<V>(plane.to_max + at) : V{});
      }
      for (int64_t d = 0; d < dots; ++d) {
        const V c = load<V>(plane.to_dot + d * size + at);
        if constexpr (PER_LANE) received += c * load<V>(plane.weight + plane.dot_row(d) * strides.row + tap * strides.tap + at);
        else received += c * plane.taps.dot_weights[d * taps + readers[j]];
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
        const Mask<A> winner = load<Mask<A>>(reinterpret_cast<const Lane<A>*>(plane.winner) + at + g * LANES<A>);
        for_each_tap([&](int tap, V* to) ALWAYS_INLINE { to[g] += to_mean + (winner == Lane<A>(tap) ? to_max : V{}); });
      }
    }
#pragma GCC unroll 8
    for (int64_t d = 0; d < dots; ++d) {
      const A *w = plane.taps.dot_weights + d * 9, *c = plane.to_dot + d * plane.responses.size + at;
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
void gather_all_phases(const Plane<A>& plane, const Piece<A>& piece) {
  const int64_t end = std::min(piece.to, plane.call.memory.pitch.size());
  for (int64_t i = piece.from; i < end; i += 2 * LANES<A>) gather_phases<STATISTICS, DOTS>(plane, i);
}

template <bool PER_LANE, class A>
void gather_maps(const Plane<A>& plane, const Piece<A>& piece) {
  const PlaneLayout<A>& layout = plane.layout;
  for (int64_t m = 0; m < layout.maps; ++m) {
    switch (PER_LANE || sizeof(A) == 8 ? -1 : layout.begin[m + 1] - layout.begin[m]) {
      case 1: gather_map<1, PER_LANE>(plane, m, piece); break;
      case 2: gather_map<2, PER_LANE>(plane, m, piece); break;
      case 4: gather_map<4, PER_LANE>(plane, m, piece); break;
      default: gather_map<-1, PER_LANE>(plane, m, piece);
    }
  }
}

// What the cells of a piece receive from the statistics and the inner products.
template <class A>
void gather_group(const Plane<A>& plane, const Piece<A>& piece) {
  const size_t dots = plane.dots.size();
  if (plane.per_lane) gather_maps<true>(plane, piece);
  else if (!plane.others.empty() || plane.taps.count != 9 || !is_3x3_stride_2(plane.call.pool)) gather_maps<false>(plane, piece);
  else if (plane.has_statistics && dots == 0) gather_all_phases<true, 0>(plane, piece);
  else if (plane.has_statistics && dots == 1) gather_all_phases<true, 1>(plane, piece);
  else if (plane.has_statistics) gather_all_phases<true, -1>(plane, piece);
  else if (dots == MOST_DOTS) gather_all_phases<false, MOST_DOTS>(plane, piece);
  else gather_all_phases<false, -1>(plane, piece);
}

}  // namespace learnpool::LEARNPOOL_ISA
