// SPDX-License-Identifier: Apache-2.0
// Norms that stand between linear layers, with what folding them needs to know (lower/fold_norms.h).
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// Columns of the one row that a gather picks of a constant table.
struct TableRow {
  size_t gather;  // the node
  ValueId table, ids;
  int64_t first = 0;  // column
};
// Nothing where v is no dense vector of such a row of plain numbers.
std::optional<TableRow> table_row(const Graph& graph, const std::vector<int>& producers, ValueId v);

// A norm about zero whose gain, and shift where it has one, are rows of tables by the same index: adaRMS.
struct Modulation {
  TableRow gain;
  std::optional<TableRow> shift;
};

// A norm with what stands before and behind it.
struct Fold {
  size_t norm = 0, before = 0;
  bool alone = false;  // the result of the layer before has no other reader: codes, where they are asked for, would be
                       // all that is left of it
  std::vector<size_t> behind;
  std::optional<Modulation> modulated;  // nothing: gain and shift are constants
};

class NormFinder {
 public:
  explicit NormFinder(const Graph& graph) : g_(graph), producers_(graph.producers()) {}

  // Nothing where the node is no norm, or none that could be folded.
  std::optional<Fold> find(size_t norm) const;

 private:
  // The value whose whole rows v shows, in whichever grouping.
  std::optional<ValueId> whole(ValueId v) const;
  bool is_finite(ValueId id) const;
  bool in_storage(ValueId id, ValueId base) const;
  bool others_read(ValueId x, size_t norm) const;
  bool find_readers(ValueId y, Fold& f) const;
  bool takes_factors(const Node& layer, bool modulated) const;
  bool constant_vectors(const Node& norm) const;
  std::optional<Modulation> modulation_of(const Node& norm) const;
  bool makes_room(const Fold& f, ValueId x) const;

  const Graph& g_;
  const std::vector<int> producers_;
};

}  // namespace tessera
