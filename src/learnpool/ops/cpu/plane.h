// What a thread keeps for the planes of contiguous input it works on.
#pragma once

#include "headers.h"
#include "isa.h"
#include "layout.h"
#include "random.h"
#include "scratch.h"
#include "tree.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// The gradients of the responses of a plane: maps of the outputs' pitch, with zeros before and behind.
template <class A>
struct ResponseGrads {
  int64_t size;                  // from one row of to_dot to the next
  A *to_mean, *to_max, *to_dot;  // at output 0
  Lane<A>*winner, *live;         // the tap that holds the maximum; whether there is an output
  A* to_min = nullptr;           // of a tree with a minimum
  Lane<A>* min_winner = nullptr;

  ResponseGrads(const Pooling& pool, const PlaneLayout<A>& layout, Scratch& scratch) {
    // In whole vectors: those of outputs then do not cross a line of the cache.
    const int64_t margin = divide_up(layout.margin, LANES<A>) * LANES<A>;
    size = margin + (divide_up(layout.map, LANES<A>) + 1) * LANES<A>;
    to_mean = scratch.take<A>(size) + margin;
    to_max = scratch.take<A>(size) + margin;
    winner = scratch.take<Lane<A>>(size) + margin;
    live = scratch.take<Lane<A>>(size) + margin;
    const int64_t rows = pool.rule == Rule::Expect ? 1 : pool.program.weights;
    to_dot = scratch.take<A>(rows * size) + margin;
    if (pool.program.has_min) {
      to_min = scratch.take<A>(size) + margin;
      min_winner = scratch.take<Lane<A>>(size) + margin;
    }
    for (int64_t r = 0; r < pool.d.out * pool.h.out; ++r) std::fill_n(live + layout.output_row[r], pool.w.out, Lane<A>(-1));
  }
};

// What a thread keeps for the planes it works on, and where the parameters and gradients of the present one are.
template <class A>
struct Plane {
  const Call& call;
  Scratch scratch;
  const PlaneLayout<A> layout;
  const ResponseGrads<A> grads;
  Region<A, AnyProgram> region;
  SharedSums<A> sums;
  A *x, *outputs, *gradients, *line;  // cells; values of outputs, or their gradients; gradients of cells; a row to widen halves
  A* dense;                           // weights that all lanes share, [weights][taps] without gaps
  const A *weight = nullptr, *mix = nullptr;
  A *dweight, *dmix;       // in the item's slice; backward only
  const uint32_t* order;   // at each position, which output it is: for random picks
  PlaneKey key;            // of random picks
  uintptr_t next, own;     // addresses of the next plane's cells and this one's gradients, to fetch meanwhile; 0: none
  int64_t prefetch_bytes;  // of either, for each vector of outputs

  explicit Plane(const Call& call)
      : call(call),
        layout(call, scratch),
        grads(call.pool, layout, scratch),
        region(call.pool.program, scratch),
        sums(call.pool, scratch) {
    const Pooling& pool = call.pool;
    const int64_t size = layout.maps * layout.map + LANES<A>;
    const bool halves = pool.type == Type::Half || pool.type == Type::BFloat16;
    x = scratch.take<A>(size);
    gradients = scratch.take<A>(pool.backward ? size : 0);
    outputs = scratch.take<A>(layout.map + LANES<A>);
    line = scratch.take<A>(halves ? std::max(pool.cells(), pool.outputs()) : 0);  // with padding there may be more outputs
    dense = scratch.take<A>(pool.program.weights * pool.taps());
    if (pool.rule == Rule::Pick) order = number_outputs();
  }

  // The next plane's cells and this one's gradients on their way to the cache, while vector `block` of outputs is computed.
  template <bool BACKWARD>
  INLINE void prefetch(int64_t block) const {
    for (int64_t i = block * prefetch_bytes; i < (block + 1) * prefetch_bytes; i += 64) {
      if (next != 0) __builtin_prefetch(reinterpret_cast<const void*>(next + i), 0, 2);
      if (BACKWARD && own != 0) __builtin_prefetch(reinterpret_cast<const void*>(own + i), 1, 2);
    }
  }

 private:
  const uint32_t* number_outputs() {
    const Pooling& pool = call.pool;
    uint32_t* numbers = scratch.take<uint32_t>(layout.map + LANES<A>);
    for (int64_t r = 0; r < pool.d.out * pool.h.out; ++r) {
      for (int64_t ow = 0; ow < pool.w.out; ++ow) numbers[layout.output_row[r] + ow] = uint32_t(r * pool.w.out + ow);
    }
    return numbers;
  }
};

// What is done to a band whose cells (and the gradients of its outputs) are in scratch.
template <class A>
struct Steps {
  bool (*pool)(Plane<A>& plane, const Band& band);
  bool finds_infinity;  // or NaN, anywhere: then that returns false, and the careful step has to do it again
  void (*compute_grads)(Plane<A>& plane, const Band& band);  // backward only
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
