// The kernels for AVX-512; compiled everywhere, run only where the processor has it.
#include "headers.h"

#if defined(__x86_64__)
#if defined(__clang__)  // which ignores GCC's pragma
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prfchw"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prfchw")
#endif
#define LEARNPOOL_ISA isa_avx512
#define LEARNPOOL_BYTES 64
#include "run.h"

namespace learnpool {
const Kernels avx512{"avx512", isa_avx512::LANES<float>, isa_avx512::run};
}  // namespace learnpool
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
