// Memory for one thread's part of a call.
#pragma once

#include "headers.h"
#include "isa.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// Zeros, aligned for vectors, given back all at once.
class Scratch {
 public:
  template <class E>
  E* take(int64_t count) {
    const size_t bytes = (size_t(count) * sizeof(E) + 127) / 64 * 64;
    blocks_.emplace_back(static_cast<char*>(::operator new(bytes, std::align_val_t(64))));
    std::memset(blocks_.back().get(), 0, bytes);
    return reinterpret_cast<E*>(blocks_.back().get());
  }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::vector<std::unique_ptr<char, Free>> blocks_;
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
