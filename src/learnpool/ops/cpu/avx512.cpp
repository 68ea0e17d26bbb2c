// The kernels for avx512; compiled everywhere, run only where the processor has it.
#include "headers.h"

#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prfchw")
#define BYTES 64
namespace learnpool {
namespace in_avx512 {
#include "vec.h"
#include "pool.h"
}  // namespace in_avx512

const Kernels avx512{"avx512", BYTES / sizeof(float), in_avx512::run<false>, in_avx512::run<true>};
}  // namespace learnpool
#endif
