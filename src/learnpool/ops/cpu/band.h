// What is known of the regions of a band: slots of its responses, cell counts, rows of mix and their gradients.
#pragma once

#include "responses.h"
#include "scratch.h"

namespace learnpool::LEARNPOOL_ISA {

// Whole vectors of regions, one behind another.
struct Band {
  int64_t at, size;  // the first region's place in maps, and how many there are
};

// A row of mix along a band; step 0: the same number in all lanes of all regions.
template <class A>
struct Row {
  const A* data = nullptr;
  int64_t step = 0;

  INLINE Vec<A> at(int64_t i) const { return load<Vec<A>>(data + i * step); }
};

// Inner products, whose slots lie one behind another: those with learned weights first, then constants.
inline std::vector<int64_t> list_dots(const Program& program) {
  std::vector<int64_t> dots;
  for (bool learned : {true, false}) {
    for (int64_t r = 0; r < int64_t(program.responses.size()); ++r) {
      const Response& response = program.responses[r];
      if (response.kind == Kind::Dot && (response.weight < program.weights) == learned) dots.push_back(r);
    }
  }
  return dots;
}

template <class A>
class Responses {
  using V = Vec<A>;

 public:
  int64_t size;    // of a map, from one slot to the next
  A *n, *divisor;  // maps: cells that exist; what an average divides by
  Lane<A>* live;   // map: whether there is a region
  V* mix_sums;     // gradients of the rows of mix that all lanes share

  // Maps have `margin` zeros before place 0; a band has at most `most` numbers. per_lane: rows of mix are maps.
  Responses(const Call& call, Scratch& scratch, int64_t map_size, int64_t margin, int64_t most, bool per_lane)
      : size(separate(map_size)), pool_(call.pool), per_lane_(per_lane), most_(most) {
    const std::vector<Response>& all = pool_.program.responses;
    std::vector<int64_t> order = list_dots(pool_.program);
    for (int64_t r = 0; r < int64_t(all.size()); ++r) {
      if (std::find(order.begin(), order.end(), r) == order.end()) order.push_back(r);
    }
    int64_t slots = 0;
    first_.resize(all.size());
    for (int64_t r : order) {
      first_[r] = slots;
      slots += with_unit<A, true>(all[r].kind, [&](auto unit) -> int64_t {
        using U = typename decltype(unit)::Unit;
        return U::SLOTS + count_tap_slots<U>(pool_.taps(), pool_.backward);
      });
    }
    data_ = scratch.take<A>(slots * size) + margin;
    n = scratch.take<A>(size) + margin;
    divisor = scratch.take<A>(size) + margin;
    live = scratch.take<Lane<A>>(size) + margin;
    uniform_ = scratch.take<V>(pool_.program.mix_rows());
    mix_sums = scratch.take<V>(pool_.program.mixes());
    pending_ = scratch.take<A>(pool_.program.mixes() * (per_lane ? most : LANES<A>));
  }

  // An odd number of cache lines: slots at a distance of a power of two would drive each other out of the first cache.
  static constexpr int64_t separate(int64_t numbers) {
    constexpr int64_t LINE = 64 / sizeof(A);
    return ((numbers + LINE - 1) / LINE | 1) * LINE;
  }

  A* slot(int64_t response, int64_t s = 0) const { return data_ + (first_[response] + s) * size; }

  // The slots of the taps of the regions from `at` on.
  template <class U>
  INLINE TapSlots<A> tap_slots(int64_t response, int64_t at) const {
    if (count_tap_slots<U>(pool_.taps(), pool_.backward) == 0) return {};
    return {slot(response, U::SLOTS) + at, size};
  }

  // The rows of mix from here on: maps of regions, or one number each.
  void set_mix(const A* mix, int64_t row_stride) {
    maps_ = mix;
    row_stride_ = row_stride;
    for (int64_t row = 0; !per_lane_ && row < pool_.program.mix_rows(); ++row) uniform_[row] = broadcast<A>(mix[row * row_stride]);
  }

  INLINE Row<A> theta(int64_t row, const Band& band) const {
    if (per_lane_) return {maps_ + row * row_stride_ + band.at, 1};
    return {reinterpret_cast<const A*>(uniform_ + row), 0};
  }

  // Gradients of mix wait here until it is known that a band's numbers are finite.
  void clear_pending(const Band& band) {
    const int64_t numbers = per_lane_ ? band.size : LANES<A>;
    for (int64_t row = 0; row < pool_.program.mixes(); ++row) std::fill_n(pending(row), numbers, A(0));
  }
  A* pending(int64_t row) const { return pending_ + row * (per_lane_ ? most_ : LANES<A>); }

  // f(place in the band) is the gradient of a row.
  template <class F>
  INLINE void add_pending(int64_t row, const Band& band, V& finite, F f) {
    if (row >= pool_.program.mixes() || !pool_.mix_grad) return;
    V sum{}, all{};
    A* to = pending(row);
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      const V grad = f(at);
      all += grad * A(0);
      if (per_lane_) store(to + at, grad);
      else sum += grad;
    }
    if (!per_lane_) store(to, load<V>(to) + sum);
    finite += all;
  }
  INLINE V add_pending_vector(int64_t row, int64_t at, V grad) {
    A* to = pending(row) + (per_lane_ ? at : 0);
    store(to, load<V>(to) + grad);
    return grad;
  }

  // The pending gradients count: those of shared rows. Others are taken by who knows where they belong.
  void commit() {
    for (int64_t row = 0; pool_.mix_grad && !per_lane_ && row < pool_.program.mixes(); ++row) {
      mix_sums[row] += load<V>(pending(row));
    }
  }

 private:
  const Pooling& pool_;
  const bool per_lane_;
  const int64_t most_;
  std::vector<int64_t> first_;  // slot of each response
  A *data_, *pending_;
  V* uniform_;
  const A* maps_ = nullptr;
  int64_t row_stride_ = 0;
};

// Add up the lanes of shared gradients into a slice, and begin again.
template <class A>
void flush_sums(const Call& call, Vec<A>* weight_sums, Vec<A>* mix_sums, A* dweight, A* dmix) {
  const Pooling& pool = call.pool;
  const Parameter &w = call.memory.dweight, &m = call.memory.dmix;
  for (int64_t d = 0; pool.weight_grad && d < pool.program.weights; ++d) {
    for (int64_t tap = 0; tap < pool.taps(); ++tap) {
      Vec<A>& lanes = weight_sums[d * pool.taps() + tap];
      dweight[d * w.row + tap * w.tap] += A(sum_lanes<A>(lanes));
      lanes = Vec<A>{};
    }
  }
  for (int64_t i = 0; pool.mix_grad && i < pool.program.mixes(); ++i) {
    dmix[i * m.row] += A(sum_lanes<A>(mix_sums[i]));
    mix_sums[i] = Vec<A>{};
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
