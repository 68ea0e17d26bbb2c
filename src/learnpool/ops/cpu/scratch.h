// Memory for one thread's part of a call.
#pragma once

#include "headers.h"
#include "isa.h"

namespace learnpool::LEARNPOOL_ISA {

// Zeros, aligned for vectors, given back all at once.
class Scratch {
 public:
  template <class E>
  E* take(int64_t count) {
    const size_t bytes = (size_t(count) * sizeof(E) + 127) / 64 * 64;
    if (bytes > left_) {
      left_ = std::max(bytes, BLOCK);
      blocks_.emplace_back(static_cast<char*>(::operator new(left_, std::align_val_t(64))));
      next_ = blocks_.back().get();
    }
    char* taken = next_;
    next_ += bytes;
    left_ -= bytes;
    std::memset(taken, 0, bytes);
    return reinterpret_cast<E*>(taken);
  }

 private:
  // A small call fits into one block. A sanitizer sees only the ends of blocks, so there each piece is one.
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t BLOCK = 0;
#else
  static constexpr size_t BLOCK = 32768;
#endif
  struct Free {
    void operator()(char* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::vector<std::unique_ptr<char, Free>> blocks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace learnpool::LEARNPOOL_ISA
