// channels_last input: images go through row by row, in bands of neighbouring outputs. See image.h.
#pragma once

#include "headers.h"
#include "image.h"
#include "image_gather.h"
#include "image_respond.h"
#include "isa.h"
#include "rows.h"
#include "tap_tables.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

constexpr int64_t WINDOW_BYTES = 1 << 18;  // of cells in scratch, and of their gradients: both stay in the second cache

template <class T>
class ImagePooling {
  using A = Accumulator<T>;
  using Taps = OutputTaps;

 public:
  explicit ImagePooling(const Call& call)
      : call_(call), backward_(call.pool.backward), image_(call), output_taps_(call.pool), tables_(image_, output_taps_) {
    Scratch& scratch = image_.scratch;
    fast_ = make_fast_passes(image_);
    careful_ = make_careful_passes(image_);
    outputs_.resize(image_.outputs);
    values_ = scratch.take<A>(image_.outputs * image_.width);
    for (int64_t i = 0; i < image_.outputs; ++i) outputs_[i].at = i * image_.width;
    image_.upcoming.step = divide_up(call.pool.w.stride * LANES<A> * int64_t(sizeof(T)), 64) * 64;
    if (image_.per_lane) mix_ = scratch.take<A>(call.pool.program.mix_rows() * image_.responses.size);
  }

  void pool_item(int64_t item) {
    const Memory& memory = call_.memory;
    box_ = call_.items.box(item);
    set_lanes(box_.c1 - box_.c0);
    slice_ = backward_ ? static_cast<A*>(memory.slices) + item * memory.slice : nullptr;
    for (int64_t i = 0; i < image_.responses.size; ++i) image_.responses.live[i] = i % image_.width < image_.lanes ? -1 : 0;
    if (memory.mix.region == 0) set_mix(0);
    for (int64_t n = box_.n0; n < box_.n1; ++n) pool_image(n);
    if (backward_ && !image_.per_lane) flush(0);
  }

 private:
  const Call& call_;
  const bool backward_;
  Image<A> image_;
  const Taps output_taps_;
  std::vector<Pass<Image<A>>> fast_, careful_;
  TapTables<A> tables_;
  std::vector<ImageOutput<A>> outputs_;
  A *values_, *mix_ = nullptr;  // of a band: outputs or their gradients; rows of mix, where lanes have their own
  Items::Box box_{};            // of the present item
  A* slice_ = nullptr;
  bool direct_ = true;    // cells and their gradients are used where they are
  bool derives_ = false;  // units derive numbers of cells, which are kept in a window
  // If not direct, both go through a window, too: so many cells from window_begin_ on, those before loaded_ read. Outputs that need
  // later cells push it on; the gradients it leaves behind are rounded and written to memory.
  std::vector<int64_t> pending_;  // by row of outputs: the first cell that it or a later row meets
  int64_t window_cells_ = 0, window_begin_ = 0, loaded_ = 0;
  A *cells_ = nullptr, *gradients_ = nullptr, *derived_ = nullptr;
  const T* x_ = nullptr;  // of the present image, from the first channel of the item on
  T* gradient_ = nullptr;

  void set_lanes(int64_t lanes) {
    if (lanes == image_.lanes) return;
    image_.lanes = lanes;
    derives_ = image_.derived_count > 0 && image_.may_be_fast();
    direct_ = std::is_same_v<T, A> && lanes == image_.width && (!derives_ || lanes == call_.pool.channels);
    tables_.forget(cell_step());
    std::fill_n(values_, image_.responses.size, A(0));
    if (has_window() && window_cells_ == 0) take_window();
    if (!direct_) std::fill_n(cells_, window_cells_ * image_.width, A(0));
  }

  // At least twice what a row of outputs needs, so that a cell moves once at most.
  void take_window() {
    const Pooling& pool = call_.pool;
    pending_.resize(output_taps_.rows.size());
    int64_t pending = pool.cells(), needed = 1;
    for (int64_t row = int64_t(pending_.size()) - 1; row >= 0; --row) {
      const Taps::List& list = output_taps_.rows[row];
      if (list.size() > 0) pending = std::min(pending, list.first);
      pending_[row] = pending;
      needed = std::max(needed, output_taps_.find_end(list, pool.w.in) - pending);
    }
    const int64_t in_cache = WINDOW_BYTES / (image_.width * int64_t(sizeof(A)));
    window_cells_ = std::min(pool.cells(), std::max(in_cache, 2 * needed));
    const int64_t size = image_.derived_step = window_cells_ * image_.width;
    cells_ = image_.scratch.template take<A>(size);
    if (backward_ && pool.input_grad) gradients_ = image_.scratch.template take<A>(size);
    derived_ = image_.scratch.template take<A>(size * image_.derived_count);
  }

  void set_mix(int64_t region) {
    const Parameter& strides = call_.memory.mix;
    const A* mix = static_cast<const A*>(strides.data) + region * strides.region + box_.c0 * strides.channel;
    if (!image_.per_lane) return image_.responses.set_mix(mix, strides.row);
    const int64_t size = image_.responses.size;
    for (int64_t row = 0; row < call_.pool.program.mix_rows(); ++row) {
      for (int64_t i = 0; i < size; ++i)
        mix_[row * size + i] = mix[row * strides.row + std::min(i % image_.width, image_.lanes - 1)];
    }
    image_.responses.set_mix(mix_, size);
  }

  void flush(int64_t region) {
    const Memory& memory = call_.memory;
    flush_sums(call_, image_.sums, image_.responses.mix_sums, slice_ + region * memory.dweight.region,
               slice_ + memory.dmix_offset + region * memory.dmix.region);
  }

  void pool_image(int64_t n) {
    const Pooling& pool = call_.pool;
    const int64_t image = n * pool.cells() * pool.channels;
    for (int64_t c = 0; image_.picks() && c < image_.lanes; ++c) {
      const PlaneKey key = make_plane_key(call_.memory.seeds[n], box_.c0 + c);
      image_.key_low[c] = key.low;
      image_.key_high[c] = key.high;
    }
    x_ = static_cast<const T*>(call_.memory.x) + image + box_.c0;
    gradient_ = backward_ && pool.input_grad ? static_cast<T*>(call_.memory.y) + image + box_.c0 : nullptr;
    window_begin_ = loaded_ = 0;
    clear_gradients(0, direct_ ? pool.cells() : window_cells_);
    for (int64_t row = 0; row < pool.d.out * pool.h.out; ++row) {
      if (has_window()) load_cells(output_taps_.find_end(output_taps_.rows[row], pool.w.in), pending_[row]);
      for (int64_t ow = 0; ow < pool.w.out;) ow += pool_band(n, row, ow);
    }
    if (direct_ || gradient_ == nullptr) return;
    push_window(pool.cells(), pool.cells());
    write_gradients(pool.cells() - window_begin_);
  }

  bool has_window() const { return !direct_ || derives_; }
  int64_t cell_step() const { return direct_ ? call_.pool.channels : image_.width; }
  // Where a cell is, counted from these, and its gradient.
  int64_t find_cell(int64_t cell) const { return direct_ ? cell * call_.pool.channels : (cell - window_begin_) * image_.width; }
  const A* first_cell() const {
    if constexpr (std::is_same_v<T, A>) return direct_ ? x_ : cells_;
    else return cells_;
  }
  A* first_gradient() const {
    if constexpr (std::is_same_v<T, A>) return direct_ ? gradient_ : gradients_;
    else return gradients_;
  }
  // Cells are one behind another in memory as in the window.
  bool is_dense() const { return image_.lanes == image_.width && image_.lanes == call_.pool.channels; }

  // Zeros, if there are cells that meet no output.
  void clear_gradients(int64_t begin, int64_t end) {
    if (output_taps_.covered || gradient_ == nullptr) return;
    for (int64_t i = begin; i < end; ++i) std::memset(first_gradient() + i * cell_step(), 0, sizeof(A) * image_.lanes);
  }

  // Push the window on until it holds the cells before `end`; those before `pending` are finished.
  void push_window(int64_t end, int64_t pending) {
    while (end > window_begin_ + window_cells_) {
      const int64_t finished = std::min(pending - window_begin_, window_cells_), kept = window_cells_ - finished;
      auto shift = [&](A* cells) { copy_row(cells + finished * image_.width, cells, kept * image_.width); };
      for (int64_t k = 0; derives_ && k < image_.derived_count; ++k) shift(derived_ + k * image_.derived_step);
      if (!direct_) shift(cells_);
      if (!direct_ && gradient_ != nullptr) {
        write_gradients(finished);
        shift(gradients_);
        clear_gradients(kept, window_cells_);
      }
      window_begin_ += finished;
    }
  }

  // The same, and read them.
  void load_cells(int64_t end, int64_t pending) {
    push_window(end, pending);
    loaded_ = std::max(loaded_, window_begin_);
    if (end <= loaded_) return;
    const int64_t first = loaded_, count = end - first, place = (first - window_begin_) * image_.width;
    loaded_ = end;
    if (!direct_) read_cells(x_ + first * call_.pool.channels, cells_ + place, count);
    const int64_t together = image_.per_lane ? 1 : count;  // else they have the same theta
    for (int64_t i = 0; derives_ && i < count; i += together) {
      image_.derive_cells(first_cell() + find_cell(first + i), derived_ + place + i * image_.width, together * image_.width);
    }
  }

  void read_cells(const T* from, A* to, int64_t count) const {
    if (is_dense()) return convert_row<A>(from, to, count * image_.lanes);
    for (int64_t i = 0; i < count; ++i) convert_row<A>(from + i * call_.pool.channels, to + i * image_.width, image_.lanes);
  }

  // The first `count` cells of the window.
  void write_gradients(int64_t count) {
    T* to = gradient_ + window_begin_ * call_.pool.channels;
    if (is_dense()) return convert_row<A>(gradients_, to, count * image_.lanes);
    for (int64_t i = 0; i < count; ++i) convert_row<A>(gradients_ + i * image_.width, to + i * call_.pool.channels, image_.lanes);
  }

  // Outputs from `ow` of a row on; returns how many.
  int64_t pool_band(int64_t n, int64_t row, int64_t ow) {
    const Pooling& pool = call_.pool;
    const Memory& memory = call_.memory;
    const int64_t region = row * pool.w.out + ow, most = std::min(image_.outputs, pool.w.out - ow);
    tables_.begin_band();
    int64_t count = 0;
    for (; count < most && describe_output(count, row, ow + count); ++count) {
    }
    if (memory.weight.region != 0) tables_.set_weights(*outputs_[0].table, region);
    if (memory.mix.region != 0) set_mix(region);
    if (has_window()) look_ahead(row + 1, ow);
    else look_ahead(row, ow + count);
    const ImageBand<A> outputs{outputs_.data(), count};
    const Band band{0, count * image_.width};
    const int64_t first = (n * pool.outputs() + region) * pool.channels + box_.c0;
    A* values = find_values(first, count);
    image_.values = values == values_ ? nullptr : values;
    const bool finite = image_.may_be_fast() && compute<false>(outputs, band, values);
    if (!finite) compute<true>(outputs, band, values);
    if (!backward_) {
      if (values == values_) write_values(first, count);
      return count;
    }
    if (finite) gather<false>(image_, outputs);
    else gather<true>(image_, outputs);
    if (!image_.per_lane) image_.responses.commit();
    else add_mix_grad(count);
    if (!image_.per_lane && (memory.dweight.region != 0 || memory.dmix.region != 0)) flush(region);
    return count;
  }

  template <bool CAREFUL>
  bool compute(const ImageBand<A>& outputs, const Band& band, A* values) {
    Vec<A> finite{};
    for (const Pass<Image<A>>& pass : CAREFUL ? careful_ : fast_) pass.respond(image_, pass, outputs, finite);
    return image_.template finish_band<CAREFUL>(band, values, finite);
  }

  // Output `i` of the band; false if its taps lie in too many ways for this band.
  bool describe_output(int64_t i, int64_t row, int64_t ow) {
    const Taps::List &down = output_taps_.rows[row], &across = output_taps_.columns[ow];
    ImageOutput<A>& output = outputs_[i];
    output.table = i > 0 && across.is_same(outputs_[i - 1].table->across) ? outputs_[i - 1].table : tables_.find(down, across);
    if (output.table == nullptr) return false;
    const int64_t cell = down.first + across.first;
    output.x = first_cell() + find_cell(cell);
    output.dx = gradient_ == nullptr ? nullptr : first_gradient() + find_cell(cell);
    output.derived = derived_ + (cell - window_begin_) * image_.width;
    const A n = A(output.table->count), divisor = A(std::max<int64_t>(1, down.divisor * across.divisor));
    Responses<A>& responses = image_.responses;
    if (responses.n[output.at] != n) std::fill_n(responses.n + output.at, image_.width, n);
    if (responses.divisor[output.at] != divisor) std::fill_n(responses.divisor + output.at, image_.width, divisor);
    const Memory& memory = call_.memory;
    const int64_t region = row * call_.pool.w.out + ow;
    output.number = uint32_t(region);
    output.weight = static_cast<const A*>(memory.weight.data) + region * memory.weight.region + box_.c0 * memory.weight.channel;
    if (!backward_) return true;
    output.dweight = slice_ + region * memory.dweight.region;
    output.dmix = slice_ + memory.dmix_offset + region * memory.dmix.region;
    return true;
  }

  // The cells that a band to come is the first to meet, from `ow` of a row on: the next one, but through a window cells pass by
  // rows, and the next row is wanted.
  void look_ahead(int64_t row, int64_t ow) {
    const Pooling& pool = call_.pool;
    Upcoming& upcoming = image_.upcoming;
    upcoming.count = 0;
    if (ow == pool.w.out) ow = 0, ++row;
    if (!is_dense() || row == int64_t(output_taps_.rows.size())) return;
    const int64_t last = std::min(ow + image_.outputs, pool.w.out) - 1, cell_bytes = pool.channels * int64_t(sizeof(T));
    const Taps::List &down = output_taps_.rows[row], &left = output_taps_.columns[ow], &right = output_taps_.columns[last];
    if (left.fresh_begin == right.fresh_end) return;
    const int64_t *fresh = output_taps_.fresh.data(), first = fresh[left.fresh_begin];
    for (int64_t i = down.fresh_begin; i < down.fresh_end && upcoming.count < upcoming.MOST; ++i) {
      const int64_t byte = (fresh[i] + first) * cell_bytes;
      upcoming.cells[upcoming.count] = reinterpret_cast<const char*>(x_) + byte;
      const bool writes = direct_ && gradient_ != nullptr;
      upcoming.gradients[upcoming.count++] = writes ? reinterpret_cast<const char*>(gradient_) + byte : nullptr;
    }
    upcoming.bytes = (fresh[right.fresh_end - 1] + 1 - first) * cell_bytes;
  }

  // Where a band's outputs are written, or their gradients read: in memory, if they lie there as in maps.
  A* find_values(int64_t first, int64_t count) {
    const int64_t channels = call_.pool.channels;
    void* memory = backward_ ? const_cast<void*>(call_.memory.grad) : call_.memory.y;
    if constexpr (std::is_same_v<T, A>) {
      if (direct_ && image_.lanes == channels) return static_cast<A*>(memory) + first;
    }
    if (backward_) {
      const T* from = static_cast<const T*>(memory) + first;
      for (int64_t i = 0; i < count; ++i) convert_row<A>(from + i * channels, values_ + i * image_.width, image_.lanes);
    }
    return values_;
  }

  void write_values(int64_t first, int64_t count) {
    T* to = static_cast<T*>(call_.memory.y) + first;
    for (int64_t i = 0; i < count; ++i) convert_row<A>(values_ + i * image_.width, to + i * call_.pool.channels, image_.lanes);
  }

  // Where lanes have their own.
  void add_mix_grad(int64_t count) {
    for (int64_t row = 0; call_.pool.mix_grad && row < call_.pool.program.mixes(); ++row) {
      const A* from = image_.responses.pending(row);
      for (int64_t i = 0; i < count; ++i) {
        A* to = outputs_[i].dmix + row * call_.memory.dmix.row;
        for (int64_t c = 0; c < image_.lanes; ++c) to[c] += from[i * image_.width + c];
      }
    }
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
