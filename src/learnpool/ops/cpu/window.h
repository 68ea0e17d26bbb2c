// Geometry, once: where a window's taps fall along one axis, and which memory layout a pool keeps. The twin of window.py.
#pragma once

#include <algorithm>
#include <cstdint>

namespace learnpool {

// As in window.py: the numbers of a window are those PyTorch's own pools take, and taps can be numbered in 32 bits.
constexpr int64_t LARGEST_NUMBER = (int64_t(1) << 31) - 1;
constexpr int64_t MOST_TAPS = int64_t(1) << 24;

// One spatial axis. Tap k of output o reads cell o * stride + k * dilation - padding.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;

  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  int64_t cell(int64_t o, int64_t k) const { return o * stride + k * dilation - padding; }
  // The taps of output o that meet a cell: one range, empty where the region has no cell.
  Range taps(int64_t o) const {
    const int64_t begin = std::max<int64_t>(0, (dilation - 1 - cell(o, 0)) / dilation);
    return {begin, std::max(begin, taps_before(in, o))};
  }
  // How many taps of output o come before the cell `end`.
  int64_t taps_before(int64_t end, int64_t o) const {
    return std::min(kernel, std::max<int64_t>(0, (end - cell(o, 0) + dilation - 1) / dilation));
  }
  // Whether tap k meets a cell in any output.
  bool meets_cell(int64_t k) const {
    const int64_t first = std::max<int64_t>(0, (stride - 1 - cell(0, k)) / stride);
    return first < out && cell(first, k) < in;
  }
  // What an average divides by: cells that exist, or with padding counted but never the overhang of ceil mode.
  int64_t count(int64_t o, bool include_pad) const { return include_pad ? taps_before(in + padding, o) : taps(o).size(); }
  // Cells split by stride: which share a phase, and where a cell is among them, counted from the padding.
  int64_t phases() const { return std::min(stride, in + padding); }
  int64_t phase(int64_t cell) const { return (cell + padding) % stride; }
  int64_t position(int64_t cell) const { return (cell + padding) / stride; }
};

inline int64_t divide_down(int64_t a, int64_t b) { return a / b - (a % b < 0); }
inline int64_t divide_up(int64_t a, int64_t b) { return divide_down(a + b - 1, b); }

// How many outputs an axis has; less than 1 if the window does not fit.
inline int64_t output_size(const Axis& axis, bool ceil_mode) {
  const int64_t last = axis.in + 2 * axis.padding - axis.dilation * (axis.kernel - 1) - 1;
  if (!ceil_mode) return divide_down(last, axis.stride) + 1;
  // The last window has to begin inside the input or its left padding.
  return std::min(divide_up(last, axis.stride) + 1, divide_down(axis.in + axis.padding - 1, axis.stride) + 1);
}

// Whether the output of a pool is channels_last: where the strides of [N, C, *size] say so, as in PyTorch's pools.
inline bool is_channels_last(int64_t dims, int64_t ndim, const int64_t* sizes, const int64_t* strides) {
  if (dims == 1 || ndim != dims + 2) return false;
  int64_t reach = 0;
  for (int64_t step = 0; step < ndim; ++step) {
    const int64_t axis = step == 0 ? 1 : step == ndim - 1 ? 0 : ndim - step;  // channels, width, ..., batch
    if (sizes[axis] == 0 || strides[axis] < reach || (axis == 1 && strides[axis] == 0)) return false;
    if (axis == 0 && reach == strides[1]) return false;  // nothing tells the layouts apart: C = H = W = 1
    reach = strides[axis] * sizes[axis];
  }
  return true;
}

}  // namespace learnpool
