// The caller's parameters, and how they are laid out for the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "call.h"
#include "tensors.h"

namespace learnpool {

// Which axes a parameter of the kernel has: where either weight or mix differs by channel or region, both do.
struct Sharing {
  bool by_channel = false, by_region = false;
};

// One parameter of the caller, [rows, C|1, *output|1, *taps], contiguous and of the accumulator's type.
struct ParameterTensor {
  std::optional<Tensor> tensor;  // there from the beginning of a call on; an undefined one would have to be made
  int64_t rows = 0, channels = 1, grid[3] = {1, 1, 1}, taps = 1;
  bool clamped = false;  // to [0, 1], as clamp.py says: an outward gradient at a border is dropped

  bool by_channel() const { return rows > 0 && channels != 1; }
  bool by_region() const { return rows > 0 && (grid[0] != 1 || grid[1] != 1 || grid[2] != 1); }
  int64_t size() const { return rows * channels * grid[0] * grid[1] * grid[2] * taps; }

  // f(index of a region by pitch, index of its first tap in the tensor) for every region of a channel, or for one if all share.
  template <class F>
  void for_each_region(const Call& call, int64_t row, int64_t c, bool by_region, F f) const {
    const Pooling& pool = call.pool;
    const int64_t first = row * channels + (channels == 1 ? 0 : c);
    for (int64_t od = 0; od < (by_region ? pool.d.out : 1); ++od) {
      const int64_t plane = first * grid[0] + (grid[0] == 1 ? 0 : od);
      for (int64_t oh = 0; oh < (by_region ? pool.h.out : 1); ++oh) {
        const int64_t line = plane * grid[1] + (grid[1] == 1 ? 0 : oh);
        for (int64_t ow = 0; ow < (by_region ? pool.w.out : 1); ++ow) {
          f(call.memory.pitch.index(od, oh, ow), (line * grid[2] + (grid[2] == 1 ? 0 : ow)) * taps);
        }
      }
    }
  }
};

// Strides of a parameter of `channels` channels, as the kernel reads it. One without rows has no axes to walk along.
inline Parameter make_strides(const ParameterTensor& given, const Memory& memory, Sharing sharing, int64_t channels) {
  if (given.rows == 0) sharing = {};
  const int64_t c = sharing.by_channel ? channels : 1, regions = sharing.by_region ? memory.pitch.size() : 1;
  Parameter p;
  p.tap = c * regions;
  p.row = p.tap * given.taps;
  p.channel = sharing.by_channel ? (memory.channels_last ? 1 : regions) : 0;
  p.region = sharing.by_region ? (memory.channels_last ? c : 1) : 0;
  return p;
}

template <class A>
A clamp_proportion(A a) {
  return a < 0 ? 0 : a > 1 ? 1 : a;  // NaN stays
}

// The numbers of `given` as the kernel reads them; `strides` then points at them.
template <class A>
std::vector<char> pack(const ParameterTensor& given, Call& call, const Sharing& sharing, Parameter& strides) {
  const int64_t channels = sharing.by_channel ? call.pool.channels : 1;
  strides = make_strides(given, call.memory, sharing, channels);
  // Vectors of neighbouring outputs may be read from a map before the first to one past the last, where they meet zeros.
  const int64_t margin = 64 + (sharing.by_region ? call.memory.pitch.size() : 0);
  std::vector<char> packed((given.rows * strides.row + 2 * margin) * sizeof(A));
  A* to = reinterpret_cast<A*>(packed.data()) + margin;
  const A* from = static_cast<const A*>(given.tensor->const_data_ptr());
  A nothing = 0;  // or NaN
  for (int64_t row = 0; row < given.rows; ++row) {
    for (int64_t c = 0; c < channels; ++c) {
      given.for_each_region(call, row, c, sharing.by_region, [&](int64_t region, int64_t index) {
        A* first = to + row * strides.row + c * strides.channel + region * strides.region;
        for (int64_t tap = 0; tap < given.taps; ++tap) {
          const A number = given.clamped ? clamp_proportion(from[index + tap]) : from[index + tap];
          first[tap * strides.tap] = number;
          nothing += number * A(0);
        }
      });
    }
  }
  strides.data = to;
  call.memory.finite_weights &= nothing == 0;
  return packed;
}

// The gradient of `given`: the slices of all items, from `offset` on, added up in a fixed order.
template <class A>
Tensor add_slices(const ParameterTensor& given, const Call& call, const Sharing& sharing, const Parameter& strides,
                  int64_t offset) {
  std::vector<double> total(given.size(), 0.0);
  const A* slices = static_cast<const A*>(call.memory.slices);
  for (int64_t item = 0; item < call.items.count(); ++item) {
    const A* from = slices + item * call.memory.slice + offset;
    const Items::Box box = call.items.box(item);
    for (int64_t row = 0; row < given.rows; ++row) {
      for (int64_t c = box.c0; c < (sharing.by_channel ? box.c1 : box.c0 + 1); ++c) {
        given.for_each_region(call, row, c, sharing.by_region, [&](int64_t region, int64_t index) {
          const A* first = from + row * strides.row + (c - box.c0) * strides.channel + region * strides.region;
          for (int64_t tap = 0; tap < given.taps; ++tap) total[index + tap] += first[tap * strides.tap];
        });
      }
    }
  }
  Tensor sums = make_tensor(get_shape(*given.tensor), *given.tensor);
  A* to = static_cast<A*>(sums.mutable_data_ptr());
  for (size_t i = 0; i < total.size(); ++i) to[i] = A(total[i]);
  return sums;
}

// `sums` is 0 where descent along `grad` would push a proportion at a border further out. Infinity and NaN are for those who look
// for them.
template <class A>
void drop_outward(const ParameterTensor& given, const Tensor& grad, Tensor& sums) {
  const A *a = static_cast<const A*>(given.tensor->const_data_ptr()), *g = static_cast<const A*>(grad.const_data_ptr());
  A* to = static_cast<A*>(sums.mutable_data_ptr());
  for (int64_t i = 0; i < given.size(); ++i) {
    if (std::isfinite(g[i]) && ((a[i] <= 0 && g[i] > 0) || (a[i] >= 1 && g[i] < 0))) to[i] = 0;
  }
}

}  // namespace learnpool
