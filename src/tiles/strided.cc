// SPDX-License-Identifier: Apache-2.0
#include "tiles/strided.h"

#include <algorithm>

#include "base/status.h"

namespace tessera {

void merge_axes(Shape& shape, std::vector<Shape>& strides) {
  Shape merged;
  std::vector<Shape> steps(strides.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    // Axis i follows the last kept axis without a gap in every operand: one step of that axis is shape[i] steps of this
    // one.
    bool joins = !merged.empty();
    for (size_t o = 0; joins && o < strides.size(); ++o) joins = steps[o].back() == strides[o][i] * shape[i];
    if (joins) {
      merged.back() *= shape[i];
      for (size_t o = 0; o < strides.size(); ++o) steps[o].back() = strides[o][i];
    } else {
      merged.push_back(shape[i]);
      for (size_t o = 0; o < strides.size(); ++o) steps[o].push_back(strides[o][i]);
    }
  }
  if (merged.empty()) {
    merged.push_back(1);
    for (Shape& s : steps) s.push_back(1);
  }
  shape = std::move(merged);
  strides = std::move(steps);
}

Shape broadcast_strides(const Shape& shape, const Shape& strides, const Shape& result) {
  Shape out(result.size(), 0);
  const size_t lead = result.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) out[lead + i] = shape[i] == 1 ? 0 : strides[i];
  return out;
}

StridedRuns::StridedRuns(const Shape& shape, const std::vector<Shape>& strides)
    : shape_(shape), strides_(strides), at_(few_at_.data()), offsets_(few_offsets_.data()) {
  TS_CHECK(strides.size() <= kFew, strides.size(), " operands");
  if (shape.size() > kFew) {
    many_at_.assign(shape.size(), 0);
    at_ = many_at_.data();
  }
  for (size_t i = 0; i + 1 < shape.size(); ++i) count_ *= shape[i];
}

void StridedRuns::seek(int64_t run) {
  few_offsets_.fill(0);
  for (size_t i = shape_.size() - 1; i-- > 0;) {
    at_[i] = run % shape_[i];
    run /= shape_[i];
    for (size_t o = 0; o < strides_.size(); ++o) offsets_[o] += at_[i] * strides_[o][i];
  }
}

void StridedRuns::next() {
  for (size_t i = shape_.size() - 1; i-- > 0;) {
    const bool carry = ++at_[i] == shape_[i];
    for (size_t o = 0; o < strides_.size(); ++o)
      offsets_[o] += carry ? (1 - shape_[i]) * strides_[o][i] : strides_[o][i];
    if (!carry) return;
    at_[i] = 0;
  }
}

}  // namespace tessera
