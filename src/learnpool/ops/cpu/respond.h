// From the cells of a span of regions to their responses.
#pragma once

#include "pipeline.h"

namespace learnpool::LEARNPOOL_ISA {

// One walk over the cells of a span: the responses it computes, by their slots.
template <class Source>
struct Pass {
  using A = typename Source::Number;
  void (*respond)(const Source&, const Pass&, const Span<A>&, Vec<A>& finite) = nullptr;
  int64_t response = -1;                                 // of a unit alone
  A *max = nullptr, *winner = nullptr, *mean = nullptr;  // of a group; null: not needed
  int64_t dot = 0;                                       // the first of several
  bool is_first = false;
};

// All passes of one unit over the cells of a vector of regions.
template <bool PER_LANE, bool LACKS, int PASS = 0, class U, class A>
INLINE void add_taps(U& unit, const Pipeline<A>& source, int64_t r, const Region<A>& region, const Segment<A>& segment, int64_t i) {
  const int64_t count = segment.taps->count;
  auto add = [&](int64_t t)
                 ALWAYS_INLINE { unit.template add<PASS, LACKS>(read_cell<U, PER_LANE, LACKS>(source, r, segment, i, t)); };
  unit.template begin<PASS>(region);
  if (U::DERIVED > 0 && count == 9) {  // little is done for each
#pragma GCC unroll 9
    for (int64_t t = 0; t < 9; ++t) add(t);
  } else {
    for (int64_t t = 0; t < count; ++t) add(t);
  }
  if constexpr (PASS + 1 < U::PASSES) add_taps<PER_LANE, LACKS, PASS + 1>(unit, source, r, region, segment, i);
}

template <class U, bool PER_LANE, bool LACKS, class Source, class A>
INLINE Vec<A> respond_vector(const Source& source, int64_t r, const Segment<A>& segment, int64_t i) {
  const Responses<A>& responses = source.responses;
  Region<A> region = source.describe_region(source.call.pool.program.responses[r], segment, i);
  if constexpr (U::SAMPLED) region.sample = source.draw(segment, i);
  region.tap_slots = responses.template tap_slots<U>(r, segment.at + i);
  U unit = make_unit<U>(region);
  add_taps<PER_LANE, LACKS>(unit, source, r, region, segment, i);
  const Mask<A> live = load<Mask<A>>(responses.live + segment.at + i);
  const Vec<A> witness = unit.finish(region, SlotsAt<A>{responses.slot(r) + segment.at + i, responses.size, live});
  return (Vec<A>)((Mask<A>)witness & live) * A(0);
}

// One response of a span, whatever its kind.
template <class U, bool PER_LANE, class Source, class A>
void respond_alone(const Source& source, const Pass<Source>& pass, const Span<A>& span, Vec<A>& finite) {
  for (const Segment<A>& segment : span) {
    for (int64_t b = 0; b < segment.count; ++b) {
      const auto [i, lacking] = segment.blocks[b];
      if (pass.is_first) source.upcoming.fetch(segment.number + b);
      if constexpr (Source::HAS_EDGES) {
        if (lacking != Lacking::None) {
          finite += respond_vector<U, PER_LANE, true>(source, pass.response, segment, i);
          continue;
        }
      }
      finite += respond_vector<U, PER_LANE, false>(source, pass.response, segment, i);
    }
  }
}

// Maximum, mean and DOTS inner products of two vectors of regions, for finite numbers and weights that all lanes share.
template <int TAPS, Lacking LACKING, bool STATISTICS, int DOTS, bool BACKWARD, class Source, class A>
INLINE void respond_pair(const Source& source, const Pass<Source>& pass, const Segment<A>& segment, const int64_t (&i)[2],
                         Vec<A>& finite) {
  using V = Vec<A>;
  const Responses<A>& responses = source.responses;
  const Tap* taps = segment.taps->taps;
  const int64_t count = TAPS > 0 ? TAPS : segment.taps->count;
  const A* weights = segment.taps->dot_weights + pass.dot * count;
  Max<A, false> max[2];
  Dot<A, false> dots[2][DOTS > 0 ? DOTS : 1];
#pragma GCC unroll 9
  for (int64_t t = 0; t < count; ++t) {
    const bool may_lack = LACKING == Lacking::Any || (LACKING == Lacking::Left && t % 3 == 0);
    Cell<A> cell[2];
    for (int g = 0; g < 2; ++g) {
      cell[g].x = load<V>(segment.x + taps[t].place + i[g]);
      cell[g].tap = TAPS > 0 ? Lane<A>(t) : Lane<A>(taps[t].number);
      if constexpr (STATISTICS) {
        if (may_lack) {
          cell[g].lacks = load<Mask<A>>(segment.outside + taps[t].place + i[g]);
          max[g].template add<0, true>(cell[g]);
        } else {
          max[g].template add<0, false>(cell[g]);
        }
      }
    }
    for (int d = 0; d < DOTS; ++d) {
      const V w = broadcast<A>(weights[d * count + t]);
      for (int g = 0; g < 2; ++g) {
        cell[g].w = w;
        dots[g][d].template add<0, false>(cell[g]);
      }
    }
  }
  for (int g = 0; g < 2; ++g) {
    const int64_t at = segment.at + i[g];
    if constexpr (STATISTICS) {
      V best = max[g].best;
      if (LACKING != Lacking::None) best = (V)((Mask<A>)best & load<Mask<A>>(responses.live + at));
      if (pass.max != nullptr) store(pass.max + at, best);
      if (BACKWARD && pass.winner != nullptr) store(pass.winner + at, (V)max[g].winner);
      if (pass.mean != nullptr) store(pass.mean + at, max[g].total / load<V>(responses.divisor + at));
      finite += max[g].total * A(0);
    } else {
      finite += dots[g][0].total * A(0);
    }
    for (int d = 0; d < DOTS; ++d) store(source.to_dot + (pass.dot + d) * responses.size + at, dots[g][d].total);
  }
}

// The vectors of a segment from `from` to `to`, in pairs.
template <int TAPS, Lacking LACKING, bool STATISTICS, int DOTS, bool BACKWARD, class Source, class A>
INLINE void respond_pairs(const Source& source, const Pass<Source>& pass, const Segment<A>& segment, int64_t from, int64_t to,
                          Vec<A>& finite) {
  for (int64_t b = from; b < to; b += 2) {
    const int64_t other = std::min(b + 1, to - 1);  // an odd one is its own neighbour
    if (pass.is_first) source.upcoming.fetch(segment.number + b);
    respond_pair<TAPS, LACKING, STATISTICS, DOTS, BACKWARD>(source, pass, segment, {segment.blocks[b].at, segment.blocks[other].at},
                                                            finite);
    if (pass.is_first && other != b) source.upcoming.fetch(segment.number + other);
  }
}

// Extremes, mean and inner products of a span together, for finite numbers and weights that all lanes share. TAPS: a window of so
// many, all of them listed for most regions.
template <class Source, int TAPS, bool STATISTICS, int DOTS, bool BACKWARD>
void respond_group(const Source& source, const Pass<Source>& pass, const Span<typename Source::Number>& span,
                   Vec<typename Source::Number>& all_finite) {
  Vec<typename Source::Number> finite{};
  for (const auto& segment : span) {
    if constexpr (TAPS > 0 && !Source::HAS_EDGES) {
      if (segment.taps->count != TAPS) {
        respond_pairs<-1, Lacking::None, STATISTICS, DOTS, BACKWARD>(source, pass, segment, 0, segment.count, finite);
        continue;
      }
    }
    if constexpr (STATISTICS && Source::HAS_EDGES) {
      const int64_t left = segment.whole + (TAPS == 9 ? segment.left : 0);
      respond_pairs<TAPS, Lacking::None, true, DOTS, BACKWARD>(source, pass, segment, 0, segment.whole, finite);
      if constexpr (TAPS == 9)
        respond_pairs<TAPS, Lacking::Left, true, DOTS, BACKWARD>(source, pass, segment, segment.whole, left, finite);
      respond_pairs<TAPS, Lacking::Any, true, DOTS, BACKWARD>(source, pass, segment, left, segment.count, finite);
    } else {  // cells that lack are zeros
      respond_pairs<TAPS, Lacking::None, STATISTICS, DOTS, BACKWARD>(source, pass, segment, 0, segment.count, finite);
    }
  }
  all_finite += finite;
}

template <class Source, int TAPS>
auto choose_dots(bool statistics, int64_t dots, bool backward) {
  if (statistics && backward)
    return dots == 0 ? respond_group<Source, TAPS, true, 0, true> : respond_group<Source, TAPS, true, 1, true>;
  if (statistics) return dots == 0 ? respond_group<Source, TAPS, true, 0, false> : respond_group<Source, TAPS, true, 1, false>;
  switch (dots) {
    case 1: return respond_group<Source, TAPS, false, 1, false>;
    case 2: return respond_group<Source, TAPS, false, 2, false>;
    case 3: return respond_group<Source, TAPS, false, 3, false>;
    case 4: return respond_group<Source, TAPS, false, 4, false>;
    default: return respond_group<Source, TAPS, false, MOST_DOTS, false>;
  }
}

// Straight code is for whole windows of nine and of four taps.
template <class Source>
auto choose_group(const Source& source, bool statistics, int64_t dots) {
  const int64_t taps = source.call.pool.taps();
  const bool backward = source.call.pool.backward;
  if constexpr (sizeof(typename Source::Number) == 4) {
    if (taps == 9 && source.may_list(9)) return choose_dots<Source, 9>(statistics, dots, backward);
    if (taps == 4 && source.may_list(4)) return choose_dots<Source, 4>(statistics, dots, backward);
  }
  return choose_dots<Source, -1>(statistics, dots, backward);
}

template <bool CAREFUL, class Source>
Pass<Source> make_pass_alone(const Source& source, int64_t r) {
  using A = typename Source::Number;
  Pass<Source> pass;
  pass.response = r;
  pass.respond = with_unit<A, CAREFUL>(source.call.pool.program.responses[r].kind, [&](auto unit) {
    using U = typename decltype(unit)::Unit;
    return source.per_lane ? respond_alone<U, U::DOT, Source, A> : respond_alone<U, false, Source, A>;
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
    pass.respond = choose_group(source, has_statistics, end - begin);
    passes.push_back(pass);
    return end;
  };
  int64_t d = source.has_statistics ? add_group(statistics, true, 0, std::min<int64_t>(1, count)) : 0;
  while (d < count) d = add_group({}, false, d, d + count_together(count - d));
  passes[0].is_first = true;
  return passes;
}

}  // namespace learnpool::LEARNPOOL_ISA
