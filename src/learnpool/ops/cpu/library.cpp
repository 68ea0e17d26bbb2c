// The operators of learnpool on the CPU, through LibTorch's stable ABI.

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <vector>

#include "handles.h"
#include "prepared_call.h"

namespace learnpool {
namespace {

Tensor compute_pool(const Tensor& x, const Tensor& weight, const Tensor& mix, const Program& program, const WindowNumbers& window,
                    bool clamp) {
  PreparedCall prepared(x, window);
  prepared.set_tree(program, weight, mix, clamp);
  return prepared.compute();
}

// The schema's arguments.
Tensor pool(const Tensor& x, const Tensor& weight, const Tensor& mix, const Numbers& program, const Numbers& kernel,
            const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool ceil_mode, bool count_include_pad) {
  return compute_pool(x, weight, mix, decode(program), {kernel, stride, padding, dilation, ceil_mode, count_include_pad}, false);
}

Tensor stochastic_pool(const Tensor& x, const std::optional<Tensor>& seed, const Numbers& kernel, const Numbers& stride,
                       const Numbers& padding, const Numbers& dilation, bool ceil_mode) {
  PreparedCall prepared(x, {kernel, stride, padding, dilation, ceil_mode, false});
  prepared.set_picks(seed);
  return prepared.compute();
}

Tensor stochastic_pool_backward(const Tensor& grad, const Tensor& x, const std::optional<Tensor>& seed, const Numbers& kernel,
                                const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool ceil_mode) {
  PreparedCall prepared(x, {kernel, stride, padding, dilation, ceil_mode, false});
  prepared.set_picks(seed);
  Tensor dx = prepared.set_grad(grad, true);
  prepared.run();
  return dx;
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Gradients compute_pool_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mix,
                                const Program& program, const WindowNumbers& window, bool clamp,
                                const std::array<bool, 3>& output_mask) {
  PreparedCall prepared(x, window);
  prepared.set_tree(program, weight, mix, clamp);
  Tensor dx = prepared.set_grad(grad, output_mask[0]);
  Pooling& pool = prepared.call.pool;
  Memory& memory = prepared.call.memory;
  pool.weight_grad = output_mask[1] && pool.program.weights > 0;
  pool.mix_grad = output_mask[2] && pool.program.mixes > 0;
  const int64_t channels = prepared.call.items.channel_step;
  if (pool.weight_grad) memory.dweight = make_strides(prepared.weight, memory, prepared.sharing, channels);
  if (pool.mix_grad) memory.dmix = make_strides(prepared.mix, memory, prepared.sharing, channels);
  memory.dmix_offset = pool.program.weights * memory.dweight.row;
  // Vectors may add zeros past the end, and items keep off each other's cache lines.
  memory.slice = memory.dmix_offset + pool.program.mixes * memory.dmix.row + 64;
  const size_t bytes = pool.type == Type::Double ? sizeof(double) : sizeof(float);
  const std::unique_ptr<void, void (*)(void*)> slices(std::calloc(prepared.call.items.count() * memory.slice, bytes), std::free);
  if (slices == nullptr) throw std::bad_alloc();
  memory.slices = slices.get();
  prepared.run();
  Tensor dweight = output_mask[1] ? prepared.make_grad(prepared.weight, memory.dweight, 0, weight) : make_tensor({0}, weight);
  Tensor dmix = output_mask[2] ? prepared.make_grad(prepared.mix, memory.dmix, memory.dmix_offset, mix) : make_tensor({0}, mix);
  return {dx, dweight, dmix};
}

// The schema's arguments.
Gradients pool_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mix, const Numbers& program,
                        const Numbers& kernel, const Numbers& stride, const Numbers& padding, const Numbers& dilation,
                        bool ceil_mode, bool count_include_pad, const std::vector<bool>& output_mask) {
  STD_TORCH_CHECK(output_mask.size() == 3, "learnpool: output_mask must have 3 values, got ", output_mask.size());
  return compute_pool_backward(grad, x, weight, mix, decode(program),
                               {kernel, stride, padding, dilation, ceil_mode, count_include_pad}, false,
                               {output_mask[0], output_mask[1], output_mask[2]});
}

Tensor pool_by_handle(const Tensor& x, const Tensor& weight, const Tensor& mix, int64_t handle) {
  const auto& [arguments, entry] = Handles::get().find(handle);
  return compute_pool(x, weight, mix, entry.program, arguments.window(), arguments.clamp);
}

Gradients pool_backward_by_handle(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mix, int64_t handle,
                                  bool input_grad, bool weight_grad, bool mix_grad) {
  const auto& [arguments, entry] = Handles::get().find(handle);
  return compute_pool_backward(grad, x, weight, mix, entry.program, arguments.window(), arguments.clamp,
                               {input_grad, weight_grad, mix_grad});
}

}  // namespace

// For Python: which instruction set is used, and what a test compares with its own geometry and grammar.
#define LEARNPOOL_EXPORT extern "C" __attribute__((visibility("default")))

LEARNPOOL_EXPORT const char* learnpool_isa() { return choose_kernels(int64_t(1) << 20).name; }

LEARNPOOL_EXPORT int64_t learnpool_output_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                                               bool ceil_mode) {
  return output_size(Axis{in, 1, kernel, stride, padding, dilation}, ceil_mode);
}

LEARNPOOL_EXPORT bool learnpool_is_channels_last(int64_t dims, int64_t ndim, const int64_t* sizes, const int64_t* strides) {
  return is_channels_last(dims, ndim, sizes, strides);
}

// The handle of these arguments in this process; -1 if they can have none.
LEARNPOOL_EXPORT int64_t learnpool_register(const int64_t* program, int64_t codes, const int64_t* window, int64_t dims,
                                            bool ceil_mode, bool count_include_pad, bool clamp) {
  auto axes = [&](int64_t i) { return Numbers(window + i * dims, window + (i + 1) * dims); };
  try {
    return Handles::get().add(
        {Numbers(program, program + codes), axes(0), axes(1), axes(2), axes(3), ceil_mode, count_include_pad, clamp});
  } catch (const std::exception&) {
    return -1;
  }
}

// Writes code, parameter, left, right and the bits of `a` of each node; returns how many nodes there are, -1 if it is no tree.
LEARNPOOL_EXPORT int64_t learnpool_decode(const int64_t* numbers, int64_t count, int64_t* nodes) {
  try {
    const Program program = decode(Numbers(numbers, numbers + count));
    for (const Node& node : program.nodes) {
      *nodes++ = int64_t(node.code);
      *nodes++ = node.parameter;
      *nodes++ = node.left;
      *nodes++ = node.right;
      std::memcpy(nodes++, &node.a, sizeof node.a);
    }
    return int64_t(program.nodes.size());
  } catch (const std::exception&) {
    return -1;
  }
}

}  // namespace learnpool

// The schemas live here so that C++ programs have them too (AOTInductor's, above all); operator.py defines the same ones where
// this library is absent.
#define LEARNPOOL_WINDOW "int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
#define LEARNPOOL_STOCHASTIC "Tensor x, Tensor? seed, " LEARNPOOL_WINDOW
#define LEARNPOOL_POOL "Tensor x, Tensor weight, Tensor mix, int[] program, " LEARNPOOL_WINDOW ", bool count_include_pad"

STABLE_TORCH_LIBRARY_FRAGMENT(learnpool, m) {
  m.def("pool(" LEARNPOOL_POOL ") -> Tensor");
  m.def("pool_backward(Tensor grad, " LEARNPOOL_POOL ", bool[3] output_mask) -> (Tensor, Tensor, Tensor)");
  // For ordinary calls alone, below autograd and with no mode between: they have nothing but these kernels.
  m.def("_pool(Tensor x, Tensor weight, Tensor mix, int handle) -> Tensor");
  m.def(
      "_pool_backward(Tensor grad, Tensor x, Tensor weight, Tensor mix, int handle, "
      "bool input_grad, bool weight_grad, bool mix_grad) -> (Tensor, Tensor, Tensor)");
  m.def("stochastic_pool(" LEARNPOOL_STOCHASTIC ") -> Tensor");
  m.def("stochastic_pool_backward(Tensor grad, " LEARNPOOL_STOCHASTIC ") -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(learnpool, CPU, m) {
  m.impl("pool", TORCH_BOX(&learnpool::pool));
  m.impl("pool_backward", TORCH_BOX(&learnpool::pool_backward));
  m.impl("_pool", TORCH_BOX(&learnpool::pool_by_handle));
  m.impl("_pool_backward", TORCH_BOX(&learnpool::pool_backward_by_handle));
  m.impl("stochastic_pool", TORCH_BOX(&learnpool::stochastic_pool));
  m.impl("stochastic_pool_backward", TORCH_BOX(&learnpool::stochastic_pool_backward));
}
