// SPDX-License-Identifier: Apache-2.0
#include "op/prepack.h"

namespace tessera {

Shape block_scales_shape(const Operand& o) {
  TS_CHECK(o.type.scale.granularity == Granularity::kBlock, to_string(o.type));
  return {rows_of(o.shape), divide_up(cols_of(o.shape), o.type.scale.block)};
}

Result<Prepacked> prepack(const Operand& o, const void* codes, const void* scales) {
  Prepacked out;
  if (o.layout.codes != Layout::kRows) {
    TS_ASSIGN(out.codes, arrange_codes(o.layout.codes, o.type.element, rows_of(o.shape), cols_of(o.shape), codes));
  }
  if (o.layout.scales != Layout::kRows) {
    const Shape blocks = block_scales_shape(o);
    TS_ASSIGN(out.scales, arrange_codes(o.layout.scales, o.type.scale.element, blocks[0], blocks[1], scales));
  }
  return out;
}

}  // namespace tessera
