// SPDX-License-Identifier: Apache-2.0
// y[i..., :] = table[ids[i...], :]: rows of a table by number (embeddings). A negative id counts from the end; an id
// outside the table is an error of the caller (host variants say which one; CUDA variants write zeros there, for a
// kernel cannot report an error).
#pragma once

#include "op/op.h"

namespace tessera {

struct GatherProblem {
  int64_t table_rows = 0;    // first axis of the table
  int64_t row_elements = 0;  // the product of its other axes
  int64_t count = 0;         // ids
  QuantType table, y;
  Element ids = Element::i64;

  // Contract: inputs are dense.
  static GatherProblem of(const Problem& p);
};

}  // namespace tessera
