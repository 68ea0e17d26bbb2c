// Where the cells, outputs and taps of a plane lie in scratch, the same for every plane of a call.
//
// A plane is copied into scratch once, deinterleaved by stride phase along every axis: the map of a phase holds, at position q
// of an axis, the cell q * stride + phase - padding, and zero where there is none. All maps and the outputs have the same
// pitch. So output o meets tap k at o + shift[k], whatever o, and position i of a map receives from the outputs i - back[k] of
// the taps that read that map: every step is one loop over contiguous vectors. Positions between rows, where no output exists,
// are computed too and count for nothing. A large plane goes through in bands, from its first row to its last.
#pragma once

#include "scratch.h"
#include "segment.h"

namespace learnpool::LEARNPOOL_ISA {

constexpr int64_t PIECE = PIECE_BYTES / LEARNPOOL_BYTES;  // vectors of outputs

template <class A>
class PlaneLayout {
 public:
  int64_t map, maps;                 // length of a map; number of maps
  int64_t taps;                      // that meet a cell in any output: not all of them where the input is smaller than the window
  Tap* listed;                       // these, and where their cells are in scratch, counted from the output
  int64_t *readers, *begin;          // taps by map, last first; [maps + 1] where each map's begin
  int64_t* end;                      // [maps] behind the last cell of each
  int64_t margin;                    // the largest distance from a cell to an output
  Lane<A>* outside;                  // [maps][map] the bits of -inf where there is no cell, else 0
  int64_t *row, *column;             // where each row of input begins in scratch, and in a row its first cells
  int64_t *row_in_map, *output_row;  // where each row of input begins in its map, each row of outputs in theirs

  PlaneLayout(const Call& call, Scratch& scratch) : pool_(call.pool), pitch_(call.memory.pitch) {
    map = pitch_.size() + 2 * LANES<A>;  // pairs of vectors end behind it
    maps = pool_.d.phases() * pool_.h.phases() * pool_.w.phases();
    list_taps(scratch);
    list_rows(scratch);
    mark_outside(scratch);
  }

 private:
  const Pooling& pool_;
  const Pitch& pitch_;

  // A tap along one axis.
  struct AxisTap {
    int64_t k, position, phase;
  };

  static std::vector<AxisTap> list_axis_taps(const Axis& axis) {
    std::vector<AxisTap> taps;
    taps.reserve(std::min<int64_t>(axis.kernel, 16));
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const int64_t reach = k * axis.dilation;
      if (axis.meets_cell(k)) taps.push_back({k, reach / axis.stride, reach % axis.stride});
    }
    return taps;
  }

  void list_taps(Scratch& scratch) {
    const Axis &h = pool_.h, &w = pool_.w;
    const std::vector<AxisTap> taps_d = list_axis_taps(pool_.d), taps_h = list_axis_taps(h), taps_w = list_axis_taps(w);
    taps = int64_t(taps_d.size() * taps_h.size() * taps_w.size());
    listed = scratch.take<Tap>(taps);
    readers = scratch.take<int64_t>(taps);
    begin = scratch.take<int64_t>(maps + 1);
    int64_t t = 0;
    margin = 0;
    for (const AxisTap& kd : taps_d) {
      for (const AxisTap& kh : taps_h) {
        for (const AxisTap& kw : taps_w) {
          const int64_t map_of = (kd.phase * h.phases() + kh.phase) * w.phases() + kw.phase;
          const int64_t back = pitch_.index(kd.position, kh.position, kw.position);
          listed[t++] = {(kd.k * h.kernel + kh.k) * w.kernel + kw.k, map_of * map + back, false};
          margin = std::max(margin, back);
          ++begin[map_of + 1];
        }
      }
    }
    for (int64_t m = 0; m < maps; ++m) begin[m + 1] += begin[m];
    int64_t* next = scratch.take<int64_t>(maps);
    std::copy_n(begin, maps, next);
    while (t-- > 0) readers[next[listed[t].place / map]++] = t;
  }

  void list_rows(Scratch& scratch) {
    const Axis &d = pool_.d, &h = pool_.h, &w = pool_.w;
    row = scratch.take<int64_t>(d.in * h.in);
    row_in_map = scratch.take<int64_t>(d.in * h.in);
    end = scratch.take<int64_t>(maps);
    for (int64_t id = 0, r = 0; id < d.in; ++id) {
      for (int64_t ih = 0; ih < h.in; ++ih, ++r) {
        const int64_t first_map = (d.phase(id) * h.phases() + h.phase(ih)) * w.phases();
        row_in_map[r] = pitch_.index(d.position(id), h.position(ih), 0);
        row[r] = first_map * map + row_in_map[r];
        for (int64_t iw = std::max<int64_t>(0, w.in - w.phases()); iw < w.in; ++iw) {
          int64_t& behind = end[first_map + w.phase(iw)];
          behind = std::max(behind, row_in_map[r] + w.position(iw) + 1);
        }
      }
    }
    column = scratch.take<int64_t>(std::min(w.phases(), w.in));
    for (int64_t c = 0; c < std::min(w.phases(), w.in); ++c) column[c] = w.phase(c) * map + w.position(c);
    output_row = scratch.take<int64_t>(d.out * h.out);
    for (int64_t r = 0; r < d.out * h.out; ++r) output_row[r] = pitch_.index(r / h.out, r % h.out, 0);
  }

  void mark_outside(Scratch& scratch) {
    const A infinity = -std::numeric_limits<A>::infinity();
    Lane<A> bits;
    std::memcpy(&bits, &infinity, sizeof bits);
    outside = scratch.take<Lane<A>>(maps * map + LANES<A>);
    std::fill_n(outside, maps * map + LANES<A>, bits);
    const Axis& w = pool_.w;
    for (int64_t r = 0; r < pool_.d.in * pool_.h.in; ++r) {
      for (int64_t c = 0; c < std::min(w.phases(), w.in); ++c) {
        std::fill_n(outside + row[r] + column[c], divide_up(w.in - c, w.stride), Lane<A>(0));
      }
    }
  }

  // An output along one axis.
  struct AxisOutput {
    int64_t n, divisor;  // its cells that exist; what an average divides by
    bool whole, left;    // whether all its taps do; whether all but perhaps the first do
  };

  std::vector<AxisOutput> list_axis_outputs(const Axis& axis) const {
    std::vector<AxisOutput> outputs;
    outputs.reserve(axis.out);
    for (int64_t o = 0; o < axis.out; ++o) {
      const Axis::Range taps = axis.taps(o);
      outputs.push_back({taps.size(), axis.count(o, pool_.count_include_pad), taps.size() == axis.kernel,
                         taps.begin <= 1 && taps.end == axis.kernel});
    }
    return outputs;
  }

 public:
  // Vectors with at least one output, in segments without a gap that end with their piece. Writes into maps of how many cells an
  // output has, what an average divides by, and whether it exists.
  std::vector<Segment<A>> list_segments(Scratch& scratch, A* n, A* divisor, Lane<A>* live) const {
    const int64_t last = pitch_.index(pool_.d.out - 1, pool_.h.out - 1, pool_.w.out);
    const Lacking lacks_left = pool_.w.kernel % 3 == 0 ? Lacking::Left : Lacking::Any;
    const std::vector<AxisOutput> along_d = list_axis_outputs(pool_.d), along_h = list_axis_outputs(pool_.h),
                                  along_w = list_axis_outputs(pool_.w);
    auto is_whole = [](const AxisOutput& output) { return output.whole; };
    const auto inner = std::find_if(along_w.begin(), along_w.end(), is_whole);
    const int64_t begin = inner - along_w.begin(), end = std::find_if_not(inner, along_w.end(), is_whole) - along_w.begin();
    std::fill_n(n, last + LANES<A>, A(pool_.taps()));
    std::fill_n(divisor, last + LANES<A>, A(pool_.taps()));
    Block *blocks = scratch.take<Block>(divide_up(last, LANES<A>)), *next = blocks;
    int64_t d = 0, h = 0, w = 0;  // of an output, or of none: they lie by pitch
    auto advance = [&](int64_t steps) {
      w += steps;
      if (w < pitch_.w) return;
      w = 0;
      if (++h < pitch_.h) return;
      h = 0;
      ++d;
    };
    for (int64_t at = 0; at < last; at += LANES<A>) {
      // Most vectors lie inside a row whose regions are whole.
      if (w >= begin && w + LANES<A> <= end && h < pool_.h.out && along_h[h].whole && along_d[d].whole) {
        std::fill_n(live + at, LANES<A>, Lane<A>(-1));
        *next++ = {at, Lacking::None};
        advance(LANES<A>);
        continue;
      }
      Lacking lacking = Lacking::None;
      bool some = false;
      for (int64_t i = at; i < at + LANES<A>; ++i, advance(1)) {
        live[i] = d < pool_.d.out && h < pool_.h.out && w < pool_.w.out ? -1 : 0;
        some |= live[i] != 0;
        if (live[i] != 0) {
          const AxisOutput &deep = along_d[d], &high = along_h[h], &wide = along_w[w];
          n[i] = A(deep.n * high.n * wide.n);
          divisor[i] = A(std::max<int64_t>(1, deep.divisor * high.divisor * wide.divisor));
          if (deep.whole && high.whole && wide.whole) continue;
          if (!deep.whole || !high.whole || !wide.left) lacking = Lacking::Any;
        }
        lacking = std::max(lacking, lacks_left);
      }
      if (some) *next++ = {at, lacking};
    }
    return split(blocks, next - blocks);
  }

 private:
  static std::vector<Segment<A>> split(Block* blocks, int64_t count) {
    std::vector<Segment<A>> segments;
    for (int64_t b = 0, end; b < count; b = end) {
      end = b + 1;
      while (end < count && end % PIECE != 0 && blocks[end].at == blocks[end - 1].at + LANES<A>) ++end;
      Segment<A> segment{};
      segment.at = segment.region = blocks[b].at;
      segment.count = end - b;
      segment.number = b;
      segment.blocks = blocks + b;
      std::sort(blocks + b, blocks + end, [](const Block& one, const Block& other) {
        return one.lacking != other.lacking ? one.lacking < other.lacking : one.at < other.at;
      });
      for (int64_t i = b; i < end; ++i) {
        blocks[i].at -= segment.at;
        segment.whole += blocks[i].lacking == Lacking::None;
        segment.left += blocks[i].lacking == Lacking::Left;
      }
      segments.push_back(segment);
    }
    return segments;
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
