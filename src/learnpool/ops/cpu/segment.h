// Where a pipeline finds the cells of its regions.
#pragma once

#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// A tap that meets a cell: its number in the window, and where the cell is, counted from its region. fresh: no region before this
// one met the cell, so that its gradient begins here.
struct Tap {
  int64_t number, place;
  bool fresh;
};

// The taps of regions that lie alike, and weights that all lanes share: [rows][taps] and [inner products][taps].
template <class A>
struct TapList {
  int64_t count = 0;
  Tap* taps = nullptr;
  A *weights = nullptr, *dot_weights = nullptr;
};

// Which cells of a vector of regions may lack: none, those of the first column of a window of three, any.
enum class Lacking : int64_t { None, Left, Any };
struct Block {
  int64_t at;  // the first of its regions, counted from that of its segment
  Lacking lacking;
};

// Vectors of regions one behind another, whose taps lie alike: neighbouring outputs of a plane, or the channels of one output.
template <class A>
struct Segment {
  int64_t at, count;    // its first region in maps; vectors
  const Block* blocks;  // first `whole` of them that lack no cell, then `left` such, then the others
  int64_t whole, left;
  int64_t number;          // of its first vector in what is fetched meanwhile
  int64_t region;          // its first region in parameters by region
  const TapList<A>* taps;  // with places counted from these:
  const A *x, *derived;    // cells and what units derive of them
  A* gradients;            // of cells
  const Lane<A>* outside;  // the bits of -inf where there is no cell, else 0
};

template <class A>
struct Span {
  const Segment<A>* segments;
  int64_t count;

  const Segment<A>* begin() const { return segments; }
  const Segment<A>* end() const { return segments + count; }
};

// Memory to be fetched while something else is computed, `step` bytes with every vector: cells, and gradients that will be written.
struct Upcoming {
  const char *cells = nullptr, *gradients = nullptr;  // or null
  int64_t bytes = 0, step = 0;

  INLINE void fetch(int64_t number) const {
    const int64_t begin = number * step, end = std::min(begin + step, bytes);
    for (int64_t i = begin; i < end; i += 64) {
      if (cells != nullptr) __builtin_prefetch(cells + i, 0, 2);
      if (gradients != nullptr) __builtin_prefetch(gradients + i, 1, 2);
    }
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
