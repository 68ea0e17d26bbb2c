// Contiguous input: a vector is LANES neighbouring outputs of a plane. See layout.h for how a plane lies in scratch.
#pragma once

#include "headers.h"
#include "isa.h"
#include "plane.h"
#include "plane_picks.h"
#include "plane_stages.h"
#include "rows.h"
#include "tree.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

// The taps that hold the maximum and the minimum of a vector of outputs.
template <class A>
struct Winners {
  Mask<A> max, min;
};

// The minimum of one vector of outputs, as the maximum of its negated cells; returns which tap holds it.
template <bool EDGE, class A>
INLINE Mask<A> find_minimum(const Plane<A>& plane, const Block<A>& block, Region<A, AnyProgram>& region) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  V best = broadcast<A>(-std::numeric_limits<A>::infinity());
  M winner{};
  if constexpr (EDGE) winner = block.edge->first;
  for (int64_t t = 0; t < layout.taps; ++t) {
    const int64_t at = block.at + layout.shift[t];
    V seen = -load<V>(plane.x + at);
    if constexpr (EDGE) seen = (V)((M)seen | load<M>(layout.outside + at));
    const M won = is_new_maximum<A>(seen, best);
    best = won ? seen : best;
    winner = won ? M{} + Lane<A>(layout.number[t]) : winner;
  }
  region.minimum = -best;
  return winner;
}

// Responses of one vector of outputs; returns which taps hold its extremes. EDGE: some outputs or cells do not exist; FINITE: no
// infinity or NaN is among the cells and the weights; WINNER: also find where the maximum is.
template <bool EDGE, bool FINITE, bool WINNER, class A, class Weight>
INLINE Winners<A> respond(const Plane<A>& plane, const Block<A>& block, Weight weight, Region<A, AnyProgram>& region) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const int64_t dots = plane.call.pool.program.weights;
  V best = broadcast<A>(-std::numeric_limits<A>::infinity()), total{};
  M winner{};
  if constexpr (WINNER && EDGE) winner = block.edge->first;
  for (int64_t d = 0; d < dots; ++d) region.dots[d] = V{};
  for (int64_t t = 0; t < layout.taps; ++t) {
    const int64_t at = block.at + layout.shift[t], number = layout.number[t];
    const V v = load<V>(plane.x + at);
    M outside{};
    if constexpr (EDGE) outside = load<M>(layout.outside + at);
    // Where there is no cell v is zero, so only a weight that is not finite would show.
    auto product = [&](V w) ALWAYS_INLINE -> V { return EDGE && !FINITE ? (V)((M)(w * v) & (outside == 0)) : w * v; };
    V seen = v;
    if constexpr (EDGE) seen = (V)((M)v | outside);
    const M won = FINITE ? seen > best : is_new_maximum<A>(seen, best);
    best = won ? seen : best;
    if constexpr (WINNER) winner = won ? M{} + Lane<A>(number) : winner;
    total += v;
    for (int64_t d = 0; d < dots; ++d) region.dots[d] += product(weight(d, number));
  }
  region.count = EDGE ? block.edge->count : broadcast<A>(A(plane.call.pool.taps()));
  region.maximum = best;
  region.mean = total / region.count;
  Winners<A> winners{winner, {}};
  if (plane.call.pool.program.has_min) winners.min = find_minimum<EDGE>(plane, block, region);
  return winners;
}

// What reaches the responses of one vector of outputs, kept for the gradients. `finite` becomes NaN where an output lacks a cell
// and what reaches its dots is not finite, or adds up to more than a float holds: it will meet a zero in place of that cell.
template <bool PER_LANE, bool EDGE, class A>
INLINE void keep_response_grads(const Plane<A>& plane, const Block<A>& block, const Region<A, AnyProgram>& region,
                                const Winners<A>& winners, Vec<A>& finite) {
  using V = Vec<A>;
  using M = Mask<A>;
  const Pooling& pool = plane.call.pool;
  const ResponseGrads<A>& grads = plane.grads;
  const int64_t at = block.at;
  auto if_live = [&](V v) ALWAYS_INLINE -> V { return EDGE ? (V)((M)v & block.edge->live) : v; };
  store(grads.to_mean + at, if_live(region.to_mean));
  store(grads.to_max + at, if_live(region.to_max));
  store(grads.winner + at, winners.max);
  if (pool.program.has_min) {
    store(grads.to_min + at, if_live(region.to_min));
    store(grads.min_winner + at, winners.min);
  }
  V all_dots{};
  for (int64_t d = 0; d < pool.program.weights; ++d) {
    const V to_dot = if_live(region.to_dot[d]);
    store(grads.to_dot + d * grads.size + at, to_dot);
    all_dots += to_dot;
  }
  if constexpr (EDGE) {
    if (block.edge->clipped) finite += all_dots * A(0);
  }
  for (int64_t m = 0; pool.mix_grad && m < pool.program.mixes; ++m) {
    if constexpr (PER_LANE) {
      A* to = plane.dmix + m * plane.call.memory.dmix.row + at;
      store(to, load<V>(to) + if_live(region.to_mix[m]));
    } else {
      plane.sums.mix[m] += if_live(region.to_mix[m]);
    }
  }
}

// One vector of outputs: its values, or what reaches its responses.
template <bool BACKWARD, bool PER_LANE, bool FINITE, bool EDGE, class A>
INLINE void pool_block(Plane<A>& plane, const Block<A>& block, Vec<A>& finite) {
  using V = Vec<A>;
  Region<A, AnyProgram>& region = plane.region;
  const Pooling& pool = plane.call.pool;
  const Memory& memory = plane.call.memory;
  const int64_t at = block.at, taps = pool.taps();
  auto weight = [&](int64_t d, int64_t tap) ALWAYS_INLINE -> V {
    if constexpr (PER_LANE) return load<V>(plane.weight + d * memory.weight.row + tap * memory.weight.tap + at);
    else return broadcast<A>(plane.dense[d * taps + tap]);
  };
  auto mix = [&](int64_t m) ALWAYS_INLINE -> V {
    const A* a = plane.mix + m * memory.mix.row;
    if constexpr (PER_LANE) return load<V>(a + at);
    else return broadcast<A>(*a);
  };
  const Winners<A> winners = respond<EDGE, FINITE, BACKWARD>(plane, block, weight, region);
  const V value = evaluate<false>(pool.program, region, mix);
  if constexpr (BACKWARD) {
    backpropagate<false>(pool.program, region, load<V>(plane.outputs + at));
    keep_response_grads<PER_LANE, EDGE>(plane, block, region, winners, finite);
  } else {
    store(plane.outputs + at, value);
  }
}

// All vectors of a band: values, or what reaches their responses. Returns whether that is finite wherever it meets no cell.
template <class A, bool BACKWARD, bool PER_LANE, bool FINITE>
bool pool_band(Plane<A>& plane, const Band& band) {
  Vec<A> finite{};
  for (int64_t b = band.begin; b < band.end; ++b) {
    const Block<A>& block = plane.layout.blocks[b];
    plane.template prefetch<BACKWARD>(b);
    if (block.edge != nullptr) pool_block<BACKWARD, PER_LANE, FINITE, true>(plane, block, finite);
    else pool_block<BACKWARD, PER_LANE, FINITE, false>(plane, block, finite);
  }
  return !has_nan<A>(finite);
}

// The gradient of w_d[tap] is the sum of c_d x over all regions, here for ROWS rows of weight from d on and STEP taps at a time, so
// that their sums stay in registers.
template <int STEP, int ROWS, bool FINITE, bool PER_LANE, class A>
INLINE void accumulate_weight_rows(const Plane<A>& plane, const Band& band, int64_t d) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const Parameter& strides = plane.call.memory.dweight;
  const int64_t size = plane.grads.size, all_taps = plane.call.pool.taps();
  const A *c = plane.grads.to_dot + d * size, *x = plane.x;
  for (int64_t t = 0; t < layout.taps; t += STEP) {
    V total[ROWS][STEP] = {};
    A* to = plane.dweight + d * strides.row + layout.number[t] * strides.tap;
    for (int64_t b = band.begin; b < band.end; ++b) {
      const Block<A>& block = layout.blocks[b];
      V v[STEP];
      M exists[STEP];
      for (int k = 0; k < STEP; ++k) {
        const int64_t at = block.at + layout.shift[t + k];
        v[k] = load<V>(x + at);
        // Where there is no cell or no output one of the two is zero; only infinity or NaN would show.
        exists[k] = ~M{};
        if (!FINITE && block.edge != nullptr) exists[k] = (load<M>(layout.outside + at) == 0) & block.edge->live;
      }
      for (int j = 0; j < ROWS; ++j) {
        const V to_dot = load<V>(c + j * size + block.at);
        for (int k = 0; k < STEP; ++k) {
          const V product = FINITE ? to_dot * v[k] : (V)((M)(to_dot * v[k]) & exists[k]);
          if constexpr (PER_LANE) store(to + block.at, load<V>(to + block.at) + product);
          else total[j][k] += product;
        }
      }
    }
    for (int j = 0; j < ROWS && !PER_LANE; ++j) {
      for (int k = 0; k < STEP; ++k) plane.sums.weight[(d + j) * all_taps + layout.number[t + k]] += total[j][k];
    }
  }
}

// The gradients of all weights.
template <int STEP, int ROWS, bool FINITE, bool PER_LANE, class A>
INLINE void accumulate_weight_grad(const Plane<A>& plane, const Band& band) {
  const int64_t rows = plane.call.pool.program.weights;
  int64_t d = 0;
  for (; d + ROWS <= rows; d += ROWS) accumulate_weight_rows<STEP, ROWS, FINITE, PER_LANE>(plane, band, d);
  for (; d < rows; ++d) accumulate_weight_rows<STEP, 1, FINITE, PER_LANE>(plane, band, d);
}

// Weights as a cell's gradient reads them.
template <class A>
struct WeightView {
  const A* data;
  int64_t row, tap;
};

// The gradient of the cells of map m: every cell receives sum_d c_d w_d[tap] + c_mean + c_max [tap is the maximum] + c_min [tap is
// the minimum] from each tap that read it, here for the positions of a band. Taps run backwards, so that a cell adds up in the
// order PyTorch's own pools do. READERS: how many taps, if known.
template <int READERS, class P, bool PER_LANE, bool FINITE, class A>
INLINE void gather_input_grad(const Plane<A>& plane, int64_t m, const Band& band, const WeightView<A>& weight) {
  using V = Vec<A>;
  using M = Mask<A>;
  const PlaneLayout<A>& layout = plane.layout;
  const int64_t dots = P::known ? P::weights : plane.call.pool.program.weights, size = plane.grads.size;
  const int64_t *readers = layout.readers + layout.begin[m], many = READERS >= 0 ? READERS : layout.begin[m + 1] - layout.begin[m];
  const int64_t *back = layout.back, *number = layout.number, end = std::min(band.to, layout.end[m]);
  const A *to_mean = plane.grads.to_mean, *to_max = plane.grads.to_max, *to_dot = plane.grads.to_dot;
  const Lane<A>*winner = plane.grads.winner, *live = plane.grads.live;
  const bool has_min = P::minimum && plane.call.pool.program.has_min;
  A* gradients = plane.gradients + m * layout.map;
  for (int64_t i = band.from; i < end; i += LANES<A>) {
    V received{};
    for (int64_t j = 0; j < many; ++j) {
      const int64_t at = i - back[readers[j]], tap = number[readers[j]];
      if constexpr (P::statistics) {
        const M is_maximum = load<M>(winner + at) == Lane<A>(tap);
        received += load<V>(to_mean + at) + (is_maximum ? load<V>(to_max + at) : V{});
      }
      if (has_min) {
        const M is_minimum = load<M>(plane.grads.min_winner + at) == Lane<A>(tap);
        received += is_minimum ? load<V>(plane.grads.to_min + at) : V{};
      }
      const A* w = weight.data + tap * weight.tap + (PER_LANE ? at : 0);
      // Where there is no output c is zero, so only a weight that is not finite would show.
      M exists{};
      if constexpr (!FINITE) exists = load<M>(live + at);
      for (int64_t d = 0; d < dots; ++d) {
        const V c = load<V>(to_dot + d * size + at);
        V product;
        if constexpr (PER_LANE) product = c * load<V>(w + d * weight.row);
        else product = c * w[d * weight.row];
        received += FINITE ? product : (V)((M)product & exists);
      }
    }
    store(gradients + i, received);
  }
}

// The same for the maps of all four phases of a 3×3 window with stride 2, GROUP vectors of each: what an output passes on is then
// loaded once for its nine cells, and a weight once for the group. For ordinary numbers and parameters that all lanes share.
template <int GROUP, class P, class A>
INLINE void gather_phases(const Plane<A>& plane, int64_t i, const WeightView<A>& weight) {
  using V = Vec<A>;
  using M = Mask<A>;
  const ResponseGrads<A>& grads = plane.grads;
  V received[4][GROUP] = {};
  // Outputs one row and one column before these positions read them by tap 8; and so on, last tap first.
#pragma GCC unroll 4
  for (int before = 3; before >= 0; --before) {
    const int64_t at = i - (before / 2 ? plane.call.memory.pitch.w : 0) - before % 2;
    auto for_each_tap = [&](auto f) ALWAYS_INLINE {
#pragma GCC unroll 9
      for (int tap = 8; tap >= 0; --tap) {
        const int h = tap / 3, w = tap % 3;
        if (2 * (h / 2) + w / 2 == before) f(tap, received[2 * (h % 2) + w % 2]);
      }
    };
    if constexpr (P::statistics) {
      for (int g = 0; g < GROUP; ++g) {
        const V to_mean = load<V>(grads.to_mean + at + g * LANES<A>), to_max = load<V>(grads.to_max + at + g * LANES<A>);
        const M winner = load<M>(grads.winner + at + g * LANES<A>);
        for_each_tap([&](int tap, V* to) ALWAYS_INLINE { to[g] += to_mean + (winner == Lane<A>(tap) ? to_max : V{}); });
      }
    }
#pragma GCC unroll 8
    for (int d = 0; d < P::weights; ++d) {
      V to_dot[GROUP];
      for (int g = 0; g < GROUP; ++g) to_dot[g] = load<V>(grads.to_dot + d * grads.size + at + g * LANES<A>);
      for_each_tap([&](int tap, V* to) ALWAYS_INLINE {
        const V w = broadcast<A>(weight.data[d * weight.row + tap]);
        for (int g = 0; g < GROUP; ++g) to[g] += to_dot[g] * w;
      });
    }
  }
  for (int m = 0; m < 4; ++m) {
    for (int g = 0; g < GROUP; ++g) store(plane.gradients + m * plane.layout.map + i + g * LANES<A>, received[m][g]);
  }
}

inline bool is_3x3_stride_2(const Pooling& pool) {
  auto is_such = [](const Axis& axis) { return axis.kernel == 3 && axis.stride == 2 && axis.dilation == 1; };
  return is_such(pool.h) && is_such(pool.w) && pool.d.kernel == 1 && pool.d.stride == 1;
}

// From what reaches the responses of a band to all gradients.
template <class A, class P, int TAPS, bool PER_LANE, bool FINITE>
void compute_band_grads(Plane<A>& plane, const Band& band) {
  const Pooling& pool = plane.call.pool;
  const Parameter& strides = plane.call.memory.weight;
  const PlaneLayout<A>& layout = plane.layout;
  // As many taps and rows of weight at a time as there are registers for; P says how many rows there are at all.
  constexpr int step = TAPS < 0 ? 1 : TAPS == 9 && P::weights > 1 ? 3 : TAPS;
  constexpr int most = PER_LANE ? 1 : TAPS < 0 ? 4 : TAPS == 4 ? SUMMED_ROWS / 2 : SUMMED_ROWS;
  constexpr int rows = P::known ? std::min(most, std::max(P::weights, 1)) : most;
  if (pool.weight_grad) accumulate_weight_grad<step, rows, FINITE, PER_LANE>(plane, band);
  if (!pool.input_grad) return;
  const WeightView<A> weight = PER_LANE ? WeightView<A>{plane.weight, strides.row, strides.tap}
                                        : WeightView<A>{plane.dense, TAPS > 0 ? TAPS : pool.taps(), 1};
  if constexpr (P::known && TAPS == 9) {
    if (is_3x3_stride_2(pool)) {
      const int64_t end = std::min(band.to, plane.call.memory.pitch.size());
      int64_t i = band.from;
      for (; i + LANES<A> < end; i += 2 * LANES<A>) gather_phases<2, P>(plane, i, weight);
      if (i < end) gather_phases<1, P>(plane, i, weight);
      return;
    }
  }
  for (int64_t m = 0; m < layout.maps; ++m) {
    switch (TAPS > 0 ? layout.begin[m + 1] - layout.begin[m] : -1) {
      case 1: gather_input_grad<1, P, PER_LANE, FINITE>(plane, m, band, weight); break;
      case 2: gather_input_grad<2, P, PER_LANE, FINITE>(plane, m, band, weight); break;
      case 4: gather_input_grad<4, P, PER_LANE, FINITE>(plane, m, band, weight); break;
      default: gather_input_grad<-1, P, PER_LANE, FINITE>(plane, m, band, weight);
    }
  }
}

template <class A, class P, bool BACKWARD, int TAPS, bool PER_LANE, bool FINITE>
constexpr Steps<A> make_steps() {
  Steps<A> steps{};
  if constexpr (P::known) steps = {pool_band_in_stages<A, P, BACKWARD, TAPS>, true, nullptr};
  else steps = {pool_band<A, BACKWARD, PER_LANE, FINITE>, false, nullptr};
  if constexpr (BACKWARD) steps.compute_grads = compute_band_grads<A, P, TAPS, PER_LANE, FINITE>;
  return steps;
}

// Steps for ordinary numbers, with straight code for the paper's pools and windows of 4 and 9 taps.
template <class A, bool BACKWARD>
Steps<A> choose_fast_steps(const Plane<A>& plane, bool per_lane) {
  switch (plane.call.pool.rule) {
    case Rule::Tree: break;
    case Rule::Pick: return choose_pick_steps<A, Rule::Pick, BACKWARD>(plane);
    case Rule::Expect: return choose_pick_steps<A, Rule::Expect, BACKWARD>(plane);
  }
  if (per_lane) return make_steps<A, AnyProgram, BACKWARD, -1, true, true>();
  Steps<A> steps = make_steps<A, AnyProgram, BACKWARD, -1, false, true>();
  // Straight code is for the whole window: the layout says how many of its taps there are.
  const int64_t window = plane.call.pool.taps(), taps = plane.layout.taps == window ? window : -1;
  with_program(plane.call.pool.program, [&](auto program) {
    using P = decltype(program);
    if constexpr (P::known) {
      if (taps == 9) steps = make_steps<A, P, BACKWARD, 9, false, true>();
      else if (taps == 4) steps = make_steps<A, P, BACKWARD, 4, false, true>();
      else steps = make_steps<A, P, BACKWARD, -1, false, true>();
    }
  });
  return steps;
}

// Takes planes through scratch, band by band: rows in, steps, rows out.
template <class T, bool BACKWARD>
class PlanePooling {
  using A = Accumulator<T>;
  static constexpr bool PAIRS_ARE_WORDS = std::is_same_v<T, BFloat16>;

 public:
  PlanePooling(const Call& call, bool per_lane)
      : call_(call),
        plane_(call),
        fast_(choose_fast_steps<A, BACKWARD>(plane_, per_lane)),
        careful_(choose_careful_steps(call, per_lane)) {
    plane_.prefetch_bytes = divide_up(call.pool.cells() * int64_t(sizeof(T)) / plane_.layout.block_count, 64) * 64;
  }

  // Planes in the order of memory; where parameters differ by channel, an item has just one.
  void pool_item(int64_t item) {
    const Items::Box box = call_.items.box(item);
    A* slice = BACKWARD ? static_cast<A*>(call_.memory.slices) + item * call_.memory.slice : nullptr;
    for (int64_t n = box.n0; n < box.n1; ++n) {
      for (int64_t c = box.c0; c < box.c1; ++c) {
        point_at_parameters(c, BACKWARD ? slice : nullptr, c - box.c0);
        const int64_t following = c + 1 < box.c1 ? n * call_.pool.channels + c + 1 : (n + 1) * call_.pool.channels + box.c0;
        pool_plane(n * call_.pool.channels + c, following);
      }
    }
    if (BACKWARD && call_.memory.weight.region == 0 && call_.memory.mix.region == 0) {
      plane_.sums.flush(call_, slice, slice + call_.memory.dmix_offset);
    }
  }

 private:
  const Call& call_;
  Plane<A> plane_;
  const Steps<A> fast_, careful_;
  // The present plane in memory, how many of its rows were read and written, and whether no infinity or NaN was met.
  const T *cells_, *grads_;
  T* out_;
  int64_t rows_read_, outputs_done_, rows_written_;
  bool finite_;

  Steps<A> choose_careful_steps(const Call& call, bool per_lane) const {
    if (call.pool.rule != Rule::Tree) return fast_;  // looks at every cell's sign anyway
    return per_lane ? make_steps<A, AnyProgram, BACKWARD, -1, true, false>()
                    : make_steps<A, AnyProgram, BACKWARD, -1, false, false>();
  }

  void point_at_parameters(int64_t c, A* slice, int64_t channel_of_slice) {
    const Memory& memory = call_.memory;
    const A* weight = static_cast<const A*>(memory.weight.data) + c * memory.weight.channel;
    if (weight != plane_.weight && memory.weight.region == 0) copy_dense(weight);
    plane_.weight = weight;
    plane_.mix = static_cast<const A*>(memory.mix.data) + c * memory.mix.channel;
    if constexpr (BACKWARD) {
      plane_.dweight = slice + channel_of_slice * memory.dweight.channel;
      plane_.dmix = slice + memory.dmix_offset + channel_of_slice * memory.dmix.channel;
    }
  }

  void copy_dense(const A* weight) {
    const int64_t rows = call_.pool.program.weights, taps = call_.pool.taps();
    const Parameter& strides = call_.memory.weight;
    for (int64_t d = 0; d < rows; ++d) {
      for (int64_t tap = 0; tap < taps; ++tap) plane_.dense[d * taps + tap] = weight[d * strides.row + tap * strides.tap];
    }
  }

  void pool_plane(int64_t index, int64_t following) {
    const Pooling& pool = call_.pool;
    const T* x = static_cast<const T*>(call_.memory.x);
    const bool writes = !BACKWARD || pool.input_grad;
    cells_ = x + index * pool.cells();
    grads_ = BACKWARD ? static_cast<const T*>(call_.memory.grad) + index * pool.outputs() : nullptr;
    out_ = writes ? static_cast<T*>(call_.memory.y) + index * (BACKWARD ? pool.cells() : pool.outputs()) : nullptr;
    plane_.next = following < pool.batch * pool.channels ? reinterpret_cast<uintptr_t>(x + following * pool.cells()) : 0;
    plane_.own = reinterpret_cast<uintptr_t>(out_);
    if (pool.rule == Rule::Pick) {
      plane_.key = make_plane_key(call_.memory.seeds[index / pool.channels], index % pool.channels);
    }
    rows_read_ = outputs_done_ = rows_written_ = 0;
    finite_ = call_.memory.finite_weights;
    // A band of a large plane stays in the first cache from its cells to their gradients. In 3d rows are not in order of positions.
    const PlaneLayout<A>& layout = plane_.layout;
    const int64_t step = pool.d.in == 1 ? BAND : layout.block_count;
    for (int64_t b = 0, from = 0; b < layout.block_count; b += step) {
      const bool last = b + step >= layout.block_count;
      const Band band{b, last ? layout.block_count : b + step, from, last ? layout.map : layout.blocks[b + step].at};
      pool_rows(band, last);
      from = band.to;
    }
  }

  void pool_rows(const Band& band, bool last) {
    const int64_t first_output = outputs_done_;
    read_cells(band, last);
    const int64_t end = count_outputs(band, last);
    if constexpr (BACKWARD) read_grads(first_output, end);
    outputs_done_ = end;
    const bool finite = finite_ && fast_.pool(plane_, band);
    if (!finite_ || (!finite && fast_.finds_infinity)) careful_.pool(plane_, band);
    if constexpr (BACKWARD) {
      (finite ? fast_ : careful_).compute_grads(plane_, band);
      if (call_.pool.input_grad) write_input_grad(band, last);
    } else {
      write_outputs(first_output, end);
    }
  }

  void read_cells(const Band& band, bool last) {
    const PlaneLayout<A>& layout = plane_.layout;
    const int64_t rows = call_.pool.d.in * call_.pool.h.in, n = call_.pool.w.in, first = rows_read_;
    if (last) rows_read_ = rows;
    while (rows_read_ < rows && layout.row_in_map[rows_read_] < band.to + layout.margin) ++rows_read_;
    if constexpr (PAIRS_ARE_WORDS) {
      if (has_two_phases() && fast_.finds_infinity) return move_pairs<To::Scratch>(first, rows_read_, cells_ + first * n, plane_.x);
    }
    const A* cells = widen_row(cells_ + first * n, (rows_read_ - first) * n, plane_.line);
    if (!fast_.finds_infinity) finite_ = finite_ && all_finite(cells, (rows_read_ - first) * n);
    move_rows<To::Scratch>(first, rows_read_, cells, plane_.x);
  }

  // Rows of outputs that are complete when a band is done (forward), or that it needs (backward).
  int64_t count_outputs(const Band& band, bool last) const {
    const Pooling& pool = call_.pool;
    const int64_t rows = pool.d.out * pool.h.out;
    if (last) return rows;
    int64_t done = outputs_done_;
    while (done < rows && plane_.layout.output_row[done] + (BACKWARD ? 0 : pool.w.out) <= band.to) ++done;
    return done;
  }

  void read_grads(int64_t begin, int64_t end) {
    const int64_t n = call_.pool.w.out;
    const A* from = widen_row(grads_ + begin * n, (end - begin) * n, plane_.line);
    for (int64_t r = begin; r < end; ++r, from += n) copy_row(from, plane_.outputs + plane_.layout.output_row[r], n);
  }

  void write_outputs(int64_t begin, int64_t end) {
    const int64_t n = call_.pool.w.out;
    write_row(out_ + begin * n, (end - begin) * n, plane_.line, [&](A* to) {
      for (int64_t r = begin; r < end; ++r, to += n) copy_row(plane_.outputs + plane_.layout.output_row[r], to, n);
    });
  }

  void write_input_grad(const Band& band, bool last) {
    const int64_t rows = call_.pool.d.in * call_.pool.h.in, n = call_.pool.w.in, first = rows_written_;
    if (last) rows_written_ = rows;
    while (rows_written_ < rows && plane_.layout.row_in_map[rows_written_] + call_.memory.pitch.w <= band.to) ++rows_written_;
    if constexpr (PAIRS_ARE_WORDS) {
      if (has_two_phases()) return move_pairs<To::Memory>(first, rows_written_, out_ + first * n, plane_.gradients);
    }
    write_row(out_ + first * n, (rows_written_ - first) * n, plane_.line,
              [&](A* to) { move_rows<To::Memory>(first, rows_written_, to, plane_.gradients); });
  }

  bool has_two_phases() const { return call_.pool.w.stride == 2 && call_.pool.w.phases() == 2 && call_.pool.w.in > 1; }

  // As move_rows, where there are two phases. Pairs of bfloat16 may stay in memory until then.
  template <To TO, class C>
  INLINE void move_pairs(int64_t begin, int64_t end, C* cells, A* scratch) const {
    const int64_t *row = plane_.layout.row, *column = plane_.layout.column;
    deinterleave<TO, LANES<A>>(row + begin, end - begin, column[0], column[1], cells, scratch, call_.pool.w.in);
  }

  // Rows [begin, end) of input, one after another in `cells`, into scratch by phase; or rows of gradients out of it.
  template <To TO, class C>
  INLINE void move_rows(int64_t begin, int64_t end, C* cells, A* scratch) const {
    if (has_two_phases()) return move_pairs<TO>(begin, end, cells, scratch);
    const Axis& w = call_.pool.w;
    const int64_t n = w.in, phases = w.phases(), stride = w.stride, *row = plane_.layout.row, *column = plane_.layout.column;
    for (int64_t r = begin; r < end; ++r, cells += n) {
      if (phases == 1) {
        A* place = scratch + row[r] + column[0];
        if constexpr (TO == To::Memory) copy_row(place, cells, n);
        else copy_row(cells, place, n);
        continue;
      }
      for (int64_t phase = 0; phase < std::min(phases, n); ++phase) {
        A* place = scratch + row[r] + column[phase];
        for (int64_t i = 0, c = phase; c < n; ++i, c += stride) {
          if constexpr (TO == To::Memory) cells[c] = place[i];
          else place[i] = cells[c];
        }
      }
    }
  }
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
