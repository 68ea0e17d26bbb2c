// channels_last input, for trees known to the compiler: all channels of one output at a time, in stages.
//
// Done vector by vector, each step of a region would wait for the one before (sums, exponential, division, gradients): a chain of
// well over a hundred cycles. In stages every loop is over independent vectors of channels, and what passes from one stage to
// the next stays in the first cache.
#pragma once

#include "channel_vector.h"
#include "headers.h"
#include "isa.h"
#include "scratch.h"
#include "tree.h"
#include "vec.h"

namespace learnpool {
namespace LEARNPOOL_ISA {

template <class T, class P, bool BACKWARD>
class ChannelStages {
  using A = Accumulator<T>;
  using V = Vec<A>;
  using M = Mask<A>;
  static constexpr int D = P::weights, ROWS = D > 0 ? D : 1, MIXES = P::mixes > 0 ? P::mixes : 1;
  static constexpr int64_t STEP = LANES<A>;
  static constexpr int WIDTH = PAIRED<T> ? 2 : 1;  // vectors that are loaded and stored together
  static constexpr bool MANY_REGISTERS = LEARNPOOL_BYTES == 64;
  // As many as there are registers for: taps whose weights' gradients are summed up at once; taps whose cells receive gradients at
  // once.
  static constexpr int SUMMED_TAPS = MANY_REGISTERS ? (D <= 3 ? 9 : 3) : (D == 1 ? 9 : 3);
  static constexpr int SCATTERED_TAPS = D <= 3 || MANY_REGISTERS ? 3 : 1;

 public:
  ChannelStages(const Call& call, Scratch& scratch) : call_(call), stride_(divide_up(call.items.channel_step, STEP) * STEP) {
    weights_ = scratch.take<A>(ROWS * call.pool.taps());
    maximum_ = scratch.take<A>(stride_);
    mean_ = scratch.take<A>(stride_);
    most_ = BACKWARD ? std::max<int64_t>(1, std::min<int64_t>(MOST_OUTPUTS, NUMBERS_IN_CACHE / (ROWS * stride_))) : 1;
    all_dots_ = dots_ = scratch.take<A>(most_ * ROWS * stride_);
    winner_ = scratch.take<Lane<A>>(stride_);
    zeros_ = scratch.take<A>(stride_);
  }

  // The weights of the taps listed, from now on.
  void set_weights(const ChannelVector<T>& at) {
    const Parameter& strides = call_.memory.weight;
    for (int64_t i = 0; i < at.tap_count; ++i) {
      for (int64_t d = 0; d < D; ++d) weights_[i * D + d] = at.weight[d * strides.row + at.taps[i].tap * strides.tap];
    }
  }

  // Channels from the first of `at` on. Returns false, having written nothing but outputs, if there is infinity or
  // NaN: these stages cannot tell which tap then holds the maximum, and multiply them by zero.
  INLINE bool pool(const ChannelVector<T>& at, int64_t channels) {
    V finite{};  // zeros, or NaN
    if (at.tap_count == 9) respond<9, 0>(at, channels, finite);
    else respond<-1, 0>(at, channels, finite);
    V mix_sums[MIXES] = {};
    evaluate_trees(at, channels, mix_sums, finite);
    if (has_nan<A>(finite)) return false;
    if constexpr (BACKWARD) {
      for (int m = 0; call_.pool.mix_grad && m < P::mixes; ++m) at.mix_sums[m] += mix_sums[m];
      if (at.dx != nullptr) scatter_input_grad(at, channels);
      if (D > 0 && call_.pool.weight_grad) {
        taps_ = at.taps;
        tap_count_ = at.tap_count;
        channels_ = channels;
        x_[outputs_++] = at.x;
        dots_ += D * stride_;
        if (outputs_ == most_) add_weight_grads(at.weight_sums);
      }
    }
    return true;
  }

  // Add up what the weights receive from the outputs since the last time: before their taps are listed anew.
  void add_weight_grads(V* weight_sums) {
    if (outputs_ == 0) return;
    accumulate_weight_grad<0>(weight_sums);
    outputs_ = 0;
    dots_ = all_dots_;
  }

 private:
  const Call& call_;
  const int64_t stride_;        // from row to row of dots
  A* weights_;                  // [listed taps][D]
  A *maximum_, *mean_, *dots_;  // by channel: responses, then their gradients
  // Outputs whose weights' gradients are not added up yet, at most so many: their cells and dots. Sums of several outputs stay in
  // registers, while those of one would be loaded and stored for a few vectors of channels.
  static constexpr int64_t MOST_OUTPUTS = 8, NUMBERS_IN_CACHE = 4096;
  int64_t most_, outputs_ = 0, tap_count_, channels_;
  const CellTap* taps_;
  const T* x_[MOST_OUTPUTS];
  A* all_dots_;
  const A* zeros_;
  Lane<A>* winner_;  // which of the listed taps holds the maximum

  // All channels in groups of GROUP vectors, then of one: visit(vectors, whether all lanes exist, channel, lanes of a vector). A
  // channel is in the same lane in every stage, as the groups of two are the same in all.
  template <int GROUP, class Visit>
  static INLINE void for_each_group(int64_t channels, Visit visit) {
    int64_t c = 0;
    for (; c + GROUP * STEP <= channels; c += GROUP * STEP) visit(std::integral_constant<int, GROUP>{}, std::true_type{}, c, STEP);
    constexpr std::integral_constant<int, 1> one;
    for (; GROUP > 1 && c + STEP <= channels; c += STEP) visit(one, std::true_type{}, c, STEP);
    if (c < channels) visit(one, std::false_type{}, c, channels - c);
  }

  template <int GROUP, bool FULL>
  static INLINE void load_group(const T* p, V* v, int64_t lanes) {
    if constexpr (GROUP == 2) load_pair<A>(p, v[0], v[1]);
    else v[0] = load_as<A, FULL>(p, lanes);
  }

  // Maximum, mean and inner products, these with rows of weight from FROM on.
  template <int TAPS, int FROM>
  INLINE void respond(const ChannelVector<T>& at, int64_t channels, V& finite) {
    constexpr int COUNT = std::min(SUMMED_ROWS, D - FROM);
    auto respond_one = [&](auto group, auto full, int64_t c, int64_t lanes)
                           ALWAYS_INLINE { respond_group<TAPS, group, FROM, COUNT, full>(at, c, lanes, finite); };
    for_each_group<2>(channels, respond_one);
    if constexpr (FROM + COUNT < D) respond<TAPS, FROM + COUNT>(at, channels, finite);
  }

  // GROUP vectors share the broadcast of a weight. FULL: all lanes exist; else so many of them, and the others are zero in every
  // stage, as the gradients of their outputs are too.
  template <int TAPS, int GROUP, int FROM, int COUNT, bool FULL>
  INLINE void respond_group(const ChannelVector<T>& at, int64_t c, int64_t lanes, V& finite) {
    constexpr bool STATISTICS = P::statistics && FROM == 0;
    const int64_t count = TAPS > 0 ? TAPS : at.tap_count;
    V z[GROUP][COUNT > 0 ? COUNT : 1] = {}, best[GROUP], total[GROUP] = {};
    M winner[GROUP] = {};
    for (int g = 0; g < GROUP; ++g) best[g] = broadcast<A>(-std::numeric_limits<A>::infinity());
#pragma GCC unroll 9
    for (int64_t i = 0; i < count; ++i) {
      const T* cells = at.x + at.taps[i].from + c;
      V v[GROUP];
      load_group<GROUP, FULL>(cells, v, lanes);
      for (int g = 0; g < GROUP; ++g) {
        if constexpr (STATISTICS) {
          if constexpr (BACKWARD) winner[g] = v[g] > best[g] ? M{} + Lane<A>(i) : winner[g];
          best[g] = larger(v[g], best[g]);
          total[g] += v[g];
        }
      }
      for (int d = 0; d < COUNT; ++d) {
        const V w = broadcast<A>(weights_[i * D + FROM + d]);
        for (int g = 0; g < GROUP; ++g) z[g][d] += w * v[g];
      }
    }
    for (int g = 0; g < GROUP; ++g) {
      const int64_t to = c + g * STEP;
      if constexpr (STATISTICS) {
        finite += total[g] * A(0);
        store(maximum_ + to, best[g]);
        store(mean_ + to, total[g]);
        if constexpr (BACKWARD) store(winner_ + to, winner[g]);
      }
      for (int d = 0; d < COUNT; ++d) store(dots_ + (FROM + d) * stride_ + to, z[g][d]);
    }
  }

  // The value of every tree; or what of its gradient reaches each response, in place.
  INLINE void evaluate_trees(const ChannelVector<T>& at, int64_t channels, V* mix_sums, V& finite) {
    for_each_early_gate<P>([&](int64_t row) ALWAYS_INLINE {
      A* z = dots_ + row * stride_;
      for (int64_t c = 0; c < channels; c += STEP) store(z + c, sigmoid<A>(load<V>(z + c)));
    });
    auto evaluate_one = [&](auto group, auto full, int64_t c, int64_t lanes)
                            ALWAYS_INLINE { evaluate_group<group, full>(at, c, lanes, mix_sums, finite); };
    for_each_group<WIDTH>(channels, evaluate_one);
  }

  template <int GROUP, bool FULL>
  INLINE void evaluate_group(const ChannelVector<T>& at, int64_t c, int64_t lanes, V* mix_sums, V& finite) {
    V outputs[GROUP];  // or their gradients
    if constexpr (BACKWARD) load_group<GROUP, FULL>(at.grad + c, outputs, lanes);
    for (int g = 0; g < GROUP; ++g) evaluate_vector(at, c + g * STEP, outputs[g], mix_sums, finite);
    if constexpr (!BACKWARD && GROUP == 2) store_pair<A>(at.y + c, outputs[0], outputs[1]);
    if constexpr (!BACKWARD && GROUP == 1) store_as<A, FULL>(at.y + c, outputs[0], lanes);
  }

  INLINE void evaluate_vector(const ChannelVector<T>& at, int64_t c, V& output, V* mix_sums, V& finite) {
    at.upcoming.template fetch<BACKWARD>(c);
    Region<A, P> region;
    region.count = at.cells;
    region.maximum = load<V>(maximum_ + c);
    region.mean = load<V>(mean_ + c) / at.cells;
    for (int d = 0; d < D; ++d) region.dots[d] = load<V>(dots_ + d * stride_ + c);
    auto mix = [&](int64_t m) ALWAYS_INLINE -> V { return broadcast<A>(at.mix[m * call_.memory.mix.row]); };
    const V value = evaluate_in_stages(call_.pool.program, region, mix);
    if constexpr (!BACKWARD) {
      finite += value * A(0);
      output = value;
    } else {
      backpropagate<true>(call_.pool.program, region, output);
      V all{};
      if constexpr (P::statistics) {
        store(maximum_ + c, region.to_max);
        store(mean_ + c, region.to_mean);
        all = region.to_max + region.to_mean;
      }
      for (int d = 0; d < D; ++d) {
        store(dots_ + d * stride_ + c, region.to_dot[d]);
        all += region.to_dot[d];
      }
      for (int m = 0; m < P::mixes; ++m) {
        mix_sums[m] += region.to_mix[m];
        all += region.to_mix[m];
      }
      finite += all * A(0);
    }
  }

  INLINE void scatter_input_grad(const ChannelVector<T>& at, int64_t channels) const {
    int64_t i = 0;
    for (; i + SCATTERED_TAPS <= at.tap_count; i += SCATTERED_TAPS) scatter_taps<SCATTERED_TAPS>(at, channels, i);
    for (; i < at.tap_count; ++i) scatter_taps<1>(at, channels, i);
  }

  // What the cells of COUNT taps from tap i on receive; the first tap to write to a cell adds to zeros instead.
  template <int COUNT>
  INLINE void scatter_taps(const ChannelVector<T>& at, int64_t channels, int64_t i) const {
    V w[COUNT][ROWS];
    const A* from[COUNT];
    A* to[COUNT];
    for (int t = 0; t < COUNT; ++t) {
      to[t] = at.dx + at.taps[i + t].to;
      from[t] = at.taps[i + t].fresh ? zeros_ : to[t];
      for (int d = 0; d < D; ++d) w[t][d] = broadcast<A>(weights_[(i + t) * D + d]);
    }
    auto scatter = [&](auto full, int64_t c, int64_t lanes) ALWAYS_INLINE {
      V to_dot[ROWS], to_mean, to_max;
      M winner;
      for (int d = 0; d < D; ++d) to_dot[d] = load<V>(dots_ + d * stride_ + c);
      if constexpr (P::statistics) {
        to_mean = load<V>(mean_ + c);
        to_max = load<V>(maximum_ + c);
        winner = load<M>(winner_ + c);
      }
      for (int t = 0; t < COUNT; ++t) {
        V received = load_as<A, full>(from[t] + c, lanes);
        if constexpr (P::statistics) received += to_mean + (winner == Lane<A>(i + t) ? to_max : V{});
        for (int d = 0; d < D; ++d) received += to_dot[d] * w[t][d];
        store_as<A, full>(to[t] + c, received, lanes);
      }
    };
    int64_t c = 0;
    for (; c + STEP <= channels; c += STEP) scatter(std::true_type{}, c, STEP);
    if (c < channels) scatter(std::false_type{}, c, channels - c);
  }

  // The gradients of the weights, row FROM and after.
  template <int FROM>
  INLINE void accumulate_weight_grad(V* weight_sums) const {
    constexpr int COUNT = std::min(SUMMED_ROWS, D - FROM);
    int64_t i = 0;
    for (; i + SUMMED_TAPS <= tap_count_; i += SUMMED_TAPS) accumulate_taps<SUMMED_TAPS, FROM, COUNT>(weight_sums, i);
    for (; i < tap_count_; ++i) accumulate_taps<1, FROM, COUNT>(weight_sums, i);
    if constexpr (FROM + COUNT < D) accumulate_weight_grad<FROM + COUNT>(weight_sums);
  }

  // COUNT rows of weight from FROM on, TAPS taps from tap i on.
  template <int TAPS, int FROM, int COUNT>
  INLINE void accumulate_taps(V* weight_sums, int64_t i) const {
    V sums[TAPS][COUNT > 0 ? COUNT : 1] = {};
    for (int64_t o = 0; o < outputs_; ++o) {
      const A* dots = all_dots_ + (o * D + FROM) * stride_;
      for_each_group<WIDTH>(channels_, [&](auto group, auto full, int64_t c, int64_t lanes) ALWAYS_INLINE {
#pragma GCC unroll 9
        for (int t = 0; t < TAPS; ++t) {
          V v[group];
          load_group<group, full>(x_[o] + taps_[i + t].from + c, v, lanes);
          for (int d = 0; d < COUNT; ++d) {
            for (int g = 0; g < group; ++g) sums[t][d] += load<V>(dots + d * stride_ + c + g * STEP) * v[g];
          }
        }
      });
    }
    for (int t = 0; t < TAPS; ++t) {
      for (int d = 0; d < COUNT; ++d) weight_sums[(FROM + d) * call_.pool.taps() + taps_[i + t].tap] += sums[t][d];
    }
  }
};

}  // namespace LEARNPOOL_ISA
}  // namespace learnpool
