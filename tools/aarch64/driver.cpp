// The kernels' library as a program: serves calls of its operators from stdin to stdout, one after another.

#include <torch/csrc/stable/library.h>

extern "C" const char* learnpool_isa();

int main() {
  using namespace torch::stable;
#if defined(__aarch64__)
  write(std::string("aarch64 ") + learnpool_isa());
#else
  write(std::string("not aarch64 ") + learnpool_isa());
#endif
  for (;;) {
    std::fflush(stdout);
    const std::string name = Wire<std::string>::read();
    thread_count = read_number();
    get_library().operators.at(name)();
  }
}
