// The kernels for avx2; compiled everywhere, run only where the processor has it.
#include "headers.h"

#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c,prfchw")
#define BYTES 32
namespace learnpool {
namespace in_avx2 {
#include "vec.h"
#include "pool.h"
}  // namespace in_avx2

const Kernels avx2{"avx2", BYTES / sizeof(float), in_avx2::run<false>, in_avx2::run<true>};
}  // namespace learnpool
#endif
