#include "parameters.h"

#include <cmath>

namespace learnpool {
namespace {

// f(index of a region by pitch, index of its first tap in the tensor) for every region of a channel, or for one if all share.
template <class F>
void for_each_region(const ParameterTensor& given, const Call& call, int64_t row, int64_t c, bool by_region, F f) {
  const Pooling& pool = call.pool;
  const int64_t* grid = given.grid;
  const int64_t first = row * given.channels + (given.channels == 1 ? 0 : c);
  for (int64_t od = 0; od < (by_region ? pool.d.out : 1); ++od) {
    const int64_t plane = first * grid[0] + (grid[0] == 1 ? 0 : od);
    for (int64_t oh = 0; oh < (by_region ? pool.h.out : 1); ++oh) {
      const int64_t line = plane * grid[1] + (grid[1] == 1 ? 0 : oh);
      for (int64_t ow = 0; ow < (by_region ? pool.w.out : 1); ++ow) {
        f(call.memory.pitch.index(od, oh, ow), (line * grid[2] + (grid[2] == 1 ? 0 : ow)) * given.taps);
      }
    }
  }
}

template <class A>
A clamp(A a, const Domain& domain) {
  return a < A(domain.low) ? A(domain.low) : a > A(domain.high) ? A(domain.high) : a;  // NaN stays
}

template <class A>
std::vector<char> pack(const ParameterTensor& given, Call& call, const Sharing& sharing, Parameter& strides) {
  const int64_t channels = sharing.by_channel ? call.pool.channels : 1;
  strides = make_strides(given.all_rows(), given.taps, call.memory, sharing, channels);
  // Vectors of neighbouring outputs may be read from a map before the first to one past the last, where they meet zeros.
  const int64_t margin = 64 + (sharing.by_region ? call.memory.pitch.size() : 0);
  std::vector<char> packed((given.all_rows() * strides.row + 2 * margin) * sizeof(A));
  A* to = reinterpret_cast<A*>(packed.data()) + margin;
  const A* from = static_cast<const A*>(given.tensor->const_data_ptr());
  A nothing = 0;  // or NaN
  for (int64_t row = 0; row < given.all_rows(); ++row) {
    const bool learned = row < given.rows;
    const Domain domain = learned && !given.domains.empty() ? given.domains[row] : UNBOUNDED;
    for (int64_t c = 0; c < channels; ++c) {
      for_each_region(given, call, row, c, sharing.by_region, [&](int64_t region, int64_t index) {
        A* first = to + row * strides.row + c * strides.channel + region * strides.region;
        for (int64_t tap = 0; tap < given.taps; ++tap) {
          const A number = learned ? clamp(from[index + tap], domain) : A(given.constants[row - given.rows][tap]);
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

template <class A>
Tensor add_slices(const ParameterTensor& given, const Call& call, const Sharing& sharing, const Parameter& strides,
                  int64_t offset) {
  std::vector<double> total(given.rows * given.row_size(), 0.0);
  const A* slices = static_cast<const A*>(call.memory.slices);
  for (int64_t item = 0; item < call.items.count(); ++item) {
    const A* from = slices + item * call.memory.slice + offset;
    const Items::Box box = call.items.box(item);
    for (int64_t row = 0; row < given.rows; ++row) {
      for (int64_t c = box.c0; c < (sharing.by_channel ? box.c1 : box.c0 + 1); ++c) {
        for_each_region(given, call, row, c, sharing.by_region, [&](int64_t region, int64_t index) {
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

// `sums` is 0 where descent along `grad` would push a number at a border further out.
template <class A>
void drop_outward(const ParameterTensor& given, const Tensor& grad, Tensor& sums) {
  const A *numbers = static_cast<const A*>(given.tensor->const_data_ptr()), *g = static_cast<const A*>(grad.const_data_ptr());
  A* to = static_cast<A*>(sums.mutable_data_ptr());
  for (int64_t i = 0; i < given.rows * given.row_size(); ++i) {
    const Domain& domain = given.domains[i / given.row_size()];
    const bool outward = (numbers[i] <= A(domain.low) && g[i] > 0) || (numbers[i] >= A(domain.high) && g[i] < 0);
    if (outward && std::isfinite(g[i])) to[i] = 0;
  }
}

}  // namespace

Parameter make_strides(int64_t rows, int64_t taps, const Memory& memory, Sharing sharing, int64_t channels) {
  if (rows == 0) sharing = {};
  const int64_t c = sharing.by_channel ? channels : 1, regions = sharing.by_region ? memory.pitch.size() : 1;
  Parameter p;
  p.tap = c * regions;
  p.row = p.tap * taps;
  p.channel = sharing.by_channel ? (memory.channels_last ? 1 : regions) : 0;
  p.region = sharing.by_region ? (memory.channels_last ? c : 1) : 0;
  return p;
}

std::vector<char> pack_parameter(const ParameterTensor& given, Call& call, const Sharing& sharing, Parameter& strides) {
  return call.pool.type == Type::Double ? pack<double>(given, call, sharing, strides) : pack<float>(given, call, sharing, strides);
}

Tensor make_gradient(const ParameterTensor& given, const Call& call, const Sharing& sharing, const Parameter& strides,
                     int64_t offset, const Tensor& like) {
  if (given.rows == 0) return make_tensor(get_shape(like), like);
  const bool wide = call.pool.type == Type::Double;
  Tensor sums =
      wide ? add_slices<double>(given, call, sharing, strides, offset) : add_slices<float>(given, call, sharing, strides, offset);
  const Tensor grad = convert(sums, like.scalar_type());
  if (given.domains.empty()) return grad;
  const Tensor rounded = convert(grad, sums.scalar_type());  // what is infinite then is not dropped
  if (wide) drop_outward<double>(given, rounded, sums);
  else drop_outward<float>(given, rounded, sums);
  return convert(sums, like.scalar_type());
}

}  // namespace learnpool
