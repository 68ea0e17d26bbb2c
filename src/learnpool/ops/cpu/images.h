// channels_last input: images go through row by row, in bands of neighbouring outputs. See image.h.
#pragma once

#include "gather.h"
#include "image.h"
#include "respond.h"
#include "rows.h"
#include "taps.h"

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
    segments_.resize(image_.outputs);
    values_ = scratch.take<A>(image_.outputs * image_.width);
    for (int64_t i = 0; i < image_.outputs; ++i) {
      segments_[i].at = i * image_.width;
      segments_[i].count = segments_[i].whole = image_.width / LANES<A>;
      segments_[i].blocks = image_.blocks;
    }
    if (image_.per_lane) mix_ = scratch.take<A>(call.pool.program.mix_rows() * image_.responses.size);
  }

  void pool_item(int64_t item) {
    const Memory& memory = call_.memory;
    box_ = call_.items.box(item);
    image_.weight = static_cast<const A*>(memory.weight.data) + box_.c0 * memory.weight.channel;
    image_.mix = static_cast<const A*>(memory.mix.data) + box_.c0 * memory.mix.channel;
    image_.dweight = backward_ ? static_cast<A*>(memory.slices) + item * memory.slice : nullptr;
    image_.dmix = backward_ ? image_.dweight + memory.dmix_offset : nullptr;
    set_lanes(box_.c1 - box_.c0);
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
  std::vector<Segment<A>> segments_;  // of a band: its outputs
  A *values_, *mix_ = nullptr;        // of a band: outputs or their gradients; rows of mix, where lanes have their own
  Items::Box box_{};                  // of the present item
  bool direct_ = true;                // cells and their gradients are used where they are
  bool derives_ = false;              // units derive numbers of cells, which are kept in a window
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
    const A* mix = image_.mix + region * strides.region;
    if (!image_.per_lane) return image_.responses.set_mix(mix, strides.row);
    const int64_t size = image_.responses.size;
    for (int64_t row = 0; row < call_.pool.program.mix_rows(); ++row) {
      for (int64_t i = 0; i < size; ++i)
        mix_[row * size + i] = mix[row * strides.row + std::min(i % image_.width, image_.lanes - 1)];
    }
    image_.responses.set_mix(mix_, size);
  }

  void flush(int64_t region) {
    flush_sums(call_, image_.sums, image_.responses.mix_sums, image_.dweight + region * call_.memory.dweight.region,
               image_.dmix + region * call_.memory.dmix.region);
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
      const int64_t end = output_taps_.find_end(output_taps_.rows[row], pool.w.in);
      if (has_window()) load_cells(end, pending_[row]);
      look_ahead(row + 1, end);
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
    for (int64_t i = begin; i < end; ++i) std::fill_n(first_gradient() + i * cell_step(), image_.lanes, A(0));
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
    if (memory.weight.region != 0) image_.set_weights(*tables_.find(output_taps_.rows[row], output_taps_.columns[ow]), region);
    if (memory.mix.region != 0) set_mix(region);
    const Span<A> outputs{segments_.data(), count};
    const Band band{0, count * image_.width};
    const int64_t first = (n * pool.outputs() + region) * pool.channels + box_.c0;
    A* values = find_values(first, count);
    const bool finite = image_.may_be_fast() && compute<false>(outputs, band, values);
    if (!finite) compute<true>(outputs, band, values);
    if (!backward_) {
      if (values == values_) write_values(first, count);
      return count;
    }
    if (finite) gather<false>(outputs);
    else gather<true>(outputs);
    image_.commit_mix(outputs);
    if (!image_.per_lane && (memory.dweight.region != 0 || memory.dmix.region != 0)) flush(region);
    return count;
  }

  template <bool CAREFUL>
  void gather(const Span<A>& outputs) {
    accumulate<CAREFUL>(image_, outputs);
    if (!call_.pool.input_grad) return;
    if (!CAREFUL && image_.is_grouped()) gather_group(image_, outputs);
    gather_alone<CAREFUL>(image_, outputs);
  }

  template <bool CAREFUL>
  bool compute(const Span<A>& outputs, const Band& band, A* values) {
    Vec<A> finite{};
    for (const Pass<Image<A>>& pass : CAREFUL ? careful_ : fast_) pass.respond(image_, pass, outputs, finite);
    return image_.template finish_band<CAREFUL>(band, values, finite);
  }

  // Output `i` of the band; false if its taps lie in too many ways for this band.
  bool describe_output(int64_t i, int64_t row, int64_t ow) {
    const Taps::List &down = output_taps_.rows[row], &across = output_taps_.columns[ow];
    Segment<A>& output = segments_[i];
    const TapTable<A>* before = i > 0 ? static_cast<const TapTable<A>*>(segments_[i - 1].taps) : nullptr;
    output.taps = before != nullptr && across.is_same(before->across) ? before : tables_.find(down, across);
    if (output.taps == nullptr) return false;
    const int64_t cell = down.first + across.first;
    output.x = first_cell() + find_cell(cell);
    output.gradients = gradient_ == nullptr ? nullptr : first_gradient() + find_cell(cell);
    output.derived = derived_ + (cell - window_begin_) * image_.width;
    output.region = row * call_.pool.w.out + ow;
    output.number = ow * output.count;
    const A n = A(output.taps->count), divisor = A(std::max<int64_t>(1, down.divisor * across.divisor));
    Responses<A>& responses = image_.responses;
    if (responses.n[output.at] != n) std::fill_n(responses.n + output.at, image_.width, n);
    if (responses.divisor[output.at] != divisor) std::fill_n(responses.divisor + output.at, image_.width, divisor);
    return true;
  }

  // While a row of outputs is computed, the cells from `begin` on that the next one is the first to meet are fetched, as the
  // hardware prefetcher misses strided cells.
  void look_ahead(int64_t row, int64_t begin) {
    const Pooling& pool = call_.pool;
    Upcoming& upcoming = image_.upcoming;
    upcoming.bytes = 0;
    if (!is_dense() || row == int64_t(output_taps_.rows.size())) return;
    const int64_t cell_bytes = pool.channels * int64_t(sizeof(T));
    upcoming.cells = reinterpret_cast<const char*>(x_) + begin * cell_bytes;
    upcoming.gradients = direct_ && gradient_ != nullptr ? reinterpret_cast<const char*>(gradient_) + begin * cell_bytes : nullptr;
    upcoming.bytes = (output_taps_.find_end(output_taps_.rows[row], pool.w.in) - begin) * cell_bytes;
    upcoming.step = divide_up(divide_up(upcoming.bytes, pool.w.out * image_.width / LANES<A>), 64) * 64;
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
};

}  // namespace learnpool::LEARNPOOL_ISA
