// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_grid.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/parallel.h"

namespace tessera {
namespace {

constexpr int64_t kPiece = 256;  // numbers converted at a time

Buffer copy_of(const Buffer& from) {
  Buffer to(from.size());
  if (from.size() > 0) std::memcpy(to.data(), from.data(), from.size());
  return to;
}

}  // namespace

WeightGrid::WeightGrid(const QuantType& type, int64_t rows, int64_t cols, Buffer scale, Buffer scale2)
    : type_(type), rows_(rows), cols_(cols), scale_bytes_(std::move(scale)), scale2_bytes_(std::move(scale2)) {
  scale_.resize(static_cast<size_t>(scale_count(type.scale, rows, cols)));
  info(type.scale.element).decode(scale_bytes_.data(), 0, static_cast<int64_t>(scale_.size()), scale_.data());
  if (type.scale2.granularity != Granularity::kNone)
    info(type.scale2.element).decode(scale2_bytes_.data(), 0, 1, &scale2_);
}

void WeightGrid::round(int64_t row, int64_t n, int64_t col, const float* x, float* decoded, float* number) const {
  const ElementInfo& element = info(type_.element);
  const float max = static_cast<float>(element.max);
  const float zero = type_.scale.granularity == Granularity::kBlock ? 0.0f : -0.0f;
  uint64_t codes[kPiece];  // as wide as the widest element
  for (int64_t first = 0; first < n; first += kPiece) {
    const int64_t count = std::min(kPiece, n - first);
    float scales[kPiece], y[kPiece];
    for (int64_t i = 0; i < count; ++i) {
      scales[i] = scale_[static_cast<size_t>(scale_index(type_.scale, row + first + i, col, cols_))];
      const float divisor = scales[i] * scale2_;
      const bool usable = divisor > 0 && divisor < std::numeric_limits<float>::infinity();
      const float q = usable ? x[first + i] / divisor + zero : 0.0f;
      y[i] = std::min(std::max(q, -max), max);
    }
    element.encode(y, count, codes, 0);
    element.decode(codes, 0, count, decoded + first);
    for (int64_t i = 0; i < count; ++i) y[i] = decoded[first + i] * scales[i];
    if (type_.product) {
      info(*type_.product).encode(y, count, codes, 0);
      info(*type_.product).decode(codes, 0, count, y);
    }
    for (int64_t i = 0; i < count; ++i) number[first + i] = y[i] * scale2_;
  }
}

void WeightGrid::round_all(const float* x, float* decoded, float* number) const {
  Buffer codes(static_cast<size_t>(packed_bytes(type_.element, rows_ * cols_)));
  encode_scaled(type_, x, rows_, cols_, scale_bytes_.data(), scale2_bytes_.data(), codes.data());
  info(type_.element).decode(codes.data(), 0, rows_ * cols_, decoded);
  dequantize_array(type_, codes.data(), scale_bytes_.data(), scale2_bytes_.data(), rows_, cols_, number);
}

QuantizedArray WeightGrid::encode(const float* decoded) const {
  Buffer codes(static_cast<size_t>(packed_bytes(type_.element, rows_ * cols_)));
  info(type_.element).encode(decoded, rows_ * cols_, codes.data(), 0);
  return {std::move(codes), copy_of(scale_bytes_), copy_of(scale2_bytes_)};
}

}  // namespace tessera
