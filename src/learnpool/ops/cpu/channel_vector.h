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

// One vector of channels at one output: everything in memory begins at its first channel, x and dx at its first cell.
template <class T>
struct ChannelVector {
  using A = Accumulator<T>;
  const CellTap* taps;
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
