// SPDX-License-Identifier: Apache-2.0
// Scales of QuantizeLinear and DequantizeLinear, and how they lie over a tensor. ONNX scales run along any axis; a
// QuantType's run over rows (one each) or along the last axis (blocks). ScaleAxis moves the axis there and back:
//   one scale for all               shape as it is
//   one per index of `axis`         [size of the axis, all others]
//   blocks along `axis`             [all others ..., axis]
#pragma once

#include "import/onnx/convert.h"

namespace tessera {

class ScaleAxis {
 public:
  // What a scale of this shape covers. `block` 0: told by the shapes.
  static Result<ScaleAxis> of(const Shape& x, const Shape& scale, int64_t axis, int64_t block);

  Granularity granularity() const { return granularity_; }
  size_t axis() const { return axis_; }
  ScaleLevel level(Element element) const;
  // Shape after the move, and the moves themselves: as a view of the graph, and as elements of a storage.
  const Shape& arranged_shape() const { return arranged_; }
  Region arranged(const Region& x) const;        // of the tensor, before its axes are folded into rows
  Region arranged_scale(const Region& s) const;  // of the scales
  Result<ValueId> arrange(GraphBuilder& b, ValueId x) const;
  Result<ValueId> restore(GraphBuilder& b, ValueId arranged) const;

 private:
  Granularity granularity_ = Granularity::kTensor;
  size_t axis_ = 0;
  int64_t block_ = 0;
  std::vector<int64_t> perm_, back_;
  Shape moved_, arranged_;
};

// The scale operand of a node: a constant, or what a DequantizeLinear of constant scales gives (two levels).
struct OnnxScale {
  std::string name;             // the initialiser
  Shape shape;                  // in the file
  ScaleAxis over;               // what it covers
  ScaleLevel level;             // f32 unless blocks have scales of another element
  Bytes data;                   // numbers of level.element, arranged
  ValueId constant = kNoValue;  // that holds exactly these, where there is one
  ValueId scale2 = kNoValue;    // the second level, one f32
  int64_t stored = kOnnxFloat;  // its type in the file, which divisions are made in

  // As constants of the graph; the type of codes under them.
  ValueId add_to(GraphBuilder& b);
  QuantType type(Element codes) const;
};

// Scales that are zero, negative, infinite or NaN, or of a shape that does not fit, are errors. `powers`: bytes are
// E8M0.
Result<OnnxScale> read_scale(OnnxCall& c, const Shape& x, bool powers = false);
// The one positive number that an operand holds.
Result<ValueId> read_tensor_scale(OnnxCall& c, size_t operand);
// 0, or what a zero point says; one that is not the same everywhere is an error. Absent: 0.
Result<int64_t> read_zero_point(OnnxCall& c);

}  // namespace tessera
