// channels_last input: a vector is LANES neighbouring channels of one output; every tap is a contiguous load as it is.
#pragma once

#include "channel_stages.h"
#include "channel_vector.h"
#include "headers.h"
#include "isa.h"
#include "random.h"
#include "rows.h"
#include "scratch.h"
#include "stochastic.h"
#include "tree.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// The taps of every output of an image that meet a cell. Rows and columns apart: tap and cell of an output are sums of the two.
// Neighbours whose taps lie alike, as inside an image almost all do, share a list.
class OutputTaps {
 public:
  // A tap, its cell counted from that of the first one listed, and whether no output before this one met that cell.
  struct Tap {
    int64_t tap, cell;
    bool fresh;
    bool operator==(const Tap& other) const { return tap == other.tap && cell == other.cell && fresh == other.fresh; }
  };
  struct List {
    int64_t begin, end;              // among taps
    int64_t first;                   // the cell of the first
    int64_t count;                   // what an average divides by
    int64_t fresh_begin, fresh_end;  // among fresh
    int64_t size() const { return end - begin; }
    bool is_same(const List& other) const { return begin == other.begin && end == other.end; }
  };
  std::vector<Tap> taps;
  std::vector<int64_t> fresh;  // cells by the first output that meets them, like those of taps
  std::vector<List> rows, columns;
  int64_t most = 0;     // taps of an output
  bool covered = true;  // every cell meets an output

  explicit OutputTaps(const Pooling& pool) {
    auto most_taps = [](const Axis& axis) { return axis.out * std::min(axis.kernel, axis.in); };
    taps.reserve(most_taps(pool.d) * most_taps(pool.h) + most_taps(pool.w));
    fresh.reserve(pool.d.in * pool.h.in + pool.w.in);
    rows.reserve(pool.d.out * pool.h.out);
    columns.reserve(pool.w.out);
    list_rows(pool);
    list_columns(pool);
    most = find_longest(rows) * find_longest(columns);
  }

  // The end of the last row of cells, of w each, that a row of outputs meets.
  int64_t find_end(const List& row, int64_t w) const { return row.size() == 0 ? 0 : row.first + taps[row.end - 1].cell + w; }

 private:
  int64_t fresh_used_ = 0;

  void add(int64_t tap, int64_t cell, char& seen) {
    taps.push_back({tap, cell, !seen});
    if (!seen) fresh.push_back(cell);
    seen = true;
  }

  // The taps from `begin` on, with cells of the image, are the next list.
  void end_list(std::vector<List>& lists, int64_t begin, int64_t count) {
    List list{begin, int64_t(taps.size()), 0, count, fresh_used_, int64_t(fresh.size())};
    fresh_used_ = list.fresh_end;
    if (list.size() > 0) list.first = taps[begin].cell;
    for (int64_t i = begin; i < list.end; ++i) taps[i].cell -= list.first;
    if (!lists.empty()) {
      const Tap *all = taps.data(), *before = all + lists.back().begin;
      if (std::equal(all + begin, all + list.end, before, all + lists.back().end)) {
        taps.resize(begin);
        list.begin = lists.back().begin;
        list.end = lists.back().end;
      }
    }
    lists.push_back(list);
  }

  static int64_t find_longest(const std::vector<List>& lists) {
    int64_t longest = 0;
    for (const List& list : lists) longest = std::max(longest, list.size());
    return longest;
  }

  void list_rows(const Pooling& pool) {
    const Axis &d = pool.d, &h = pool.h;
    std::vector<char> seen(d.in * h.in);
    for (int64_t od = 0; od < d.out; ++od) {
      for (int64_t oh = 0; oh < h.out; ++oh) {
        const int64_t begin = int64_t(taps.size());
        const Axis::Range deep = d.taps(od), high = h.taps(oh);
        for (int64_t kd = deep.begin; kd < deep.end; ++kd) {
          for (int64_t kh = high.begin; kh < high.end; ++kh) {
            const int64_t row = d.cell(od, kd) * h.in + h.cell(oh, kh);
            add((kd * h.kernel + kh) * pool.w.kernel, row * pool.w.in, seen[row]);
          }
        }
        end_list(rows, begin, d.count(od, pool.count_include_pad) * h.count(oh, pool.count_include_pad));
      }
    }
    covered &= std::find(seen.begin(), seen.end(), 0) == seen.end();
  }

  void list_columns(const Pooling& pool) {
    const Axis& w = pool.w;
    std::vector<char> seen(w.in);
    for (int64_t ow = 0; ow < w.out; ++ow) {
      const int64_t begin = int64_t(taps.size());
      const Axis::Range wide = w.taps(ow);
      for (int64_t kw = wide.begin; kw < wide.end; ++kw) add(kw, w.cell(ow, kw), seen[w.cell(ow, kw)]);
      end_list(columns, begin, w.count(ow, pool.count_include_pad));
    }
    covered &= std::find(seen.begin(), seen.end(), 0) == seen.end();
  }
};

// One vector of channels at one output, forward or backward, whatever is in it. FULL: all lanes exist. PER_LANE: channels have
// own parameters.
template <class T, class P, bool BACKWARD, bool PER_LANE, bool FULL>
struct VectorPooling {
  using A = Accumulator<T>;
  using V = Vec<A>;
  using M = Mask<A>;
  static constexpr int D = P::weights, KEPT = D > 0 ? D : 1;

  const Call& call;
  const ChannelVector<T>& at;
  Region<A, P>& region;
  M winner, min_winner;  // the taps that hold the maximum and the minimum

  INLINE VectorPooling(const Call& call, const ChannelVector<T>& at, Region<A, P>& region) : call(call), at(at), region(region) {}

  INLINE int64_t dots() const { return D >= 0 ? D : call.pool.program.weights; }
  INLINE int64_t tap_count() const { return at.tap_count; }
  INLINE int64_t number(int64_t i) const { return at.taps[i].tap; }
  INLINE V weight(int64_t d, int64_t i) const {
    const Parameter& strides = call.memory.weight;
    const A* w = at.weight + d * strides.row + at.taps[i].tap * strides.tap;
    if constexpr (PER_LANE) return load<V>(w);
    else return broadcast<A>(*w);
  }
  INLINE V cell(int64_t i) const { return load_as<A, FULL>(at.x + at.taps[i].from, at.lanes); }

  // Maximum, mean and inner products.
  INLINE void respond() {
    const int64_t count = tap_count(), rows = dots();
    V z[KEPT] = {}, total{}, best = broadcast<A>(-std::numeric_limits<A>::infinity());
    winner = M{} + Lane<A>(count == 0 ? -1 : number(0));
    if constexpr (D < 0) {
      for (int64_t d = 0; d < rows; ++d) region.dots[d] = V{};
    }
    for (int64_t i = 0; i < count; ++i) {
      const V v = cell(i);
      if constexpr (P::statistics) {
        const M won = is_new_maximum<A>(v, best);
        best = won ? v : best;
        if constexpr (BACKWARD) winner = won ? M{} + Lane<A>(number(i)) : winner;
        total += v;
      }
      if constexpr (D >= 0) {
#pragma GCC unroll 8
        for (int d = 0; d < D; ++d) z[d] += weight(d, i) * v;
      } else {
        for (int64_t d = 0; d < rows; ++d) region.dots[d] += weight(d, i) * v;
      }
    }
    if constexpr (D > 0) {
      for (int d = 0; d < D; ++d) region.dots[d] = z[d];
    }
    region.count = at.cells;
    region.maximum = best;
    region.mean = total / at.cells;
    if constexpr (P::minimum) {
      if (call.pool.program.has_min) find_minimum();
    }
  }

  // As the maximum of the negated cells.
  INLINE void find_minimum() {
    V lowest = broadcast<A>(-std::numeric_limits<A>::infinity());
    min_winner = M{} + Lane<A>(tap_count() == 0 ? -1 : number(0));
    for (int64_t i = 0; i < tap_count(); ++i) {
      const V v = -cell(i);
      const M won = is_new_maximum<A>(v, lowest);
      lowest = won ? v : lowest;
      min_winner = won ? M{} + Lane<A>(number(i)) : min_winner;
    }
    region.minimum = -lowest;
  }

  INLINE V evaluate_tree() {
    return evaluate<false>(call.pool.program, region, [&](int64_t m) ALWAYS_INLINE -> V {
      const A* a = at.mix + m * call.memory.mix.row;
      if constexpr (PER_LANE) return load<V>(a);
      else return broadcast<A>(*a);
    });
  }

  INLINE void backpropagate_tree() {
    const int64_t rows = dots();
    backpropagate<false>(call.pool.program, region, load_as<A, FULL>(at.grad, at.lanes));
    if constexpr (!FULL) {  // a channel that does not exist has cells of zero, but a weight may be infinite
      for (int64_t d = 0; d < rows; ++d) region.to_dot[d] = first_lanes<A>(region.to_dot[d], at.lanes);
      for (int64_t m = 0; m < call.pool.program.mixes; ++m) region.to_mix[m] = first_lanes<A>(region.to_mix[m], at.lanes);
    }
  }

  INLINE void scatter_input_grad(const V* to_dot) const {
    const int64_t count = tap_count(), rows = dots();
    alignas(64) static constexpr A zeros[LANES<A>] = {};
    for (int64_t i = 0; i < count; ++i) {
      A* to = at.dx + at.taps[i].to;
      V received = load_as<A, FULL>(at.taps[i].fresh ? zeros : to, at.lanes);
      if constexpr (P::statistics) received += region.to_mean + (winner == Lane<A>(number(i)) ? region.to_max : V{});
      if constexpr (P::minimum) {
        if (call.pool.program.has_min) received += min_winner == Lane<A>(number(i)) ? region.to_min : V{};
      }
#pragma GCC unroll 8
      for (int64_t d = 0; d < rows; ++d) received += to_dot[d] * weight(d, i);
      store_as<A, FULL>(to, received, at.lanes);
    }
  }

  INLINE void accumulate_weight_grad(const V* to_dot) const {
    const int64_t count = tap_count(), rows = dots();
    const Parameter& strides = call.memory.dweight;
    const int64_t all_taps = call.pool.taps();
    for (int64_t i = 0; i < count; ++i) {
      const V v = cell(i);
#pragma GCC unroll 8
      for (int64_t d = 0; d < rows; ++d) {
        if constexpr (PER_LANE) {
          A* to = at.dweight + d * strides.row + at.taps[i].tap * strides.tap;
          store_as<A, FULL>(to, load_as<A, FULL>(to, at.lanes) + to_dot[d] * v, at.lanes);
        } else {
          at.weight_sums[d * all_taps + number(i)] += to_dot[d] * v;
        }
      }
    }
  }

  INLINE void accumulate_mix_grad() const {
    for (int64_t m = 0; m < (P::known ? P::mixes : call.pool.program.mixes); ++m) {
      if constexpr (PER_LANE) {
        A* to = at.dmix + m * call.memory.dmix.row;
        store_as<A, FULL>(to, load_as<A, FULL>(to, at.lanes) + region.to_mix[m], at.lanes);
      } else {
        at.mix_sums[m] += region.to_mix[m];
      }
    }
  }

  INLINE void run() {
    respond();
    const V value = evaluate_tree();
    if constexpr (!BACKWARD) {
      store_as<A, FULL>(at.y, value, at.lanes);
    } else {
      backpropagate_tree();
      V kept[KEPT];
      if constexpr (D > 0) {
        for (int d = 0; d < D; ++d) kept[d] = region.to_dot[d];
      }
      const V* to_dot = D >= 0 ? kept : static_cast<const V*>(region.to_dot);
      if (at.dx != nullptr) scatter_input_grad(to_dot);
      if (call.pool.weight_grad) accumulate_weight_grad(to_dot);
      if (call.pool.mix_grad) accumulate_mix_grad();
    }
  }
};

// The taps of a vector of channels for stochastic.h; only those that exist are listed. COUNT: how many, if known (else -1).
template <class T, bool FULL, int COUNT>
struct ChannelTaps {
  using A = Accumulator<T>;
  static constexpr int KNOWN = COUNT;
  const ChannelVector<T>& at;

  INLINE int64_t size() const { return COUNT > 0 ? COUNT : at.tap_count; }
  INLINE int64_t number(int64_t i) const { return COUNT > 0 ? i : at.taps[i].tap; }
  INLINE Vec<A> cell(int64_t i) const { return load_as<A, FULL>(at.x + at.taps[i].from, at.lanes); }
  INLINE Mask<A> exists(int64_t) const { return ~Mask<A>{}; }
  INLINE Vec<A> count() const { return at.cells; }
};

// Stochastic pooling of one vector of channels at one output.
template <class T, Rule RULE, bool BACKWARD, bool FULL, int COUNT>
INLINE void pick_vector(const ChannelVector<T>& at) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  const ChannelTaps<T, FULL, COUNT> taps{at};
  Picks<A> picks;
  if constexpr (RULE == Rule::Pick) {
    const Bits<A> low = load<Bits<A>>(at.key_low), high = load<Bits<A>>(at.key_high);
    picks = pick_cells<A>(taps, to_uniform<A>(hash<Bits<A>>(at.output - Bits<A>{}, low, high)));
  } else {
    picks = expect_cells<A>(taps);
  }
  if constexpr (!BACKWARD) return store_as<A, FULL>(at.y, picks.value, at.lanes);
  const V grad = load_as<A, FULL>(at.grad, at.lanes);
  ExpectedGrad<A> expected;
  if constexpr (RULE == Rule::Expect) expected = ExpectedGrad<A>(picks, grad);
  const int64_t count = taps.size();
#pragma GCC unroll 9
  for (int64_t i = 0; i < count; ++i) {
    A* to = at.dx + at.taps[i].to;
    V received{};
    if (!at.taps[i].fresh) received = load_as<A, FULL>(to, at.lanes);
    if constexpr (RULE == Rule::Expect) received += expected.at(taps.cell(i));
    else received += picks.winner == Lane<A>(taps.number(i)) ? grad : V{};
    store_as<A, FULL>(to, received, at.lanes);
  }
}

constexpr int64_t BYTES_AHEAD = 4096;    // along a row, that cells are fetched before they are needed
constexpr int64_t BAND_BYTES = 1 << 18;  // of gradients that collect in scratch: they stay in the second cache

template <class T, class P, bool BACKWARD, bool PER_LANE>
class ImagePooling {
  using A = Accumulator<T>;
  static constexpr bool DIRECT = std::is_same_v<T, A>;  // gradients of halves collect in scratch first
  static constexpr bool STAGED = P::known && P::rule == Rule::Tree && !PER_LANE;
  static constexpr bool IN_PAIRS = STAGED && PAIRED<T>;  // the order of channels in that scratch is load_pair's
  struct NoStages {
    NoStages(const Call&, Scratch&) {}
  };
  using Stages =
      std::conditional_t<STAGED, ChannelStages<T, std::conditional_t<STAGED, P, KnownProgram<Code::Max>>, BACKWARD>, NoStages>;

 public:
  explicit ImagePooling(const Call& call)
      : call_(call),
        region_(call.pool.program, scratch_),
        sums_(call.pool, scratch_),
        stages_(call, scratch_),
        output_taps_(call.pool),
        taps_(scratch_.take<CellTap>(output_taps_.most)),
        dx_stride_(DIRECT ? call.pool.channels : call.items.channel_step),
        ahead_(divide_up(BYTES_AHEAD, call.pool.w.stride * call.pool.channels * int64_t(sizeof(T)))),
        band_cells_(collects() ? choose_band() : 0),
        band_(collects() ? scratch_.take<A>(band_cells_ * dx_stride_) : nullptr) {
    if constexpr (P::rule == Rule::Pick) {
      key_low_ = scratch_.take<uint32_t>(call.items.channel_step + LANES<A>);
      key_high_ = scratch_.take<uint32_t>(call.items.channel_step + LANES<A>);
    }
  }

  void pool_item(int64_t item) {
    box_ = call_.items.box(item);
    slice_ = BACKWARD ? static_cast<A*>(call_.memory.slices) + item * call_.memory.slice : nullptr;
    for (int64_t n = box_.n0; n < box_.n1; ++n) pool_image(n);
    add_weight_grads();
    if (BACKWARD && !PER_LANE) sums_.flush(call_, slice_, slice_ + call_.memory.dmix_offset);
  }

 private:
  const Call& call_;
  Scratch scratch_;
  Region<A, P> region_;
  SharedSums<A> sums_;
  Stages stages_;
  const OutputTaps output_taps_;
  CellTap* taps_;                                   // of the present output
  OutputTaps::List down_{-1, -1}, across_{-1, -1};  // what taps_ was made of
  const int64_t dx_stride_;                         // from cell to cell
  const int64_t ahead_;                             // how many outputs further on cells are fetched
  Upcoming<T> upcoming_;
  // Gradients of halves, for the channels of an item: of so many cells from band_begin_ on. Outputs that need later cells push
  // the band on; what it leaves behind is rounded and written to memory.
  std::vector<int64_t> pending_;  // by row of outputs: the first cell that it or a later row meets
  const int64_t band_cells_;
  A* band_;
  int64_t band_begin_ = 0;
  Items::Box box_{};  // of the present item
  A* slice_ = nullptr;
  uint32_t *key_low_ = nullptr, *key_high_ = nullptr;  // of random picks in the present image, by channel of the item
  T* gradient_ = nullptr;                              // of the present image, from the first channel of the item on; or null
  A* dx_ = nullptr;                                    // where it is added up: there, or in the band

  bool collects() const { return BACKWARD && call_.pool.input_grad && !DIRECT; }

  // At least twice what a row of outputs needs, so that a cell moves once at most.
  int64_t choose_band() {
    const Pooling& pool = call_.pool;
    pending_.resize(output_taps_.rows.size());
    int64_t pending = pool.cells(), needed = 1;
    for (int64_t row = int64_t(pending_.size()) - 1; row >= 0; --row) {
      const OutputTaps::List& list = output_taps_.rows[row];
      if (list.size() > 0) pending = std::min(pending, list.first);
      pending_[row] = pending;
      needed = std::max(needed, output_taps_.find_end(list, pool.w.in) - pending);
    }
    const int64_t in_cache = BAND_BYTES / (dx_stride_ * int64_t(sizeof(A)));
    return std::min(pool.cells(), std::max(in_cache, 2 * needed));
  }

  void pool_image(int64_t n) {
    const Pooling& pool = call_.pool;
    const int64_t image = n * pool.cells() * pool.channels, width = box_.c1 - box_.c0;
    for (int64_t c = 0; P::rule == Rule::Pick && c < width; ++c) {
      const PlaneKey key = make_plane_key(call_.memory.seeds[n], box_.c0 + c);
      key_low_[c] = key.low;
      key_high_[c] = key.high;
    }
    gradient_ = BACKWARD && pool.input_grad ? static_cast<T*>(call_.memory.y) + image + box_.c0 : nullptr;
    if constexpr (DIRECT) dx_ = gradient_;
    else dx_ = band_;
    band_begin_ = 0;
    if (dx_ != nullptr) clear_cells(0, DIRECT ? pool.cells() : band_cells_);
    const T* x = static_cast<const T*>(call_.memory.x) + image + box_.c0;
    for (int64_t row = 0, o = 0; row < pool.d.out * pool.h.out; ++row) {
      if (collects()) extend_band(output_taps_.find_end(output_taps_.rows[row], pool.w.in), pending_[row]);
      for (int64_t ow = 0; ow < pool.w.out; ++ow, ++o) {
        look_ahead(x, row, ow + ahead_);
        pool_output(x, n * pool.outputs() + o, o, row, ow);
      }
    }
    if (collects()) {
      extend_band(pool.cells(), pool.cells());
      write_gradients(pool.cells() - band_begin_);
    }
  }

  // Zeros, if there are cells that meet no output.
  void clear_cells(int64_t begin, int64_t end) {
    if (output_taps_.covered) return;
    for (int64_t i = begin; i < end; ++i) std::memset(dx_ + i * dx_stride_, 0, sizeof(A) * (box_.c1 - box_.c0));
  }

  // Push the band on until it holds the cells before `end`; those before `pending` are finished.
  void extend_band(int64_t end, int64_t pending) {
    while (end > band_begin_ + band_cells_) {
      const int64_t finished = std::min(pending - band_begin_, band_cells_), kept = band_cells_ - finished;
      write_gradients(finished);
      copy_row(band_ + finished * dx_stride_, band_, kept * dx_stride_);
      clear_cells(kept, band_cells_);
      band_begin_ += finished;
    }
  }

  // The first `count` cells of the band.
  void write_gradients(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const A* from = band_ + i * dx_stride_;
      T* to = gradient_ + (band_begin_ + i) * call_.pool.channels;
      if constexpr (IN_PAIRS) convert_pairs(from, to, box_.c1 - box_.c0);
      else convert_row<A>(from, to, box_.c1 - box_.c0);
    }
  }

  // Gradients at the taps of the present output, from load_pair's order of channels to that of memory, or back.
  template <To TO>
  void reorder_gradients(A* dx, int64_t tap_count) {
    constexpr int64_t lanes = LANES<A>;
    constexpr auto order = std::make_integer_sequence<int, lanes>{};
    for (int64_t i = 0; i < tap_count; ++i) {
      A* cell = dx + taps_[i].to;
      for (int64_t c = 0; c + 2 * lanes <= box_.c1 - box_.c0; c += 2 * lanes) {
        Vec<A> a, b;
        if constexpr (TO == To::Memory) zip(load<Vec<A>>(cell + c), load<Vec<A>>(cell + c + lanes), a, b, order);
        else unzip(load<Vec<A>>(cell + c), load<Vec<A>>(cell + c + lanes), a, b, order);
        store(cell + c, a);
        store(cell + c + lanes, b);
      }
    }
  }

  INLINE void add_weight_grads() {
    if constexpr (BACKWARD && STAGED) stages_.add_weight_grads(sums_.weight);
  }

  // The taps where these two lists meet.
  void list_taps(const OutputTaps::List& down, const OutputTaps::List& across) {
    const OutputTaps::Tap* all = output_taps_.taps.data();
    CellTap* here = taps_;
    for (int64_t i = down.begin; i < down.end; ++i) {
      for (int64_t j = across.begin; j < across.end; ++j) {
        const int64_t cell = all[i].cell + all[j].cell;
        *here++ = {all[i].tap + all[j].tap, cell * call_.pool.channels, cell * dx_stride_, all[i].fresh && all[j].fresh};
      }
    }
    down_ = down;
    across_ = across;
  }

  // Cells are fetched for output `ow` of a row, or for one of the next row.
  INLINE void look_ahead(const T* x, int64_t row, int64_t ow) {
    const Pooling& pool = call_.pool;
    if (ow >= pool.w.out) {
      ow -= pool.w.out;
      ++row;
    }
    upcoming_.count = 0;
    if (ow >= pool.w.out || row >= pool.d.out * pool.h.out) return;
    const OutputTaps::List &down = output_taps_.rows[row], &across = output_taps_.columns[ow];
    const int64_t* fresh = output_taps_.fresh.data();
    for (int64_t i = down.fresh_begin; i < down.fresh_end; ++i) {
      for (int64_t j = across.fresh_begin; j < across.fresh_end && upcoming_.count < Upcoming<T>::MOST; ++j) {
        const int64_t cell = fresh[i] + fresh[j];
        upcoming_.x[upcoming_.count] = x + cell * pool.channels;
        upcoming_.dx[upcoming_.count++] = gradient_ == nullptr ? nullptr : gradient_ + cell * pool.channels;
      }
    }
  }

  // All channels of the item at output `o` of an image, which is number `index` of the batch.
  INLINE void pool_output(const T* x, int64_t index, int64_t o, int64_t row, int64_t ow) {
    const Memory& memory = call_.memory;
    const int64_t width = box_.c1 - box_.c0, first = index * call_.pool.channels + box_.c0;
    const OutputTaps::List &down = output_taps_.rows[row], &across = output_taps_.columns[ow];
    const int64_t cell = down.first + across.first;
    const bool renewed = !down.is_same(down_) || !across.is_same(across_);
    if (renewed) {
      add_weight_grads();
      list_taps(down, across);
    }
    x += cell * call_.pool.channels;
    A* dx = dx_ == nullptr ? nullptr : dx_ + (DIRECT ? cell : cell - band_begin_) * dx_stride_;
    const A* weight = static_cast<const A*>(memory.weight.data) + o * memory.weight.region + box_.c0 * memory.weight.channel;
    const A* mix = static_cast<const A*>(memory.mix.data) + o * memory.mix.region + box_.c0 * memory.mix.channel;
    A* dweight = BACKWARD ? slice_ + o * memory.dweight.region : nullptr;
    A* dmix = BACKWARD ? slice_ + memory.dmix_offset + o * memory.dmix.region : nullptr;
    ChannelVector<T> at{taps_, upcoming_};
    at.tap_count = down.size() * across.size();
    at.cells = broadcast<A>(A(std::max<int64_t>(1, down.count * across.count)));
    at.weight_sums = sums_.weight;
    at.mix_sums = sums_.mix;
    at.weight = weight;
    at.mix = mix;
    at.dx = nullptr;
    at.output = uint32_t(o);
    int64_t c = STAGED ? pool_stages(at, x, dx, first, renewed) : 0;
    const bool reorders = IN_PAIRS && dx != nullptr && c < width;
    if (reorders) reorder_gradients<To::Memory>(dx, at.tap_count);
    for (; c < width; c += LANES<A>) {
      upcoming_.template fetch<BACKWARD>(c);
      at.lanes = std::min(LANES<A>, width - c);
      at.x = x + c;
      if (dx != nullptr) at.dx = dx + c;
      if constexpr (BACKWARD) at.grad = static_cast<const T*>(memory.grad) + first + c;
      else at.y = static_cast<T*>(memory.y) + first + c;
      if constexpr (PER_LANE) {
        at.weight = weight + c * memory.weight.channel;
        at.mix = mix + c * memory.mix.channel;
        if constexpr (BACKWARD) {
          at.dweight = dweight + c * memory.dweight.channel;
          at.dmix = dmix + c * memory.dmix.channel;
        }
      }
      if constexpr (P::rule == Rule::Pick) {
        at.key_low = key_low_ + c;
        at.key_high = key_high_ + c;
      }
      pool_vector(at);
    }
    if (reorders) reorder_gradients<To::Scratch>(dx, at.tap_count);
    if (BACKWARD && !PER_LANE && (memory.dweight.region != 0 || memory.dmix.region != 0)) {
      add_weight_grads();
      sums_.flush(call_, dweight, dmix);
    }
  }

  // All channels at an output, in stages; returns how many that were, 0 if it has to be done otherwise.
  INLINE int64_t pool_stages(ChannelVector<T>& at, const T* x, A* dx, int64_t first, bool renewed) {
    if constexpr (STAGED) {
      const int64_t channels = box_.c1 - box_.c0;
      if (renewed || call_.memory.weight.region != 0) stages_.set_weights(at);
      at.x = x;
      at.dx = dx;
      if constexpr (BACKWARD) at.grad = static_cast<const T*>(call_.memory.grad) + first;
      else at.y = static_cast<T*>(call_.memory.y) + first;
      return stages_.pool(at, channels) ? channels : 0;
    } else {
      return 0;
    }
  }

  INLINE void pool_vector(const ChannelVector<T>& at) {
    if constexpr (P::rule != Rule::Tree) {
      if (at.lanes < LANES<A>) pick_vector<T, P::rule, BACKWARD, false, -1>(at);
      else if (call_.pool.taps() == 9 && at.tap_count == 9) pick_vector<T, P::rule, BACKWARD, true, 9>(at);
      else pick_vector<T, P::rule, BACKWARD, true, -1>(at);
    } else if constexpr (P::known) {
      Region<A, P> region;  // in registers
      pool_vector(at, region);
    } else {
      pool_vector(at, region_);
    }
  }

  INLINE void pool_vector(const ChannelVector<T>& at, Region<A, P>& region) {
    if (at.lanes < LANES<A>) {
      VectorPooling<T, P, BACKWARD, PER_LANE, false>(call_, at, region).run();
      return;
    }
    VectorPooling<T, P, BACKWARD, PER_LANE, true>(call_, at, region).run();
  }
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
