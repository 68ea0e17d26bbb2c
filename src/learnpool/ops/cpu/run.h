// The kernels of one instruction set: a vector of regions at a time, by the reference's equations.
//
// Contiguous input (planes.h): a vector is neighbouring outputs of a plane. channels_last input (channels.h): a vector is
// neighbouring channels of one output.
#pragma once

#include "channels.h"
#include "headers.h"
#include "isa.h"
#include "planes.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

template <class T, bool BACKWARD>
void run_type(const Call& call, int64_t begin, int64_t end) {
  const Parameter &weight = call.memory.weight, &mix = call.memory.mix;
  auto run_items = [&](auto&& pooling) {
    for (int64_t item = begin; item < end; ++item) pooling.pool_item(item);
  };
  if (!call.memory.channels_last) return run_items(PlanePooling<T, BACKWARD>(call, weight.region != 0 || mix.region != 0));
  switch (call.pool.rule) {
    case Rule::Tree: break;
    case Rule::Pick: return run_items(ImagePooling<T, Stochastic<Rule::Pick>, BACKWARD, false>(call));
    case Rule::Expect: return run_items(ImagePooling<T, Stochastic<Rule::Expect>, BACKWARD, false>(call));
  }
  if (weight.channel != 0 || mix.channel != 0) return run_items(ImagePooling<T, AnyProgram, BACKWARD, true>(call));
  with_program(call.pool.program, [&](auto program) { run_items(ImagePooling<T, decltype(program), BACKWARD, false>(call)); });
}

template <bool BACKWARD>
void run(const Call& call, int64_t begin, int64_t end) {
  switch (call.pool.type) {
    case Type::Float: return run_type<float, BACKWARD>(call, begin, end);
    case Type::Double: return run_type<double, BACKWARD>(call, begin, end);
    case Type::Half: return run_type<Half, BACKWARD>(call, begin, end);
    case Type::BFloat16: return run_type<BFloat16, BACKWARD>(call, begin, end);
  }
}

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
