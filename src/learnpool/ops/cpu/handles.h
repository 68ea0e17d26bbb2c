// What of a pool is no tensor, by handle: to convert five lists from Python takes longer than a small pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "prepared_call.h"
#include "program.h"

namespace learnpool {

struct PoolArguments {
  Numbers program, kernel, stride, padding, dilation;
  bool ceil_mode, count_include_pad, clamp;

  WindowNumbers window() const { return {kernel, stride, padding, dilation, ceil_mode, count_include_pad}; }
  auto all() const { return std::tie(program, kernel, stride, padding, dilation, ceil_mode, count_include_pad, clamp); }
  bool operator<(const PoolArguments& other) const { return all() < other.all(); }
};

// Equal arguments have one handle, for as long as the process lives.
class Handles {
 public:
  struct Entry {
    int64_t handle;
    Program program;
  };
  using Table = std::map<PoolArguments, Entry>;

  // Never destroyed: a thread may still be pooling while the process ends.
  static Handles& get() {
    static Handles& all = *new Handles;
    return all;
  }

  // -1 if there are too many.
  int64_t add(const PoolArguments& arguments) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = table_.find(arguments);
    if (found != table_.end()) return found->second.handle;
    const int64_t handle = int64_t(table_.size());
    if (handle == MOST) return -1;
    by_handle_[handle] = &*table_.emplace(arguments, Entry{handle, decode(arguments.program)}).first;
    return handle;
  }

  // Without the lock, which a process forked meanwhile would find taken.
  const Table::value_type& find(int64_t handle) const {
    const Table::value_type* found = handle >= 0 && handle < MOST ? by_handle_[handle].load() : nullptr;
    STD_TORCH_CHECK(found != nullptr, "learnpool: no pool has the handle ", handle, " in this process");
    return *found;
  }

 private:
  static constexpr int64_t MOST = 4096;
  std::mutex mutex_;
  Table table_;  // whose entries stay where they are
  std::atomic<const Table::value_type*> by_handle_[MOST] = {};
};

}  // namespace learnpool
