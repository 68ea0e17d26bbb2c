// learnpool::pool and learnpool::pool_backward on the CPU, through LibTorch's stable ABI: checks, memory, and work for threads.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "call.h"

namespace learnpool {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Numbers = std::vector<int64_t>;

constexpr int64_t NODES = 4096;
// As in window.py: the numbers of a window are those PyTorch's own pools take, and taps can be numbered in 32 bits.
constexpr int64_t LARGEST = (int64_t(1) << 31) - 1;
constexpr int64_t TAPS = int64_t(1) << 24;

// The widest instruction set this machine has; a narrower one where outputs would leave half a vector empty.
const Kernels& kernels(int64_t outputs) {
  static const Kernels& chosen = []() -> const Kernels& {
#if defined(__x86_64__)
    // LEARNPOOL_ISA holds back from the widest instructions, for tests and comparisons.
    const char* wanted = std::getenv("LEARNPOOL_ISA");
    const std::string limit = wanted == nullptr ? "avx512" : wanted;
    const bool has512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool has2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (limit == "avx512" && has512) return avx512;
    if ((limit == "avx512" || limit == "avx2") && has2) return avx2;
#endif
    return baseline;
  }();
#if defined(__x86_64__)
  if (outputs * 2 <= chosen.lanes && chosen.lanes > avx2.lanes) return avx2;
#endif
  return chosen;
}

int64_t row_of(const Call& call) { return call.channels_last ? call.channels : call.spots(); }

Plan decode(const Numbers& program) {
  Plan plan;
  int64_t inner = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const int64_t code = program[at], place = int64_t(plan.nodes.size());
    STD_TORCH_CHECK(code >= MAX && code <= FIXED, "learnpool: invalid program: node ", place, " has code ", code);
    STD_TORCH_CHECK(place <= 2 * inner, "learnpool: invalid program: node ", place, " has no parent");
    STD_TORCH_CHECK(place < NODES, "learnpool: invalid program: more than ", NODES, " nodes");
    Node node{Code(code), -1, -1, -1, 0.0};
    if (code == FILTER || code == GATE) node.parameter = int32_t(plan.weights++);
    if (code == MIX) node.parameter = int32_t(plan.mixes++);
    if (code == FIXED) {
      STD_TORCH_CHECK(++at < program.size(), "learnpool: invalid program: a fixed mix without its proportion");
      std::memcpy(&node.a, &program[at], sizeof node.a);
      STD_TORCH_CHECK(node.a >= 0 && node.a <= 1, "learnpool: invalid program: a fixed mix of ", node.a);
    }
    if (code == MIX || code == GATE || code == FIXED) {
      node.left = int32_t(2 * inner + 1);
      node.right = int32_t(2 * inner + 2);
      ++inner;
    }
    plan.has_max |= code == MAX;
    plan.has_avg |= code == AVG;
    plan.nodes.push_back(node);
  }
  STD_TORCH_CHECK(int64_t(plan.nodes.size()) == 2 * inner + 1, "learnpool: invalid program: ", inner, " inner nodes, ",
                  plan.nodes.size(), " nodes in all");
  return plan;
}

Axis axis(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  STD_TORCH_CHECK(in >= 1 && in < LARGEST << 8, "learnpool: an axis of ", in, " cells");
  STD_TORCH_CHECK(kernel >= 1 && stride >= 1 && padding >= 0 && dilation >= 1 && kernel <= TAPS && stride <= LARGEST &&
                      dilation <= LARGEST && padding <= kernel / 2,
                  "learnpool: illegal window: kernel ", kernel, ", stride ", stride, ", padding ", padding, ", dilation ", dilation);
  Axis axis{in, 1, kernel, stride, padding, dilation};
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  STD_TORCH_CHECK(room >= 0 || (ceil_mode && room > -stride), "learnpool: the window does not fit into ", in, " cells");
  // In ceil mode the last window has to begin inside the input or its left padding.
  axis.out = ceil_mode ? std::min((room + stride - 1) / stride + 1, (in + padding - 1) / stride + 1) : room / stride + 1;
  STD_TORCH_CHECK(axis.out >= 1, "learnpool: the window does not fit into ", in, " cells");
  return axis;
}

Type type_of(ScalarType t) {
  switch (t) {
    case ScalarType::Float: return Type::Float;
    case ScalarType::Double: return Type::Double;
    case ScalarType::Half: return Type::Half;
    case ScalarType::BFloat16: return Type::BFloat16;
    default: STD_TORCH_CHECK(false, "learnpool: input must be float16, bfloat16, float32 or float64");
  }
  return Type::Float;
}

// channels_last where the strides say so; the rule of window.py, which is PyTorch's.
bool is_channels_last(const Tensor& x, int64_t dims) {
  if (dims == 1 || x.dim() != dims + 2) return false;
  int64_t reach = 0;
  for (int64_t step = 0; step < dims + 2; ++step) {
    const int64_t at = step == 0 ? 1 : step == dims + 1 ? 0 : dims + 2 - step;
    const int64_t size = x.size(at), stride = x.stride(at);
    if (size == 0 || stride < reach || (at == 1 && stride == 0)) return false;
    if (at == 0 && reach == x.stride(1)) return false;
    reach = stride * size;
  }
  return true;
}

torch::headeronly::MemoryFormat layout(const Call& call, int64_t dims) {
  using torch::headeronly::MemoryFormat;
  if (!call.channels_last) return MemoryFormat::Contiguous;
  return dims == 2 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
}

// One parameter of the caller, [rows, C|1, *output|1, *taps], contiguous and of the accumulator's type.
struct Given {
  Tensor tensor;
  int64_t rows, channels, grid[3], taps;
  bool by_channel, by_place;

  // f(spot, index of the first tap's number) for every output position of a channel, or for one if all are to share.
  template <class F>
  void each(const Call& call, int64_t row, int64_t c, bool by_place, F f) const {
    const int64_t first = row * channels + (channels == 1 ? 0 : c);
    for (int64_t od = 0; od < (by_place ? call.d.out : 1); ++od) {
      const int64_t plane = first * grid[0] + (grid[0] == 1 ? 0 : od);
      for (int64_t oh = 0; oh < (by_place ? call.h.out : 1); ++oh) {
        const int64_t line = plane * grid[1] + (grid[1] == 1 ? 0 : oh), spot = (od * call.h.pitch + oh) * call.w.pitch;
        for (int64_t ow = 0; ow < (by_place ? call.w.out : 1); ++ow) {
          f(spot + ow, (line * grid[2] + (grid[2] == 1 ? 0 : ow)) * taps);
        }
      }
    }
  }
  int64_t size() const { return rows * channels * grid[0] * grid[1] * grid[2] * taps; }
};

Given check_parameter(const char* name, const Tensor& p, const Tensor& x, const Call& call, int64_t dims, int64_t rows, bool masks) {
  STD_TORCH_CHECK(p.is_cpu(), "learnpool: ", name, " must be on the input's device");
  STD_TORCH_CHECK(p.scalar_type() == ScalarType::Float || p.scalar_type() == x.scalar_type(), "learnpool: ", name,
                  " must be float32 or of the input's dtype");
  STD_TORCH_CHECK(p.dim() == 2 + dims + (masks ? dims : 0) && p.size(0) == rows, "learnpool: ", name, " has a wrong shape");
  STD_TORCH_CHECK(p.size(1) == 1 || p.size(1) == call.channels, "learnpool: ", name, " is for other channels");
  const Axis* axes[] = {&call.d, &call.h, &call.w};
  Given given{p, rows, p.size(1), {1, 1, 1}, masks ? call.taps() : 1, p.size(1) != 1, false};
  for (int64_t i = 0; i < dims; ++i) {
    const Axis& a = *axes[3 - dims + i];
    STD_TORCH_CHECK(p.size(2 + i) == 1 || p.size(2 + i) == a.out, "learnpool: ", name, " is for other regions");
    STD_TORCH_CHECK(!masks || p.size(2 + dims + i) == a.kernel, "learnpool: ", name, " has other taps than the window");
    given.grid[3 - dims + i] = p.size(2 + i);
    given.by_place |= p.size(2 + i) != 1;
  }
  // Each call into PyTorch costs about as much as a small pool, so none is made that would change nothing.
  const ScalarType wide = x.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  if (p.scalar_type() != wide) given.tensor = torch::stable::to(p, wide);
  if (!given.tensor.is_contiguous()) given.tensor = torch::stable::contiguous(given.tensor);
  return given;
}

// Strides of a parameter for `channels` channels, as the kernel reads it.
Parameter strides_of(const Call& call, int64_t taps, int64_t channels, bool by_channel, bool by_place) {
  const int64_t c = by_channel ? channels : 1, places = by_place ? call.spots() : 1;
  Parameter p;
  p.tap = c * places;
  p.row = p.tap * taps;
  p.channel = by_channel ? (call.channels_last ? 1 : places) : 0;
  p.place = by_place ? (call.channels_last ? c : 1) : 0;
  return p;
}

// Everything behind the operator's arguments.
struct Work {
  Call call;
  int64_t dims;
  bool by_channel, by_place;
  Given weight, mix;
  Tensor x;
  std::vector<char> packed_weight, packed_mix;

  template <class A>
  std::vector<char> pack(const Given& given, Parameter& strides) {
    const int64_t channels = by_channel ? call.channels : 1;
    strides = strides_of(call, given.taps, channels, by_channel, by_place);
    // Vectors of neighbouring outputs may be read from a map before the first to one past the last, where they meet zeros.
    const int64_t room = 64 + (by_place ? call.spots() : 0);
    std::vector<char> packed((given.rows * strides.row + 2 * room) * sizeof(A));
    A* to = reinterpret_cast<A*>(packed.data()) + room;
    const A* from = static_cast<const A*>(given.tensor.const_data_ptr());
    A nothing = 0;  // or NaN
    for (int64_t row = 0; row < given.rows; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        given.each(call, row, c, by_place, [&](int64_t spot, int64_t index) {
          A* first = to + row * strides.row + c * strides.channel + spot * strides.place;
          for (int64_t tap = 0; tap < given.taps; ++tap) {
            first[tap * strides.tap] = from[index + tap];
            nothing += from[index + tap] * A(0);
          }
        });
      }
    }
    strides.data = to;
    call.finite_weights &= nothing == 0;
    return packed;
  }

  template <class A>
  Tensor unpack(const Given& given, const Parameter& strides, int64_t offset) const {
    std::vector<double> total(given.size(), 0.0);
    const A* partial = static_cast<const A*>(call.partial);
    for (int64_t item = 0; item < call.items(); ++item) {
      const A* from = partial + item * call.partial_item + offset;
      const int64_t c0 = item % call.channel_items() * call.channel_step;
      const int64_t c1 = by_channel ? std::min(c0 + call.channel_step, call.channels) : c0 + 1;
      for (int64_t row = 0; row < given.rows; ++row) {
        for (int64_t c = c0; c < c1; ++c) {
          given.each(call, row, c, by_place, [&](int64_t spot, int64_t index) {
            const A* first = from + row * strides.row + (c - c0) * strides.channel + spot * strides.place;
            for (int64_t tap = 0; tap < given.taps; ++tap) total[index + tap] += first[tap * strides.tap];
          });
        }
      }
    }
    Tensor sums = torch::stable::empty_like(given.tensor);
    A* to = static_cast<A*>(sums.mutable_data_ptr());
    for (size_t i = 0; i < total.size(); ++i) to[i] = A(total[i]);
    return sums;
  }
};

Work prepare(const Tensor& x, const Tensor& weight, const Tensor& mix, const Numbers& program, const Numbers& kernel,
             const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool ceil_mode, bool count_include_pad) {
  Work work;
  Call& call = work.call;
  const int64_t dims = work.dims = int64_t(kernel.size());
  STD_TORCH_CHECK(dims >= 1 && dims <= 3, "learnpool: kernel must have 1, 2 or 3 numbers");
  STD_TORCH_CHECK(stride.size() == kernel.size() && padding.size() == kernel.size() && dilation.size() == kernel.size(),
                  "learnpool: kernel, stride, padding and dilation must have as many numbers");
  STD_TORCH_CHECK(x.dim() == dims + 1 || x.dim() == dims + 2, "learnpool: input has ", x.dim(), " dimensions");
  call.type = type_of(x.scalar_type());
  call.plan = decode(program);
  call.batch = x.dim() == dims + 2 ? x.size(0) : 1;
  call.channels = x.size(x.dim() - dims - 1);
  STD_TORCH_CHECK(call.channels >= 1, "learnpool: only the batch may be empty");
  Axis* axes[] = {&call.d, &call.h, &call.w};
  int64_t taps = 1;
  for (int64_t i = 0; i < dims; ++i) {
    *axes[3 - dims + i] = axis(x.size(x.dim() - dims + i), kernel[i], stride[i], padding[i], dilation[i], ceil_mode);
    STD_TORCH_CHECK(kernel[i] <= TAPS / taps, "learnpool: a window has at most ", TAPS, " taps");
    taps *= kernel[i];
  }
  call.count_include_pad = count_include_pad;
  call.channels_last = is_channels_last(x, dims);
  for (Axis* a : axes) {
    a->pitch = a->out;
    if (call.channels_last) continue;
    // Room in every map for the last output's last tap that meets a cell, and for every cell.
    a->pitch = std::max(a->pitch, a->place(a->in - 1) + 1);
    for (int64_t k = 0; k < a->kernel; ++k) {
      if (a->meets(k)) a->pitch = std::max(a->pitch, a->out + k * a->dilation / a->stride);
    }
  }
  work.weight = check_parameter("weight", weight, x, call, dims, call.plan.weights, true);
  work.mix = check_parameter("mix", mix, x, call, dims, call.plan.mixes, false);
  work.by_channel = (call.plan.weights > 0 && work.weight.by_channel) || (call.plan.mixes > 0 && work.mix.by_channel);
  work.by_place = (call.plan.weights > 0 && work.weight.by_place) || (call.plan.mixes > 0 && work.mix.by_place);
  if (call.type == Type::Double) {
    work.packed_weight = work.pack<double>(work.weight, call.weight);
    work.packed_mix = work.pack<double>(work.mix, call.mix);
  } else {
    work.packed_weight = work.pack<float>(work.weight, call.weight);
    work.packed_mix = work.pack<float>(work.mix, call.mix);
  }
  work.x = !call.channels_last && x.is_contiguous() ? x : torch::stable::contiguous(x, layout(call, dims));
  call.x = work.x.const_data_ptr();

  // Cut the work by its shape alone. Per-region gradients need a map per item, so there are fewer of them.
  const int64_t target = work.by_place && (call.channels_last || !work.by_channel) ? 16 : 64;
  auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t batch = std::max<int64_t>(call.batch, 1);
  if (call.channels_last) {
    // Whole images where there are enough of them: cells of all channels are neighbours in memory.
    call.channel_step = batch >= 8 ? call.channels : std::min<int64_t>(call.channels, 64);
    call.batch_step = ceil(batch, std::max<int64_t>(1, std::min(batch, ceil(target, call.channel_items()))));
  } else if (work.by_channel) {
    call.channel_step = 1;
    call.batch_step = ceil(batch, std::max<int64_t>(1, std::min(batch, ceil(target, call.channels))));
  } else {
    call.batch_step = ceil(batch, std::min(batch, target));
    call.channel_step = ceil(call.channels, std::max<int64_t>(1, std::min(call.channels, ceil(target, ceil(batch, call.batch_step)))));
  }
  return work;
}

Tensor empty(const Work& work, const Tensor& x, bool output) {
  Numbers shape(x.sizes().begin(), x.sizes().end());
  const Axis* axes[] = {&work.call.d, &work.call.h, &work.call.w};
  for (int64_t i = 0; output && i < work.dims; ++i) shape[shape.size() - work.dims + i] = axes[3 - work.dims + i]->out;
  Tensor fresh = torch::stable::empty(shape, x.scalar_type(), std::nullopt, std::nullopt, std::nullopt, layout(work.call, work.dims));
#if defined(__linux__)
  // Large new memory is paid for page by page on first touch, which costs more than the pooling; ask for large pages.
  const uintptr_t page = uintptr_t(1) << 21, begin = (uintptr_t(fresh.data_ptr()) + page - 1) / page * page;
  const uintptr_t end = (uintptr_t(fresh.data_ptr()) + fresh.numel() * fresh.element_size()) / page * page;
  if (fresh.numel() > 0 && end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  return fresh;
}

Tensor pool(const Tensor& x, const Tensor& weight, const Tensor& mix, const Numbers& program, const Numbers& kernel,
            const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool ceil_mode, bool count_include_pad) {
  Work work = prepare(x, weight, mix, program, kernel, stride, padding, dilation, ceil_mode, count_include_pad);
  Call& call = work.call;
  Tensor y = empty(work, x, true);
  call.y = y.mutable_data_ptr();
  if (call.batch > 0) {
    torch::stable::parallel_for(0, call.items(), 1, [&](int64_t begin, int64_t end) { kernels(row_of(call)).forward(call, begin, end); });
  }
  return y;
}

std::tuple<Tensor, Tensor, Tensor> pool_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mix,
                                                 const Numbers& program, const Numbers& kernel, const Numbers& stride,
                                                 const Numbers& padding, const Numbers& dilation, bool ceil_mode,
                                                 bool count_include_pad, const std::vector<bool>& output_mask) {
  STD_TORCH_CHECK(output_mask.size() == 3, "learnpool: output_mask must have 3 values");
  Work work = prepare(x, weight, mix, program, kernel, stride, padding, dilation, ceil_mode, count_include_pad);
  Call& call = work.call;
  STD_TORCH_CHECK(grad.is_cpu() && grad.scalar_type() == x.scalar_type() && grad.dim() == x.dim(),
                  "learnpool: grad must be like the output");
  const Axis* axes[] = {&call.d, &call.h, &call.w};
  for (int64_t i = 0; i < x.dim(); ++i) {
    const int64_t wanted = i < x.dim() - work.dims ? x.size(i) : axes[3 - x.dim() + i]->out;
    STD_TORCH_CHECK(grad.size(i) == wanted, "learnpool: grad must have the output's shape");
  }
  const Tensor delta = torch::stable::contiguous(grad, layout(call, work.dims));
  call.grad = delta.const_data_ptr();
  Tensor dx = output_mask[0] ? empty(work, x, false) : torch::stable::new_empty(x, {0});
  call.y = output_mask[0] ? dx.mutable_data_ptr() : nullptr;
  call.want_weight = output_mask[1] && call.plan.weights > 0;
  call.want_mix = output_mask[2] && call.plan.mixes > 0;
  call.dweight = strides_of(call, work.weight.taps, call.channel_step, work.by_channel, work.by_place);
  call.dmix = strides_of(call, 1, call.channel_step, work.by_channel, work.by_place);
  const int64_t masks = call.want_weight ? call.plan.weights * call.dweight.row : 0;
  const int64_t mixes = call.want_mix ? call.plan.mixes * call.dmix.row : 0;
  call.dmix_offset = masks;
  call.partial_item = masks + mixes + 64;  // vectors may add zeros past the end; and items keep off each other's cache lines
  Tensor partial = torch::stable::new_zeros(work.weight.tensor, {call.items() * call.partial_item});
  call.partial = partial.mutable_data_ptr();
  if (call.batch > 0) {
    torch::stable::parallel_for(0, call.items(), 1, [&](int64_t begin, int64_t end) { kernels(row_of(call)).backward(call, begin, end); });
  }
  auto gradient = [&](bool asked, const Given& given, const Parameter& strides, int64_t offset, const Tensor& like) {
    if (!asked) return torch::stable::new_empty(like, {0});
    if (given.rows == 0) return torch::stable::new_empty(like, like.sizes());
    const Tensor sums = call.type == Type::Double ? work.unpack<double>(given, strides, offset) : work.unpack<float>(given, strides, offset);
    return torch::stable::to(sums, like.scalar_type());
  };
  Tensor dweight = gradient(output_mask[1], work.weight, call.dweight, 0, weight);
  Tensor dmix = gradient(output_mask[2], work.mix, call.dmix, call.dmix_offset, mix);
  return {dx, dweight, dmix};
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* learnpool_isa() { return kernels(int64_t(1) << 20).name; }

}  // namespace learnpool

// The schemas live here so that C++ programs have them too (AOTInductor's, above all); operator.py defines the same ones where
// this library is absent.
#define LEARNPOOL_INPUTS                                                                                             \
  "Tensor x, Tensor weight, Tensor mix, int[] program, int[] kernel, int[] stride, int[] padding, int[] dilation, " \
  "bool ceil_mode, bool count_include_pad"

STABLE_TORCH_LIBRARY_FRAGMENT(learnpool, m) {
  m.def("pool(" LEARNPOOL_INPUTS ") -> Tensor");
  m.def("pool_backward(Tensor grad, " LEARNPOOL_INPUTS ", bool[3] output_mask) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(learnpool, CPU, m) {
  m.impl("pool", TORCH_BOX(&learnpool::pool));
  m.impl("pool_backward", TORCH_BOX(&learnpool::pool_backward));
}
