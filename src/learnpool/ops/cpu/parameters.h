// The caller's parameters, and how they are laid out for the kernels.
#pragma once

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
  std::vector<std::vector<double>> constants;  // rows behind these, of `taps` numbers each
  std::vector<Domain> domains;                 // of rows, or none

  bool by_channel() const { return rows > 0 && channels != 1; }
  bool by_region() const { return rows > 0 && (grid[0] != 1 || grid[1] != 1 || grid[2] != 1); }
  int64_t row_size() const { return channels * grid[0] * grid[1] * grid[2] * taps; }
  int64_t all_rows() const { return rows + int64_t(constants.size()); }
};

// Strides of a parameter of `channels` channels, as the kernel reads it. One without rows has no axes to walk along.
Parameter make_strides(int64_t rows, int64_t taps, const Memory& memory, Sharing sharing, int64_t channels);

// The numbers of `given` as the kernel reads them: each clamped to its domain, constants behind them. `strides` then points at
// them.
std::vector<char> pack_parameter(const ParameterTensor& given, Call& call, const Sharing& sharing, Parameter& strides);

// The gradient of `given`, of the dtype of `like`: the slices of all items, from `offset` on, added up in a fixed order. It is 0
// where descent would push a number at the border of its domain further out; NaN and infinite gradients are kept, so that
// GradScaler sees them.
Tensor make_gradient(const ParameterTensor& given, const Call& call, const Sharing& sharing, const Parameter& strides,
                     int64_t offset, const Tensor& like);

}  // namespace learnpool
