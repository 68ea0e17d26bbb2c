// The kernels of one instruction set: a vector of regions at a time, by the equations of responses.py.
//
// Contiguous input (planes.h): a vector is neighbouring outputs of a plane. channels_last input (images.h): a vector is
// neighbouring channels of one output.
#pragma once

#include "images.h"
#include "planes.h"

namespace learnpool::LEARNPOOL_ISA {

template <class T>
void run_type(const Call& call, int64_t begin, int64_t end) {
  auto run_items = [&](auto&& pooling) {
    for (int64_t item = begin; item < end; ++item) pooling.pool_item(item);
  };
  if (call.memory.channels_last) run_items(ImagePooling<T>(call));
  else run_items(PlanePooling<T>(call));
}

void run(const Call& call, int64_t begin, int64_t end) {
  switch (call.pool.type) {
    case Type::Float: return run_type<float>(call, begin, end);
    case Type::Double: return run_type<double>(call, begin, end);
    case Type::Half: return run_type<Half>(call, begin, end);
    case Type::BFloat16: return run_type<BFloat16>(call, begin, end);
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
