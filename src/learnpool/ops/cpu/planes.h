// Contiguous input: a vector is LANES neighbouring outputs of a plane. See layout.h for how a plane lies in scratch.
#pragma once

#include "gather.h"
#include "plane.h"
#include "respond.h"
#include "rows.h"

namespace learnpool::LEARNPOOL_ISA {

// Takes planes through scratch, piece by piece: rows in; respond, evaluate, backpropagate, gather; rows out.
template <class T>
class PlanePooling {
  using A = Accumulator<T>;
  static constexpr bool PAIRS_ARE_WORDS = std::is_same_v<T, BFloat16>;

 public:
  explicit PlanePooling(const Call& call)
      : call_(call),
        backward_(call.pool.backward),
        plane_(call),
        fast_(make_fast_passes(plane_)),
        careful_(make_careful_passes(plane_)) {
    const int64_t vectors = plane_.segments.back().number + plane_.segments.back().count;
    plane_.upcoming.step = divide_up(call.pool.cells() * int64_t(sizeof(T)) / vectors, 64) * 64;
    plane_.upcoming.bytes = plane_.upcoming.step * vectors;
  }

  // Planes in the order of memory; where parameters differ by channel, an item has just one.
  void pool_item(int64_t item) {
    const Items::Box box = call_.items.box(item);
    A* slice = backward_ ? static_cast<A*>(call_.memory.slices) + item * call_.memory.slice : nullptr;
    for (int64_t n = box.n0; n < box.n1; ++n) {
      for (int64_t c = box.c0; c < box.c1; ++c) {
        point_at_parameters(c, backward_ ? slice : nullptr, c - box.c0);
        const int64_t following = c + 1 < box.c1 ? n * call_.pool.channels + c + 1 : (n + 1) * call_.pool.channels + box.c0;
        pool_plane(n * call_.pool.channels + c, following);
      }
    }
    if (backward_ && !plane_.per_lane) {
      flush_sums(call_, plane_.sums, plane_.responses.mix_sums, slice, slice + call_.memory.dmix_offset);
    }
  }

 private:
  const Call& call_;
  const bool backward_;
  Plane<A> plane_;
  const std::vector<Pass<Plane<A>>> fast_, careful_;
  // The present plane in memory, and how many of its rows were read and written.
  const T *cells_, *grads_;
  T* out_;
  int64_t rows_read_, positions_derived_, outputs_done_, rows_written_;
  bool careful_now_;  // from the first number of the plane that is not finite on, or too large for units that are not careful

  void point_at_parameters(int64_t c, A* slice, int64_t channel_of_slice) {
    const Memory& memory = call_.memory;
    const A* weight = static_cast<const A*>(memory.weight.data) + c * memory.weight.channel;
    if (std::exchange(plane_.weight, weight) != weight) plane_.set_weights(plane_.taps, 0);
    const A* mix = static_cast<const A*>(memory.mix.data) + c * memory.mix.channel;
    if (std::exchange(plane_.mix, mix) != mix) plane_.responses.set_mix(mix, memory.mix.row);
    if (!backward_) return;
    plane_.dweight = slice + channel_of_slice * memory.dweight.channel;
    plane_.dmix = slice + memory.dmix_offset + channel_of_slice * memory.dmix.channel;
  }

  void pool_plane(int64_t index, int64_t following) {
    const Pooling& pool = call_.pool;
    const T* x = static_cast<const T*>(call_.memory.x);
    const bool writes = !backward_ || pool.input_grad;
    cells_ = x + index * pool.cells();
    grads_ = backward_ ? static_cast<const T*>(call_.memory.grad) + index * pool.outputs() : nullptr;
    out_ = writes ? static_cast<T*>(call_.memory.y) + index * (backward_ ? pool.cells() : pool.outputs()) : nullptr;
    const bool is_last = following >= pool.batch * pool.channels;
    plane_.upcoming.cells = is_last ? nullptr : reinterpret_cast<const char*>(x + following * pool.cells());
    plane_.upcoming.gradients = backward_ ? reinterpret_cast<const char*>(out_) : nullptr;
    if (plane_.picks()) plane_.key = make_plane_key(call_.memory.seeds[index / pool.channels], index % pool.channels);
    rows_read_ = positions_derived_ = outputs_done_ = rows_written_ = 0;
    careful_now_ = !plane_.may_be_fast();
    if (careful_now_ || !plane_.others.empty()) clear_gradients();
    // A piece of a large plane stays in the first cache from its cells to their gradients. In 3d rows are not in order of
    // positions.
    const std::vector<Segment<A>>& segments = plane_.segments;
    for (size_t first = 0, end; first < segments.size(); first = end) {
      end = first + 1;
      while (end < segments.size() && (pool.d.in > 1 || segments[end].number % PIECE != 0)) ++end;
      const int64_t from = first == 0 ? 0 : segments[first].at, to = end < segments.size() ? segments[end].at : plane_.layout.map;
      pool_piece({{&segments[first], int64_t(end - first)}, from, to}, end == segments.size());
    }
  }

  // Before responses add to them.
  void clear_gradients() {
    if (backward_ && call_.pool.input_grad) std::fill_n(plane_.gradients, plane_.layout.maps * plane_.layout.map + LANES<A>, A(0));
  }

  void pool_piece(const Piece<A>& piece, bool last) {
    const int64_t first_output = outputs_done_;
    const bool was_careful = careful_now_;
    read_cells(piece, last);
    if (plane_.derived_count > 0 && !careful_now_) derive_cells(piece);
    const int64_t end = count_outputs(piece, last);
    if (backward_) read_grads(first_output, end);
    outputs_done_ = end;
    for (const Segment<A>& segment : piece.span) {
      if (!careful_now_ && !pool_segment<false>(segment)) begin_care(segment);
      else if (careful_now_) pool_segment<true>(segment);
      if (backward_) plane_.commit_mix({&segment, 1});
    }
    if (!backward_) return write_outputs(first_output, end);
    if (careful_now_) accumulate<true>(plane_, piece.span);
    else accumulate<false>(plane_, piece.span);
    if (!call_.pool.input_grad) return;
    if (careful_now_ && !was_careful) {
      clear_gradients();
      const Segment<A>* first = plane_.segments.data();
      gather_alone<true>(plane_, Span<A>{first, piece.span.begin() - first});
    }
    if (careful_now_) {
      gather_alone<true>(plane_, piece.span);
    } else {
      if (plane_.is_grouped()) gather_group(plane_, piece);
      gather_alone<false>(plane_, piece.span);
    }
    write_input_grad(piece, last);
  }

  // From this segment of the plane on.
  void begin_care(const Segment<A>& segment) {
    careful_now_ = true;
    // Those before too, as windows of this piece reach into them.
    for (const Segment<A>* before = &plane_.segments[0]; backward_ && before < &segment; ++before) pool_segment<true>(*before);
    pool_segment<true>(segment);
  }

  template <bool CAREFUL>
  bool pool_segment(const Segment<A>& segment) {
    Vec<A> finite{};
    const Span<A> span{&segment, 1};
    for (const Pass<Plane<A>>& pass : CAREFUL ? careful_ : fast_) pass.respond(plane_, pass, span, finite);
    return plane_.template finish_band<CAREFUL>({segment.at, segment.count * LANES<A>}, plane_.outputs + segment.at, finite);
  }

  void read_cells(const Piece<A>& piece, bool last) {
    const PlaneLayout<A>& layout = plane_.layout;
    const int64_t rows = call_.pool.d.in * call_.pool.h.in, n = call_.pool.w.in, first = rows_read_;
    if (last) rows_read_ = rows;
    while (rows_read_ < rows && layout.row_in_map[rows_read_] < piece.to + layout.margin) ++rows_read_;
    if constexpr (PAIRS_ARE_WORDS) {
      if (has_two_phases()) return move_pairs<To::Scratch>(first, rows_read_, cells_ + first * n, plane_.x);
    }
    const A* cells = widen_row(cells_ + first * n, (rows_read_ - first) * n, plane_.line);
    move_rows<To::Scratch>(first, rows_read_, cells, plane_.x);
  }

  // What units derive of the cells that have been read.
  void derive_cells(const Piece<A>& piece) {
    const PlaneLayout<A>& layout = plane_.layout;
    const int64_t begin = positions_derived_, end = std::min(layout.map, piece.to + layout.margin);
    for (int64_t first = begin; first < layout.maps * layout.map; first += layout.map) {
      plane_.derive_cells(plane_.x + first, plane_.derived_cells + first, end - begin, layout.outside + first);
    }
    positions_derived_ = end / LANES<A> * LANES<A>;
  }

  // Rows of outputs that are complete when a band is done (forward), or that it needs (backward).
  int64_t count_outputs(const Piece<A>& piece, bool last) const {
    const Pooling& pool = call_.pool;
    const int64_t rows = pool.d.out * pool.h.out;
    if (last) return rows;
    int64_t done = outputs_done_;
    while (done < rows && plane_.layout.output_row[done] + (backward_ ? 0 : pool.w.out) <= piece.to) ++done;
    return done;
  }

  void read_grads(int64_t begin, int64_t end) {
    const int64_t n = call_.pool.w.out;
    const A* from = widen_row(grads_ + begin * n, (end - begin) * n, plane_.line);
    for (int64_t r = begin; r < end; ++r, from += n) copy_row(from, plane_.outputs + plane_.layout.output_row[r], n);
  }

  void write_outputs(int64_t begin, int64_t end) {
    const int64_t n = call_.pool.w.out;
    write_row(out_ + begin * n, (end - begin) * n, plane_.line, [&](A* to) {
      for (int64_t r = begin; r < end; ++r, to += n) copy_row(plane_.outputs + plane_.layout.output_row[r], to, n);
    });
  }

  void write_input_grad(const Piece<A>& piece, bool last) {
    const int64_t rows = call_.pool.d.in * call_.pool.h.in, n = call_.pool.w.in, first = rows_written_;
    if (last) rows_written_ = rows;
    while (rows_written_ < rows && plane_.layout.row_in_map[rows_written_] + call_.memory.pitch.w <= piece.to) ++rows_written_;
    if constexpr (PAIRS_ARE_WORDS) {
      if (has_two_phases()) return move_pairs<To::Memory>(first, rows_written_, out_ + first * n, plane_.gradients);
    }
    write_row(out_ + first * n, (rows_written_ - first) * n, plane_.line,
              [&](A* to) { move_rows<To::Memory>(first, rows_written_, to, plane_.gradients); });
  }

  bool has_two_phases() const { return call_.pool.w.stride == 2 && call_.pool.w.phases() == 2 && call_.pool.w.in > 1; }

  // As move_rows, where there are two phases. Pairs of bfloat16 may stay in memory until then.
  template <To TO, class C>
  INLINE void move_pairs(int64_t begin, int64_t end, C* cells, A* scratch) const {
    const int64_t *row = plane_.layout.row, *column = plane_.layout.column;
    for (int64_t r = begin; r < end; ++r, cells += call_.pool.w.in) {
      deinterleave_row<TO, LANES<A>>(cells, scratch + row[r] + column[0], scratch + row[r] + column[1], call_.pool.w.in);
    }
  }

  // Rows [begin, end) of input, one after another in `cells`, into scratch by phase; or rows of gradients out of it.
  template <To TO, class C>
  INLINE void move_rows(int64_t begin, int64_t end, C* cells, A* scratch) const {
    if (has_two_phases()) return move_pairs<TO>(begin, end, cells, scratch);
    const Axis& w = call_.pool.w;
    const int64_t n = w.in, phases = w.phases(), stride = w.stride, *row = plane_.layout.row, *column = plane_.layout.column;
    for (int64_t r = begin; r < end; ++r, cells += n) {
      if (phases == 1) {
        A* place = scratch + row[r] + column[0];
        if constexpr (TO == To::Memory) copy_row(place, cells, n);
        else copy_row(cells, place, n);
        continue;
      }
      for (int64_t phase = 0; phase < std::min(phases, n); ++phase) {
        A* place = scratch + row[r] + column[phase];
        for (int64_t i = 0, c = phase; c < n; ++i, c += stride) {
          if constexpr (TO == To::Memory) cells[c] = place[i];
          else place[i] = cells[c];
        }
      }
    }
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
