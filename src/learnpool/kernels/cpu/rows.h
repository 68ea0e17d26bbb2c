// Contiguous input: a vector is LANES neighbouring outputs of one row.

// Where things lie in scratch, the same for every plane of a call.
template <class A>
struct Rows {
  using V = Vec<A>;
  using M = Mask<A>;
  int64_t phases, phase, row;        // phases per row, length of a phase, length of a split row
  int64_t width;                     // outputs of a row, up to a whole number of vectors
  int64_t* shift;                    // [kernel] from an output to its tap, inside a split row
  M* valid;                          // [kernel][width / LANES] whether the tap of each output exists
  M* live;                           // [width / LANES] whether the output exists
  M* first;                          // [width / LANES] the first tap that exists, -1 if none does
  V* count;                          // [width / LANES] cells of each output along this axis
  bool* whole;                       // [width / LANES] all taps of all lanes exist

  Rows(const Call& call, Scratch& scratch) {
    constexpr int64_t lanes = LANES<A>;
    const Axis& w = call.w;
    phases = w.stride;
    width = (w.out + lanes - 1) / lanes * lanes;
    const int64_t reach = (w.kernel - 1) * w.dilation / w.stride, cells = (w.in - 1 + w.padding) / w.stride + 1;
    phase = std::max(width + reach, cells) + lanes;
    row = phases * phase;
    shift = scratch.take<int64_t>(w.kernel);
    for (int64_t k = 0; k < w.kernel; ++k) shift[k] = k * w.dilation % w.stride * phase + k * w.dilation / w.stride;
    const int64_t blocks = width / lanes;
    valid = scratch.take<M>(w.kernel * blocks);
    live = scratch.take<M>(blocks);
    first = scratch.take<M>(blocks);
    count = scratch.take<V>(blocks);
    whole = scratch.take<bool>(blocks);
    for (int64_t b = 0; b < blocks; ++b) {
      whole[b] = true;
      for (int64_t i = 0; i < lanes; ++i) {
        const int64_t o = b * lanes + i;
        const bool lives = o < w.out;
        live[b][i] = lives ? -1 : 0;
        first[b][i] = -1;
        count[b][i] = lives ? A(w.count(o, call.count_include_pad)) : A(1);
        for (int64_t k = w.kernel - 1; k >= 0; --k) {
          const bool here = lives && w.inside(o, k);
          valid[k * blocks + b][i] = here ? -1 : 0;
          if (here) first[b][i] = k;
          else whole[b] = false;
        }
      }
    }
  }
};

template <class V, int... I>
INLINE void unzip(V a, V b, V& even, V& odd, std::integer_sequence<int, I...>) {
  even = __builtin_shufflevector(a, b, (2 * I)...);
  odd = __builtin_shufflevector(a, b, (2 * I + 1)...);
}

template <class V, int... I>
INLINE void zip(V even, V odd, V& a, V& b, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  a = __builtin_shufflevector(even, odd, (I / 2 + I % 2 * n)...);
  b = __builtin_shufflevector(even, odd, (n / 2 + I / 2 + I % 2 * n)...);
}

// Cell c of a row belongs to phase (c + padding) % stride, at place (c + padding) / stride.
template <class A>
INLINE A* home(A* row, const Rows<A>& rows, int64_t c, int64_t padding) {
  return row + (c + padding) % rows.phases * rows.phase + (c + padding) / rows.phases;
}

// A row of input into scratch, by phase; `line` is room for one widened row.
template <class T, class A>
void split(const T* cells, A* row, const Rows<A>& rows, const Axis& w, A* line) {
  const A* from;
  if constexpr (std::is_same_v<T, A>) {
    from = cells;
  } else {
    for (int64_t i = 0; i < w.in; ++i) line[i] = widen(cells[i]);
    from = line;
  }
  if (rows.phases == 2) {
    using V = Vec<A>;
    constexpr int lanes = LANES<A>;
    A *even = home(row, rows, 0, w.padding), *odd = home(row, rows, 1, w.padding);
    int64_t i = 0;
    for (; 2 * i + 2 * lanes <= w.in; i += lanes) {
      V e, o;
      unzip(load<V>(from + 2 * i), load<V>(from + 2 * i + lanes), e, o, std::make_integer_sequence<int, lanes>{});
      store(even + i, e);
      store(odd + i, o);
    }
    for (; 2 * i < w.in; ++i) {
      even[i] = from[2 * i];
      if (2 * i + 1 < w.in) odd[i] = from[2 * i + 1];
    }
    return;
  }
  for (int64_t r = 0; r < std::min(rows.phases, w.in); ++r) {
    A* to = home(row, rows, r, w.padding);
    for (int64_t i = 0, c = r; c < w.in; ++i, c += rows.phases) to[i] = from[c];
  }
}

// The way back: a row of gradients out of scratch.
template <class T, class A>
void merge(T* cells, A* row, const Rows<A>& rows, const Axis& w, A* line) {
  A* to;
  if constexpr (std::is_same_v<T, A>) to = cells;
  else to = line;
  if (rows.phases == 2) {
    using V = Vec<A>;
    constexpr int lanes = LANES<A>;
    const A *even = home(row, rows, 0, w.padding), *odd = home(row, rows, 1, w.padding);
    int64_t i = 0;
    for (; 2 * i + 2 * lanes <= w.in; i += lanes) {
      V a, b;
      zip(load<V>(even + i), load<V>(odd + i), a, b, std::make_integer_sequence<int, lanes>{});
      store(to + 2 * i, a);
      store(to + 2 * i + lanes, b);
    }
    for (; 2 * i < w.in; ++i) {
      to[2 * i] = even[i];
      if (2 * i + 1 < w.in) to[2 * i + 1] = odd[i];
    }
  } else {
    for (int64_t r = 0; r < std::min(rows.phases, w.in); ++r) {
      const A* place = home(row, rows, r, w.padding);
      for (int64_t i = 0, c = r; c < w.in; ++i, c += rows.phases) to[c] = place[i];
    }
  }
  if constexpr (!std::is_same_v<T, A>) {
    for (int64_t i = 0; i < w.in; ++i) cells[i] = narrow<T>(line[i]);
  }
}

// One row of taps of the window: its first tap's number and its row of scratch.
struct TapRow {
  int64_t tap, offset;
};

// A row of outputs: which rows of taps exist there, and what they count.
struct OutputRow {
  const TapRow *begin, *end;
  int64_t count;
};

// All rows of outputs of a plane, the same for every plane of a call.
template <class A>
OutputRow* output_rows(const Call& call, const Rows<A>& rows, Scratch& scratch) {
  OutputRow* plan = scratch.take<OutputRow>(call.d.out * call.h.out);
  TapRow* next = scratch.take<TapRow>(call.d.out * call.h.out * call.d.kernel * call.h.kernel);
  for (int64_t od = 0; od < call.d.out; ++od) {
    for (int64_t oh = 0; oh < call.h.out; ++oh) {
      OutputRow& row = plan[od * call.h.out + oh];
      row.count = call.d.count(od, call.count_include_pad) * call.h.count(oh, call.count_include_pad);
      row.begin = next;
      for (int64_t kd = 0; kd < call.d.kernel; ++kd) {
        for (int64_t kh = 0; kh < call.h.kernel; ++kh) {
          if (!call.d.inside(od, kd) || !call.h.inside(oh, kh)) continue;
          const int64_t r = call.d.cell(od, kd) * call.h.in + call.h.cell(oh, kh);
          *next++ = {(kd * call.h.kernel + kh) * call.w.kernel, r * rows.row};
        }
      }
      row.end = next;
    }
  }
  return plan;
}

// Responses of one vector of regions. D, KW: numbers of masks and of taps in a row if known (else -1); EXTREMES: whether
// the tree asks for maximum or mean; EDGE: some taps or lanes do not exist; WINNER: also find where the maximum is.
template <int D, int KW, bool EXTREMES, bool EDGE, bool WINNER, class A, class Weight>
INLINE Mask<A> respond(const Call& call, const Rows<A>& rows, const OutputRow& row, const A* x, int64_t b, Weight weight,
                       Region<A>& region) {
  using V = Vec<A>;
  using M = Mask<A>;
  const int64_t kw = KW > 0 ? KW : call.w.kernel, blocks = rows.width / LANES<A>;
  const int64_t dots = D >= 0 ? D : call.plan.weights;
  constexpr int kept = D > 0 ? D : 1;
  V z[kept] = {}, best = all<A>(-std::numeric_limits<A>::infinity()), total{};
  M winner{};
  if constexpr (WINNER) {
    const Lane<A> base = row.begin == row.end ? -1 : row.begin->tap;
    winner = EDGE && base >= 0 ? (rows.first[b] < 0 ? rows.first[b] : rows.first[b] + base) : winner + base;
  }
  if constexpr (D < 0) {
    for (int64_t d = 0; d < dots; ++d) region.dots[d] = V{};
  }
  const A* at = x + b * LANES<A>;
  for (const TapRow* line = row.begin; line != row.end; ++line) {
    for (int64_t k = 0; k < kw; ++k) {
      const V v = load<V>(at + line->offset + rows.shift[k]);
      if constexpr (EXTREMES) {
        M won = wins<A>(v, best);
        if constexpr (EDGE) won &= rows.valid[k * blocks + b];
        best = won ? v : best;
        if constexpr (WINNER) winner = won ? M{} + Lane<A>(line->tap + k) : winner;
        total += v;
      }
      if constexpr (D >= 0) {
        for (int d = 0; d < D; ++d) z[d] += weight(d, line->tap + k) * v;
      } else {
        for (int64_t d = 0; d < dots; ++d) region.dots[d] += weight(d, line->tap + k) * v;
      }
    }
  }
  if constexpr (D > 0) {
    for (int d = 0; d < D; ++d) region.dots[d] = z[d];
  }
  const V count = rows.count[b] * A(row.count);
  region.count = count < A(1) ? all<A>(1) : count;
  region.maximum = EDGE ? (rows.live[b] ? best : V{}) : best;
  region.mean = total / region.count;
  return winner;
}

// From responses back to taps: every tap receives sum_d c_d w_d[tap] + c_mean + c_max [tap is the maximum], and
// the gradient of w_d[tap] grows by c_d x. Taps of a row run backwards, so that each cell adds up in PyTorch's order; they
// are the outer loop, because neighbours of one phase overlap, and reading what was just written would stall.
template <int D, int KW, bool EXTREMES, class A, class Weight, class Grow>
INLINE void scatter(const Call& call, const Rows<A>& rows, const OutputRow& row, const A* x, A* dx, int64_t b,
                    Mask<A> winner, Weight weight, Grow grow, Region<A>& region) {
  using V = Vec<A>;
  const int64_t kw = KW > 0 ? KW : call.w.kernel;
  const int64_t dots = D >= 0 ? D : call.plan.weights;
  constexpr int kept = D > 0 ? D : 1;
  V c[kept];
  if constexpr (D > 0) {
    for (int d = 0; d < D; ++d) c[d] = region.to_dot[d];
  }
  const V to_max = region.to_max, to_mean = region.to_mean;
  const int64_t at = b * LANES<A>;
  for (int64_t k = kw - 1; k >= 0; --k) {
    for (const TapRow* line = row.begin; line != row.end; ++line) {
      const int64_t place = at + line->offset + rows.shift[k], tap = line->tap + k;
      if (dx != nullptr) {
        V received = load<V>(dx + place);
        if constexpr (EXTREMES) {
          const Mask<A> paid = winner == Lane<A>(tap);
          received += to_mean + (paid ? to_max : V{});
        }
        if constexpr (D >= 0) {
          for (int d = 0; d < D; ++d) received += c[d] * weight(d, tap);
        } else {
          for (int64_t d = 0; d < dots; ++d) received += region.to_dot[d] * weight(d, tap);
        }
        store(dx + place, received);
      }
      if (call.want_weight) {
        const V v = load<V>(x + place);
        if constexpr (D >= 0) {
          for (int d = 0; d < D; ++d) grow(d, tap, c[d] * v);
        } else {
          for (int64_t d = 0; d < dots; ++d) grow(d, tap, region.to_dot[d] * v);
        }
      }
    }
  }
}

// All items [begin, end): planes of images x channels.
template <class T, bool BACKWARD, int D, int KW, bool EXTREMES, bool PER_LANE>
void planes(const Call& call, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  constexpr int64_t lanes = LANES<A>;
  Scratch scratch;
  const Rows<A> rows(call, scratch);
  Region<A> region = make_region<A>(call.plan, scratch);
  const int64_t input_rows = call.d.in * call.h.in, taps = call.taps(), blocks = rows.width / lanes;
  A* x = scratch.take<A>(input_rows * rows.row);
  A* dx = BACKWARD && call.y != nullptr ? scratch.take<A>(input_rows * rows.row) : nullptr;
  A* line = scratch.take<A>(std::max(call.w.in, rows.width) + lanes);
  V* sums = scratch.take<V>(call.plan.weights * taps);  // gradients of masks that all lanes share
  V* mix_sums = scratch.take<V>(call.plan.mixes);
  const OutputRow* plan = output_rows(call, rows, scratch);

  for (int64_t item = begin; item < end; ++item) {
    const int64_t c0 = item % call.channel_items() * call.channel_step, n0 = item / call.channel_items() * call.batch_step;
    const int64_t c1 = std::min(c0 + call.channel_step, call.channels), n1 = std::min(n0 + call.batch_step, call.batch);
    A* partial = static_cast<A*>(call.partial) + item * call.partial_item;
    for (int64_t c = c0; c < c1; ++c) {
      const A* masks = static_cast<const A*>(call.weight.data) + c * call.weight.channel;
      const A* mixes = static_cast<const A*>(call.mix.data) + c * call.mix.channel;
      A* dmasks = partial + (c - c0) * call.dweight.channel;
      A* dmixes = partial + call.dmix_offset + (c - c0) * call.dmix.channel;
      for (int64_t n = n0; n < n1; ++n) {
        const int64_t plane = n * call.channels + c;
        const T* cells = static_cast<const T*>(call.x) + plane * call.cells();
        for (int64_t r = 0; r < input_rows; ++r) split(cells + r * call.w.in, x + r * rows.row, rows, call.w, line);
        if (dx != nullptr) std::memset(dx, 0, sizeof(A) * input_rows * rows.row);

        for (int64_t r = 0; r < call.d.out * call.h.out; ++r) {
          const OutputRow& row = plan[r];
          for (int64_t b = 0; b < blocks; ++b) {
            const int64_t here = r * call.w.out + b * lanes, left = std::min(lanes, call.w.out - b * lanes);
            auto weight = [&](int64_t d, int64_t tap) -> V {
              const A* w = masks + d * call.weight.row + tap * call.weight.tap;
              if constexpr (PER_LANE) return load<V>(w + here);
              else return all<A>(*w);
            };
            auto mix = [&](int64_t m) -> V {
              const A* a = mixes + m * call.mix.row;
              if constexpr (PER_LANE) return load<V>(a + here * call.mix.place);
              else return all<A>(*a);
            };
            const bool edge = !rows.whole[b];
            const Mask<A> winner =
                edge ? respond<D, KW, EXTREMES, true, BACKWARD>(call, rows, row, x, b, weight, region)
                     : respond<D, KW, EXTREMES, false, BACKWARD>(call, rows, row, x, b, weight, region);
            const V value = evaluate<A>(call.plan, region, mix);
            const int64_t out = plane * call.places() + here;
            if constexpr (!BACKWARD) {
              T* y = static_cast<T*>(call.y) + out;
              if (left == lanes) spread<A, true>(y, value, left);
              else spread<A, false>(y, value, left);
            } else {
              const T* grad = static_cast<const T*>(call.grad) + out;
              descend<A>(call.plan, region, left == lanes ? gather<A, true>(grad, left) : gather<A, false>(grad, left));
              auto grow = [&](int64_t d, int64_t tap, V by) {
                if constexpr (PER_LANE) {
                  A* to = dmasks + d * call.dweight.row + tap * call.dweight.tap + here;
                  store(to, load<V>(to) + by);
                } else {
                  sums[d * taps + tap] += by;
                }
              };
              scatter<D, KW, EXTREMES>(call, rows, row, x, dx, b, winner, weight, grow, region);
              if (call.want_mix) {
                for (int64_t m = 0; m < call.plan.mixes; ++m) {
                  if constexpr (PER_LANE) {
                    A* to = dmixes + m * call.dmix.row + here;
                    store(to, load<V>(to) + (rows.live[b] ? region.to_mix[m] : V{}));
                  } else {
                    mix_sums[m] += rows.live[b] ? region.to_mix[m] : V{};
                  }
                }
              }
            }
          }
        }
        if (dx != nullptr) {
          T* to = static_cast<T*>(call.y) + plane * call.cells();
          for (int64_t r = 0; r < input_rows; ++r) merge(to + r * call.w.in, dx + r * rows.row, rows, call.w, line);
        }
      }
      if constexpr (BACKWARD && !PER_LANE) flush<A>(call, sums, mix_sums, dmasks, dmixes);
    }
  }
}

// Choose the compiled form: rows of 2 or 3 taps and the usual numbers of masks are unrolled, the rest is general.
template <class T, bool BACKWARD>
void run_rows(const Call& call, int64_t begin, int64_t end) {
  const bool per_lane = call.weight.place != 0 || call.mix.place != 0;
  const bool extremes = call.plan.has_max || call.plan.has_avg;
  if (per_lane) return planes<T, BACKWARD, -1, -1, true, true>(call, begin, end);
  if constexpr (!std::is_same_v<T, double>) {
    auto known = [&](auto kw) {
      constexpr int K = decltype(kw)::value;
      if (extremes && call.plan.weights == 0) return planes<T, BACKWARD, 0, K, true, false>(call, begin, end), true;
      if (extremes && call.plan.weights == 1) return planes<T, BACKWARD, 1, K, true, false>(call, begin, end), true;
      if (!extremes && call.plan.weights == 1) return planes<T, BACKWARD, 1, K, false, false>(call, begin, end), true;
      if (!extremes && call.plan.weights == 3) return planes<T, BACKWARD, 3, K, false, false>(call, begin, end), true;
      if (!extremes && call.plan.weights == 7) return planes<T, BACKWARD, 7, K, false, false>(call, begin, end), true;
      return false;
    };
    if (call.w.kernel == 3 && known(std::integral_constant<int, 3>{})) return;
    if (call.w.kernel == 2 && known(std::integral_constant<int, 2>{})) return;
  }
  planes<T, BACKWARD, -1, -1, true, false>(call, begin, end);
}
