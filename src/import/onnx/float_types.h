// SPDX-License-Identifier: Apache-2.0
// In which float each name of a file is. The graph holds all floats as f32, so a product of two different ones would go
// through unseen, and ONNX has none: its operands are of one type. What is not certain is not judged.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "import/onnx/reader.h"

namespace tessera {

class FloatTypes {
 public:
  void note(const std::string& name, int64_t data_type);
  // What the node gives, where that follows from what it reads. Call it in the order of the file.
  void note(const OnnxNode& node);
  // Both operands of a product are of one type.
  Status check(const OnnxNode& node) const;

 private:
  int64_t of(const OnnxNode& node, size_t operand) const;  // 0: not known
  std::unordered_map<std::string, int64_t> types_;
};

}  // namespace tessera
