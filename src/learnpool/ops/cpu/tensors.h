// Tensors of PyTorch, through the stable ABI, with few operators. Each call of one costs about as much as a small pool, so none is
// made that would change nothing, and new memory is asked for by a plain function.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/MemoryFormat.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/shim_utils.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace learnpool {

using torch::headeronly::MemoryFormat;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Numbers = std::vector<int64_t>;

inline Numbers get_shape(const Tensor& t) {
  const auto& sizes = t.sizes();
  return Numbers(sizes.begin(), sizes.end());
}

// The strides of dense memory: the last axis is the innermost, or the channels are.
inline Numbers make_dense_strides(const Numbers& shape, MemoryFormat format) {
  Numbers strides(shape.size());
  int64_t step = 1;
  auto place = [&](size_t axis) {
    strides[axis] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  };
  const bool channels_last = format != MemoryFormat::Contiguous;
  if (channels_last) place(1);
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (!channels_last || axis != 1) place(axis);
  }
  return strides;
}

// Uninitialised memory on the CPU, of `like`'s dtype.
inline Tensor make_tensor(const Numbers& shape, const Tensor& like, MemoryFormat format = MemoryFormat::Contiguous) {
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &type));
  AtenTensorHandle made;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(shape.size()), shape.data(), make_dense_strides(shape, format).data(),
                                                  type, aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}

inline bool is_dense(const Tensor& t, MemoryFormat format) {
  if (format == MemoryFormat::Contiguous) return t.is_contiguous();
  const Numbers shape = get_shape(t), strides = make_dense_strides(shape, format);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] != 1 && t.strides()[axis] != strides[axis]) return false;
  }
  return true;
}

inline Tensor make_dense(const Tensor& t, MemoryFormat format = MemoryFormat::Contiguous) {
  return is_dense(t, format) ? t : torch::stable::contiguous(t, format);
}

inline Tensor convert(const Tensor& t, ScalarType type) { return t.scalar_type() == type ? t : torch::stable::to(t, type); }

}  // namespace learnpool
