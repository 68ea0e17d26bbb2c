// What a thread keeps for the planes of contiguous input it works on.
#pragma once

#include "headers.h"
#include "isa.h"
#include "layout.h"
#include "pipeline.h"
#include "random.h"
#include "scratch.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// Scratch and layout, which the pipeline is made for.
template <class A>
struct PlaneMemory {
  Scratch scratch_memory;
  const PlaneLayout<A> layout;
  // In whole vectors: those of outputs then do not cross a line of the cache.
  const int64_t margin;

  explicit PlaneMemory(const Call& call) : layout(call, scratch_memory), margin(divide_up(layout.margin, LANES<A>) * LANES<A>) {}
};

// Where the parameters and gradients of the present plane are, and all that is computed of it.
template <class A>
struct Plane : PlaneMemory<A>, Pipeline<A> {
  using Number = A;
  using Span = Run;
  using PlaneMemory<A>::layout;
  using Pipeline<A>::call;
  using Pipeline<A>::responses;
  A *x, *outputs, *gradients, *line;  // cells; values of outputs, or their gradients; gradients of cells; a row to widen halves
  A* derived_cells;                   // what units derive of cells
  A *dense, *dot_weights;             // weights that all lanes share, [rows][taps] and [inner products][taps] without gaps
  const A *weight = nullptr, *mix = nullptr;
  A *dweight, *dmix;       // in the item's slice; backward only
  const uint32_t* order;   // at each position, which output it is: for random picks
  PlaneKey key;            // of random picks
  uintptr_t next, own;     // addresses of the next plane's cells and this one's gradients, to fetch meanwhile; 0: none
  int64_t prefetch_bytes;  // of either, for each vector of outputs

  explicit Plane(const Call& call)
      : PlaneMemory<A>(call),
        Pipeline<A>(call, call.memory.weight.region != 0 || call.memory.mix.region != 0, this->scratch_memory,
                    this->margin + layout.map + LANES<A>, this->margin, PIECE) {
    const Pooling& pool = call.pool;
    Scratch& scratch = this->scratch_memory;
    const int64_t size = layout.maps * layout.map + LANES<A>;
    const bool halves = pool.type == Type::Half || pool.type == Type::BFloat16;
    x = scratch.take<A>(size);
    derived_cells = scratch.take<A>(size * this->derived_count);
    this->derived_step = size;
    gradients = scratch.take<A>(pool.backward ? size : 0);
    outputs = scratch.take<A>(layout.map + LANES<A>);
    line = scratch.take<A>(halves ? std::max(pool.cells(), pool.outputs()) : 0);  // with padding there may be more outputs
    dense = scratch.take<A>(pool.program.weight_rows() * pool.taps());
    dot_weights = scratch.take<A>(int64_t(this->dots.size()) * pool.taps());
    for (int64_t b = 0; b < layout.block_count; ++b) describe_block(layout.blocks[b]);
    if (this->picks()) order = number_outputs();
  }

  // The next plane's cells and this one's gradients on their way to the cache, while vector `block` of outputs is computed.
  INLINE void prefetch(int64_t block) const {
    for (int64_t i = block * prefetch_bytes; i < (block + 1) * prefetch_bytes; i += 64) {
      if (next != 0) __builtin_prefetch(reinterpret_cast<const void*>(next + i), 0, 2);
      if (own != 0) __builtin_prefetch(reinterpret_cast<const void*>(own + i), 1, 2);
    }
  }

  // The weights of the regions from `at` on.
  void describe_weights(int64_t row, int64_t at, Region<A>& region) const {
    const Parameter& strides = call.memory.weight;
    region.per_lane = this->per_lane;
    if (row < 0) return;
    region.weights = this->per_lane ? weight + row * strides.row + at : dense + row * region.taps;
    region.step = this->per_lane ? strides.tap : 1;
  }

  // f(place in maps, where the gradients of its weights begin) for every vector of a piece.
  template <class F>
  void for_each_vector(const Piece& piece, F f) const {
    for (int64_t b = piece.begin; b < piece.end; ++b) f(layout.blocks[b].at, dweight + layout.blocks[b].at);
  }

  Band get_band(const Run& run) const { return {layout.blocks[run.begin].at, (run.end - run.begin) * LANES<A>}; }

  // In plane_respond.h.
  template <class U, bool PER_LANE>
  static void respond_alone(const Plane& plane, const Pass<Plane>& pass, const Run& run, Vec<A>& finite);
  static auto choose_group(const Plane& plane, bool statistics, int64_t dots)
      -> void (*)(const Plane&, const Pass<Plane>&, const Run&, Vec<A>&);

 private:
  void describe_block(const Block<A>& block) {
    const bool whole = block.edge == nullptr;
    const Vec<A> taps = broadcast<A>(A(call.pool.taps()));
    store(responses.n + block.at, whole ? taps : block.edge->n);
    store(responses.divisor + block.at, whole ? taps : block.edge->divisor);
    store(responses.live + block.at, whole ? ~Mask<A>{} : block.edge->live);
  }

  const uint32_t* number_outputs() {
    const Pooling& pool = call.pool;
    Scratch& scratch = this->scratch_memory;
    uint32_t* numbers = scratch.take<uint32_t>(layout.map + LANES<A>);
    for (int64_t r = 0; r < pool.d.out * pool.h.out; ++r) {
      for (int64_t ow = 0; ow < pool.w.out; ++ow) numbers[layout.output_row[r] + ow] = uint32_t(r * pool.w.out + ow);
    }
    return numbers;
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
