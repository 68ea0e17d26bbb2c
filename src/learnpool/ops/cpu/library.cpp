// The operators of learnpool on the CPU, through LibTorch's stable ABI.

#include <torch/csrc/stable/library.h>

#include <exception>
#include <optional>
#include <tuple>
#include <vector>

#include "prepare.h"

namespace learnpool {
namespace {

Tensor pool(const Tensor& x, const Tensor& weight, const Tensor& mix, const Numbers& program, const Numbers& kernel,
            const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool ceil_mode, bool count_include_pad) {
  PreparedCall call(x, {kernel, stride, padding, dilation, ceil_mode, count_include_pad});
  call.set_tree(decode(program), weight, mix);
  return call.compute();
}

std::tuple<Tensor, Tensor, Tensor> pool_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mix,
                                                 const Numbers& program, const Numbers& kernel, const Numbers& stride,
                                                 const Numbers& padding, const Numbers& dilation, bool ceil_mode,
                                                 bool count_include_pad, const std::vector<bool>& output_mask) {
  STD_TORCH_CHECK(output_mask.size() == 3, "learnpool: output_mask must have 3 values, got ", output_mask.size());
  PreparedCall call(x, {kernel, stride, padding, dilation, ceil_mode, count_include_pad});
  call.set_tree(decode(program), weight, mix);
  Tensor dx = call.set_grad(grad, output_mask[0]);
  call.set_parameter_grads(output_mask[1], output_mask[2]);
  call.run();
  return {dx, call.make_weight_grad(weight, output_mask[1]), call.make_mix_grad(mix, output_mask[2])};
}

Tensor stochastic_pool(const Tensor& x, const std::optional<Tensor>& seed, const Numbers& kernel, const Numbers& stride,
                       const Numbers& padding, const Numbers& dilation, bool ceil_mode) {
  PreparedCall call(x, {kernel, stride, padding, dilation, ceil_mode, false});
  call.set_picks(seed);
  return call.compute();
}

Tensor stochastic_pool_backward(const Tensor& grad, const Tensor& x, const std::optional<Tensor>& seed, const Numbers& kernel,
                                const Numbers& stride, const Numbers& padding, const Numbers& dilation, bool ceil_mode) {
  PreparedCall call(x, {kernel, stride, padding, dilation, ceil_mode, false});
  call.set_picks(seed);
  Tensor dx = call.set_grad(grad, true);
  call.run();
  return dx;
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

// Writes kind, row of weight and row of mix of each response, then op, response, row, bias, left, right and by of each node.
// Returns how many nodes there are, -1 if it is no tree; `responses` is how many of them there are.
LEARNPOOL_EXPORT int64_t learnpool_decode(const int64_t* numbers, int64_t count, int64_t* out, int64_t* responses) {
  try {
    const Program program = decode(Numbers(numbers, numbers + count));
    for (const Response& r : program.responses) {
      for (int64_t number : {int64_t(r.kind), int64_t(r.weight), int64_t(r.scalar)}) *out++ = number;
    }
    for (const Node& n : program.nodes) {
      for (int32_t number : {int32_t(n.op), n.response, n.row, n.bias, n.left, n.right, n.by}) *out++ = number;
    }
    *responses = int64_t(program.responses.size());
    return int64_t(program.nodes.size());
  } catch (const std::exception&) {
    return -1;
  }
}

}  // namespace learnpool

// The schemas live here so that C++ programs have them too (AOTInductor's, above all); registration.py defines the same ones
// where this library is absent.
#define LEARNPOOL_WINDOW "int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
#define LEARNPOOL_STOCHASTIC "Tensor x, Tensor? seed, " LEARNPOOL_WINDOW
#define LEARNPOOL_POOL "Tensor x, Tensor weight, Tensor mix, int[] program, " LEARNPOOL_WINDOW ", bool count_include_pad"

STABLE_TORCH_LIBRARY_FRAGMENT(learnpool, m) {
  m.def("pool(" LEARNPOOL_POOL ") -> Tensor");
  m.def("pool_backward(Tensor grad, " LEARNPOOL_POOL ", bool[3] output_mask) -> (Tensor, Tensor, Tensor)");
  m.def("stochastic_pool(" LEARNPOOL_STOCHASTIC ") -> Tensor");
  m.def("stochastic_pool_backward(Tensor grad, " LEARNPOOL_STOCHASTIC ") -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(learnpool, CPU, m) {
  m.impl("pool", TORCH_BOX(&learnpool::pool));
  m.impl("pool_backward", TORCH_BOX(&learnpool::pool_backward));
  m.impl("stochastic_pool", TORCH_BOX(&learnpool::stochastic_pool));
  m.impl("stochastic_pool_backward", TORCH_BOX(&learnpool::stochastic_pool_backward));
}
