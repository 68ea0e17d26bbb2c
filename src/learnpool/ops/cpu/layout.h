// Where the cells, outputs and taps of a plane lie in scratch, the same for every plane of a call.
//
// A plane is copied into scratch once, deinterleaved by stride phase along every axis: the map of a phase holds, at position q
// of an axis, the cell q * stride + phase - padding, and zero where there is none. All maps and the outputs have the same
// pitch. So output o meets tap k at o + shift[k], whatever o, and position i of a map receives from the outputs i - back[k] of
// the taps that read that map: every step is one loop over contiguous vectors. Positions between rows, where no output exists,
// are computed too and count for nothing. A large plane goes through in bands, from its first row to its last.
#pragma once

#include "headers.h"
#include "isa.h"
#include "scratch.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// A vector of outputs of which some do not exist, or some of their cells.
template <class A>
struct Edge {
  Vec<A> n, divisor;  // its cells that exist; what an average divides by
  Mask<A> live;       // whether the output exists
  Mask<A> first;      // its first tap that exists, -1 if none does
  bool left;          // whether missing cells are those of taps 0, 3 and 6 alone: the first column of a window of three
};

template <class A>
struct Block {
  int64_t at;           // its first output
  const Edge<A>* edge;  // null if all outputs and their cells exist
};

// Vectors of outputs [begin, end) of a plane's, and the positions [from, to) of all maps that nothing can reach any more when
// they and those before are done.
struct Piece {
  int64_t begin, end, from, to;
};

constexpr int64_t PIECE = PIECE_BYTES / LEARNPOOL_BYTES;  // vectors of outputs

// Vectors of outputs [begin, end) of one piece without a gap between them. How many are whole, and how many lack at most cells of
// the first column: in `sorted` those come first, in this order.
struct Run {
  int64_t begin, end, whole, left;
};

template <class A>
class PlaneLayout {
 public:
  int64_t map, maps;                 // length of a map; number of maps
  int64_t taps;                      // that meet a cell in any output: not all of them where the input is smaller than the window
  int64_t *number, *shift, *back;    // [taps] number in the window; from an output to its cell in scratch, and in its map
  int64_t *readers, *begin;          // taps by map, last first; [maps + 1] where each map's begin
  int64_t* end;                      // [maps] behind the last cell of each
  int64_t margin;                    // the largest of back
  Lane<A>* outside;                  // [maps][map] the bits of -inf where there is no cell, else 0
  int64_t *row, *column;             // where each row of input begins in scratch, and in a row its first cells
  int64_t *row_in_map, *output_row;  // where each row of input begins in its map, each row of outputs in theirs
  const Block<A>* blocks;            // vectors with at least one output
  const Block<A>* sorted;            // the same; within each run in its order
  std::vector<Run> runs;
  int64_t block_count;

  PlaneLayout(const Call& call, Scratch& scratch) : pool_(call.pool), pitch_(call.memory.pitch) {
    map = pitch_.size() + 2 * LANES<A>;  // pairs of vectors end behind it
    maps = pool_.d.phases() * pool_.h.phases() * pool_.w.phases();
    list_taps(scratch);
    list_rows(scratch);
    mark_outside(scratch);
    list_blocks(scratch);
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
    for (int64_t** list : {&number, &shift, &back, &readers}) *list = scratch.take<int64_t>(taps);
    begin = scratch.take<int64_t>(maps + 1);
    int64_t* map_of = scratch.take<int64_t>(taps);
    int64_t t = 0;
    margin = 0;
    for (const AxisTap& kd : taps_d) {
      for (const AxisTap& kh : taps_h) {
        for (const AxisTap& kw : taps_w) {
          number[t] = (kd.k * h.kernel + kh.k) * w.kernel + kw.k;
          map_of[t] = (kd.phase * h.phases() + kh.phase) * w.phases() + kw.phase;
          back[t] = pitch_.index(kd.position, kh.position, kw.position);
          shift[t] = map_of[t] * map + back[t];
          margin = std::max(margin, back[t]);
          ++begin[map_of[t] + 1];
          ++t;
        }
      }
    }
    for (int64_t m = 0; m < maps; ++m) begin[m + 1] += begin[m];
    int64_t* next = scratch.take<int64_t>(maps);
    std::copy_n(begin, maps, next);
    while (t-- > 0) readers[next[map_of[t]]++] = t;
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
    int64_t first;       // its first tap that exists, -1 if none does
    bool whole, left;    // whether all its taps do; whether all but perhaps the first do
  };

  std::vector<AxisOutput> list_axis_outputs(const Axis& axis) const {
    std::vector<AxisOutput> outputs;
    outputs.reserve(axis.out);
    for (int64_t o = 0; o < axis.out; ++o) {
      const Axis::Range taps = axis.taps(o);
      outputs.push_back({taps.size(), axis.count(o, pool_.count_include_pad), taps.size() == 0 ? -1 : taps.begin,
                         taps.size() == axis.kernel, taps.begin <= 1 && taps.end == axis.kernel});
    }
    return outputs;
  }

  // Where an output is, or none: outputs lie by pitch.
  struct Position {
    int64_t d, h, w;
  };

  // At most to the end of the row.
  void advance(Position& o, int64_t steps) const {
    o.w += steps;
    if (o.w < pitch_.w) return;
    o.w = 0;
    if (++o.h < pitch_.h) return;
    o.h = 0;
    ++o.d;
  }

  void list_blocks(Scratch& scratch) {
    const int64_t last = pitch_.index(pool_.d.out - 1, pool_.h.out - 1, pool_.w.out);
    Block<A>* next = scratch.take<Block<A>>(divide_up(last, LANES<A>));
    Edge<A>* edges = scratch.take<Edge<A>>(divide_up(last, LANES<A>));
    blocks = next;
    const std::vector<AxisOutput> along_d = list_axis_outputs(pool_.d), along_h = list_axis_outputs(pool_.h),
                                  along_w = list_axis_outputs(pool_.w);
    auto is_whole = [](const AxisOutput& output) { return output.whole; };
    const auto inner = std::find_if(along_w.begin(), along_w.end(), is_whole);
    const int64_t begin = inner - along_w.begin(), end = std::find_if_not(inner, along_w.end(), is_whole) - along_w.begin();
    Position o{0, 0, 0};
    for (int64_t at = 0; at < last; at += LANES<A>) {
      // Most vectors lie inside a row whose regions are whole.
      if (o.w >= begin && o.w + LANES<A> <= end && o.h < pool_.h.out && along_h[o.h].whole && along_d[o.d].whole) {
        *next++ = {at, nullptr};
        advance(o, LANES<A>);
        continue;
      }
      bool whole = true, some = false;
      edges->left = pool_.w.kernel % 3 == 0;
      for (int64_t i = 0; i < LANES<A>; ++i, advance(o, 1)) {
        const bool live = o.d < pool_.d.out && o.h < pool_.h.out && o.w < pool_.w.out;
        whole &= live ? describe(along_d[o.d], along_h[o.h], along_w[o.w], i, *edges) : leave_out(i, *edges);
        some |= live;
      }
      if (some) *next++ = {at, whole ? nullptr : edges++};
    }
    block_count = next - blocks;
    sort_blocks(scratch);
  }

  void sort_blocks(Scratch& scratch) {
    Block<A>* copy = scratch.take<Block<A>>(block_count);
    sorted = copy;
    for (int64_t b = 0, end; b < block_count; b = end) {
      end = b + 1;
      while (end < block_count && end % PIECE != 0 && blocks[end].at == blocks[end - 1].at + LANES<A>) ++end;
      auto copy_those = [&](auto condition) {
        const Block<A>* first = copy;
        copy = std::copy_if(blocks + b, blocks + end, copy, condition);
        return copy - first;
      };
      const int64_t whole = copy_those([](const Block<A>& block) { return block.edge == nullptr; });
      const int64_t left = copy_those([](const Block<A>& block) { return block.edge != nullptr && block.edge->left; });
      copy_those([](const Block<A>& block) { return block.edge != nullptr && !block.edge->left; });
      runs.push_back({b, end, whole, left});
    }
  }

  // Lane i of an edge is an output; returns whether all its cells exist.
  bool describe(const AxisOutput& d, const AxisOutput& h, const AxisOutput& w, int64_t i, Edge<A>& edge) const {
    const bool whole = d.whole && h.whole && w.whole, empty = d.first < 0 || h.first < 0 || w.first < 0;
    edge.n[i] = A(d.n * h.n * w.n);
    edge.divisor[i] = A(std::max<int64_t>(1, d.divisor * h.divisor * w.divisor));
    edge.live[i] = -1;
    edge.first[i] = empty ? -1 : (d.first * pool_.h.kernel + h.first) * pool_.w.kernel + w.first;
    edge.left &= d.whole && h.whole && w.left;
    return whole;
  }

  // Lane i is none.
  static bool leave_out(int64_t i, Edge<A>& edge) {
    edge.n[i] = edge.divisor[i] = A(1);
    edge.live[i] = 0;
    edge.first[i] = -1;
    return false;
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
