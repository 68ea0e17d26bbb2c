// channels_last input: from the cells of a band to its responses.
#pragma once

#include "headers.h"
#include "image.h"
#include "isa.h"
#include "responses.h"
#include "vec.h"

namespace learnpool::LEARNPOOL_ISA {

// The taps of a vector of channels; all of them exist.
template <class U, class A, bool PER_LANE>
struct ChannelTaps {
  const Image<A>& image;
  const ImageOutput<A>& output;
  int64_t c, row;  // first channel; row of weight, or -1
  const A* derived;

  INLINE int64_t size() const { return output.table->count; }
  INLINE Cell<A> cell(int64_t i) const {
    const CellTap& tap = output.table->taps[i];
    Cell<A> cell;
    cell.x = load<Vec<A>>(output.x + tap.place + c);
    cell.tap = Lane<A>(tap.tap);
    for (int k = 0; k < U::DERIVED; ++k) cell.derived[k] = load<Vec<A>>(derived + k * image.derived_step + tap.place + c);
    if (row < 0) return cell;
    const Parameter& strides = image.call.memory.weight;
    if constexpr (PER_LANE) cell.w = load<Vec<A>>(output.weight + row * strides.row + tap.tap * strides.tap + c);
    else cell.w = broadcast<A>(output.table->weights[row * output.table->count + i]);
    return cell;
  }
};

// One response of a band, whatever its kind.
template <class A>
template <class U, bool PER_LANE>
void Image<A>::respond_alone(const Image& image, const Pass<Image>& pass, const Span& band, Vec<A>& finite) {
  using V = Vec<A>;
  const Responses<A>& responses = image.responses;
  const Response& response = image.call.pool.program.responses[pass.response];
  for (int64_t o = 0; o < band.count; ++o) {
    const ImageOutput<A>& output = band.outputs[o];
    for (int64_t c = 0; c < image.width; c += LANES<A>) {
      const int64_t at = output.at + c;
      if (pass.is_first) image.prefetch(at);
      Region<A> region = image.describe_region(response, at);
      region.first = Mask<A>{} + Lane<A>(output.table->count == 0 ? -1 : output.table->taps[0].tap);
      if constexpr (U::SAMPLED) {
        const Bits<A> low = load<Bits<A>>(image.key_low + c), high = load<Bits<A>>(image.key_high + c);
        region.sample = to_uniform<A>(hash<Bits<A>>(output.number - Bits<A>{}, low, high));
      }
      region.tap_slots = responses.template tap_slots<U>(pass.response, at);
      if constexpr (U::OWN_WEIGHTS) image.describe_weights(output, response.weight, c, region);
      U unit = make_unit<U>(region);
      add_taps<false>(unit,
                      ChannelTaps<U, A, PER_LANE>{image, output, c, response.weight,
                                                  output.derived + image.derived[pass.response] * image.derived_step},
                      region);
      const Mask<A> live = load<Mask<A>>(responses.live + at);
      const V witness = unit.finish(region, SlotsAt<A, true>{responses.slot(pass.response) + at, responses.size, live});
      finite += (V)((Mask<A>)witness & live) * A(0);
    }
  }
}

// Extremes, mean and inner products of two vectors of channels, for finite numbers and weights that all lanes share.
template <int TAPS, bool STATISTICS, int DOTS, bool BACKWARD, class A>
INLINE void respond_pair(const Image<A>& image, const Pass<Image<A>>& pass, const ImageOutput<A>& output, const int64_t (&c)[2],
                         Vec<A>& finite) {
  using V = Vec<A>;
  const TapTable<A>& table = *output.table;
  const int64_t count = TAPS > 0 ? TAPS : table.count;
  const A* weights = table.dot_weights + pass.dot * count;
  Max<A, false> max[2];
  Dot<A, false> dots[2][DOTS > 0 ? DOTS : 1];
#pragma GCC unroll 9
  for (int64_t i = 0; i < count; ++i) {
    const A* cells = output.x + table.taps[i].place;
    Cell<A> cell[2];
    for (int g = 0; g < 2; ++g) {
      cell[g].x = load<V>(cells + c[g]);
      cell[g].tap = TAPS > 0 ? Lane<A>(i) : Lane<A>(table.taps[i].tap);
      if constexpr (STATISTICS) max[g].template add<0, false>(cell[g]);
    }
    for (int d = 0; d < DOTS; ++d) {
      const V w = broadcast<A>(weights[d * count + i]);
      for (int g = 0; g < 2; ++g) {
        cell[g].w = w;
        dots[g][d].template add<0, false>(cell[g]);
      }
    }
  }
  for (int g = 0; g < 2; ++g) {
    const int64_t at = output.at + c[g];
    if constexpr (STATISTICS) {
      if (pass.max != nullptr) store(pass.max + at, max[g].best);
      if (BACKWARD && pass.winner != nullptr) store(pass.winner + at, (V)max[g].winner);
      if (pass.mean != nullptr) store(pass.mean + at, max[g].total / load<V>(image.responses.divisor + at));
      finite += max[g].total * A(0);
    } else {
      finite += dots[g][0].total * A(0);
    }
    for (int d = 0; d < DOTS; ++d) store(image.to_dot + (pass.dot + d) * image.responses.size + at, dots[g][d].total);
  }
}

template <class A>
struct ImageGroup {
  // TAPS: a window of so many, all of them there in most outputs.
  template <int TAPS, bool STATISTICS, int DOTS, bool BACKWARD>
  static void respond(const Image<A>& image, const Pass<Image<A>>& pass, const ImageBand<A>& band, Vec<A>& all_finite) {
    Vec<A> finite{};
    for (int64_t o = 0; o < band.count; ++o) {
      const ImageOutput<A>& output = band.outputs[o];
      for (int64_t at = 0; at < image.width; at += 2 * LANES<A>) {
        if (pass.is_first) {
          image.prefetch(output.at + at);
          image.prefetch(output.at + at + LANES<A>);
        }
        const int64_t c[2] = {at, std::min(at + LANES<A>, image.width - LANES<A>)};  // an odd one is its own neighbour
        if (output.table->count == TAPS) respond_pair<TAPS, STATISTICS, DOTS, BACKWARD>(image, pass, output, c, finite);
        else respond_pair<-1, STATISTICS, DOTS, BACKWARD>(image, pass, output, c, finite);
      }
    }
    all_finite += finite;
  }
};

template <class A>
auto Image<A>::choose_group(const Image& image, bool statistics, int64_t dots)
    -> void (*)(const Image&, const Pass<Image>&, const Span&, Vec<A>&) {
  const bool backward = image.call.pool.backward;
  if constexpr (sizeof(A) == 4) {
    if (image.call.pool.taps() == 9) return LEARNPOOL_ISA::choose_group<ImageGroup<A>, 9>(statistics, dots, backward);
  }
  return LEARNPOOL_ISA::choose_group<ImageGroup<A>, -1>(statistics, dots, backward);
}

}  // namespace learnpool::LEARNPOOL_ISA
