// Stands in for PyTorch's header of this name: tensors for a program without PyTorch. Only what the kernels' library uses.
#pragma once

#include <torch/headeronly/core/MemoryFormat.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace torch::stable {

using Numbers = std::vector<int64_t>;
using headeronly::MemoryFormat;
using headeronly::ScalarType;

inline int64_t get_element_size(ScalarType type) {
  switch (type) {
    case ScalarType::Half:
    case ScalarType::BFloat16: return 2;
    case ScalarType::Float: return 4;
    case ScalarType::Double:
    case ScalarType::Long: return 8;
    default: throw std::runtime_error("the stand-in for tensors does not know dtype number " + std::to_string(int(type)));
  }
}

// Strides of dense memory, channels innermost or not.
inline Numbers make_dense_strides(const Numbers& sizes, MemoryFormat format) {
  const int64_t dims = int64_t(sizes.size());
  Numbers order(dims);  // axes from the innermost
  std::iota(order.rbegin(), order.rend(), 0);
  if (format != MemoryFormat::Contiguous) {
    order.erase(order.end() - 2);
    order.insert(order.begin(), 1);
  }
  Numbers strides(dims);
  int64_t step = 1;
  for (int64_t axis : order) {
    strides[axis] = step;
    step *= std::max<int64_t>(sizes[axis], 1);
  }
  return strides;
}

class Tensor {
 public:
  // Every byte of new memory is 0xff, which is NaN in every dtype, so that an element nobody wrote cannot pass for a result.
  Tensor(Numbers sizes, Numbers strides, ScalarType type) : sizes_(std::move(sizes)), strides_(std::move(strides)), type_(type) {
    memory_ = std::make_shared<std::vector<char>>(reach() * element_size(), char(0xff));
  }
  // A handle is a tensor here; this one becomes the new tensor.
  explicit Tensor(Tensor* handle) : Tensor(std::move(*handle)) { delete handle; }
  const Tensor* get() const { return this; }

  int64_t dim() const { return int64_t(sizes_.size()); }
  int64_t size(int64_t axis) const { return sizes_.at(axis); }
  const Numbers& sizes() const { return sizes_; }
  const Numbers& strides() const { return strides_; }
  ScalarType scalar_type() const { return type_; }
  int64_t element_size() const { return get_element_size(type_); }
  int64_t numel() const { return std::accumulate(sizes_.begin(), sizes_.end(), int64_t(1), std::multiplies<>()); }
  bool is_cpu() const { return true; }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    const Numbers dense = make_dense_strides(sizes_, format);
    bool same = true;
    for (int64_t i = 0; i < dim(); ++i) same &= sizes_[i] == 1 || strides_[i] == dense[i];
    return same || numel() == 0;
  }

  void* data_ptr() const { return memory_->data(); }
  void* mutable_data_ptr() const { return memory_->data(); }
  const void* const_data_ptr() const { return memory_->data(); }
  // Elements from the first to the last in memory.
  int64_t reach() const {
    int64_t last = 0;
    for (int64_t i = 0; i < dim(); ++i) last += (sizes_[i] - 1) * strides_[i];
    return numel() == 0 ? 0 : last + 1;
  }

 private:
  Numbers sizes_, strides_;
  ScalarType type_ = ScalarType::Float;
  std::shared_ptr<std::vector<char>> memory_;
};

}  // namespace torch::stable
