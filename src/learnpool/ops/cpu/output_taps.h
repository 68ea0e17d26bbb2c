// channels_last input: which cells each output meets.
#pragma once

#include "headers.h"
#include "isa.h"

namespace learnpool::LEARNPOOL_ISA {

// The taps of every output of an image that meet a cell. Rows and columns apart: tap and cell of an output are sums of the two.
// Neighbours whose taps lie alike, as inside an image almost all do, share a list.
class OutputTaps {
 public:
  // A tap, its cell counted from that of the first one listed, and whether no output before this one met that cell.
  struct Tap {
    int64_t tap, cell;
    bool fresh;
    bool operator==(const Tap& other) const { return tap == other.tap && cell == other.cell && fresh == other.fresh; }
  };
  struct List {
    int64_t begin, end;              // among taps
    int64_t first;                   // the cell of the first
    int64_t divisor;                 // what an average divides by
    int64_t fresh_begin, fresh_end;  // among fresh
    int64_t size() const { return end - begin; }
    bool is_same(const List& other) const { return begin == other.begin && end == other.end; }
  };
  std::vector<Tap> taps;
  std::vector<int64_t> fresh;  // cells by the first output that meets them, like those of taps
  std::vector<List> rows, columns;
  int64_t most = 0;     // taps of an output
  bool covered = true;  // every cell meets an output

  explicit OutputTaps(const Pooling& pool) {
    auto most_taps = [](const Axis& axis) { return axis.out * std::min(axis.kernel, axis.in); };
    taps.reserve(most_taps(pool.d) * most_taps(pool.h) + most_taps(pool.w));
    fresh.reserve(pool.d.in * pool.h.in + pool.w.in);
    rows.reserve(pool.d.out * pool.h.out);
    columns.reserve(pool.w.out);
    list_rows(pool);
    list_columns(pool);
    most = find_longest(rows) * find_longest(columns);
  }

  // The end of the last row of cells, of w each, that a row of outputs meets.
  int64_t find_end(const List& row, int64_t w) const { return row.size() == 0 ? 0 : row.first + taps[row.end - 1].cell + w; }

 private:
  int64_t fresh_used_ = 0;

  void add(int64_t tap, int64_t cell, char& seen) {
    taps.push_back({tap, cell, !seen});
    if (!seen) fresh.push_back(cell);
    seen = true;
  }

  // The taps from `begin` on, with cells of the image, are the next list.
  void end_list(std::vector<List>& lists, int64_t begin, int64_t divisor) {
    List list{begin, int64_t(taps.size()), 0, divisor, fresh_used_, int64_t(fresh.size())};
    fresh_used_ = list.fresh_end;
    if (list.size() > 0) list.first = taps[begin].cell;
    for (int64_t i = begin; i < list.end; ++i) taps[i].cell -= list.first;
    if (!lists.empty()) {
      const Tap *all = taps.data(), *before = all + lists.back().begin;
      if (std::equal(all + begin, all + list.end, before, all + lists.back().end)) {
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

  void list_rows(const Pooling& pool) {
    const Axis &d = pool.d, &h = pool.h;
    std::vector<char> seen(d.in * h.in);
    for (int64_t od = 0; od < d.out; ++od) {
      for (int64_t oh = 0; oh < h.out; ++oh) {
        const int64_t begin = int64_t(taps.size());
        const Axis::Range deep = d.taps(od), high = h.taps(oh);
        for (int64_t kd = deep.begin; kd < deep.end; ++kd) {
          for (int64_t kh = high.begin; kh < high.end; ++kh) {
            const int64_t row = d.cell(od, kd) * h.in + h.cell(oh, kh);
            add((kd * h.kernel + kh) * pool.w.kernel, row * pool.w.in, seen[row]);
          }
        }
        end_list(rows, begin, d.count(od, pool.count_include_pad) * h.count(oh, pool.count_include_pad));
      }
    }
    covered &= std::find(seen.begin(), seen.end(), 0) == seen.end();
  }

  void list_columns(const Pooling& pool) {
    const Axis& w = pool.w;
    std::vector<char> seen(w.in);
    for (int64_t ow = 0; ow < w.out; ++ow) {
      const int64_t begin = int64_t(taps.size());
      const Axis::Range wide = w.taps(ow);
      for (int64_t kw = wide.begin; kw < wide.end; ++kw) add(kw, w.cell(ow, kw), seen[w.cell(ow, kw)]);
      end_list(columns, begin, w.count(ow, pool.count_include_pad));
    }
    covered &= std::find(seen.begin(), seen.end(), 0) == seen.end();
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
