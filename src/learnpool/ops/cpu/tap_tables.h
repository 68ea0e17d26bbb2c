// channels_last input: the taps of outputs that lie alike, with their weights, kept for as long as they serve.
#pragma once

#include "headers.h"
#include "image.h"
#include "isa.h"
#include "output_taps.h"

namespace learnpool::LEARNPOOL_ISA {

template <class A>
class TapTables {
  using List = OutputTaps::List;

 public:
  TapTables(Image<A>& image, const OutputTaps& output_taps) : image_(image), output_taps_(output_taps) {
    Scratch& scratch = image.scratch;
    for (TapTable<A>& table : tables_) {
      table.taps = scratch.take<CellTap>(output_taps.most);
      table.weights = scratch.take<A>(image.call.pool.program.weight_rows() * output_taps.most);
      table.dot_weights = scratch.take<A>(int64_t(image.dots.size()) * output_taps.most);
    }
  }

  // From now on there are `step` numbers from cell to cell.
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

  void set_weights(TapTable<A>& table, int64_t region) const {
    const Parameter& strides = image_.call.memory.weight;
    const A* weight = static_cast<const A*>(strides.data) + region * strides.region;
    for (int64_t row = 0; !image_.per_lane && row < image_.call.pool.program.weight_rows(); ++row) {
      for (int64_t i = 0; i < table.count; ++i) {
        table.weights[row * table.count + i] = weight[row * strides.row + table.taps[i].tap * strides.tap];
      }
    }
    for (int64_t d = 0; d < int64_t(image_.dots.size()); ++d) {
      std::copy_n(table.weights + image_.dot_row(d) * table.count, table.count, table.dot_weights + d * table.count);
    }
  }

 private:
  const Image<A>& image_;
  const OutputTaps& output_taps_;
  TapTable<A> tables_[4];
  int64_t band_ = 0, step_ = 0;

  void fill(TapTable<A>& table, const List& down, const List& across) {
    const OutputTaps::Tap* all = output_taps_.taps.data();
    CellTap* here = table.taps;
    for (int64_t i = down.begin; i < down.end; ++i) {
      for (int64_t j = across.begin; j < across.end; ++j) {
        *here++ = {all[i].tap + all[j].tap, (all[i].cell + all[j].cell) * step_, all[i].fresh && all[j].fresh};
      }
    }
    table.down = down;
    table.across = across;
    table.count = here - table.taps;
    table.band = band_;
    set_weights(table, 0);
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
