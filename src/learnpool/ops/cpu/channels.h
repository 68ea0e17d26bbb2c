// channels_last input: a vector is LANES neighbouring channels of one output.

// One tap that exists at an output: its number, its cell in the image, and whether no output before it met that cell.
struct TapCell {
  int64_t tap, cell;
  bool fresh;
};

// The same for all channels of an output: where the cell begins in the image and in its gradient.
struct Tap {
  int64_t tap, from, to;
  bool fresh;
};

// The taps of every output of an image, rows and columns apart: tap and cell of an output are sums of the two.
struct Places {
  struct List {
    int64_t begin, end;  // among cells
    int64_t count;       // what an average divides by
    int64_t size() const { return end - begin; }
  };
  std::vector<TapCell> cells;
  std::vector<List> rows, columns;
  int64_t most;  // taps of an output
  bool covered;  // every cell meets an output

  explicit Places(const Call& call) {
    const bool pad = call.count_include_pad;
    std::vector<char> row_seen(call.d.in * call.h.in), column_seen(call.w.in);
    auto add = [&](int64_t tap, int64_t cell, char& seen) {
      cells.push_back({tap, cell, !seen});
      seen = true;
    };
    for (int64_t od = 0; od < call.d.out; ++od) {
      for (int64_t oh = 0; oh < call.h.out; ++oh) {
        const int64_t begin = int64_t(cells.size());
        const Axis::Range deep = call.d.taps(od), high = call.h.taps(oh);
        for (int64_t kd = deep.begin; kd < deep.end; ++kd) {
          for (int64_t kh = high.begin; kh < high.end; ++kh) {
            const int64_t row = call.d.cell(od, kd) * call.h.in + call.h.cell(oh, kh);
            add((kd * call.h.kernel + kh) * call.w.kernel, row * call.w.in, row_seen[row]);
          }
        }
        rows.push_back({begin, int64_t(cells.size()), call.d.count(od, pad) * call.h.count(oh, pad)});
      }
    }
    for (int64_t ow = 0; ow < call.w.out; ++ow) {
      const int64_t begin = int64_t(cells.size());
      const Axis::Range wide = call.w.taps(ow);
      for (int64_t kw = wide.begin; kw < wide.end; ++kw) add(kw, call.w.cell(ow, kw), column_seen[call.w.cell(ow, kw)]);
      columns.push_back({begin, int64_t(cells.size()), call.w.count(ow, pad)});
    }
    auto largest = [](const std::vector<List>& lists) {
      int64_t most = 0;
      for (const List& list : lists) most = std::max(most, list.size());
      return most;
    };
    most = largest(rows) * largest(columns);
    auto all = [](const std::vector<char>& seen) { return std::find(seen.begin(), seen.end(), 0) == seen.end(); };
    covered = all(row_seen) && all(column_seen);
  }
};

// What the parameters of a call look like from a vector of channels.
template <class A>
struct Shared {
  const A *masks, *mixes;  // at the first of the lanes, at this output
  A *dmasks, *dmixes;
};

// One vector of channels at one output, forward or backward. TAPS: all taps exist, so many for the compiler, and lie side by
// side in the masks, which all outputs share; -1: some taps.
template <class T, class P, bool BACKWARD, bool PER_LANE, bool FULL, int TAPS>
INLINE void output(const Call& call, const Tap* taps, int64_t some, const T* x, Accumulator<T>* dx, const T* grad, T* y,
                   int64_t count, Vec<Accumulator<T>> cells, const Shared<Accumulator<T>>& shared, Vec<Accumulator<T>>* sums,
                   Vec<Accumulator<T>>* mix_sums, Region<Accumulator<T>, P>& region) {
  constexpr int D = P::weights;
  using A = Accumulator<T>;
  using V = Vec<A>;
  using M = Mask<A>;
  const int64_t dots = D >= 0 ? D : call.plan.weights, all_taps = TAPS >= 0 ? TAPS : call.taps(), many = TAPS >= 0 ? TAPS : some;
  constexpr int kept = D > 0 ? D : 1, seen = TAPS >= 0 ? TAPS : 1;
  auto number = [&](int64_t i) { return TAPS >= 0 ? i : taps[i].tap; };
  auto weight = [&](int64_t d, int64_t i) -> V {
    const A* w = shared.masks + (TAPS >= 0 ? d * TAPS + i : d * call.weight.row + taps[i].tap * call.weight.tap);
    if constexpr (PER_LANE) return load<V>(w);
    else return all<A>(*w);
  };
  auto mix = [&](int64_t m) -> V {
    const A* a = shared.mixes + m * call.mix.row;
    if constexpr (PER_LANE) return load<V>(a);
    else return all<A>(*a);
  };

  V z[kept] = {}, best = all<A>(-std::numeric_limits<A>::infinity()), total{}, values[seen];
  M winner = M{} + Lane<A>(many == 0 ? -1 : number(0));
  if constexpr (D < 0) {
    for (int64_t d = 0; d < dots; ++d) region.dots[d] = V{};
  }
#pragma GCC unroll 9
  for (int64_t i = 0; i < many; ++i) {
    const V v = gather<A, FULL>(x + taps[i].from, count);
    if constexpr (TAPS >= 0) values[i] = v;
    if constexpr (P::extremes) {
      if constexpr (TAPS >= 0) {
        best = v > best ? v : best;
      } else {
        const M won = wins<A>(v, best);
        best = won ? v : best;
        if constexpr (BACKWARD) winner = won ? M{} + Lane<A>(number(i)) : winner;
      }
      total += v;
    }
    if constexpr (D >= 0) {
#pragma GCC unroll 8
      for (int d = 0; d < D; ++d) z[d] += weight(d, i) * v;
    } else {
      for (int64_t d = 0; d < dots; ++d) region.dots[d] += weight(d, i) * v;
    }
  }
  if constexpr (TAPS >= 0 && P::extremes) {
    if (__builtin_expect(has_nan<A>(total), false)) {  // or infinities that add up to one
      return output<T, P, BACKWARD, PER_LANE, FULL, -1>(call, taps, some, x, dx, grad, y, count, cells, shared, sums, mix_sums,
                                                        region);
    }
  }
  if constexpr (D > 0) {
    for (int d = 0; d < D; ++d) region.dots[d] = z[d];
  }
  region.count = cells;
  region.maximum = best;
  region.mean = total / cells;
  const V value = evaluate(call.plan, region, mix);
  if constexpr (!BACKWARD) {
    spread<A, FULL>(y, value, count);
    return;
  }

  descend(call.plan, region, gather<A, FULL>(grad, count));
  if constexpr (!FULL) {  // a channel that does not exist has cells of zero, but a weight may be infinite
    for (int64_t d = 0; d < dots; ++d) region.to_dot[d] = first_lanes<A>(region.to_dot[d], count);
    for (int64_t m = 0; m < call.plan.mixes; ++m) region.to_mix[m] = first_lanes<A>(region.to_mix[m], count);
  }
  V c[kept];
  if constexpr (D > 0) {
    for (int d = 0; d < D; ++d) c[d] = region.to_dot[d];
  }
  auto reached = [&](int64_t d) { return D >= 0 ? c[D >= 0 ? d : 0] : region.to_dot[d]; };
  if (dx != nullptr) {
    alignas(64) static constexpr A zeros[LANES<A>] = {};
    M open = ~M{};  // the maximum is still to come
#pragma GCC unroll 9
    for (int64_t i = 0; i < many; ++i) {
      A* to = dx + taps[i].to;
      V received = gather<A, FULL>(taps[i].fresh ? zeros : to, count);
      if constexpr (P::extremes) {
        M paid;
        if constexpr (TAPS >= 0) {
          paid = (values[i] == best) & open;
          open &= ~paid;
        } else {
          paid = winner == Lane<A>(number(i));
        }
        received += region.to_mean + (paid ? region.to_max : V{});
      }
#pragma GCC unroll 8
      for (int64_t d = 0; d < dots; ++d) received += reached(d) * weight(d, i);
      spread<A, FULL>(to, received, count);
    }
  }
  if (call.want_weight) {
#pragma GCC unroll 9
    for (int64_t i = 0; i < many; ++i) {
      const V v = TAPS >= 0 ? values[TAPS >= 0 ? i : 0] : gather<A, FULL>(x + taps[i].from, count);
#pragma GCC unroll 8
      for (int64_t d = 0; d < dots; ++d) {
        if constexpr (PER_LANE) {
          A* to = shared.dmasks + d * call.dweight.row + taps[i].tap * call.dweight.tap;
          spread<A, FULL>(to, gather<A, FULL>(to, count) + reached(d) * v, count);
        } else {
          sums[d * all_taps + number(i)] += reached(d) * v;
        }
      }
    }
  }
  if (call.want_mix) {
    for (int64_t m = 0; m < (P::known ? P::mixes : call.plan.mixes); ++m) {
      if constexpr (PER_LANE) {
        A* to = shared.dmixes + m * call.dmix.row;
        spread<A, FULL>(to, gather<A, FULL>(to, count) + region.to_mix[m], count);
      } else {
        mix_sums[m] += region.to_mix[m];
      }
    }
  }
}

template <class T, class P, bool BACKWARD, bool PER_LANE>
void images(const Call& call, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  constexpr int64_t lanes = LANES<A>;
  constexpr bool direct = std::is_same_v<T, A>;  // gradients of halves collect in scratch first
  Scratch scratch;
  Region<A, P> region(call.plan, scratch);
  const int64_t taps = call.taps();
  A* room = BACKWARD && call.y != nullptr && !direct ? scratch.take<A>(call.cells() * call.channel_step) : nullptr;
  V* sums = scratch.take<V>(call.plan.weights * taps);
  V* mix_sums = scratch.take<V>(call.plan.mixes);
  const Places places(call);
  Tap* here = scratch.take<Tap>(places.most);
  constexpr bool unrolled = P::known && !PER_LANE && direct && LANES<A> >= 8;
  const bool dense = call.weight.tap == 1;  // masks are shared by all outputs

  for (int64_t item = begin; item < end; ++item) {
    const int64_t c0 = item % call.channel_items() * call.channel_step, n0 = item / call.channel_items() * call.batch_step;
    const int64_t c1 = std::min(c0 + call.channel_step, call.channels), n1 = std::min(n0 + call.batch_step, call.batch);
    A* partial = static_cast<A*>(call.partial) + item * call.partial_item;
    for (int64_t n = n0; n < n1; ++n) {
      const T* x = static_cast<const T*>(call.x) + n * call.cells() * call.channels;
      T* gradient = BACKWARD && call.y != nullptr ? static_cast<T*>(call.y) + n * call.cells() * call.channels : nullptr;
      A* dx = nullptr;
      int64_t dx_stride = call.channels;
      if (gradient != nullptr) {
        if constexpr (direct) {
          dx = gradient;
        } else {
          dx = room - c0;
          dx_stride = call.channel_step;
        }
      }
      if (dx != nullptr && !places.covered) {
        for (int64_t i = 0; i < call.cells(); ++i) std::memset(dx + i * dx_stride + c0, 0, sizeof(A) * (c1 - c0));
      }
      for (int64_t row = 0, place = 0; row < call.d.out * call.h.out; ++row) {
        for (int64_t ow = 0; ow < call.w.out; ++ow, ++place) {
          int64_t many = 0;
          for (int64_t r = places.rows[row].begin; r < places.rows[row].end; ++r) {
            const TapCell& line = places.cells[r];
            for (int64_t c = places.columns[ow].begin; c < places.columns[ow].end; ++c) {
              const TapCell& column = places.cells[c];
              const int64_t cell = line.cell + column.cell;
              const bool fresh = line.fresh && column.fresh && places.covered;
              here[many++] = {line.tap + column.tap, cell * call.channels, cell * dx_stride, fresh};
            }
          }
          const V cells = all<A>(A(std::max<int64_t>(1, places.rows[row].count * places.columns[ow].count)));
          const int64_t out = (n * call.places() + place) * call.channels;
          Shared<A> shared{static_cast<const A*>(call.weight.data) + place * call.weight.place,
                           static_cast<const A*>(call.mix.data) + place * call.mix.place,
                           partial + place * call.dweight.place, partial + call.dmix_offset + place * call.dmix.place};
          const Shared<A> first = shared;
          for (int64_t c = c0; c < c1; c += lanes) {
            const T* grad = BACKWARD ? static_cast<const T*>(call.grad) + out + c : nullptr;
            T* y = BACKWARD ? nullptr : static_cast<T*>(call.y) + out + c;
            A* to = dx == nullptr ? nullptr : dx + c;
            if constexpr (PER_LANE) {
              shared.masks = first.masks + c * call.weight.channel;
              shared.mixes = first.mixes + c * call.mix.channel;
              shared.dmasks = first.dmasks + (c - c0) * call.dweight.channel;
              shared.dmixes = first.dmixes + (c - c0) * call.dmix.channel;
            }
            auto at = [&](auto full, auto all_taps) {
              output<T, P, BACKWARD, PER_LANE, decltype(full)::value, decltype(all_taps)::value>(
                  call, here, many, x + c, to, grad, y, std::min(lanes, c1 - c), cells, shared, sums, mix_sums, region);
            };
            using Some = std::integral_constant<int, -1>;
            if constexpr (unrolled) {
              if (c + lanes <= c1 && dense && taps == 9 && many == 9) {
                at(std::true_type{}, std::integral_constant<int, 9>{});
                continue;
              }
            }
            if (c + lanes <= c1) at(std::true_type{}, Some{});
            else at(std::false_type{}, Some{});
          }
          if (BACKWARD && !PER_LANE && (call.dweight.place != 0 || call.dmix.place != 0)) {
            flush<A>(call, sums, mix_sums, first.dmasks, first.dmixes);
          }
        }
      }
      if (gradient != nullptr && !direct) {
        for (int64_t i = 0; i < call.cells(); ++i) {
          for (int64_t c = c0; c < c1; ++c) gradient[i * call.channels + c] = narrow<T>(dx[i * dx_stride + c]);
        }
      }
    }
    if (BACKWARD && !PER_LANE) flush<A>(call, sums, mix_sums, partial, partial + call.dmix_offset);
  }
}
