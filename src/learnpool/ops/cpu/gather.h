// From what reaches the responses of a span to the gradients of its cells and of the weights.
#pragma once

#include "pipeline.h"

namespace learnpool::LEARNPOOL_ISA {

// The gradient of w_d[tap] is the sum of c_d x over all regions: here of ROWS inner products from number d on and STEP taps from t
// on, by segments that share a list of taps.
template <int STEP, int ROWS, bool CAREFUL, bool PER_LANE, class Source, class A>
void accumulate_taps(const Source& source, const Span<A>& span, int64_t d, int64_t t) {
  using V = Vec<A>;
  using M = Mask<A>;
  const Parameter& strides = source.call.memory.dweight;
  const int64_t size = source.responses.size, row = source.dot_row(d);
  const Tap* taps = span.segments->taps->taps + t;
  V total[ROWS][STEP] = {};
  for (const Segment<A>& segment : span) {
    const A* c = source.to_dot + d * size + segment.at;
    A* to = source.dweight + segment.region * strides.region + row * strides.row + taps->number * strides.tap;
    for (int64_t b = 0; b < segment.count; ++b) {
      const auto [i, lacking] = segment.blocks[b];
      V to_dot[ROWS];
      for (int j = 0; j < ROWS; ++j) to_dot[j] = load<V>(c + j * size + i);
#pragma GCC unroll 9
      for (int k = 0; k < STEP; ++k) {
        const A* cell = segment.x + taps[k].place + i;
        const V x = load<V>(cell);
        // Where there is no cell or no output one of the two is zero; only infinity or NaN would show.
        M exists = ~M{};
        if (CAREFUL && Source::HAS_EDGES && lacking != Lacking::None) {
          exists = (load<M>(segment.outside + taps[k].place + i) == 0) & load<M>(source.responses.live + segment.at + i);
        }
        for (int j = 0; j < ROWS; ++j) {
          const V product = CAREFUL ? (V)((M)(to_dot[j] * x) & exists) : to_dot[j] * x;
          if constexpr (PER_LANE) store(to + i, load<V>(to + i) + product);
          else total[j][k] += product;
        }
      }
    }
  }
  for (int j = 0; j < ROWS && !PER_LANE; ++j) {
    for (int k = 0; k < STEP; ++k) source.sums[source.dot_row(d + j) * source.call.pool.taps() + taps[k].number] += total[j][k];
  }
}

// As many taps at a time as there are registers for.
template <int ROWS, class Source, class A>
void accumulate_rows(const Source& source, const Span<A>& span, int64_t d) {
  constexpr int STEP = sizeof(A) == 8 ? 3 : ROWS == 1 || (LEARNPOOL_BYTES == 64 && ROWS <= 3) ? 9 : 3;
  const int64_t count = span.segments->taps->count;
  int64_t t = 0;
  for (; t + STEP <= count; t += STEP) accumulate_taps<STEP, ROWS, false, false>(source, span, d, t);
  for (; STEP == 9 && t + 3 <= count; t += 3) accumulate_taps<3, ROWS, false, false>(source, span, d, t);
  for (; t < count; ++t) accumulate_taps<1, ROWS, false, false>(source, span, d, t);
}

// Of all inner products that learn, by segments that share a list of taps.
template <bool CAREFUL, class Source, class A>
void accumulate_dots(const Source& source, const Span<A>& span) {
  for (int64_t d = 0, rows; d < source.learned_dots; d += rows) {
    const bool alone = CAREFUL || source.per_lane;
    rows = alone ? 1 : count_together(source.learned_dots - d);
    for (int64_t t = 0; alone && t < span.segments->taps->count; ++t) {
      if (source.per_lane) accumulate_taps<1, 1, CAREFUL, true>(source, span, d, t);
      else accumulate_taps<1, 1, CAREFUL, false>(source, span, d, t);
    }
    if (alone) continue;
    switch (rows) {
      case 1: accumulate_rows<1>(source, span, d); break;
      case 2: accumulate_rows<2>(source, span, d); break;
      case 3: accumulate_rows<3>(source, span, d); break;
      case 4: accumulate_rows<4>(source, span, d); break;
      default: accumulate_rows<MOST_DOTS>(source, span, d);
    }
  }
}

// The gradient of the weights of a kind that treats them in its own way.
template <class U, class Source, class A>
void accumulate_own_weights(const Source& source, int64_t r, const Span<A>& span) {
  const Responses<A>& responses = source.responses;
  const Response& response = source.call.pool.program.responses[r];
  const Parameter& strides = source.call.memory.dweight;
  const int64_t row = response.weight;
  if (row < 0 || row >= source.call.pool.program.weights) return;
  for (const Segment<A>& segment : span) {
    A* dweight = source.dweight + segment.region * strides.region + row * strides.row;
    for (int64_t i = 0; i < segment.count * LANES<A>; i += LANES<A>) {
      const Mask<A> live = load<Mask<A>>(responses.live + segment.at + i);
      const SlotsAt<A> slots{responses.slot(r) + segment.at + i, responses.size, live};
      U::weigh(slots, source.describe_region(response, segment, i), [&](int64_t k, Vec<A> grad) ALWAYS_INLINE {
        grad = (Vec<A>)((Mask<A>)grad & live);
        A* to = dweight + k * strides.tap + i;
        if (source.per_lane) store(to, load<Vec<A>>(to) + grad);
        else source.sums[row * source.call.pool.taps() + k] += grad;
      });
    }
  }
}

// What cells receive from one response, the first of all if it begins. Taps run backwards, so that a cell adds up in the order
// PyTorch's own pools do.
template <class U, bool PER_LANE, class Source, class A>
void gather_response(const Source& source, int64_t r, const Span<A>& span, bool begins) {
  const Responses<A>& responses = source.responses;
  for (const Segment<A>& segment : span) {
    for (int64_t t = segment.taps->count - 1; t >= 0; --t) {
      A* to = segment.gradients + segment.taps->taps[t].place;
      const A* from = begins && segment.taps->taps[t].fresh ? source.zeros : to;
      for (int64_t i = 0; i < segment.count * LANES<A>; i += LANES<A>) {
        const SlotsAt<A> slots{responses.slot(r) + segment.at + i, responses.size, {}};
        const Vec<A> share = U::receive(slots, read_cell<U, PER_LANE, false>(source, r, segment, i, t));
        // Of a region that does not exist it may be NaN.
        const Mask<A> live = Source::HAS_EDGES ? load<Mask<A>>(responses.live + segment.at + i) : ~Mask<A>{};
        store(to + i, load<Vec<A>>(from + i) + (Vec<A>)((Mask<A>)share & live));
      }
    }
  }
}

// The gradients of all weights.
template <bool CAREFUL, class Source, class A>
void accumulate(const Source& source, const Span<A>& span) {
  if (!source.call.pool.weight_grad) return;
  for (const Segment<A>*begin = span.begin(), *end; begin != span.end(); begin = end) {
    end = std::find_if(begin, span.end(), [&](const Segment<A>& segment) { return segment.taps != begin->taps; });
    accumulate_dots<CAREFUL>(source, Span<A>{begin, end - begin});
  }
  for (int64_t r : source.others) {
    with_unit<A, CAREFUL>(source.call.pool.program.responses[r].kind, [&](auto unit) {
      using U = typename decltype(unit)::Unit;
      if constexpr (U::OWN_WEIGHTS) accumulate_own_weights<U>(source, r, span);
    });
  }
}

// What cells receive from responses one by one: all of them if careful, else those that are not gathered together.
template <bool CAREFUL, class Source, class A>
void gather_alone(const Source& source, const Span<A>& span) {
  bool begins = CAREFUL || !source.is_grouped();
  for (int64_t r = 0; r < int64_t(source.call.pool.program.responses.size()); ++r) {
    if (!CAREFUL && source.is_grouped(r)) continue;
    with_unit<A, CAREFUL>(source.call.pool.program.responses[r].kind, [&](auto unit) {
      using U = typename decltype(unit)::Unit;
      if (source.per_lane) gather_response<U, U::DOT>(source, r, span, begins);
      else gather_response<U, false>(source, r, span, begins);
    });
    begins = false;
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
