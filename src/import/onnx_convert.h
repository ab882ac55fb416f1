// SPDX-License-Identifier: Apache-2.0
// How ONNX operators become graph nodes: one function per operator, in files by family; each family lists its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "import/onnx_reader.h"
#include "ops/builder.h"

namespace tessera {

using Values = std::vector<ValueId>;

// One ONNX node being converted.
struct OnnxCall {
  GraphBuilder& b;
  const OnnxNode& node;
  Values in;          // kNoValue where absent
  std::string layer;  // path of its module, "blocks.0.attn.qkv"; empty where the file does not tell
  int64_t index = 0;  // position in the file

  bool has(size_t i) const { return i < in.size() && in[i] != kNoValue; }
  // An operand that must be there.
  Result<ValueId> operand(size_t i) const;
  // Attributes; absent: the fallback. Of another kind than asked for: an error.
  Result<int64_t> integer(const std::string& key, int64_t fallback) const;
  Result<double> number(const std::string& key, double fallback) const;
  Result<std::string> word(const std::string& key, const std::string& fallback) const;
  Result<std::vector<int64_t>> integers(const std::string& key) const;
  // Integers that older opsets keep in an attribute and newer ones in an operand; empty where neither is there.
  Result<std::vector<int64_t>> integers(const std::string& key, size_t operand) const;

  // Names as users know layers: of an op without weights, and of one whose weights are a constant
  // ("blocks.0.attn.qkv.weight" names "blocks.0.attn.qkv").
  std::string name() const;
  std::string name_by(ValueId weight) const;
};

struct OnnxOp {
  const char* name;
  Result<Values> (*convert)(OnnxCall&);
};

std::span<const OnnxOp> onnx_elementwise_ops();
std::span<const OnnxOp> onnx_shape_ops();
std::span<const OnnxOp> onnx_layer_ops();
std::span<const OnnxOp> onnx_reduction_ops();

// Nothing for an operator of another domain or an unknown one.
const OnnxOp* find_onnx_op(const OnnxNode& node);

// A constant of the graph that holds a tensor of the file.
ValueId add_tensor(GraphBuilder& builder, const OnnxTensor& tensor);

// One result.
inline Result<Values> single(Result<ValueId> value) {
  if (!value.ok()) return value.status();
  return Values{*value};
}

}  // namespace tessera
