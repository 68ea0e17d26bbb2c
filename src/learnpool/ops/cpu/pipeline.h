// respond -> evaluate -> backpropagate -> gather, for any source of cells: what a thread keeps, and how responses are grouped.
#pragma once

#include "nodes.h"
#include "segment.h"

namespace learnpool::LEARNPOOL_ISA {

// Inner products that are summed up together: as many as there are registers for.
constexpr int64_t MOST_DOTS = LEARNPOOL_BYTES == 64 ? 7 : 4;
constexpr int64_t count_together(int64_t left) { return left >= MOST_DOTS ? MOST_DOTS : left < 4 ? left : 4; }

// What every source of cells has. Plane: contiguous rows. Image: channels.
template <class A>
struct Pipeline {
  const Call& call;
  const bool per_lane;  // the lanes of a vector have parameters of their own
  Scratch& scratch;
  Responses<A> responses;
  Nodes<A> nodes;
  Vec<A>* sums;  // gradients of weights that all lanes share, [rows that learn][taps]
  // What gather needs of the extremes and the mean (zeros if there is none), and of responses that give c w.
  A *to_max, *winner, *to_mean;
  bool has_statistics = false;
  const std::vector<int64_t> dots;            // responses
  int64_t learned_dots = 0;                   // the first of them learn
  A* to_dot = nullptr;                        // slot of the first, then by responses.size
  std::vector<int64_t> others;                // responses that are neither
  std::vector<int64_t> derived;               // of each response: how many numbers the units before it derive of a cell
  int64_t derived_count = 0;                  // all of them
  int64_t derived_step = 0;                   // from one to the next
  const A *weight = nullptr, *mix = nullptr;  // parameters of the present channels, from the first region on
  A *dweight = nullptr, *dmix = nullptr;      // their gradients, in the item's slice
  Upcoming upcoming;
  const A* zeros = nullptr;  // as many as a segment may have, for cells that are fresh

  // Maps of `size` places, `margin` of them before the first region; bands of at most `most` vectors.
  Pipeline(const Call& call, bool per_lane, Scratch& scratch, int64_t size, int64_t margin, int64_t most)
      : call(call),
        per_lane(per_lane),
        scratch(scratch),
        responses(call, scratch, size, margin, most * LANES<A>, per_lane),
        nodes(call, responses, scratch, most),
        sums(scratch.take<Vec<A>>(call.pool.program.weights * call.pool.taps())),
        dots(list_dots(call.pool.program)) {
    if (!dots.empty()) to_dot = responses.slot(dots[0]);
    to_max = winner = to_mean = scratch.take<A>(size) + margin;
    for (size_t r = 0; r < call.pool.program.responses.size(); ++r) sort_response(int64_t(r));
  }
  Pipeline(const Pipeline&) = delete;

  // Row of weight of an inner product.
  int64_t dot_row(int64_t d) const { return call.pool.program.responses[dots[d]].weight; }

  TapList<A> make_taps(int64_t most) {
    const int64_t rows = call.pool.program.weight_rows();
    return {0, scratch.take<Tap>(most), scratch.take<A>(rows * most), scratch.take<A>(int64_t(dots.size()) * most)};
  }
  // Of this region.
  void set_weights(TapList<A>& list, int64_t region) const {
    const Parameter& strides = call.memory.weight;
    const A* from = weight + region * strides.region;
    for (int64_t row = 0; !per_lane && row < call.pool.program.weight_rows(); ++row) {
      for (int64_t t = 0; t < list.count; ++t) {
        list.weights[row * list.count + t] = from[row * strides.row + list.taps[t].number * strides.tap];
      }
    }
    for (int64_t d = 0; d < int64_t(dots.size()); ++d) {
      std::copy_n(list.weights + dot_row(d) * list.count, list.count, list.dot_weights + d * list.count);
    }
  }

  // The regions of a vector, beside their cells: those from place i of a segment on.
  INLINE Region<A> describe_region(const Response& response, const Segment<A>& segment, int64_t i) const {
    const Parameter& strides = call.memory.weight;
    const int64_t at = segment.at + i;
    Region<A> region{};
    region.n = load<Vec<A>>(responses.n + at);
    region.divisor = load<Vec<A>>(responses.divisor + at);
    if (response.scalar >= 0) region.theta = responses.theta(response.scalar, {at, 0}).at(0);
    region.taps = call.pool.taps();
    region.per_lane = per_lane;
    region.step = strides.tap;
    if (response.weight < 0) return region;
    region.weights = weight + segment.region * strides.region + response.weight * strides.row + (per_lane ? i : 0);
    return region;
  }

  // Whether units that are not careful may be tried: weights are finite, and all regions have the same theta.
  bool may_be_fast() const { return call.memory.finite_weights && (derived_count == 0 || call.memory.mix.region == 0); }

  // What units derive of `count` numbers from x on, lanes of a cell or neighbours in a row.
  void derive_cells(const A* x, A* to, int64_t count, const Lane<A>* outside = nullptr) const {
    for (int64_t r : others) {
      with_unit<A, false>(call.pool.program.responses[r].kind, [&](auto unit) {
        using U = typename decltype(unit)::Unit;
        if constexpr (U::DERIVED > 0) {
          const Row<A> theta = responses.theta(call.pool.program.responses[r].scalar, {0, 0});
          A* first = to + derived[r] * derived_step;
          for (int64_t i = 0; i < count; i += LANES<A>) {
            Vec<A> numbers[U::DERIVED];
            U::derive(load<Vec<A>>(x + i), theta.at(i), numbers);
            if (outside != nullptr) numbers[0] = (Vec<A>)((Mask<A>)numbers[0] & (load<Mask<A>>(outside + i) == 0));
            for (int k = 0; k < U::DERIVED; ++k) store(first + k * derived_step + i, numbers[k]);
          }
        }
      });
    }
  }

  // Whether a response is the maximum, the mean or an inner product, and whether there is such a one.
  bool is_grouped(int64_t r) const {
    const Kind kind = call.pool.program.responses[r].kind;
    return kind == Kind::Max || kind == Kind::Avg || kind == Kind::Dot;
  }
  bool is_grouped() const { return has_statistics || !dots.empty(); }

  // The pending gradients of rows of mix count.
  void commit_mix(const Span<A>& span) {
    if (!per_lane) return responses.commit();
    const Parameter& strides = call.memory.dmix;
    for (int64_t row = 0; call.pool.mix_grad && row < call.pool.program.mixes(); ++row) {
      const A* from = responses.pending(row);
      for (const Segment<A>& segment : span) {
        A* to = dmix + segment.region * strides.region + row * strides.row;
        for (int64_t i = 0; i < segment.count * LANES<A>; i += LANES<A>, from += LANES<A>) {
          const Mask<A> grad = load<Mask<A>>(from) & load<Mask<A>>(responses.live + segment.at + i);
          store(to + i, load<Vec<A>>(to + i) + (Vec<A>)grad);
        }
      }
    }
  }

  bool picks() const { return call.pool.program.responses[0].kind == Kind::Pick; }

  // A band whose responses are known: its values into `outputs`, or on from their gradients there. Returns whether all numbers were
  // finite; if not, and it was not careful, it has to be done again.
  template <bool CAREFUL>
  bool finish_band(const Band& band, A* outputs, Vec<A> finite) {
    if (!CAREFUL && has_nan<A>(finite)) return false;
    nodes.template evaluate<CAREFUL>(band, call.pool.backward ? nullptr : outputs, finite);
    if (call.pool.backward) nodes.template backpropagate<CAREFUL>(band, outputs, finite);
    return CAREFUL || !has_nan<A>(finite);
  }

 private:
  void sort_response(int64_t r) {
    const Response& response = call.pool.program.responses[r];
    derived.push_back(derived_count);
    derived_count += with_unit<A, false>(response.kind, [](auto unit) -> int64_t { return decltype(unit)::Unit::DERIVED; });
    if (response.kind == Kind::Max) {
      to_max = responses.slot(r);
      winner = responses.slot(r, 1);
    } else if (response.kind == Kind::Avg) {
      to_mean = responses.slot(r);
    } else if (response.kind == Kind::Dot) {
      learned_dots += response.weight < call.pool.program.weights;
    } else {
      others.push_back(r);
    }
    has_statistics |= response.kind == Kind::Max || response.kind == Kind::Avg;
  }
};

// The cells under tap t of the regions from place i of a segment on, for the unit of response r.
template <class U, bool PER_LANE, bool LACKS, class A>
INLINE Cell<A> read_cell(const Pipeline<A>& source, int64_t r, const Segment<A>& segment, int64_t i, int64_t t) {
  const auto& [number, place, fresh] = segment.taps->taps[t];
  const int64_t row = source.call.pool.program.responses[r].weight;
  Cell<A> cell;
  cell.x = load<Vec<A>>(segment.x + place + i);
  if constexpr (LACKS) cell.lacks = load<Mask<A>>(segment.outside + place + i);
  const A* derived = segment.derived + source.derived[r] * source.derived_step + place + i;
  for (int k = 0; k < U::DERIVED; ++k) cell.derived[k] = load<Vec<A>>(derived + k * source.derived_step);
  cell.tap = Lane<A>(number);
  if (row < 0) return cell;
  const Parameter& strides = source.call.memory.weight;
  const A* weight = source.weight + segment.region * strides.region + row * strides.row + number * strides.tap;
  if constexpr (PER_LANE) cell.w = load<Vec<A>>(weight + i);
  else cell.w = broadcast<A>(segment.taps->weights[row * segment.taps->count + t]);
  return cell;
}

}  // namespace learnpool::LEARNPOOL_ISA
