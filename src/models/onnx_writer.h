// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX graph node by node. Results are named after the node that makes them, weights after the layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tessera {

class OnnxWriter {
 public:
  using Names = std::vector<std::string>;
  struct Attribute {
    std::string name;
    std::variant<int64_t, float, std::vector<int64_t>> value;
  };
  // A size that is 0 stands for the dynamic batch.
  using Dims = std::vector<int64_t>;

  OnnxWriter(const std::string& graph_name, int opset);
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
  std::string finish();  // the ModelProto's bytes

 private:
  struct Proto;  // protobuf stays in the .cc
  std::unique_ptr<Proto> proto_;
};

}  // namespace tessera
