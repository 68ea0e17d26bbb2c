// The kernels with what every machine of this architecture has (SSE2 or NEON).
#include "headers.h"

#define LEARNPOOL_ISA isa_baseline
#define LEARNPOOL_BYTES 16
#include "run.h"

namespace learnpool {
const Kernels baseline{"baseline", isa_baseline::LANES<float>, isa_baseline::run};
}  // namespace learnpool
