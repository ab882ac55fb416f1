// SPDX-License-Identifier: Apache-2.0
// Bytes of an ONNX tensor, wherever the file keeps them: raw, in a typed list, or in another file beside the model.
#pragma once

#include <map>
#include <string>

#include "import/onnx/reader.h"

namespace tessera {

// A list of numbers inside the message: `count` entries of the field's own width.
struct TypedField {
  const uint8_t* data = nullptr;
  size_t count = 0;
};

struct TensorParts {
  std::string name;
  int64_t data_type = 0;
  Shape shape;
  bool external = false;
  std::map<std::string, std::string> external_data;  // location, offset, length
  bool has_raw = false;
  TypedField raw, floats, doubles, int32s, int64s;
};

// The files beside a model that hold its tensors' bytes, each mapped once. They must lie in the model's folder: a
// location that is absolute, climbs out of it, or leads out of it by a symbolic link is refused.
class ExternalFiles {
 public:
  // Without a folder (a model that was not read from a file) nothing can be opened.
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}
  Result<Bytes> open(const std::string& location);

 private:
  std::string folder_;
  std::map<std::string, Bytes> open_;
};

// Bytes that must be moved or widened are kept by `derived` (read_onnx).
Result<OnnxTensor> make_tensor(const TensorParts& parts, ExternalFiles& files, DerivedConstants* derived = nullptr);

}  // namespace tessera
