// One call of an operator, from its arguments to the kernels and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "call.h"
#include "parameters.h"
#include "tensors.h"

namespace learnpool {

// The widest instruction set this machine has; a narrower one where `outputs` would leave half a vector empty.
const Kernels& choose_kernels(int64_t outputs);

// The operator's arguments that are no tensors.
struct WindowNumbers {
  const Numbers &kernel, &stride, &padding, &dilation;
  bool ceil_mode, count_include_pad;
};

// One call and the memory behind it.
class PreparedCall {
 public:
  PreparedCall(const Tensor& x, const WindowNumbers& window);
  PreparedCall(const PreparedCall&) = delete;

  void set_tree(Program program, const Tensor& weight, const Tensor& mix);
  // A random cell of each region, or the expected one if there is no seed.
  void set_picks(const std::optional<Tensor>& seed);
  // The gradient of the output, from here on; returns that of x, to be filled.
  Tensor set_grad(const Tensor& grad, bool input_grad);
  // Gradients of parameters are wanted: room for them.
  void set_parameter_grads(bool weight_grad, bool mix_grad);
  // The output of a forward call.
  Tensor compute();
  void run() const;
  // Empty if it was not wanted.
  Tensor make_weight_grad(const Tensor& like, bool wanted) const;
  Tensor make_mix_grad(const Tensor& like, bool wanted) const;

 private:
  Call call_;
  Sharing sharing_;
  ParameterTensor weight_, mix_;
  Tensor x_;
  std::optional<Tensor> grad_, seeds_;
  std::vector<char> packed_weight_, packed_mix_;
  std::unique_ptr<void, void (*)(void*)> slices_;

  MemoryFormat format() const;
  Numbers output_shape() const;
  Tensor allocate(const Numbers& shape) const;
  int64_t choose_grain() const;
  void group_planes();
};

}  // namespace learnpool
