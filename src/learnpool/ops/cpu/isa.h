// Which instruction set the headers of the kernels are compiled for: the .cpp of each says so and includes them once.
#pragma once

#ifndef LEARNPOOL_ISA  // a header read on its own, by an editor or a linter
#define LEARNPOOL_ISA isa_baseline
#define LEARNPOOL_BYTES 16
#endif

#define INLINE inline __attribute__((always_inline))
