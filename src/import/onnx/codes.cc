// SPDX-License-Identifier: Apache-2.0
// Which names of a file stand for codes, and who may read them.
#include <algorithm>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

bool one_of(const std::string& op, std::initializer_list<const char*> list) {
  return std::any_of(list.begin(), list.end(), [&](const char* name) { return op == name; });
}

bool moves(const OnnxNode& node) {
  return node.domain.empty() &&
         one_of(node.op, {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Identity"});
}

}  // namespace

Status check_codes(const OnnxCall& c) {
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const std::string& name = c.node.inputs[i];
    if (name.empty()) continue;
    const auto made = c.file.codes.find(name);
    const auto stored = c.file.stored.find(name);
    const bool constant = stored != c.file.stored.end() && code_of_onnx(stored->second);
    if (made == c.file.codes.end() && !constant) continue;
    if (c.node.op.find("QuantizeLinear") != std::string::npos || c.node.op.find("quantizeLinear") != std::string::npos)
      continue;
    if (c.node.op == "Shape" || c.node.op == "Size") continue;
    if (moves(c.node) && i == 0 && (constant || made->second.role == OnnxCodes::Role::kCodes)) continue;
    if (made != c.file.codes.end() && made->second.role == OnnxCodes::Role::kScaleNumbers &&
        one_of(c.node.op, {"Cast", "Identity"}))
      continue;
    return bad_input(cat("reads '", shown(name), "', which holds codes",
                         constant ? cat(" (", onnx_type_name(stored->second), ")") : "",
                         "; only DequantizeLinear and what moves codes (Reshape, Transpose, Slice ...) may"));
  }
  return {};
}

Status hand_on_codes(const OnnxCall& c) {
  if (c.node.op == "Constant" && c.node.domain.empty()) {
    const auto value = c.node.attrs.find("value");
    if (value != c.node.attrs.end() && value->second.tensor != nullptr && !c.node.outputs.empty()) {
      c.file.stored[c.node.outputs[0]] = value->second.tensor->stored;
      c.file.code_count += elements(value->second.tensor->type.shape);
    }
  }
  if (c.node.inputs.empty() || !(moves(c.node) || c.node.op == "Cast")) return {};
  if (const auto stored = c.file.stored.find(c.node.inputs[0]); stored != c.file.stored.end() && moves(c.node)) {
    const int64_t type = stored->second;  // adding names moves the table
    for (const std::string& name : c.node.outputs) c.file.stored[name] = type;
  }
  if (const auto made = c.file.codes.find(c.node.inputs[0]); made != c.file.codes.end()) {
    OnnxCodes codes = made->second;
    codes.moved = true;
    for (const std::string& name : c.node.outputs) c.file.codes[name] = codes;
  }
  return {};
}

}  // namespace tessera
