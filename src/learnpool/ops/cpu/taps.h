// channels_last input: which cells each output meets.
#pragma once

#include "image.h"

namespace learnpool::LEARNPOOL_ISA {

// The taps of every output of an image that meet a cell. Rows and columns apart: tap and cell of an output are sums of the two.
// Neighbours whose taps lie alike, as inside an image almost all do, share a list.
class OutputTaps {
 public:
  struct List {
    int64_t begin, end;  // among taps
    int64_t first;       // the cell of the first
    int64_t divisor;     // what an average divides by
    int64_t size() const { return end - begin; }
    bool is_same(const List& other) const { return begin == other.begin && end == other.end; }
  };
  std::vector<Tap> taps;  // with cells counted from that of the first one listed
  std::vector<List> rows, columns;
  int64_t most = 0;     // taps of an output
  bool covered = true;  // every cell meets an output

  explicit OutputTaps(const Pooling& pool) {
    const Axis &d = pool.d, &h = pool.h, &w = pool.w;
    auto most_taps = [](const Axis& axis) { return axis.out * std::min(axis.kernel, axis.in); };
    taps.reserve(most_taps(d) * most_taps(h) + most_taps(w));
    std::vector<char> seen(d.in * h.in);
    for (int64_t row = 0; row < d.out * h.out; ++row) {
      const int64_t begin = int64_t(taps.size()), od = row / h.out, oh = row % h.out;
      const Axis::Range deep = d.taps(od), high = h.taps(oh);
      for (int64_t kd = deep.begin; kd < deep.end; ++kd) {
        for (int64_t kh = high.begin; kh < high.end; ++kh) {
          char& met = seen[d.cell(od, kd) * h.in + h.cell(oh, kh)];
          taps.push_back({(kd * h.kernel + kh) * w.kernel, (&met - seen.data()) * w.in, !std::exchange(met, 1)});
        }
      }
      end_list(rows, begin, d.count(od, pool.count_include_pad) * h.count(oh, pool.count_include_pad));
    }
    covered = std::find(seen.begin(), seen.end(), 0) == seen.end();
    seen.assign(w.in, 0);
    for (int64_t ow = 0; ow < w.out; ++ow) {
      const int64_t begin = int64_t(taps.size());
      const Axis::Range wide = w.taps(ow);
      for (int64_t kw = wide.begin; kw < wide.end; ++kw) {
        const int64_t cell = w.cell(ow, kw);
        taps.push_back({kw, cell, !std::exchange(seen[cell], 1)});
      }
      end_list(columns, begin, w.count(ow, pool.count_include_pad));
    }
    covered &= std::find(seen.begin(), seen.end(), 0) == seen.end();
    most = find_longest(rows) * find_longest(columns);
  }

  // The end of the last row of cells, of w each, that a row of outputs meets.
  int64_t find_end(const List& row, int64_t w) const { return row.size() == 0 ? 0 : row.first + taps[row.end - 1].place + w; }

 private:
  // The taps from `begin` on, with cells of the image, are the next list.
  void end_list(std::vector<List>& lists, int64_t begin, int64_t divisor) {
    List list{begin, int64_t(taps.size()), 0, divisor};
    if (list.size() > 0) list.first = taps[begin].place;
    for (int64_t i = begin; i < list.end; ++i) taps[i].place -= list.first;
    if (!lists.empty()) {
      const Tap *all = taps.data(), *before = all + lists.back().begin;
      auto is_same = [](const Tap& one, const Tap& other) {
        return one.number == other.number && one.place == other.place && one.fresh == other.fresh;
      };
      if (std::equal(all + begin, all + list.end, before, all + lists.back().end, is_same)) {
        taps.resize(begin);
        list.begin = lists.back().begin;
        list.end = lists.back().end;
      }
    }
    lists.push_back(list);
  }

  static int64_t find_longest(const std::vector<List>& lists) {
    int64_t longest = 0;
    for (const List& list : lists) longest = std::max(longest, list.size());
    return longest;
  }
};

// The taps of outputs that lie alike, kept for as long as they serve.
template <class A>
struct TapTable : TapList<A> {
  OutputTaps::List down{-1, -1}, across{-1, -1};
  int64_t band = 0;  // the last one that used it
};

template <class A>
class TapTables {
  using List = OutputTaps::List;

 public:
  TapTables(Image<A>& image, const OutputTaps& output_taps) : image_(image), output_taps_(output_taps) {
    for (TapTable<A>& table : tables_) static_cast<TapList<A>&>(table) = image.make_taps(output_taps.most);
  }

  // From now on there are `step` numbers from cell to cell, and other weights.
  void forget(int64_t step) {
    step_ = step;
    for (TapTable<A>& table : tables_) table.down = {-1, -1};
  }

  // Tables that are found from now on stay until the next band.
  void begin_band() { ++band_; }

  // The table of taps where these two lists meet; null if the present band has used all tables.
  TapTable<A>* find(const List& down, const List& across) {
    TapTable<A>* free = nullptr;
    for (TapTable<A>& table : tables_) {
      if (table.down.is_same(down) && table.across.is_same(across)) {
        table.band = band_;
        return &table;
      }
      if (table.band != band_) free = &table;
    }
    if (free != nullptr) fill(*free, down, across);
    return free;
  }

 private:
  const Image<A>& image_;
  const OutputTaps& output_taps_;
  TapTable<A> tables_[4];
  int64_t band_ = 0, step_ = 0;

  void fill(TapTable<A>& table, const List& down, const List& across) {
    const Tap* all = output_taps_.taps.data();
    table.count = 0;
    for (int64_t i = down.begin; i < down.end; ++i) {
      for (int64_t j = across.begin; j < across.end; ++j) {
        const int64_t place = (all[i].place + all[j].place) * step_;
        table.taps[table.count++] = {all[i].number + all[j].number, place, all[i].fresh && all[j].fresh};
      }
    }
    table.down = down;
    table.across = across;
    table.band = band_;
    image_.set_weights(table, 0);
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
