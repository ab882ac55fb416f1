// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/convert.h"

#include <algorithm>

namespace tessera {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  return text;
}

// The attribute, checked for its kind; null where absent.
Result<const OnnxAttr*> find_attr(const OnnxNode& node, const std::string& key, OnnxAttr::Kind kind,
                                  const char* wanted) {
  const auto it = node.attrs.find(key);
  if (it == node.attrs.end()) return static_cast<const OnnxAttr*>(nullptr);
  if (it->second.kind != kind) return bad_input(cat("attribute '", key, "' must be ", wanted));
  return &it->second;
}

}  // namespace

Result<ValueId> OnnxCall::operand(size_t i) const {
  if (!has(i)) return bad_input(cat("operand ", i, " is missing"));
  return in[i];
}

Result<int64_t> OnnxCall::integer(const std::string& key, int64_t fallback) const {
  TS_ASSIGN(const OnnxAttr* a, find_attr(node, key, OnnxAttr::Kind::kInt, "an integer"));
  return a == nullptr ? fallback : a->i;
}

Result<double> OnnxCall::number(const std::string& key, double fallback) const {
  TS_ASSIGN(const OnnxAttr* a, find_attr(node, key, OnnxAttr::Kind::kFloat, "a number"));
  return a == nullptr ? fallback : a->f;
}

Result<std::string> OnnxCall::word(const std::string& key, const std::string& fallback) const {
  TS_ASSIGN(const OnnxAttr* a, find_attr(node, key, OnnxAttr::Kind::kString, "a string"));
  return a == nullptr ? fallback : a->s;
}

Result<std::vector<int64_t>> OnnxCall::integers(const std::string& key) const {
  TS_ASSIGN(const OnnxAttr* a, find_attr(node, key, OnnxAttr::Kind::kInts, "a list of integers"));
  return a == nullptr ? std::vector<int64_t>{} : a->ints;
}

Result<std::vector<int64_t>> OnnxCall::integers(const std::string& key, size_t operand_index) const {
  if (has(operand_index)) return b.integers(in[operand_index], key);
  return integers(key);
}

std::string OnnxCall::name() const {
  const std::string op = lower(node.op);
  return layer.empty() ? cat(op, "_", index) : cat(layer, ".", op);
}

bool OnnxCall::is_weight(ValueId v) const { return b.is_constant(v) || file.decoded.contains(b.place(v).base); }

std::string OnnxCall::name_by(size_t weight) const {
  std::string merged;
  std::vector<std::string> constants = {node.inputs[weight], b.graph().at(in[weight]).name};
  // Exporters call codes after the weight that they stand for: "fc1.weight_f4", "fc1.weight_quantized".
  const auto decoded = file.decoded.find(b.place(in[weight]).base);
  if (decoded != file.decoded.end()) constants.push_back(b.graph().at(decoded->second).name);
  for (const std::string& constant : constants) {
    size_t end = constant.size() < 7 ? 0 : constant.size() - 7;
    if (decoded != file.decoded.end()) {
      const size_t dot = constant.rfind(".weight"), bar = constant.rfind("_weight");
      end = dot == std::string::npos ? bar : bar == std::string::npos ? dot : std::max(dot, bar);
    } else if (!constant.ends_with(".weight") && !constant.ends_with("_weight")) {
      end = 0;
    }
    if (end == 0 || end == std::string::npos || constant.find('.') == std::string::npos) continue;
    const std::string stem = constant.substr(0, end);
    const auto readers = file.readers.find(constant);
    if (readers == file.readers.end() || readers->second <= 1) return stem;
    merged = stem;
  }
  return !layer.empty() ? layer : !merged.empty() ? merged : name();
}

const OnnxOp* find_onnx_op(const OnnxNode& node) {
  // Quantization that ONNX had no operators for at the time is written in the domains of the runtimes that have them.
  const bool of_runtime = node.domain == "trt" || node.domain == "com.microsoft";
  if (!node.domain.empty() && !of_runtime) return nullptr;
  for (const auto& family : {onnx_quantize_ops(), onnx_elementwise_ops(), onnx_activation_ops(), onnx_shape_ops(),
                             onnx_table_ops(), onnx_index_ops(), onnx_product_ops(), onnx_convolution_ops(),
                             onnx_pooling_ops(), onnx_resize_ops(), onnx_grid_ops(), onnx_column_ops(), onnx_norm_ops(),
                             onnx_attention_ops(), onnx_reduction_ops(), onnx_einsum_ops()}) {
    if (of_runtime && family.data() != onnx_quantize_ops().data()) continue;
    for (const OnnxOp& op : family) {
      if (node.op == op.name) return &op;
    }
  }
  return nullptr;
}

ValueId add_tensor(GraphBuilder& builder, const OnnxTensor& tensor) {
  return builder.graph().add_constant(tensor.name, tensor.type, tensor.data);
}

}  // namespace tessera
