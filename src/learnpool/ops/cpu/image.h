// What a thread keeps for channels_last images: a vector is LANES neighbouring channels of one output.
//
// A band is neighbouring outputs of a row, all their channels one behind another, in whole vectors. Cells are read where they are;
// halves, and channels that do not fill their vectors, go through a window in scratch.
#pragma once

#include "headers.h"
#include "isa.h"
#include "output_taps.h"
#include "pipeline.h"
#include "random.h"
#include "scratch.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// A tap of an output: where its cell begins, and the cell's gradient, counted from those of the first one listed. fresh: no output
// before this one met the cell.
struct CellTap {
  int64_t tap, place;
  bool fresh;
};

// The taps of outputs that lie alike, and their weights, [rows][taps] and [inner products][taps].
template <class A>
struct TapTable {
  OutputTaps::List down{-1, -1}, across{-1, -1};
  int64_t count = 0, band = 0;  // the last band that used it
  CellTap* taps = nullptr;
  A *weights = nullptr, *dot_weights = nullptr;
};

// One output of a band.
template <class A>
struct ImageOutput {
  TapTable<A>* table;
  int64_t at;        // its first channel in maps
  const A* x;        // its first cell
  A* dx;             // and that one's gradient, or null
  const A* derived;  // what units derive of it
  const A* weight;   // parameters of its lanes, where they have their own
  A *dweight, *dmix;
  uint32_t number;  // in the image: for random picks
};

// Cells that the next band is the first to meet, rows of `bytes` in memory, and their gradients or null; `step` bytes of each row
// are fetched with every vector of outputs.
struct Upcoming {
  static constexpr int64_t MOST = 8;
  int64_t count = 0, bytes = 0, step = 0;
  const char *cells[MOST], *gradients[MOST];
};

template <class A>
struct ImageBand {
  const ImageOutput<A>* outputs;
  int64_t count;
};

struct ImageMemory {
  Scratch scratch_memory;
};

template <class A>
struct Image : ImageMemory, Pipeline<A> {
  using Number = A;
  using Span = ImageBand<A>;
  const int64_t width;    // from output to output of a band: channels in whole vectors
  const int64_t outputs;  // of a band, at most
  int64_t lanes = 0;      // channels of the present item; lanes behind them are zeros in scratch
  const A* zeros;
  uint32_t *key_low, *key_high;  // of random picks in the present image, by channel of the item
  Upcoming upcoming;
  const A* values = nullptr;  // of the present band, if they are used where they are

  explicit Image(const Call& call) : Image(call, divide_up(call.items.channel_step, LANES<A>) * LANES<A>) {}

  // On their way to the cache, as the hardware prefetcher misses these strided cells; and where this vector of outputs goes.
  INLINE void prefetch(int64_t at) const {
    if (values != nullptr) __builtin_prefetch(values + at, 1, 3);
    const int64_t begin = at / LANES<A> * upcoming.step, end = std::min(begin + upcoming.step, upcoming.bytes);
    for (int64_t i = 0; i < upcoming.count; ++i) {
      for (int64_t byte = begin; byte < end; byte += 64) {
        __builtin_prefetch(upcoming.cells[i] + byte, 0, 2);
        if (upcoming.gradients[i] != nullptr) __builtin_prefetch(upcoming.gradients[i] + byte, 1, 2);
      }
    }
  }

  // The weights of an output's channels from c on.
  void describe_weights(const ImageOutput<A>& output, int64_t row, int64_t c, Region<A>& region) const {
    const Parameter& strides = this->call.memory.weight;
    region.per_lane = this->per_lane;
    if (row < 0) return;
    region.weights = output.weight + row * strides.row + (this->per_lane ? c : 0);
    region.step = strides.tap;
  }

  // f(place in maps, where the gradients of its weights begin) for every vector of a band.
  template <class F>
  void for_each_vector(const Span& band, F f) const {
    for (int64_t o = 0; o < band.count; ++o) {
      for (int64_t c = 0; c < width; c += LANES<A>) f(band.outputs[o].at + c, band.outputs[o].dweight + c);
    }
  }

  // In image_respond.h.
  template <class U, bool PER_LANE>
  static void respond_alone(const Image& image, const Pass<Image>& pass, const Span& band, Vec<A>& finite);
  static auto choose_group(const Image& image, bool statistics, int64_t dots)
      -> void (*)(const Image&, const Pass<Image>&, const Span&, Vec<A>&);

 private:
  static constexpr int64_t BAND_NUMBERS = 512;  // what belongs to so many channels stays in the first cache

  Image(const Call& call, int64_t width) : Image(call, width, choose_outputs(call, width)) {}
  Image(const Call& call, int64_t width, int64_t outputs)
      : Pipeline<A>(call, call.memory.weight.channel != 0 || call.memory.mix.channel != 0, scratch_memory, outputs * width, 0,
                    outputs * width / LANES<A>),
        width(width),
        outputs(outputs) {
    zeros = scratch_memory.take<A>(width);
    if (this->picks()) {
      key_low = scratch_memory.take<uint32_t>(width);
      key_high = scratch_memory.take<uint32_t>(width);
    }
  }

  // Where regions have their own parameters, one.
  static int64_t choose_outputs(const Call& call, int64_t width) {
    if (call.memory.weight.region != 0 || call.memory.mix.region != 0) return 1;
    return std::max<int64_t>(1, std::min(call.pool.w.out, BAND_NUMBERS / width));
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
