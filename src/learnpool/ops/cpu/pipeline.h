// respond -> evaluate -> backpropagate -> gather, for any source of cells: what a thread keeps, and how responses are grouped.
#pragma once

#include "band.h"
#include "headers.h"
#include "isa.h"
#include "nodes.h"
#include "responses.h"
#include "scratch.h"
#include "vec.h"

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
  WeightSums<A> sums;
  // What gather needs of the extremes and the mean (zeros if there is none), and of responses that give c w.
  A *to_max, *winner, *to_mean;
  bool has_statistics = false;
  const std::vector<int64_t> dots;  // responses
  int64_t learned_dots = 0;         // the first of them learn
  A* to_dot = nullptr;              // slot of the first, then by responses.size
  std::vector<int64_t> others;      // responses that are neither
  std::vector<int64_t> derived;     // of each response: how many numbers the units before it derive of a cell
  int64_t derived_count = 0;        // all of them
  int64_t derived_step = 0;         // from one to the next

  // Maps of `size` places, `margin` of them before the first region; bands of at most `most` vectors.
  Pipeline(const Call& call, bool per_lane, Scratch& scratch, int64_t size, int64_t margin, int64_t most)
      : call(call),
        per_lane(per_lane),
        scratch(scratch),
        responses(call, scratch, size, margin, most * LANES<A>, per_lane),
        nodes(call, responses, scratch, most),
        sums(call.pool, scratch),
        dots(list_dots(call.pool.program)) {
    if (!dots.empty()) to_dot = responses.slot(dots[0]);
    to_max = winner = to_mean = scratch.take<A>(size) + margin;
    for (size_t r = 0; r < call.pool.program.responses.size(); ++r) sort_response(int64_t(r));
  }
  Pipeline(const Pipeline&) = delete;

  // Row of weight of an inner product.
  int64_t dot_row(int64_t d) const { return call.pool.program.responses[dots[d]].weight; }

  // The regions of a vector, beside their cells and weights.
  INLINE Region<A> describe_region(const Response& response, int64_t at) const {
    Region<A> region{};
    region.n = load<Vec<A>>(responses.n + at);
    region.divisor = load<Vec<A>>(responses.divisor + at);
    region.taps = call.pool.taps();
    if (response.scalar >= 0) region.theta = responses.theta(response.scalar, {at, 0}).at(0);
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

// One walk over the cells of a span of outputs: the responses it computes, by their slots.
template <class Source>
struct Pass {
  using A = typename Source::Number;
  void (*respond)(const Source&, const Pass&, const typename Source::Span&, Vec<A>& finite) = nullptr;
  int64_t response = -1;                                 // of a unit alone
  A *max = nullptr, *winner = nullptr, *mean = nullptr;  // of a group; null: not needed
  int64_t dot = 0;                                       // the first of several
  bool is_first = false;
};

// All passes of one unit over the cells of a vector of regions.
template <bool LACKS, int PASS = 0, class U, class Taps, class A>
INLINE void add_taps(U& unit, const Taps& taps, const Region<A>& region) {
  const int64_t count = taps.size();
  unit.template begin<PASS>(region);
  if (U::DERIVED > 0 && count == 9) {  // little is done for each
#pragma GCC unroll 9
    for (int64_t i = 0; i < 9; ++i) unit.template add<PASS, LACKS>(taps.cell(i));
  } else {
    for (int64_t i = 0; i < count; ++i) unit.template add<PASS, LACKS>(taps.cell(i));
  }
  if constexpr (PASS + 1 < U::PASSES) add_taps<LACKS, PASS + 1>(unit, taps, region);
}

template <bool CAREFUL, class Source>
Pass<Source> make_pass_alone(const Source& source, int64_t r) {
  Pass<Source> pass;
  pass.response = r;
  pass.respond = with_unit<typename Source::Number, CAREFUL>(source.call.pool.program.responses[r].kind, [&](auto unit) {
    using U = typename decltype(unit)::Unit;
    return source.per_lane ? Source::template respond_alone<U, U::DOT> : Source::template respond_alone<U, false>;
  });
  return pass;
}

// Each response by itself, whatever numbers there are.
template <class Source>
std::vector<Pass<Source>> make_careful_passes(const Source& source) {
  std::vector<Pass<Source>> passes;
  for (size_t r = 0; r < source.call.pool.program.responses.size(); ++r) {
    passes.push_back(make_pass_alone<true>(source, int64_t(r)));
  }
  return passes;
}

// Extremes and mean with one inner product; some inner products; each other response by itself.
template <class Source>
std::vector<Pass<Source>> make_fast_passes(const Source& source) {
  const std::vector<Response>& all = source.call.pool.program.responses;
  std::vector<Pass<Source>> passes;
  Pass<Source> statistics;
  for (int64_t r = 0; r < int64_t(all.size()); ++r) {
    if (all[r].kind == Kind::Max) statistics.max = source.responses.slot(r), statistics.winner = source.responses.slot(r, 1);
    else if (all[r].kind == Kind::Avg) statistics.mean = source.responses.slot(r);
    else if (all[r].kind != Kind::Dot || source.per_lane) passes.push_back(make_pass_alone<false>(source, r));
  }
  const int64_t count = source.per_lane ? 0 : int64_t(source.dots.size());
  auto add_group = [&](Pass<Source> pass, bool has_statistics, int64_t begin, int64_t end) {
    pass.dot = begin;
    pass.respond = Source::choose_group(source, has_statistics, end - begin);
    passes.push_back(pass);
    return end;
  };
  int64_t d = source.has_statistics ? add_group(statistics, true, 0, std::min<int64_t>(1, count)) : 0;
  while (d < count) d = add_group({}, false, d, d + count_together(count - d));
  passes[0].is_first = true;
  return passes;
}

// The gradient of the weights of a kind that treats them in its own way.
template <class U, class Source, class Span>
void accumulate_own_weights(const Source& source, int64_t r, const Span& span) {
  using A = typename Source::Number;
  const Responses<A>& responses = source.responses;
  const Response& response = source.call.pool.program.responses[r];
  const Parameter& strides = source.call.memory.dweight;
  const int64_t row = response.weight, taps = source.call.pool.taps();
  if (row < 0 || row >= source.call.pool.program.weights) return;
  source.for_each_vector(span, [&](int64_t at, A* dweight) {
    const Mask<A> live = load<Mask<A>>(responses.live + at);
    const SlotsAt<A, false> slots{responses.slot(r) + at, responses.size, {}};
    U::weigh(slots, source.describe_region(response, at), [&](int64_t k, Vec<A> grad) ALWAYS_INLINE {
      grad = (Vec<A>)((Mask<A>)grad & live);
      A* to = dweight + row * strides.row + k * strides.tap;
      if (source.per_lane) store(to, load<Vec<A>>(to) + grad);
      else source.sums.data[row * taps + k] += grad;
    });
  });
}

// From what reaches the responses of a span to all gradients.
template <bool CAREFUL, class Source, class Span>
void gather(const Source& source, const Span& span) {
  const Pooling& pool = source.call.pool;
  constexpr std::bool_constant<CAREFUL> careful;
  if (pool.weight_grad) accumulate_weight_grad(source, span, careful);
  for (size_t i = 0; pool.weight_grad && i < source.others.size(); ++i) {
    with_unit<typename Source::Number, CAREFUL>(pool.program.responses[source.others[i]].kind, [&](auto unit) {
      using U = typename decltype(unit)::Unit;
      if constexpr (U::OWN_WEIGHTS) accumulate_own_weights<U>(source, source.others[i], span);
    });
  }
  if (pool.input_grad) gather_cells(source, span, careful);
}

// The function of a group of responses: GROUP::respond<TAPS, STATISTICS, DOTS, BACKWARD>.
template <class Group, int TAPS>
auto choose_group(bool statistics, int64_t dots, bool backward) {
  if (statistics && backward)
    return dots == 0 ? Group::template respond<TAPS, true, 0, true> : Group::template respond<TAPS, true, 1, true>;
  if (statistics) return dots == 0 ? Group::template respond<TAPS, true, 0, false> : Group::template respond<TAPS, true, 1, false>;
  switch (dots) {
    case 1: return Group::template respond<TAPS, false, 1, false>;
    case 2: return Group::template respond<TAPS, false, 2, false>;
    case 3: return Group::template respond<TAPS, false, 3, false>;
    case 4: return Group::template respond<TAPS, false, 4, false>;
    default: return Group::template respond<TAPS, false, MOST_DOTS, false>;
  }
}

}  // namespace learnpool::LEARNPOOL_ISA
