// The kernels for AVX2; compiled everywhere, run only where the processor has it.
#include "headers.h"

#if defined(__x86_64__)
#if defined(__clang__)  // which ignores GCC's pragma
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,prfchw"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,prfchw")
#endif
#define LEARNPOOL_ISA isa_avx2
#define LEARNPOOL_BYTES 32
#include "run.h"

namespace learnpool {
const Kernels avx2{"avx2", isa_avx2::LANES<float>, isa_avx2::run};
}  // namespace learnpool
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
