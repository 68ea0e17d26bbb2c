// Stands in for PyTorch's header of this name: what the kernels' library calls on tensors, and threads.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <optional>
#include <thread>

namespace torch::stable {

// copy(to, from) for every element's place in both, given in elements.
template <class Copy>
void for_each_element(const Numbers& sizes, const Numbers& to, const Numbers& from, Copy copy) {
  Numbers index(sizes.size(), 0);
  const auto find_place = [&](const Numbers& strides) {
    return std::inner_product(index.begin(), index.end(), strides.begin(), int64_t(0));
  };
  for (int64_t left = std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>()); left > 0; --left) {
    copy(find_place(to), find_place(from));
    for (size_t axis = sizes.size(); axis-- > 0 && ++index[axis] == sizes[axis];) index[axis] = 0;
  }
}

inline Tensor contiguous(const Tensor& given, MemoryFormat format = MemoryFormat::Contiguous) {
  if (given.is_contiguous(format)) return given;
  Tensor dense(given.sizes(), make_dense_strides(given.sizes(), format), given.scalar_type());
  const int64_t bytes = given.element_size();
  const char* from = static_cast<const char*>(given.const_data_ptr());
  char* to = static_cast<char*>(dense.data_ptr());
  for_each_element(given.sizes(), dense.strides(), given.strides(),
                   [&](int64_t i, int64_t j) { std::memcpy(to + i * bytes, from + j * bytes, bytes); });
  return dense;
}

// f(pointer to the first element, of its C++ type).
template <class F>
void with_data(const Tensor& t, F f) {
  switch (t.scalar_type()) {
    case ScalarType::Half: return f(static_cast<headeronly::Half*>(t.data_ptr()));
    case ScalarType::BFloat16: return f(static_cast<headeronly::BFloat16*>(t.data_ptr()));
    case ScalarType::Float: return f(static_cast<float*>(t.data_ptr()));
    case ScalarType::Double: return f(static_cast<double*>(t.data_ptr()));
    default: throw std::runtime_error("the stand-in for tensors converts floats only");
  }
}

inline Tensor to(const Tensor& given, ScalarType type) {
  if (given.scalar_type() == type) return given;
  Tensor converted(given.sizes(), given.strides(), type);
  with_data(given, [&](const auto* from) {
    with_data(converted, [&](auto* to) {
      using T = std::decay_t<decltype(*to)>;
      for (int64_t i = 0; i < given.reach(); ++i) to[i] = T(from[i]);
    });
  });
  return converted;
}

inline int64_t thread_count = 1;  // of the present call

template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& f) {
  const int64_t threads = std::max<int64_t>(1, std::min(thread_count, end - begin));
  const int64_t step = std::max(grain, (end - begin + threads - 1) / threads);
  std::vector<std::thread> others;
  for (int64_t first = begin + step; first < end; first += step) {
    others.emplace_back([&f, first, last = std::min(first + step, end)] { f(first, last); });
  }
  if (begin < end) f(begin, std::min(begin + step, end));
  for (std::thread& other : others) other.join();
}

}  // namespace torch::stable
