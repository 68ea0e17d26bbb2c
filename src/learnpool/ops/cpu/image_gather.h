// channels_last input: from what reaches the responses of a band to the gradients of its cells and of the weights.
#pragma once

#include "headers.h"
#include "image.h"
#include "isa.h"
#include "responses.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// What the cells of COUNT taps from tap i on receive; the first tap to write to a cell adds to zeros instead. DOTS: how many
// responses give c w, if known.
template <int COUNT, bool STATISTICS, int DOTS, bool PER_LANE, class A>
INLINE void gather_taps(const Image<A>& image, const ImageOutput<A>& output, int64_t i) {
  using V = Vec<A>;
  const TapTable<A>& table = *output.table;
  const int64_t dots = DOTS >= 0 ? DOTS : int64_t(image.dots.size());
  const Parameter& strides = image.call.memory.weight;
  const A* from[COUNT];
  A* to[COUNT];
  Lane<A> tap[COUNT];
  V w[COUNT][DOTS > 0 ? DOTS : 1];
  for (int t = 0; t < COUNT; ++t) {
    const CellTap& cell = table.taps[i + t];
    to[t] = output.dx + cell.place;
    from[t] = cell.fresh ? image.zeros : to[t];
    tap[t] = Lane<A>(cell.tap);
    for (int d = 0; d < DOTS; ++d) w[t][d] = broadcast<A>(table.dot_weights[d * table.count + i + t]);
  }
  for (int64_t c = 0; c < image.width; c += LANES<A>) {
    const int64_t at = output.at + c;
    V received[COUNT];
    for (int t = 0; t < COUNT; ++t) received[t] = load<V>(from[t] + c);
    if constexpr (STATISTICS) {
      const V to_mean = load<V>(image.to_mean + at), to_max = load<V>(image.to_max + at);
      const Mask<A> winner = load<Mask<A>>(reinterpret_cast<const Lane<A>*>(image.winner) + at);
      for (int t = 0; t < COUNT; ++t) received[t] += to_mean + (winner == tap[t] ? to_max : V{});
    }
    for (int64_t d = 0; d < dots; ++d) {
      const V to_dot = load<V>(image.to_dot + d * image.responses.size + at);
      for (int t = 0; t < COUNT; ++t) {
        if constexpr (PER_LANE)
          received[t] += to_dot * load<V>(output.weight + image.dot_row(d) * strides.row + tap[t] * strides.tap + c);
        else if constexpr (DOTS > 0) received[t] += to_dot * w[t][d];
        else received[t] += to_dot * table.dot_weights[d * table.count + i + t];
      }
    }
    for (int t = 0; t < COUNT; ++t) store(to[t] + c, received[t]);
  }
}

template <bool STATISTICS, int DOTS, bool PER_LANE, class A>
void gather_together(const Image<A>& image, const ImageBand<A>& band) {
  for (int64_t o = 0; o < band.count; ++o) {
    const ImageOutput<A>& output = band.outputs[o];
    int64_t i = 0;
    for (; i + 3 <= output.table->count; i += 3) gather_taps<3, STATISTICS, DOTS, PER_LANE>(image, output, i);
    for (; i < output.table->count; ++i) gather_taps<1, STATISTICS, DOTS, PER_LANE>(image, output, i);
  }
}

// What cells receive from a response of any other kind. BEGINS: nothing has been written yet, and the first tap to write to a cell
// adds to zeros instead.
template <class U, bool BEGINS, class A>
void gather_alone(const Image<A>& image, int64_t r, const ImageBand<A>& band) {
  using V = Vec<A>;
  const Responses<A>& responses = image.responses;
  for (int64_t o = 0; o < band.count; ++o) {
    const ImageOutput<A>& output = band.outputs[o];
    const A* derived = output.derived + image.derived[r] * image.derived_step;
    for (int64_t i = 0; i < output.table->count; ++i) {
      const CellTap& tap = output.table->taps[i];
      A* to = output.dx + tap.place;
      const A* before = BEGINS && tap.fresh ? image.zeros : to;
      for (int64_t c = 0; c < image.width; c += LANES<A>) {
        const SlotsAt<A, false> slots{responses.slot(r) + output.at + c, responses.size, {}};
        Cell<A> cell;
        cell.x = load<V>(output.x + tap.place + c);
        cell.tap = Lane<A>(tap.tap);
        for (int k = 0; k < U::DERIVED; ++k) cell.derived[k] = load<V>(derived + k * image.derived_step + tap.place + c);
        if constexpr (U::DOT) {
          const Parameter& strides = image.call.memory.weight;
          const int64_t row = image.call.pool.program.responses[r].weight;
          cell.w = image.per_lane ? load<V>(output.weight + row * strides.row + tap.tap * strides.tap + c)
                                  : broadcast<A>(output.table->weights[row * output.table->count + i]);
        }
        const V received = U::receive(slots, cell);
        store(to + c, load<V>(before + c) + received);
      }
    }
  }
}

// What cells receive from the statistics and the inner products.
template <class A>
void gather_group(const Image<A>& image, const ImageBand<A>& band) {
  const size_t dots = image.dots.size();
  if (image.per_lane) gather_together<true, -1, true>(image, band);
  else if (image.has_statistics && dots == 0) gather_together<true, 0, false>(image, band);
  else if (image.has_statistics && dots == 1) gather_together<true, 1, false>(image, band);
  else if (image.has_statistics) gather_together<true, -1, false>(image, band);
  else if (dots == 3) gather_together<false, 3, false>(image, band);
  else if (dots == MOST_DOTS) gather_together<false, MOST_DOTS, false>(image, band);
  else gather_together<false, -1, false>(image, band);
}

template <bool CAREFUL, class A>
void gather_cells(const Image<A>& image, const ImageBand<A>& band, std::bool_constant<CAREFUL>) {
  bool begins = !image.has_statistics && image.dots.empty() && !image.others.empty();
  if (!begins) gather_group(image, band);
  for (int64_t r : image.others) {
    with_unit<A, CAREFUL>(image.call.pool.program.responses[r].kind, [&](auto unit) {
      using U = typename decltype(unit)::Unit;
      if (begins) gather_alone<U, true>(image, r, band);
      else gather_alone<U, false>(image, r, band);
    });
    begins = false;
  }
}

// The gradients of ROWS rows of weight, TAPS taps from tap i on, by outputs that share a table.
template <int TAPS, int ROWS, class A>
void accumulate_taps(const Image<A>& image, const ImageOutput<A>* outputs, int64_t count, int64_t first, int64_t i) {
  using V = Vec<A>;
  const TapTable<A>& table = *outputs->table;
  const int64_t size = image.responses.size;
  const A* grads = image.to_dot + first * size;
  V sums[TAPS][ROWS] = {};
  for (int64_t o = 0; o < count; ++o) {
    const ImageOutput<A>& output = outputs[o];
    for (int64_t c = 0; c < image.width; c += LANES<A>) {
      V to_dot[ROWS];
      for (int d = 0; d < ROWS; ++d) to_dot[d] = load<V>(grads + d * size + output.at + c);
#pragma GCC unroll 9
      for (int t = 0; t < TAPS; ++t) {
        const V x = load<V>(output.x + table.taps[i + t].place + c);
        for (int d = 0; d < ROWS; ++d) sums[t][d] += to_dot[d] * x;
      }
    }
  }
  for (int t = 0; t < TAPS; ++t) {
    for (int d = 0; d < ROWS; ++d)
      image.sums.data[image.dot_row(first + d) * image.call.pool.taps() + table.taps[i + t].tap] += sums[t][d];
  }
}

template <int ROWS, class A>
void accumulate_rows(const Image<A>& image, const ImageOutput<A>* outputs, int64_t count, int64_t first) {
  // As many as there are registers for.
  constexpr int STEP = sizeof(A) == 8 ? 3 : ROWS == 1 || (LEARNPOOL_BYTES == 64 && ROWS <= 3) ? 9 : 3;
  int64_t i = 0;
  for (; i + STEP <= outputs->table->count; i += STEP) accumulate_taps<STEP, ROWS>(image, outputs, count, first, i);
  if constexpr (STEP == 9) {
    for (; i + 3 <= outputs->table->count; i += 3) accumulate_taps<3, ROWS>(image, outputs, count, first, i);
  }
  for (; i < outputs->table->count; ++i) accumulate_taps<1, ROWS>(image, outputs, count, first, i);
}

// Where channels have their own weights.
template <class A>
void accumulate_by_lane(const Image<A>& image, const ImageOutput<A>& output) {
  using V = Vec<A>;
  const Parameter& strides = image.call.memory.dweight;
  for (int64_t d = 0; d < image.learned_dots; ++d) {
    const A* grads = image.to_dot + d * image.responses.size + output.at;
    for (int64_t i = 0; i < output.table->count; ++i) {
      const CellTap& tap = output.table->taps[i];
      A* to = output.dweight + image.dot_row(d) * strides.row + tap.tap * strides.tap;
      // Lanes past the end add zeros.
      for (int64_t c = 0; c < image.lanes; c += LANES<A>) {
        store(to + c, load<V>(to + c) + load<V>(grads + c) * load<V>(output.x + tap.place + c));
      }
    }
  }
}

template <bool CAREFUL, class A>
void accumulate_weight_grad(const Image<A>& image, const ImageBand<A>& band, std::bool_constant<CAREFUL>) {
  const int64_t rows = image.learned_dots;
  for (int64_t o = 0; image.per_lane && o < band.count; ++o) accumulate_by_lane(image, band.outputs[o]);
  if (image.per_lane) return;
  for (int64_t begin = 0, end; begin < band.count; begin = end) {
    const ImageOutput<A>* outputs = band.outputs + begin;
    end = begin + 1;
    while (end < band.count && band.outputs[end].table == outputs->table) ++end;
    for (int64_t d = 0, together; d < rows; d += together) {
      together = count_together(rows - d);
      switch (together) {
        case 1: accumulate_rows<1>(image, outputs, end - begin, d); break;
        case 2: accumulate_rows<2>(image, outputs, end - begin, d); break;
        case 3: accumulate_rows<3>(image, outputs, end - begin, d); break;
        case 4: accumulate_rows<4>(image, outputs, end - begin, d); break;
        default: accumulate_rows<MOST_DOTS>(image, outputs, end - begin, d);
      }
    }
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
