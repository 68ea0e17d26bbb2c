// Uniform random numbers by place: the twin of uniform.py.
#pragma once

#include "headers.h"
#include "isa.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// 32 bits for each lane.
template <class A>
using Bits = typename NarrowVec<uint32_t, LANES<A>>::type;

// U: one uint32_t or a vector of them.
template <class U>
INLINE U mix_bits(U v) {
  v = (v ^ (v >> 16)) * uint32_t(0x7feb352d);
  v = (v ^ (v >> 15)) * uint32_t(0x846ca68b);
  return v ^ (v >> 16);
}

template <class U>
INLINE U hash(U index, U low, U high) {
  return mix_bits(mix_bits(index + low) ^ high);
}

// What decides the numbers of one channel of an image.
struct PlaneKey {
  uint32_t low, high;
};

INLINE PlaneKey make_plane_key(int64_t seed, int64_t channel) {
  const uint32_t low = uint32_t(seed), high = uint32_t(uint64_t(seed) >> 32), index = uint32_t(2 * channel);
  return {hash(index, low, high), hash(index + 1, low, high)};
}

// In [0, 1), multiples of 2^-24.
template <class A>
INLINE Vec<A> to_uniform(Bits<A> bits) {
  using Whole = typename NarrowVec<int32_t, LANES<A>>::type;
  return __builtin_convertvector((Whole)(bits >> 8), Vec<A>) * A(1.0 / (1 << 24));
}

}  // namespace learnpool::LEARNPOOL_ISA
