// Stochastic pooling as kinds of responses, by the equations of stochastic.py: a cell picked at random, in proportion to its
// positive part, and the expected pick. A region without a positive cell is flat: all its cells are equally likely.
#pragma once

#include "cell.h"

namespace learnpool::LEARNPOOL_ISA {

// Uniform random numbers by place, the twin of uniform.py: 32 bits for each lane.
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

// What both begin with: the sum of all likelihoods.
template <class A>
struct Likelihoods {
  Vec<A> total{};
  Mask<A> flat{};

  // Zero for negative numbers; NaN stays NaN.
  static INLINE Vec<A> get_likelihood(Vec<A> x) { return x < A(0) ? Vec<A>{} : x; }

  INLINE void end(const Region<A>& region) {
    flat = total == A(0);
    total = flat ? larger(region.n, broadcast<A>(A(1))) : total;
  }
  // 1 for each cell of a region that is flat, to be added to its likelihood of 0.
  template <bool LACKS>
  INLINE Vec<A> get_flat_likelihood(const Cell<A>& cell) const {
    return cell.template keep<LACKS>((Vec<A>)((Mask<A>)broadcast<A>(A(1)) & flat));
  }
};

// y = the last cell whose likelihood begins at or before a random part of their sum.
template <class A, bool CAREFUL>
struct Pick : Winner<A>, Likelihoods<A> {
  static constexpr int PASSES = 2;
  static constexpr bool SAMPLED = true;
  Vec<A> value{}, threshold{}, passed{};

  // The threshold is less than the total, so that the last tap that begins at or before it has a likelihood; NaN, which no tap
  // begins before, where the total is not finite.
  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    if constexpr (PASS == 0) return;
    this->end(region);
    const Vec<A> share = region.sample * this->total, below = (Vec<A>)((Mask<A>)this->total - 1);
    const Vec<A> zero = this->total - this->total;
    threshold = (share < this->total ? share : below) + zero;
    value = zero;
    this->winner = Mask<A>{} - 1;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    const Vec<A> likelihood = this->get_likelihood(cell.x);
    if constexpr (PASS == 0) {
      this->total += likelihood;
    } else {
      const Mask<A> reached = passed <= threshold;
      value = reached ? cell.x : value;
      this->winner = reached ? Mask<A>{} + cell.tap : this->winner;
      passed += this->template get_flat_likelihood<LACKS>(cell) + likelihood;
    }
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    this->store_winner(value, slots);
    return Vec<A>{};
  }
};

// y = sum of likelihood x / total. A cell gets flat + (2 x slope - offset if x > 0). Sums below the smallest normal number count as
// that, so that their inverse is finite.
template <class A, bool CAREFUL>
struct Expect : Unit<A>, Likelihoods<A> {
  static constexpr int PASSES = 2, SLOTS = 4;
  Vec<A> value{}, inverse{};

  template <int PASS>
  INLINE void begin(const Region<A>& region) {
    if constexpr (PASS == 0) return;
    this->end(region);
    this->total = larger(broadcast<A>(std::numeric_limits<A>::min()), this->total);
    inverse = A(1) / this->total;
  }
  template <int PASS, bool LACKS>
  INLINE void add(const Cell<A>& cell) {
    const Vec<A> likelihood = this->get_likelihood(cell.x);
    if constexpr (PASS == 0) {
      this->total += likelihood;
    } else {
      const Vec<A> share = likelihood + this->template get_flat_likelihood<LACKS>(cell);
      value += share == A(0) ? Vec<A>{} : share * inverse * cell.x;  // beside -inf too
    }
  }
  template <class Slots>
  INLINE Vec<A> finish(const Region<A>&, const Slots& slots) const {
    slots.store(0, value);
    slots.store(1, this->total);
    slots.store(2, (Vec<A>)this->flat);
    slots.store(3, value);
    return Vec<A>{};
  }
  template <class Slots>
  static INLINE Vec<A> send(Vec<A> c, const Region<A>&, const Slots& slots) {
    const Vec<A> total = slots.load(1), value = slots.load(3);
    const Mask<A> flat = (Mask<A>)slots.load(2);
    const Vec<A> slope = flat ? Vec<A>{} : c / total;
    slots.store(0, (flat ? c : Vec<A>{}) / total);  // NaN where the total is
    slots.store(1, slope);
    slots.store(2, slope * value);
    return Vec<A>{};
  }
  template <class Slots>
  static INLINE Vec<A> receive(const Slots& slots, const Cell<A>& cell) {
    const Vec<A> slope = slots.load(1), x = cell.x;
    const Vec<A> rise = slope == A(0) ? Vec<A>{} : A(2) * x * slope;  // an infinite cell may be in no region
    return slots.load(0) + (x > A(0) ? rise - slots.load(2) : Vec<A>{});
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
