// Contiguous input: a vector is LANES neighbouring outputs of one row.

// Where things lie in scratch, the same for every plane of a call.
template <class A>
struct Rows {
  using V = Vec<A>;
  using M = Mask<A>;
  int64_t phases, phase, row;        // phases per row, length of a phase, length of a split row
  int64_t width;                     // outputs of a row, up to a whole number of vectors
  int64_t* shift;                    // [kernel] from an output to its tap, inside a split row
  int64_t *phase_of, *back;          // [kernel] the phase of a tap, and its place there beyond the output's
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
    phase_of = scratch.take<int64_t>(w.kernel);
    back = scratch.take<int64_t>(w.kernel);
    for (int64_t k = 0; k < w.kernel; ++k) {
      phase_of[k] = k * w.dilation % w.stride;
      back[k] = k * w.dilation / w.stride;
      shift[k] = phase_of[k] * phase + back[k];
    }
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
INLINE void split(const T* cells, A* row, const Rows<A>& rows, const Axis& w, A* line) {
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
INLINE void merge(T* cells, A* row, const Rows<A>& rows, const Axis& w, A* line) {
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

// Responses of one vector of regions. KW: number of taps in a row if known (else -1); EDGE: some taps or lanes do not
// exist; WINNER: also find where the maximum is.
template <int KW, bool EDGE, bool WINNER, class A, class P, class Weight>
INLINE Mask<A> respond(const Call& call, const Rows<A>& rows, const OutputRow& row, const A* x, int64_t b, Weight weight,
                       Region<A, P>& region) {
  using V = Vec<A>;
  using M = Mask<A>;
  constexpr int D = P::weights;
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
      if constexpr (P::extremes) {
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

// What reaches the responses of a whole plane, in rows with zeros on both sides: [D + 3][output rows][stride].
template <class A>
struct Reached {
  using V = Vec<A>;
  int64_t margin, stride, map;  // zeros before a row; length of a row; of all rows
  A *to_mean, *to_max, *to_dot;
  Lane<A>* winner;

  Reached(const Call& call, const Rows<A>& rows, Scratch& scratch) {
    margin = (call.w.kernel - 1) * call.w.dilation / call.w.stride;
    stride = margin + rows.phase + LANES<A>;
    map = call.d.out * call.h.out * stride;
    to_mean = scratch.take<A>(map);
    to_max = scratch.take<A>(map);
    winner = scratch.take<Lane<A>>(map);
    to_dot = scratch.take<A>(call.plan.weights * map);
  }
  int64_t at(int64_t row, int64_t output) const { return row * stride + margin + output; }
};

// The gradient of w_d[tap] is the sum of c_d x over all regions: one tap at a time, so that sums stay in registers.
template <int D, bool PER_LANE, class A>
void grow(const Call& call, const Rows<A>& rows, const OutputRow* plan, const A* x, const Reached<A>& reached,
                 Vec<A>* sums, A* dmasks) {
  using V = Vec<A>;
  constexpr int64_t lanes = LANES<A>;
  constexpr int chunk = D > 0 ? D : 4;  // masks at a time
  const int64_t taps = call.taps(), blocks = rows.width / lanes;
  for (int64_t d0 = 0; d0 < call.plan.weights; d0 += chunk) {
    const int64_t many = D > 0 ? D : std::min<int64_t>(chunk, call.plan.weights - d0);
    for (int64_t r = 0; r < call.d.out * call.h.out; ++r) {
      for (const TapRow* line = plan[r].begin; line != plan[r].end; ++line) {
        for (int64_t k = 0; k < call.w.kernel; ++k) {
          V total[chunk] = {};
          const A *cells = x + line->offset + rows.shift[k], *c = reached.to_dot + d0 * reached.map + reached.at(r, 0);
          for (int64_t b = 0; b < blocks; ++b) {
            const V v = load<V>(cells + b * lanes);
            for (int64_t d = 0; d < many; ++d) {
              const V by = load<V>(c + d * reached.map + b * lanes) * v;
              if constexpr (PER_LANE) {
                A* to = dmasks + (d0 + d) * call.dweight.row + (line->tap + k) * call.dweight.tap + r * call.w.out + b * lanes;
                store(to, load<V>(to) + by);
              } else {
                total[d] += by;
              }
            }
          }
          for (int64_t d = 0; d < many && !PER_LANE; ++d) sums[(d0 + d) * taps + line->tap + k] += total[d];
        }
      }
    }
  }
}

// A tap through which cells of a row receive: from where in the maps of Reached (and of the output), seen from place 0.
struct Source {
  int64_t at, place, tap;
};

// One phase of a row of input: its places [first, last) behind the padding, and where they receive from, last taps first.
struct Cells {
  const Source *begin, *end;
  int64_t first, last;
};

// All phases of all rows of input, the same for every plane of a call.
template <class A>
const Cells* input_cells(const Call& call, const Rows<A>& rows, const Reached<A>& reached, Scratch& scratch) {
  Cells* plan = scratch.take<Cells>(call.d.in * call.h.in * rows.phases);
  Source* next = scratch.take<Source>(call.d.out * call.h.out * call.taps());
  auto seen = [](const Axis& axis, int64_t cell, int64_t k) {  // the output whose tap k is this cell, or -1
    const int64_t from = cell + axis.padding - k * axis.dilation;
    return from >= 0 && from % axis.stride == 0 && from / axis.stride < axis.out ? from / axis.stride : -1;
  };
  const int64_t s = rows.phases, p = call.w.padding;
  for (int64_t id = 0, row = 0; id < call.d.in; ++id) {
    for (int64_t ih = 0; ih < call.h.in; ++ih, ++row) {
      for (int64_t phase = 0; phase < s; ++phase) {
        Cells& cells = plan[row * s + phase];
        cells = {next, next, std::max<int64_t>(0, (p - phase + s - 1) / s), (call.w.in - 1 + p - phase + s) / s};
        for (int64_t kd = call.d.kernel - 1; kd >= 0; --kd) {
          for (int64_t kh = call.h.kernel - 1; kh >= 0; --kh) {
            const int64_t od = seen(call.d, id, kd), oh = seen(call.h, ih, kh), output = od * call.h.out + oh;
            for (int64_t kw = call.w.kernel - 1; kw >= 0 && od >= 0 && oh >= 0; --kw) {
              if (rows.phase_of[kw] != phase) continue;
              const int64_t tap = (kd * call.h.kernel + kh) * call.w.kernel + kw;
              *next++ = {reached.at(output, -rows.back[kw]), output * call.w.out - rows.back[kw], tap};
            }
          }
        }
        cells.end = next;
      }
    }
  }
  return plan;
}

// The gradient of one phase of a row of input: every cell receives sum_d c_d w_d[tap] + c_mean + c_max [tap is the maximum]
// from each tap that read it. Taps run backwards, so that a cell adds up in the order PyTorch's own pools do.
template <class P, bool PER_LANE, class A>
INLINE void receive(const Call& call, const Cells& cells, const Reached<A>& reached, const A* masks, A* gradients) {
  using V = Vec<A>;
  using M = Mask<A>;
  const int64_t dots = P::known ? P::weights : call.plan.weights, tap_stride = call.weight.tap, row_stride = call.weight.row;
  const A *to_mean = reached.to_mean, *to_max = reached.to_max, *to_dot = reached.to_dot;
  const Lane<A>* winner = reached.winner;
  const int64_t map = reached.map, last = cells.last;
  const Source *begin = cells.begin, *end = cells.end;
  for (int64_t i = cells.first; i < last; i += LANES<A>) {
    V received{};
    for (const Source* from = begin; from != end; ++from) {
      const int64_t at = from->at + i;
      if constexpr (P::extremes) {
        const M paid = load<M>(winner + at) == Lane<A>(from->tap);
        received += load<V>(to_mean + at) + (paid ? load<V>(to_max + at) : V{});
      }
      const A* w = masks + from->tap * tap_stride + (PER_LANE ? from->place + i : 0);
      for (int64_t d = 0; d < dots; ++d) {
        const V c = load<V>(to_dot + d * map + at);
        if constexpr (PER_LANE) received += c * load<V>(w + d * row_stride);
        else received += c * w[d * row_stride];
      }
    }
    store(gradients + i, received);
  }
}

// All items [begin, end): planes of images x channels.
template <class T, class P, bool BACKWARD, int KW, bool PER_LANE>
void planes(const Call& call, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  constexpr int64_t lanes = LANES<A>;
  Scratch scratch;
  const Rows<A> rows(call, scratch);
  Region<A, P> region(call.plan, scratch);
  const int64_t input_rows = call.d.in * call.h.in, blocks = rows.width / lanes;
  A* x = scratch.take<A>(input_rows * rows.row);
  A* gradients = scratch.take<A>(rows.row);
  A* line = scratch.take<A>(std::max(call.w.in, rows.width) + lanes);
  V* sums = scratch.take<V>(call.plan.weights * call.taps());  // gradients of masks that all lanes share
  V* mix_sums = scratch.take<V>(call.plan.mixes);
  const OutputRow* plan = output_rows(call, rows, scratch);
  std::optional<Reached<A>> reached;
  if constexpr (BACKWARD) reached.emplace(call, rows, scratch);
  const Cells* input_plan = BACKWARD ? input_cells(call, rows, *reached, scratch) : nullptr;

  for (int64_t item = begin; item < end; ++item) {
    const int64_t c0 = item % call.channel_items() * call.channel_step, n0 = item / call.channel_items() * call.batch_step;
    const int64_t c1 = std::min(c0 + call.channel_step, call.channels), n1 = std::min(n0 + call.batch_step, call.batch);
    A* partial = static_cast<A*>(call.partial) + item * call.partial_item;
    // Planes in the order of memory; where parameters differ by channel, an item has just one.
    for (int64_t n = n0; n < n1; ++n) {
      for (int64_t c = c0; c < c1; ++c) {
        const A* masks = static_cast<const A*>(call.weight.data) + c * call.weight.channel;
        const A* mixes = static_cast<const A*>(call.mix.data) + c * call.mix.channel;
        A* dmasks = partial + (c - c0) * call.dweight.channel;
        A* dmixes = partial + call.dmix_offset + (c - c0) * call.dmix.channel;
        const int64_t plane = n * call.channels + c;
        const T* cells = static_cast<const T*>(call.x) + plane * call.cells();
        for (int64_t r = 0; r < input_rows; ++r) {
          for (int64_t i = 0; i < call.w.in; i += 64 / int64_t(sizeof(T))) {
            __builtin_prefetch(cells + call.cells() + r * call.w.in + i);  // the next plane, while this one is worked on
          }
          split(cells + r * call.w.in, x + r * rows.row, rows, call.w, line);
        }

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
                edge ? respond<KW, true, BACKWARD>(call, rows, row, x, b, weight, region)
                     : respond<KW, false, BACKWARD>(call, rows, row, x, b, weight, region);
            const V value = evaluate(call.plan, region, mix);
            const int64_t out = plane * call.places() + here;
            if constexpr (!BACKWARD) {
              T* y = static_cast<T*>(call.y) + out;
              if (left == lanes) spread<A, true>(y, value, left);
              else spread<A, false>(y, value, left);
            } else {
              const T* grad = static_cast<const T*>(call.grad) + out;
              descend(call.plan, region, left == lanes ? gather<A, true>(grad, left) : gather<A, false>(grad, left));
              const int64_t at = reached->at(r, b * lanes);
              if constexpr (P::extremes) {
                store(reached->to_mean + at, region.to_mean);
                store(reached->to_max + at, region.to_max);
                store(reached->winner + at, winner);
              }
              for (int64_t d = 0; d < (P::known ? P::weights : call.plan.weights); ++d) {
                store(reached->to_dot + d * reached->map + at, region.to_dot[d]);
              }
              if (call.want_mix) {
                for (int64_t m = 0; m < (P::known ? P::mixes : call.plan.mixes); ++m) {
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
        if constexpr (BACKWARD) {
          if (call.want_weight) grow<P::weights, PER_LANE>(call, rows, plan, x, *reached, sums, dmasks);
          T* dx = static_cast<T*>(call.y) + plane * call.cells();
          for (int64_t r = 0; call.y != nullptr && r < input_rows; ++r) {
            for (int64_t phase = 0; phase < rows.phases; ++phase) {
              receive<P, PER_LANE>(call, input_plan[r * rows.phases + phase], *reached, masks, gradients + phase * rows.phase);
            }
            merge(dx + r * call.w.in, gradients, rows, call.w, line);
          }
        }
      }
    }
    if constexpr (BACKWARD && !PER_LANE) flush<A>(call, sums, mix_sums, partial, partial + call.dmix_offset);
  }
}
