// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint's files, by name. Whoever takes one says which shape and which types it may have; what is
// taken is noted, so that what was not asked for can be named.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "io/safetensors.h"
#include "ir/derived_constants.h"
#include "ir/shape.h"
#include "types/element.h"

namespace tessera {

// The element that a file's numbers are; none for those that are no element of ours.
std::optional<Element> element_of(SafetensorsType type);

class CheckpointTensors {
 public:
  // All tensors of a file; a name that another file has is an error.
  Status add_file(const std::string& path);
  // The tensors that the index gives to each of its files must be just those that it holds.
  Status add_index(const std::string& path);

  // An f32 tensor of no file: `make` fills it when it is first taken, so that a model of random weights is never in
  // memory as a whole.
  using Make = std::function<void(std::span<float> numbers)>;
  Status add_made(const std::string& name, const Shape& shape, Make make);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  const SafetensorsEntry* find(const std::string& name) const;
  const std::vector<std::string>& files() const { return files_; }  // without their folder

  // That the tensor is there in this shape. It counts as taken: another graph of the model reads it.
  Status expect(const std::string& name, const Shape& shape);

  // Bytes as stored, at an address that any kernel may read; the shape must be one of `shapes`, the type one of
  // `types`.
  Result<Bytes> take(const std::string& name, const std::vector<Shape>& shapes,
                     const std::vector<SafetensorsType>& types);
  // The same of floats of any width, as f32: those of the file where they are that, else numbers that are made once.
  Result<Bytes> take_f32(const std::string& name, const std::vector<Shape>& shapes);
  Result<std::vector<float>> take_floats(const std::string& name, const std::vector<Shape>& shapes);
  // Scales: positive finite floats.
  Result<std::vector<float>> take_scales(const std::string& name, const std::vector<Shape>& shapes);
  Result<float> take_scale(const std::string& name);  // the single one of a tensor, [] or [1]
  // Scales in codes of the element, of 8 bits: each a positive number. Stored as that element or as plain bytes.
  Result<Bytes> take_scale_codes(const std::string& name, const Shape& shape, Element element);

  // Names that were not taken.
  std::vector<std::string> left() const;
  // Where moved and widened tensors are kept; graphs of the checkpoint share it.
  const std::shared_ptr<DerivedConstants>& derived() const { return derived_; }

 private:
  Status add(SafetensorsEntry tensor, const std::string& file);
  Result<Bytes> made(const std::string& name, const Make& make);

  std::map<std::string, SafetensorsEntry> tensors_;
  std::map<std::string, std::string> file_of_;
  std::map<std::string, Make> makers_;
  std::set<std::string> taken_;
  std::map<std::string, Bytes> moved_, widened_;  // tensors that do not lie in a file as they are read
  std::shared_ptr<DerivedConstants> derived_ = std::make_shared<DerivedConstants>();
  std::vector<std::string> files_;
};

// A name from a file as messages show it.
std::string shown_name(const std::string& name);

}  // namespace tessera
