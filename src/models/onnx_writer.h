// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX graph node by node. Results are named after the node that makes them, weights after the layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "io/atomic_file.h"

namespace tessera {

// Weights in a file of their own, for models that are larger than an ONNX file may be. It lies beside the model.
class ExternalWeights {
 public:
  static Result<ExternalWeights> create(const std::string& path);
  const std::string& location() const { return location_; }  // as the model names it
  int64_t bytes() const { return end_; }
  // Where the bytes begin: on a page, so that readers can use them as they lie there.
  Result<int64_t> add(std::span<const uint8_t> bytes);
  Status commit() { return file_.commit(); }

 private:
  ExternalWeights(std::string location, AtomicFile file) : location_(std::move(location)), file_(std::move(file)) {}
  std::string location_;
  AtomicFile file_;
  int64_t end_ = 0;
};

class OnnxWriter {
 public:
  using Names = std::vector<std::string>;
  struct Attribute {
    std::string name;
    std::variant<int64_t, float, std::vector<int64_t>> value;
  };
  // A size that is 0 stands for the dynamic batch.
  using Dims = std::vector<int64_t>;

  // Weights of a kilobyte and more go to `external` where there is one; it must outlive the writer.
  OnnxWriter(const std::string& graph_name, int opset, ExternalWeights* external = nullptr);
  ~OnnxWriter();
  void input(const std::string& name, const Dims& dims);
  void output(const std::string& name, const Dims& dims);
  // Constants; each returns its name.
  std::string weight(const std::string& name, const Dims& dims, std::span<const float> numbers);
  std::string integers(const std::string& name, const Dims& dims, const std::vector<int64_t>& numbers);
  std::string scalar(const std::string& name, float number);
  // A node with one result, which has the node's name (or `result`, for outputs of the graph).
  std::string node(const std::string& op, const std::string& name, const Names& inputs,
                   const std::vector<Attribute>& attributes = {}, const std::string& result = "");
  Result<std::string> finish();  // the ModelProto's bytes; an error of the external file, where one was met

 private:
  struct Proto;  // protobuf stays in the .cc
  std::unique_ptr<Proto> proto_;
  ExternalWeights* external_;
  Status external_status_;
};

}  // namespace tessera
