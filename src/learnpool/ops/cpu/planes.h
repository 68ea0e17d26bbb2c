// Contiguous input: a vector is LANES neighbouring outputs of a plane.
//
// A plane is copied into scratch once, split by stride phase along every axis: the map of a phase holds, at place q of an
// axis, the cell q * stride + phase - padding, and zero where there is none. All maps and the outputs have the same pitch.
// So output o meets tap k at o + shift[k], whatever o, and place i of a map receives from the outputs i - back[k] of the
// taps that read that map: every step is one loop over contiguous vectors. Places between rows, where no output exists,
// are worked on too and count for nothing. A large plane goes through in bands, from its first row to its last.

// A vector of outputs that is not whole: some of its outputs, or some of their cells, do not exist.
template <class A>
struct Edge {
  Vec<A> count;    // what an average divides by
  Mask<A> live;    // whether the output exists
  Mask<A> first;   // its first tap that exists, -1 if none does
};

template <class A>
struct Block {
  int64_t at;           // its first output
  const Edge<A>* edge;  // null if it is whole
};

// Vectors of outputs [begin, end) of a plane's, and the places [from, to) of all maps that nothing can reach any more when
// they and those before are done.
struct Band {
  int64_t begin, end, from, to;
};

constexpr int64_t BAND = 32;  // vectors of outputs

// Where things lie in scratch, the same for every plane of a call.
template <class A>
struct Layout {
  int64_t map, maps;      // length of a map, with room for a vector behind it; number of maps
  int64_t taps;           // that meet a cell in any output: not all of the window's where the input is smaller than it
  int64_t *number, *shift, *back;  // [taps] number in the window; from an output to its cell in scratch, and in its map
  int64_t *readers, *begin;        // taps by map, last first; [maps + 1] where each map's begin
  int64_t* end;                    // [maps] behind the last cell of each
  int64_t margin;                  // the largest of back
  Lane<A>* outside;                // [maps][map] the bits of -inf where there is no cell, else 0
  int64_t *row, *column;           // where each row of input begins in scratch, and in a row its first cells
  int64_t *place, *output_row;     // where each row of input begins in its map, each row of outputs in theirs
  const Block<A>* blocks;          // vectors with at least one output
  int64_t many;                    // of them

  Layout(const Call& call, Scratch& scratch) {
    // Vectors end behind a map. With one band maps are finished in order, so they may end in the next one.
    map = call.spots() + (call.d.in == 1 && call.spots() > BAND * LANES<A> ? LANES<A> : 0);
    maps = call.d.phases() * call.h.phases() * call.w.phases();
    list_taps(call, scratch);
    list_rows(call, scratch);
    outside = scratch.take<Lane<A>>(maps * map + LANES<A>);
    const A infinity = -std::numeric_limits<A>::infinity();
    Lane<A> bits;
    std::memcpy(&bits, &infinity, sizeof bits);
    std::fill(outside, outside + maps * map + LANES<A>, bits);
    for (int64_t r = 0; r < call.d.in * call.h.in; ++r) {
      for (int64_t iw = 0; iw < call.w.in; ++iw) outside[row[r] + call.w.phase(iw) * map + call.w.place(iw)] = 0;
    }
    list_blocks(call, scratch);
  }

 private:
  void list_rows(const Call& call, Scratch& scratch) {
    row = scratch.take<int64_t>(call.d.in * call.h.in);
    place = scratch.take<int64_t>(call.d.in * call.h.in);
    end = scratch.take<int64_t>(maps);
    for (int64_t id = 0, r = 0; id < call.d.in; ++id) {
      for (int64_t ih = 0; ih < call.h.in; ++ih, ++r) {
        const int64_t phase = call.d.phase(id) * call.h.phases() + call.h.phase(ih);
        place[r] = (call.d.place(id) * call.h.pitch + call.h.place(ih)) * call.w.pitch;
        row[r] = phase * call.w.phases() * map + place[r];
        for (int64_t iw = std::max<int64_t>(0, call.w.in - call.w.phases()); iw < call.w.in; ++iw) {
          int64_t& behind = end[phase * call.w.phases() + call.w.phase(iw)];
          behind = std::max(behind, place[r] + call.w.place(iw) + 1);
        }
      }
    }
    column = scratch.take<int64_t>(std::min(call.w.phases(), call.w.in));
    for (int64_t c = 0; c < std::min(call.w.phases(), call.w.in); ++c) column[c] = call.w.phase(c) * map + call.w.place(c);
    output_row = scratch.take<int64_t>(call.d.out * call.h.out);
    for (int64_t r = 0; r < call.d.out * call.h.out; ++r) output_row[r] = call.spot(r * call.w.out);
  }

  void list_taps(const Call& call, Scratch& scratch) {
    struct Along {
      int64_t k, place, phase;
    };
    auto list = [](const Axis& axis) {
      std::vector<Along> met;
      for (int64_t k = 0; k < axis.kernel; ++k) {
        const int64_t reach = k * axis.dilation;
        if (axis.meets(k)) met.push_back({k, reach / axis.stride, reach % axis.stride});
      }
      return met;
    };
    const std::vector<Along> deep = list(call.d), high = list(call.h), wide = list(call.w);
    taps = int64_t(deep.size() * high.size() * wide.size());
    for (int64_t** numbers : {&number, &shift, &back, &readers}) *numbers = scratch.take<int64_t>(taps);
    begin = scratch.take<int64_t>(maps + 1);
    int64_t* map_of = scratch.take<int64_t>(taps);
    margin = 0;
    int64_t t = 0;
    for (const Along& d : deep) {
      for (const Along& h : high) {
        for (const Along& w : wide) {
          number[t] = (d.k * call.h.kernel + h.k) * call.w.kernel + w.k;
          map_of[t] = (d.phase * call.h.phases() + h.phase) * call.w.phases() + w.phase;
          back[t] = (d.place * call.h.pitch + h.place) * call.w.pitch + w.place;
          shift[t] = map_of[t] * map + back[t];
          margin = std::max(margin, back[t]);
          ++begin[map_of[t] + 1];
          ++t;
        }
      }
    }
    for (int64_t m = 0; m < maps; ++m) begin[m + 1] += begin[m];
    std::vector<int64_t> next(begin, begin + maps);
    while (t-- > 0) readers[next[map_of[t]]++] = t;
  }

  void list_blocks(const Call& call, Scratch& scratch) {
    constexpr int64_t lanes = LANES<A>;
    const int64_t last = ((call.d.out - 1) * call.h.pitch + call.h.out - 1) * call.w.pitch + call.w.out;
    Block<A>* next = scratch.take<Block<A>>((last + lanes - 1) / lanes);
    Edge<A>* edges = scratch.take<Edge<A>>((last + lanes - 1) / lanes);
    blocks = next;
    for (int64_t at = 0; at < last; at += lanes) {
      Edge<A>& edge = *edges;
      bool whole = true, some = false;
      for (int64_t i = 0; i < lanes; ++i) {
        const int64_t o = at + i, ow = o % call.w.pitch, oh = o / call.w.pitch % call.h.pitch;
        const int64_t od = o / (call.w.pitch * call.h.pitch);
        const bool lives = od < call.d.out && oh < call.h.out && ow < call.w.out;
        int64_t count = 1, first = 0;
        bool all_there = lives;
        for (const auto& [axis, place] : {std::pair{&call.d, od}, {&call.h, oh}, {&call.w, ow}}) {
          const Axis::Range there = axis->taps(place);
          count *= axis->count(place, call.count_include_pad);
          first = first < 0 || there.size() == 0 ? -1 : first * axis->kernel + there.begin;
          all_there &= there.size() == axis->kernel;
        }
        edge.count[i] = lives ? A(std::max<int64_t>(1, count)) : A(1);
        edge.live[i] = lives ? -1 : 0;
        edge.first[i] = first;
        some |= lives;
        whole &= all_there;
      }
      if (!some) continue;
      *next++ = {at, whole ? nullptr : edges++};
    }
    many = next - blocks;
  }
};

template <class A, int N>
struct Narrow {
  typedef A type __attribute__((vector_size(N * sizeof(A))));
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

// 2 N cells one after another into every second place of two rows, or back.
template <bool BACK, int N, class A, class B>
INLINE void deal_one(A* cells, B* even, B* odd) {
  using V = typename Narrow<std::remove_const_t<A>, N>::type;
  constexpr auto order = std::make_integer_sequence<int, N>{};
  V a, b;
  if constexpr (BACK) {
    zip(load<V>(even), load<V>(odd), a, b, order);
    store(cells, a);
    store(cells + N, b);
  } else {
    unzip(load<V>(cells), load<V>(cells + N), a, b, order);
    store(even, a);
    store(odd, b);
  }
}

// Fewer than 4 N cells, by narrower and narrower vectors.
template <bool BACK, int N, class A, class B>
INLINE void deal_rest(A* cells, B* even, B* odd, int64_t n) {
  if constexpr (N > 1) {
    if (n >= 2 * N) {
      deal_one<BACK, N>(cells, even, odd);
      cells += 2 * N, even += N, odd += N, n -= 2 * N;
    }
  }
  if constexpr (N > 2) {
    if (n > 0) deal_rest<BACK, N / 2>(cells, even, odd, n);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      B& place = i % 2 == 0 ? even[i / 2] : odd[i / 2];
      if constexpr (BACK) cells[i] = place;
      else place = cells[i];
    }
  }
}

// Rows of n cells: the even ones of row r to row[r] + even on, the odd ones to row[r] + odd on; or back.
template <bool BACK, int N, class A, class B>
INLINE void deal(const int64_t* row, int64_t rows, int64_t even, int64_t odd, A* cells, B* scratch, int64_t n) {
  if constexpr (N > 4) {
    if (n < 2 * N) return deal<BACK, N / 2>(row, rows, even, odd, cells, scratch, n);
  }
  const int64_t whole = n / (2 * N) * N, rest = n - 2 * whole;
  for (int64_t r = 0; r < rows; ++r, cells += n) {
    B *to_even = scratch + row[r] + even, *to_odd = scratch + row[r] + odd;
    for (int64_t i = 0; i < whole; i += N) deal_one<BACK, N>(cells + 2 * i, to_even + i, to_odd + i);
    if (rest > 0) deal_rest<BACK, N / 2>(cells + 2 * whole, to_even + whole, to_odd + whole, rest);
  }
}

// Fewer than 2 N numbers, by narrower and narrower vectors.
template <int N, class T>
INLINE void copy_rest(const T* from, T* to, int64_t n) {
  using V = typename Narrow<T, N>::type;
  if (n >= N) {
    store(to, load<V>(from));
    from += N, to += N, n -= N;
  }
  if constexpr (N > 2) {
    if (n > 0) copy_rest<N / 2>(from, to, n);
  } else if (n > 0) {
    *to = *from;
  }
}

// n numbers from one row to another.
template <int N, class A>
INLINE void copy(const A* from, A* to, int64_t n) {
  using V = typename Narrow<A, N>::type;
  int64_t i = 0;
  for (; i + N <= n; i += N) store(to + i, load<V>(from + i));
  if (i < n) copy_rest<N / 2>(from + i, to + i, n - i);
}

// Rows [begin, end) of input, one after another in `cells`, into scratch by phase; or (BACK) rows of gradients out of it.
// C is A, or const A.
template <bool BACK, class C, class A>
INLINE void split(const Call& call, const Layout<A>& layout, int64_t begin, int64_t end, C* cells, A* scratch) {
  const int64_t n = call.w.in, phases = call.w.phases(), stride = call.w.stride, *row = layout.row, *column = layout.column;
  if (stride == 2 && phases == 2) {
    return deal<BACK, LANES<A>>(row + begin, end - begin, column[0], column[1], cells, scratch, n);
  }
  for (int64_t r = begin; r < end; ++r, cells += n) {
    if (phases == 1) {
      A* place = scratch + row[r] + column[0];
      if constexpr (BACK) copy<LANES<A>>(place, cells, n);
      else copy<LANES<A>>(cells, place, n);
      continue;
    }
    for (int64_t phase = 0; phase < std::min(phases, n); ++phase) {
      A* place = scratch + row[r] + column[phase];
      for (int64_t i = 0, c = phase; c < n; ++i, c += stride) {
        if constexpr (BACK) cells[c] = place[i];
        else place[i] = cells[c];
      }
    }
  }
}

// Whether there is neither infinity nor NaN among n numbers.
template <class A>
INLINE bool finite(const A* x, int64_t n) {
  using V = Vec<A>;
  V a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * LANES<A> <= n; i += 4 * LANES<A>) {
    a += load<V>(x + i) * A(0);
    b += load<V>(x + i + LANES<A>) * A(0);
    c += load<V>(x + i + 2 * LANES<A>) * A(0);
    d += load<V>(x + i + 3 * LANES<A>) * A(0);
  }
  for (; i + LANES<A> <= n; i += LANES<A>) a += load<V>(x + i) * A(0);
  for (; i < n; ++i) a[0] += x[i] * A(0);
  return !has_nan<A>((a + b) + (c + d));  // each is zero or NaN
}

// Responses of one vector of outputs. TAPS: how many, if known (else -1); EDGE: it is not whole; FINITE: no infinity or NaN
// is among the cells and the weights; WINNER: also find where the maximum is.
template <int TAPS, bool EDGE, bool FINITE, bool WINNER, class A, class P, class Weight>
INLINE Mask<A> respond(const Call& call, const Layout<A>& layout, const Block<A>& block, const A* x, Weight weight,
                       Region<A, P>& region) {
  using V = Vec<A>;
  using M = Mask<A>;
  constexpr int D = P::weights;
  const int64_t taps = TAPS > 0 ? TAPS : layout.taps, dots = D >= 0 ? D : call.plan.weights;
  constexpr int kept = D > 0 ? D : 1;
  V z[kept] = {}, best = all<A>(-std::numeric_limits<A>::infinity()), total{};
  M winner{};
  if constexpr (WINNER && EDGE) winner = block.edge->first;
  if constexpr (D < 0) {
    for (int64_t d = 0; d < dots; ++d) region.dots[d] = V{};
  }
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t at = block.at + layout.shift[t], number = TAPS > 0 ? t : layout.number[t];
    const V v = load<V>(x + at);
    M outside{};
    if constexpr (EDGE) outside = load<M>(layout.outside + at);
    // Where there is no cell v is zero, so only a weight that is not finite would show.
    auto product = [&](V w) -> V { return EDGE && !FINITE ? (V)((M)(w * v) & (outside == 0)) : w * v; };
    if constexpr (P::extremes) {
      V seen = v;
      if constexpr (EDGE) seen = (V)((M)v | outside);
      const M won = FINITE ? seen > best : wins<A>(seen, best);
      best = won ? seen : best;
      if constexpr (WINNER) winner = won ? M{} + Lane<A>(number) : winner;
      total += v;
    }
    if constexpr (D >= 0) {
      for (int d = 0; d < D; ++d) z[d] += product(weight(d, number));
    } else {
      for (int64_t d = 0; d < dots; ++d) region.dots[d] += product(weight(d, number));
    }
  }
  if constexpr (D > 0) {
    for (int d = 0; d < D; ++d) region.dots[d] = z[d];
  }
  region.count = EDGE ? block.edge->count : all<A>(A(call.taps()));
  region.maximum = best;
  region.mean = total / region.count;
  return winner;
}

// What reaches the responses of a plane: maps of the outputs' pitch, with zeros before and behind.
template <class A>
struct Reached {
  int64_t size;
  A *to_mean, *to_max, *to_dot;  // at output 0
  Lane<A> *winner, *live;        // live: whether there is an output

  Reached(const Call& call, const Layout<A>& layout, Scratch& scratch) {
    size = layout.margin + layout.map + LANES<A>;
    to_mean = scratch.take<A>(size) + layout.margin;
    to_max = scratch.take<A>(size) + layout.margin;
    winner = scratch.take<Lane<A>>(size) + layout.margin;
    live = scratch.take<Lane<A>>(size) + layout.margin;
    to_dot = scratch.take<A>(call.plan.weights * size) + layout.margin;
    for (int64_t r = 0; r < call.d.out * call.h.out; ++r) std::fill_n(live + layout.output_row[r], call.w.out, Lane<A>(-1));
  }
};

// The gradient of w_d[tap] is the sum of c_d x over all regions, for CHUNK masks from d on, so that their sums stay in registers.
template <int TAPS, int CHUNK, bool FINITE, bool PER_LANE, class A>
INLINE void grow(const Call& call, const Layout<A>& layout, const A* x, const Reached<A>& reached, Vec<A>* sums, A* dmasks,
                 const Band& band, int64_t d) {
  using V = Vec<A>;
  using M = Mask<A>;
  constexpr int step = TAPS > 0 ? TAPS : 1;
  const A *c = reached.to_dot + d * reached.size;
  for (int64_t t = 0; t < layout.taps; t += step) {
    V total[CHUNK * step] = {};
    A* to = dmasks + d * call.dweight.row + layout.number[t] * call.dweight.tap;
    for (int64_t b = band.begin; b < band.end; ++b) {
      const Block<A>& block = layout.blocks[b];
      V reaching[CHUNK];
      for (int j = 0; j < CHUNK; ++j) reaching[j] = load<V>(c + j * reached.size + block.at);
      for (int k = 0; k < step; ++k) {
        const int64_t at = block.at + layout.shift[t + k];
        const V v = load<V>(x + at);
        // Where there is no cell or no output one of the two is zero; only infinity or NaN would show.
        M there = ~M{};
        if (!FINITE && block.edge != nullptr) there = (load<M>(layout.outside + at) == 0) & block.edge->live;
        for (int j = 0; j < CHUNK; ++j) {
          const V by = FINITE ? reaching[j] * v : (V)((M)(reaching[j] * v) & there);
          if constexpr (PER_LANE) store(to + block.at, load<V>(to + block.at) + by);
          else total[j * step + k] += by;
        }
      }
    }
    for (int j = 0; j < CHUNK && !PER_LANE; ++j) {
      for (int k = 0; k < step; ++k) sums[(d + j) * call.taps() + layout.number[t + k]] += total[j * step + k];
    }
  }
}

// All masks.
template <int TAPS, int CHUNK, bool FINITE, bool PER_LANE, class A>
INLINE void grow_all(const Call& call, const Layout<A>& layout, const A* x, const Reached<A>& reached, Vec<A>* sums, A* dmasks,
                     const Band& band) {
  int64_t d = 0;
  for (; d + CHUNK <= call.plan.weights; d += CHUNK) {
    grow<TAPS, CHUNK, FINITE, PER_LANE>(call, layout, x, reached, sums, dmasks, band, d);
  }
  for (; d < call.plan.weights; ++d) grow<TAPS, 1, FINITE, PER_LANE>(call, layout, x, reached, sums, dmasks, band, d);
}

// The gradient of a map of cells: every cell receives sum_d c_d w_d[tap] + c_mean + c_max [tap is the maximum] from each tap
// that read it, here for the places of a band. Taps run backwards, so that a cell adds up in the order PyTorch's own pools do.
// MANY: how many taps, if known.
template <int MANY, class P, bool PER_LANE, bool FINITE, class A>
INLINE void receive(const Call& call, const Layout<A>& layout, int64_t m, const Band& band, const Reached<A>& reached,
                    const A* masks, int64_t row_stride, int64_t tap_stride, A* gradients) {
  using V = Vec<A>;
  using M = Mask<A>;
  const int64_t dots = P::known ? P::weights : call.plan.weights, size = reached.size;
  const int64_t *readers = layout.readers + layout.begin[m], many = MANY >= 0 ? MANY : layout.begin[m + 1] - layout.begin[m];
  const int64_t *back = layout.back, *number = layout.number, end = std::min(band.to, layout.end[m]);
  const A *to_mean = reached.to_mean, *to_max = reached.to_max, *to_dot = reached.to_dot;
  const Lane<A>* winner = reached.winner;
  for (int64_t i = band.from; i < end; i += LANES<A>) {
    V received{};
    for (int64_t j = 0; j < many; ++j) {
      const int64_t at = i - back[readers[j]], tap = number[readers[j]];
      if constexpr (P::extremes) {
        const M paid = load<M>(winner + at) == Lane<A>(tap);
        received += load<V>(to_mean + at) + (paid ? load<V>(to_max + at) : V{});
      }
      const A* w = masks + tap * tap_stride + (PER_LANE ? at : 0);
      // Where there is no output c is zero, so only a weight that is not finite would show.
      M live{};
      if constexpr (!FINITE) live = load<M>(reached.live + at);
      for (int64_t d = 0; d < dots; ++d) {
        V by = load<V>(to_dot + d * size + at);
        if constexpr (PER_LANE) by *= load<V>(w + d * row_stride);
        else by *= w[d * row_stride];
        received += FINITE ? by : (V)((M)by & live);
      }
    }
    store(gradients + i, received);
  }
}

// What a thread keeps for the planes it works on, and the parameters of the present one.
template <class A>
struct Plane {
  const Call& call;
  Scratch scratch;
  const Layout<A> layout;
  A *x, *outputs, *gradients, *line;  // cells; values of outputs, or what reaches them; gradients of cells; room to widen halves
  Vec<A> *sums, *mix_sums;            // gradients of parameters that all lanes share
  const Reached<A> reached;
  Region<A, Any> region;
  const A *masks, *mixes;
  A *dmasks, *dmixes;
  A* dense;                // masks that all lanes share, [weights][taps] without gaps
  const char *next, *own;  // the cells of the next plane and the gradients of this one: fetched while this one is worked on
  int64_t bytes;           // of either, for each vector of outputs

  explicit Plane(const Call& call)
      : call(call), layout(call, scratch), reached(call, layout, scratch), region(call.plan, scratch) {
    const int64_t size = layout.maps * layout.map + LANES<A>;
    x = scratch.take<A>(size);
    gradients = scratch.take<A>(call.grad != nullptr ? size : 0);
    outputs = scratch.take<A>(layout.map + LANES<A>);
    const bool halves = call.type == Type::Half || call.type == Type::BFloat16;
    line = scratch.take<A>(halves ? std::max(call.cells(), call.places()) : 0);  // with padding there may be more outputs
    dense = scratch.take<A>(call.plan.weights * call.taps());
    sums = scratch.take<Vec<A>>(call.plan.weights * call.taps());
    mix_sums = scratch.take<Vec<A>>(call.plan.mixes);
  }
};

// One vector of outputs, forward or backward. `finite` becomes NaN where it ends at an edge and something that is not finite
// reaches a mask: it will meet zeros in place of cells.
template <class P, bool BACKWARD, int TAPS, bool PER_LANE, bool FINITE, bool EDGE, class A>
INLINE void work(const Plane<A>& plane, const Block<A>& block, Region<A, P>& region, Vec<A>& finite) {
  using V = Vec<A>;
  using M = Mask<A>;
  const Call& call = plane.call;
  const Reached<A>& reached = plane.reached;
  const int64_t at = block.at;
  const int64_t taps = TAPS > 0 ? TAPS : call.taps();
  auto weight = [&](int64_t d, int64_t tap) -> V {
    if constexpr (PER_LANE) return load<V>(plane.masks + d * call.weight.row + tap * call.weight.tap + at);
    else return all<A>(plane.dense[d * taps + tap]);
  };
  auto mix = [&](int64_t m) -> V {
    const A* a = plane.mixes + m * call.mix.row;
    if constexpr (PER_LANE) return load<V>(a + at);
    else return all<A>(*a);
  };
  auto there = [&](V v) -> V { return EDGE ? (V)((M)v & block.edge->live) : v; };
  const M winner = respond<TAPS, EDGE, FINITE, BACKWARD>(call, plane.layout, block, plane.x, weight, region);
  const V value = evaluate(call.plan, region, mix);
  if constexpr (!BACKWARD) {
    store(plane.outputs + at, value);
    return;
  }
  descend(call.plan, region, load<V>(plane.outputs + at));
  if constexpr (P::extremes) {
    store(reached.to_mean + at, there(region.to_mean));
    store(reached.to_max + at, there(region.to_max));
    store(reached.winner + at, winner);
  }
  for (int64_t d = 0; d < (P::known ? P::weights : call.plan.weights); ++d) {
    const V to_dot = there(region.to_dot[d]);
    store(reached.to_dot + d * reached.size + at, to_dot);
    if constexpr (EDGE) finite += to_dot * A(0);
  }
  for (int64_t m = 0; call.want_mix && m < (P::known ? P::mixes : call.plan.mixes); ++m) {
    if constexpr (PER_LANE) {
      A* to = plane.dmixes + m * call.dmix.row + at;
      store(to, load<V>(to) + there(region.to_mix[m]));
    } else {
      plane.mix_sums[m] += there(region.to_mix[m]);
    }
  }
}

// What is done to a band whose cells (and what reaches its outputs) are in scratch.
template <class A>
struct Steps {
  bool (*values)(Plane<A>& plane, const Band& band);     // to its values, or to what reaches its responses: is that finite?
  void (*gradients)(Plane<A>& plane, const Band& band);  // from there to all gradients
};

template <class A, class P, bool BACKWARD, int TAPS, bool PER_LANE, bool FINITE>
bool values(Plane<A>& plane, const Band& band) {
  const Call& call = plane.call;
  const Layout<A>& layout = plane.layout;
  for (int64_t d = 0; !PER_LANE && d < call.plan.weights; ++d) {
    for (int64_t tap = 0; tap < call.taps(); ++tap) {
      plane.dense[d * call.taps() + tap] = plane.masks[d * call.weight.row + tap * call.weight.tap];
    }
  }
  Vec<A> finite{};
  auto blocks = [&](auto& region) {
    for (int64_t b = band.begin; b < band.end; ++b) {
      const Block<A>& block = layout.blocks[b];
      for (int64_t i = b * plane.bytes; i < (b + 1) * plane.bytes; i += 64) {
        __builtin_prefetch(plane.next + i, 0, 2);
        if constexpr (BACKWARD) __builtin_prefetch(plane.own + i, 1, 2);
      }
      if (block.edge != nullptr) work<P, BACKWARD, TAPS, PER_LANE, FINITE, true>(plane, block, region, finite);
      else work<P, BACKWARD, TAPS, PER_LANE, FINITE, false>(plane, block, region, finite);
    }
  };
  if constexpr (P::known) {
    Region<A, P> region;
    blocks(region);
  } else {
    blocks(plane.region);
  }
  return !has_nan<A>(finite);
}

template <class A, class P, int TAPS, bool PER_LANE, bool FINITE>
void gradients(Plane<A>& plane, const Band& band) {
  const Call& call = plane.call;
  const Layout<A>& layout = plane.layout;
  // As many masks at a time as there are registers for; P says how many there are at all.
  constexpr int most = PER_LANE ? 1 : TAPS < 0 ? 4 : BYTES == 64 ? 3 : 1;
  constexpr int chunk = P::known ? std::min(most, std::max(P::weights, 1)) : most;
  if (call.want_weight) {
    grow_all<TAPS, chunk, FINITE, PER_LANE>(call, layout, plane.x, plane.reached, plane.sums, plane.dmasks, band);
  }
  const A* masks = PER_LANE ? plane.masks : plane.dense;
  const int64_t row = PER_LANE ? call.weight.row : TAPS > 0 ? TAPS : call.taps(), tap = PER_LANE ? call.weight.tap : 1;
  for (int64_t m = 0; call.y != nullptr && m < layout.maps; ++m) {
    A* to = plane.gradients + m * layout.map;
    switch (TAPS > 0 ? layout.begin[m + 1] - layout.begin[m] : -1) {
      case 1: receive<1, P, PER_LANE, FINITE>(call, layout, m, band, plane.reached, masks, row, tap, to); break;
      case 2: receive<2, P, PER_LANE, FINITE>(call, layout, m, band, plane.reached, masks, row, tap, to); break;
      case 4: receive<4, P, PER_LANE, FINITE>(call, layout, m, band, plane.reached, masks, row, tap, to); break;
      default: receive<-1, P, PER_LANE, FINITE>(call, layout, m, band, plane.reached, masks, row, tap, to);
    }
  }
}

template <class A, class P, bool BACKWARD, int TAPS, bool PER_LANE, bool FINITE>
constexpr Steps<A> steps() {
  if constexpr (BACKWARD) return {values<A, P, true, TAPS, PER_LANE, FINITE>, gradients<A, P, TAPS, PER_LANE, FINITE>};
  else return {values<A, P, false, TAPS, PER_LANE, FINITE>, nullptr};
}

// All items [begin, end): planes of images x channels. `careful` is for planes that infinity or NaN comes into.
template <class T, bool BACKWARD>
void planes(Plane<Accumulator<T>>& plane, Steps<Accumulator<T>> fast, Steps<Accumulator<T>> careful, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  constexpr int64_t lanes = LANES<A>;
  const Call& call = plane.call;
  const Layout<A>& layout = plane.layout;
  const int64_t input_rows = call.d.in * call.h.in, output_rows = call.d.out * call.h.out;
  // A band of a large plane stays in the first cache from its cells to their gradients. In 3d rows are not in order of places.
  const int64_t many = call.d.in == 1 ? BAND : layout.many;
  // Halves pass through `line` on their way between memory and scratch.
  auto widened = [&](const T* from, int64_t n) -> const A* {
    if constexpr (std::is_same_v<T, A>) return from;
    for (int64_t i = 0; i < n; ++i) plane.line[i] = widen(from[i]);
    return plane.line;
  };
  auto write = [&](T* to, int64_t n, auto fill) {
    if constexpr (std::is_same_v<T, A>) {
      fill(to);
    } else {
      fill(plane.line);
      for (int64_t i = 0; i < n; ++i) to[i] = narrow<T>(plane.line[i]);
    }
  };
  plane.bytes = (call.cells() * int64_t(sizeof(T)) / layout.many + 63) / 64 * 64;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t c0 = item % call.channel_items() * call.channel_step, n0 = item / call.channel_items() * call.batch_step;
    const int64_t c1 = std::min(c0 + call.channel_step, call.channels), n1 = std::min(n0 + call.batch_step, call.batch);
    A* partial = static_cast<A*>(call.partial) + item * call.partial_item;
    // Planes in the order of memory; where parameters differ by channel, an item has just one.
    for (int64_t n = n0; n < n1; ++n) {
      for (int64_t c = c0; c < c1; ++c) {
        plane.masks = static_cast<const A*>(call.weight.data) + c * call.weight.channel;
        plane.mixes = static_cast<const A*>(call.mix.data) + c * call.mix.channel;
        plane.dmasks = partial + (c - c0) * call.dweight.channel;
        plane.dmixes = partial + call.dmix_offset + (c - c0) * call.dmix.channel;
        const int64_t index = n * call.channels + c;
        const T* cells = static_cast<const T*>(call.x) + index * call.cells();
        const int64_t following = c + 1 < c1 ? index + 1 : (n + 1) * call.channels + c0;
        plane.next = reinterpret_cast<const char*>(static_cast<const T*>(call.x) + following * call.cells());
        plane.own = reinterpret_cast<const char*>(static_cast<const T*>(call.y) + index * call.cells());
        const T* grads = BACKWARD ? static_cast<const T*>(call.grad) + index * call.places() : nullptr;
        T* out = static_cast<T*>(call.y) + index * (BACKWARD ? call.cells() : call.places());
        // Rows read, rows of outputs read or written, rows of gradients written.
        int64_t in = 0, outputs = 0, written = 0;
        bool tame = call.finite_weights;
        for (int64_t b = 0, from = 0; b < layout.many; b += many) {
          const bool last = b + many >= layout.many;
          const Band band{b, last ? layout.many : b + many, from, last ? layout.map : layout.blocks[b + many].at};
          const int64_t first = in, behind = outputs;
          if (last) in = input_rows, outputs = output_rows;
          while (in < input_rows && layout.place[in] < band.to + layout.margin) ++in;
          while (outputs < output_rows && layout.output_row[outputs] + (BACKWARD ? 0 : call.w.out) <= band.to) ++outputs;
          const A* read = widened(cells + first * call.w.in, (in - first) * call.w.in);
          tame = tame && finite(read, (in - first) * call.w.in);
          split<false>(call, layout, first, in, read, plane.x);
          if constexpr (BACKWARD) {
            read = widened(grads + behind * call.w.out, (outputs - behind) * call.w.out);
            for (int64_t r = behind; r < outputs; ++r, read += call.w.out) {
              copy<lanes>(read, plane.outputs + layout.output_row[r], call.w.out);
            }
          }
          const bool still = (tame ? fast : careful).values(plane, band);
          if constexpr (BACKWARD) {
            (tame && still ? fast : careful).gradients(plane, band);
            if (call.y == nullptr) continue;
            const int64_t before = written;
            if (last) written = input_rows;
            while (written < input_rows && layout.place[written] + call.w.pitch <= band.to) ++written;
            write(out + before * call.w.in, (written - before) * call.w.in,
                  [&](A* to) { split<true>(call, layout, before, written, to, plane.gradients); });
          } else {
            write(out + behind * call.w.out, (outputs - behind) * call.w.out, [&](A* to) {
              for (int64_t r = behind; r < outputs; ++r, to += call.w.out) {
                copy<lanes>(plane.outputs + layout.output_row[r], to, call.w.out);
              }
            });
          }
          from = band.to;
        }
      }
    }
    if (BACKWARD && call.weight.place == 0 && call.mix.place == 0) {
      flush<A>(call, plane.sums, plane.mix_sums, partial, partial + call.dmix_offset);
    }
  }
}
