// The kernels with what every machine of this architecture has (SSE2 or NEON).
#include "headers.h"

#define BYTES 16
namespace learnpool {
namespace in_baseline {
#include "vec.h"
#include "pool.h"
}  // namespace in_baseline

const Kernels baseline{"baseline", BYTES / sizeof(float), in_baseline::run<false>, in_baseline::run<true>};
}  // namespace learnpool

