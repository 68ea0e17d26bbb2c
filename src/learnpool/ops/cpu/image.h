// What a thread keeps for channels_last images, and how their cells are gathered: a vector is LANES neighbouring channels of one
// output.
//
// A band is neighbouring outputs of a row, all their channels one behind another, in whole vectors. Cells are read where they are;
// halves, and channels that do not fill their vectors, go through a window in scratch.
#pragma once

#include "pipeline.h"

namespace learnpool::LEARNPOOL_ISA {

struct ImageMemory {
  Scratch scratch_memory;
};

template <class A>
struct Image : ImageMemory, Pipeline<A> {
  using Number = A;
  static constexpr bool HAS_EDGES = false;
  const int64_t width;    // from output to output of a band: channels in whole vectors
  const int64_t outputs;  // of a band, at most
  int64_t lanes = 0;      // channels of the present item; lanes behind them are zeros in scratch
  Block* blocks;
  uint32_t *key_low, *key_high;  // of random picks in the present image, by channel of the item

  explicit Image(const Call& call) : Image(call, divide_up(call.items.channel_step, LANES<A>) * LANES<A>) {}

  // Whether some outputs list so many taps: as a rule those inside.
  bool may_list(int64_t count) const { return this->call.pool.taps() == count; }

  INLINE Vec<A> draw(const Segment<A>& segment, int64_t i) const {
    const Bits<A> low = load<Bits<A>>(key_low + i), high = load<Bits<A>>(key_high + i);
    return to_uniform<A>(hash<Bits<A>>(uint32_t(segment.region) - Bits<A>{}, low, high));
  }

 private:
  static constexpr int64_t BAND_NUMBERS = 512;  // what belongs to so many channels stays in the first cache

  Image(const Call& call, int64_t width) : Image(call, width, choose_outputs(call, width)) {}
  Image(const Call& call, int64_t width, int64_t outputs)
      : Pipeline<A>(call, call.memory.weight.channel != 0 || call.memory.mix.channel != 0, scratch_memory, outputs * width, 0,
                    outputs * width / LANES<A>),
        width(width),
        outputs(outputs) {
    this->zeros = scratch_memory.take<A>(width);
    blocks = scratch_memory.take<Block>(width / LANES<A>);
    for (int64_t i = 0; i < width; i += LANES<A>) blocks[i / LANES<A>] = {i, Lacking::None};
    if (!this->picks()) return;
    key_low = scratch_memory.take<uint32_t>(width);
    key_high = scratch_memory.take<uint32_t>(width);
  }

  // Where regions have their own parameters, one.
  static int64_t choose_outputs(const Call& call, int64_t width) {
    if (call.memory.weight.region != 0 || call.memory.mix.region != 0) return 1;
    return std::max<int64_t>(1, std::min(call.pool.w.out, BAND_NUMBERS / width));
  }
};

// What the cells of COUNT taps from tap t on receive. DOTS: how many responses give c w, if known.
template <int COUNT, bool STATISTICS, int DOTS, bool PER_LANE, class A>
INLINE void gather_taps(const Image<A>& image, const Segment<A>& segment, int64_t t) {
  using V = Vec<A>;
  const TapList<A>& list = *segment.taps;
  const int64_t dots = DOTS >= 0 ? DOTS : int64_t(image.dots.size());
  const Parameter& strides = image.call.memory.weight;
  const A* weight = image.weight + segment.region * strides.region;
  const A* from[COUNT];
  A* to[COUNT];
  Lane<A> tap[COUNT];
  V w[COUNT][DOTS > 0 ? DOTS : 1];
  for (int k = 0; k < COUNT; ++k) {
    to[k] = segment.gradients + list.taps[t + k].place;
    from[k] = list.taps[t + k].fresh ? image.zeros : to[k];
    tap[k] = Lane<A>(list.taps[t + k].number);
    for (int d = 0; d < DOTS; ++d) w[k][d] = broadcast<A>(list.dot_weights[d * list.count + t + k]);
  }
  for (int64_t c = 0; c < image.width; c += LANES<A>) {
    const int64_t at = segment.at + c;
    V received[COUNT];
    for (int k = 0; k < COUNT; ++k) received[k] = load<V>(from[k] + c);
    if constexpr (STATISTICS) {
      const V to_mean = load<V>(image.to_mean + at), to_max = load<V>(image.to_max + at);
      const Mask<A> winner = load<Mask<A>>(reinterpret_cast<const Lane<A>*>(image.winner) + at);
      for (int k = 0; k < COUNT; ++k) received[k] += to_mean + (winner == tap[k] ? to_max : V{});
    }
    for (int64_t d = 0; d < dots; ++d) {
      const V to_dot = load<V>(image.to_dot + d * image.responses.size + at);
      for (int k = 0; k < COUNT; ++k) {
        if constexpr (PER_LANE) received[k] += to_dot * load<V>(weight + image.dot_row(d) * strides.row + tap[k] * strides.tap + c);
        else if constexpr (DOTS > 0) received[k] += to_dot * w[k][d];
        else received[k] += to_dot * list.dot_weights[d * list.count + t + k];
      }
    }
    for (int k = 0; k < COUNT; ++k) store(to[k] + c, received[k]);
  }
}

template <bool STATISTICS, int DOTS, bool PER_LANE, class A>
void gather_together(const Image<A>& image, const Span<A>& band) {
  for (const Segment<A>& segment : band) {
    int64_t t = 0;
    for (; t + 3 <= segment.taps->count; t += 3) gather_taps<3, STATISTICS, DOTS, PER_LANE>(image, segment, t);
    for (; t < segment.taps->count; ++t) gather_taps<1, STATISTICS, DOTS, PER_LANE>(image, segment, t);
  }
}

// What cells receive from the statistics and the inner products.
template <class A>
void gather_group(const Image<A>& image, const Span<A>& band) {
  const size_t dots = image.dots.size();
  if (image.per_lane) gather_together<true, -1, true>(image, band);
  else if (image.has_statistics && dots == 0) gather_together<true, 0, false>(image, band);
  else if (image.has_statistics && dots == 1) gather_together<true, 1, false>(image, band);
  else if (image.has_statistics) gather_together<true, -1, false>(image, band);
  else if (dots == 3) gather_together<false, 3, false>(image, band);
  else if (dots == MOST_DOTS) gather_together<false, MOST_DOTS, false>(image, band);
  else gather_together<false, -1, false>(image, band);
}

}  // namespace learnpool::LEARNPOOL_ISA
