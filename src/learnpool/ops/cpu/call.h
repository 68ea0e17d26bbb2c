// What one call of the operator is, for every instruction set: geometry, the decoded program, and where everything lies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace learnpool {

// Codes of a program, as in tree.py.
enum Code : int64_t { MAX, AVG, FILTER, MIX, GATE, FIXED };

struct Node {
  Code code;
  int32_t parameter;  // row of weight (Filter, Gate) or mix (Mix)
  int32_t left, right;
  double a;  // of a fixed Mix
};

struct Plan {
  std::vector<Node> nodes;
  int64_t weights = 0, mixes = 0;
  bool has_max = false, has_avg = false;
};

// One spatial axis. Tap k of output o reads cell o * stride + k * dilation - padding.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t pitch = 1;  // of output positions in scratch and in parameters by region: at least out

  int64_t cell(int64_t o, int64_t k) const { return o * stride + k * dilation - padding; }
  // The taps of output o that meet a cell: one range, empty where the padding hides the whole region.
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  Range taps(int64_t o) const {
    const int64_t begin = std::max<int64_t>(0, (dilation - 1 - cell(o, 0)) / dilation);
    return {begin, std::max(begin, std::min(kernel, taps_before(in, o)))};
  }
  // How many taps of output o lie before a cell.
  int64_t taps_before(int64_t end, int64_t o) const { return std::max<int64_t>(0, (end - cell(o, 0) + dilation - 1) / dilation); }
  // Whether tap k meets a cell in any output.
  bool meets(int64_t k) const {
    const int64_t first = std::max<int64_t>(0, (stride - 1 - cell(0, k)) / stride);
    return first < out && cell(first, k) < in;
  }
  // Cells split by stride: which share a phase, and where among them a cell is, seen from the padding.
  int64_t phases() const { return std::min(stride, in + padding); }
  int64_t phase(int64_t cell) const { return (cell + padding) % stride; }
  int64_t place(int64_t cell) const { return (cell + padding) / stride; }
  // What an average divides by: cells that exist, or with padding counted but never the overhang of ceil mode.
  int64_t count(int64_t o, bool include_pad) const {
    return include_pad ? std::min(kernel, taps_before(in + padding, o)) : taps(o).size();
  }
};

enum class Type { Float, Double, Half, BFloat16 };

// Parameters as the kernel reads them: [rows, taps] x [C|1] x [grid|1], accumulator type, taps before the grid so that
// a vector of neighbouring regions (or channels) is one load. Stride 0 where they are shared.
struct Parameter {
  const void* data = nullptr;
  int64_t row = 0, tap = 0, channel = 0, place = 0;  // strides; place runs over spots, see Call
};

struct Call {
  Plan plan;
  Axis d, h, w;
  bool count_include_pad = false, channels_last = false;
  int64_t batch = 1, channels = 1;
  Type type = Type::Float;
  const void* x = nullptr;
  const void* grad = nullptr;  // backward only
  void* y = nullptr;           // forward: output; backward: gradient of x, or null if nobody asked
  Parameter weight, mix;
  bool finite_weights = true;  // so that a weight times the zero of a cell that does not exist is zero
  bool want_weight = false, want_mix = false;
  // Work is cut into items by the shape alone, so that any number of threads gives the same bits.
  int64_t channel_step = 1, batch_step = 1;  // an item is a box of channels x images
  // Gradients of parameters: each item owns one slice, laid out like Parameter; sums of items are taken by the caller.
  void* partial = nullptr;
  int64_t partial_item = 0;  // elements per item
  Parameter dweight, dmix;   // strides inside a slice (data unused); dmix begins behind dweight
  int64_t dmix_offset = 0;

  int64_t taps() const { return d.kernel * h.kernel * w.kernel; }
  int64_t places() const { return d.out * h.out * w.out; }
  // Output positions with the pitch of their axes between them, and the one of a position.
  int64_t spots() const { return d.pitch * h.pitch * w.pitch; }
  int64_t spot(int64_t place) const {
    return (place / (w.out * h.out) * h.pitch + place / w.out % h.out) * w.pitch + place % w.out;
  }
  int64_t cells() const { return d.in * h.in * w.in; }
  int64_t channel_items() const { return (channels + channel_step - 1) / channel_step; }
  int64_t batch_items() const { return (batch + batch_step - 1) / batch_step; }
  int64_t items() const { return channel_items() * batch_items(); }
};

// One instruction set's kernels; each runs items [begin, end).
struct Kernels {
  const char* name;
  int64_t lanes;  // of float
  void (*forward)(const Call&, int64_t begin, int64_t end);
  void (*backward)(const Call&, int64_t begin, int64_t end);
};

extern const Kernels baseline, avx2, avx512;

}  // namespace learnpool
