// channels_last input: one output, seen by a vector of its channels.
#pragma once

#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// A tap of the present output: where its cell begins in the image and in its gradient, counted from the first one's.
struct CellTap {
  int64_t tap, from, to;
  bool fresh;
};

// Cells that an output further on is the first to meet, and their gradients: on their way to the cache while another output is
// computed. The processor does not foresee them, as every few hundred bytes it is elsewhere in the image.
template <class T>
struct Upcoming {
  static constexpr int MOST = 16;
  int count = 0;
  const T* x[MOST];
  const T* dx[MOST];  // or null

  // Those of channel c, and of the others in its line of the cache.
  template <bool BACKWARD>
  INLINE void fetch(int64_t c) const {
    if (c * sizeof(T) % 64 != 0) return;
    for (int i = 0; i < count; ++i) {
      __builtin_prefetch(x[i] + c, 0, 2);
      if (BACKWARD && dx[i] != nullptr) __builtin_prefetch(dx[i] + c, 1, 2);
    }
  }
};

// One vector of channels at one output: everything in memory begins at its first channel, x and dx at its first cell.
template <class T>
struct ChannelVector {
  using A = Accumulator<T>;
  const CellTap* taps;
  const Upcoming<T>& upcoming;
  int64_t tap_count;
  int64_t lanes;  // channels that exist
  Vec<A> cells;   // what an average divides by
  const T *x, *grad;
  T* y;
  A* dx;  // or null
  const A *weight, *mix;
  A *dweight, *dmix;  // where every lane has its own: in the item's slice
  Vec<A>*weight_sums, *mix_sums;
  const uint32_t *key_low, *key_high;  // of random picks, by channel
  uint32_t output;                     // its number in the image
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
