// One call of the operator, by role: what is asked, how it lies in memory, and how it is cut into items for threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "program.h"
#include "window.h"

namespace learnpool {

enum class Type { Float, Double, Half, BFloat16 };

// What is asked.
struct Pooling {
  Program program;
  int64_t dims = 2;
  Axis d, h, w;  // those of 1d and 2d input that it does not have are of one cell
  bool count_include_pad = false;
  int64_t batch = 1, channels = 1;
  Type type = Type::Float;
  bool backward = false, input_grad = false, weight_grad = false, mix_grad = false;

  int64_t taps() const { return d.kernel * h.kernel * w.kernel; }
  int64_t outputs() const { return d.out * h.out * w.out; }
  int64_t cells() const { return d.in * h.in * w.in; }
};

// Rows of outputs and of cells lie at these distances in scratch, and regions in parameters by region: at least the number of
// outputs along each axis.
struct Pitch {
  int64_t d = 1, h = 1, w = 1;

  int64_t size() const { return d * h * w; }
  int64_t index(int64_t od, int64_t oh, int64_t ow) const { return (od * h + oh) * w + ow; }
};

// A parameter as the kernel reads it: [rows, taps] x [C|1] x [regions|1], of the accumulator's type, taps before the regions
// so that a vector of neighbouring regions (or channels) is one load. Stride 0 where it is shared.
struct Parameter {
  const void* data = nullptr;
  int64_t row = 0, tap = 0, channel = 0, region = 0;  // strides; regions are counted by Pitch
};

// How it lies in memory.
struct Memory {
  bool channels_last = false;
  Pitch pitch;
  const void* x = nullptr;
  const void* grad = nullptr;      // backward: of the output
  void* y = nullptr;               // forward: output; backward: gradient of x, if it is asked for
  const int64_t* seeds = nullptr;  // of random picks: one for each image
  Parameter weight, mix;
  bool finite_weights = true;  // so that a weight times the zero of a cell that does not exist is zero
  // Gradients of parameters: each item owns one slice, laid out like Parameter; the caller adds the slices up.
  void* slices = nullptr;
  int64_t slice = 0;        // elements of one
  Parameter dweight, dmix;  // strides inside a slice (data unused)
  int64_t dmix_offset = 0;  // dmix begins behind dweight
};

// Outputs that fit into the first cache together with all that belongs to them: contiguous planes are taken in pieces of so many.
constexpr int64_t PIECE_BYTES = 2048;

// Work is cut into items by the shape alone, so that any number of threads gives the same bits. An item is a box of channels
// and images.
struct Items {
  int64_t channels = 1, batch = 1, channel_step = 1, batch_step = 1;

  struct Box {
    int64_t c0, c1, n0, n1;
  };

  int64_t along_channels() const { return divide_up(channels, channel_step); }
  int64_t count() const { return along_channels() * divide_up(batch, batch_step); }
  Box box(int64_t item) const {
    const int64_t c0 = item % along_channels() * channel_step, n0 = item / along_channels() * batch_step;
    return {c0, std::min(c0 + channel_step, channels), n0, std::min(n0 + batch_step, batch)};
  }
};

struct Call {
  Pooling pool;
  Memory memory;
  Items items;
};

// One instruction set's kernels; they run items [begin, end).
struct Kernels {
  const char* name;
  int64_t lanes;  // of float
  void (*run)(const Call&, int64_t begin, int64_t end);
};

extern const Kernels baseline, avx2, avx512;

}  // namespace learnpool
