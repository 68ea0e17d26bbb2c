// Stands in for PyTorch's header of this name: new tensors by plain functions, which return 0 for success.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>

using AtenTensorHandle = torch::stable::Tensor*;

inline int32_t aoti_torch_device_type_cpu() { return 0; }

inline int32_t aoti_torch_get_dtype(const torch::stable::Tensor* tensor, int32_t* type) {
  *type = int32_t(tensor->scalar_type());
  return 0;
}

inline int32_t aoti_torch_empty_strided(int64_t dims, const int64_t* sizes, const int64_t* strides, int32_t type, int32_t, int32_t,
                                        AtenTensorHandle* made) {
  using torch::stable::Numbers;
  *made = new torch::stable::Tensor(Numbers(sizes, sizes + dims), Numbers(strides, strides + dims),
                                    torch::headeronly::ScalarType(type));
  return 0;
}
