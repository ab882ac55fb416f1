// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/float_types.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kOnnxDouble = 11;

bool is_float(int64_t data_type) {
  return data_type == kOnnxFloat || data_type == kOnnxFloat16 || data_type == kOnnxBfloat16 || data_type == kOnnxDouble;
}

bool is_product(const OnnxNode& node) { return node.domain.empty() && (node.op == "MatMul" || node.op == "Gemm"); }

// Results have the type of operand 0.
bool keeps_type(const OnnxNode& node) {
  constexpr const char* kOps[] = {
      "Add",       "Clip",     "Concat",  "Conv",    "Div",        "Dropout",   "Elu",      "Erf",
      "Exp",       "Gelu",     "Expand",  "Flatten", "Gather",     "Gemm",      "Identity", "LayerNormalization",
      "MatMul",    "Mul",      "Neg",     "Pad",     "ReduceMean", "ReduceSum", "Relu",     "Reshape",
      "Sigmoid",   "Slice",    "Softmax", "Split",   "Sqrt",       "Squeeze",   "Sub",      "Tanh",
      "Transpose", "Unsqueeze"};
  return node.domain.empty() &&
         std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.op == op; });
}

}  // namespace

void FloatTypes::note(const std::string& name, int64_t data_type) {
  if (!name.empty() && is_float(data_type)) types_[name] = data_type;
}

int64_t FloatTypes::of(const OnnxNode& node, size_t operand) const {
  if (operand >= node.inputs.size()) return 0;
  const auto it = types_.find(node.inputs[operand]);
  return it == types_.end() ? 0 : it->second;
}

void FloatTypes::note(const OnnxNode& node) {
  if (node.outputs.empty() || !node.domain.empty()) return;
  if (node.op == "Cast") {
    const auto to = node.attrs.find("to");
    if (to != node.attrs.end()) note(node.outputs[0], to->second.i);
  } else if (node.op == "Constant") {
    const auto value = node.attrs.find("value");
    if (value != node.attrs.end() && value->second.tensor) note(node.outputs[0], value->second.tensor->stored);
  } else if (keeps_type(node)) {
    const size_t results = node.op == "Split" ? node.outputs.size() : 1;  // others give statistics and masks, too
    for (size_t i = 0; i < results; ++i) note(node.outputs[i], of(node, 0));
  }
}

Status FloatTypes::check(const OnnxNode& node) const {
  if (!is_product(node)) return {};
  const int64_t a = of(node, 0), b = of(node, 1);
  if (a == 0 || b == 0 || a == b) return {};
  return bad_input(cat("multiplies '", shown(node.inputs[0]), "' in ", onnx_type_name(a), " by '",
                       shown(node.inputs[1]), "' in ", onnx_type_name(b),
                       ": ONNX wants both in one type, which a Cast makes"));
}

}  // namespace tessera
