// Which instruction set the headers of the kernels are compiled for: the .cpp of each says so and includes them once.
#pragma once

#ifndef LEARNPOOL_ISA  // a header read on its own, by an editor or a linter
#define LEARNPOOL_ISA isa_baseline
#define LEARNPOOL_BYTES 16
#endif

// GCC stops inlining once a function exceeds a size limit, and from then on numbers pass through memory. So whatever is done for
// every vector is inlined by force, lambdas too.
#define ALWAYS_INLINE __attribute__((always_inline))
#define INLINE inline ALWAYS_INLINE
