// SPDX-License-Identifier: Apache-2.0
// What lies where while a plan is followed step by step, without its bytes: each piece of memory holds elements of a
// value of the model, or numbers that only the plan has. Reads go by storage, offset and strides, not by the names of
// tensors: a view of the wrong columns, or memory that was given to two tensors at a time, shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/builder.h"
#include "plan/plan.h"

namespace tessera {

// Columns of a result that are a value of the model, all of it in row order.
struct HeldColumns {
  int64_t first, count;
  ValueId value;
};

// Columns of the row that a gather picks of tables side by side: whoever reads them says whose they are
// (table_rows.h).
struct HeldRow {
  int table;      // tensor of the plan
  int64_t first;  // column
  Place ids;      // of the model: what picks the row
};

struct Held {
  std::optional<Place> place = {};  // elements of a value of the model, in row order
  Dense numbers = {};               // else these
  // Of a result that is no value of the model: the layer of the model that it is a part of, the plan's layer that made
  // it first, what was done so far ("matmul then bias"), and how it differs from the value that its name promises.
  const Node* layer = nullptr;
  std::string maker = {}, done = {}, differs = {};
  // A norm without gain and shift: the result of the model's norm, whose readers have these in their weights and
  // biases.
  ValueId plain = kNoValue;
  // Of several layers side by side (lower/join_layers.h), in order and without a gap: what each one's columns are.
  std::vector<HeldColumns> columns = {};
  std::optional<HeldRow> row = {};
};

struct ReadPlace {
  const Held* held;            // until the next write
  Region region;               // of what is held, dense
  std::optional<Place> place;  // the same elements as those of a value of the model
};

// What a region of the memory that `held` lies in holds.
ReadPlace part_of(const Held& held, Region part);

class PlanMemory {
 public:
  explicit PlanMemory(const Plan& plan) : plan_(plan) {}
  void write(int tensor, Held held);
  // Nothing where no step wrote all of it, as elements of this width.
  std::optional<ReadPlace> read(int tensor) const;

 private:
  struct Block {
    Storage storage;
    int64_t index, begin, end;  // in nibbles
    int64_t width;              // of an element
    Held held;
  };
  Block block_of(int tensor) const;

  const Plan& plan_;
  std::vector<Block> blocks_;
};

}  // namespace tessera
