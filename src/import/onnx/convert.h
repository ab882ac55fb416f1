// SPDX-License-Identifier: Apache-2.0
// How ONNX operators become graph nodes: one function per operator, in files by family; each family lists its own.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "import/onnx/reader.h"
#include "ops/builder.h"

namespace tessera {

using Values = std::vector<ValueId>;

// A name of the file that stands for codes, or scales, made while the model runs. In the graph the value of that name
// holds the numbers that the codes stand for, so that whatever moves codes moves numbers, and DequantizeLinear is
// nothing but a check that its scales are the ones that were divided by.
struct OnnxCodes {
  enum class Role : uint8_t { kCodes, kScales, kScaleNumbers };  // kScaleNumbers: kScales after their DequantizeLinear
  Role role = Role::kCodes;
  ValueId numbers = kNoValue;  // as they were quantized: says which codes and which scales belong together
  QuantType type;
  size_t axis = 0;     // that scales run along
  Bytes scale;         // the first level, static
  float scale2 = 1;    // the second level
  bool moved = false;  // reshaped, transposed, sliced since
};

// What the whole file says about values.
struct OnnxContext {
  std::unordered_map<std::string, int> readers;      // how many operands have this name
  std::set<ValueId> bytes;                           // of element u8: those that are UINT8; all others are BOOL
  std::set<std::string> outputs;                     // names of the model's results
  std::unordered_map<std::string, int64_t> stored;   // ONNX data types of constants
  std::unordered_map<std::string, OnnxCodes> codes;  // of values that are none
  int64_t code_count = 0, decoded_count = 0;         // in the file; in all constants with scales
  std::map<ValueId, ValueId> decoded;                // numbers -> the constant with scales that a copy decodes to them
};

// One ONNX node being converted.
struct OnnxCall {
  GraphBuilder& b;
  OnnxContext& file;
  const OnnxNode& node;
  Values in;          // kNoValue where absent
  std::string layer;  // path of its module, "blocks.0.attn.qkv"; empty where the file does not tell
  int64_t index = 0;  // position in the file, without Constants: whether weights are nodes changes no name

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

  // Names as users know layers: of an op without weights, and of one whose operand `weight` is a constant:
  // "blocks.0.attn.qkv.weight" names "blocks.0.attn.qkv", unless others read it, too (exporters merge equal weights).
  std::string name() const;
  std::string name_by(size_t weight) const;

  // A constant, or the decoded numbers of one, in any order.
  bool is_weight(ValueId v) const;

  bool is_integer(ValueId v) const { return info(b.element(v)).kind == ElementKind::kInteger; }
  bool is_truth(ValueId v) const { return b.element(v) == Element::u8 && !file.bytes.contains(v); }
};

struct OnnxOp {
  const char* name;
  Result<Values> (*convert)(OnnxCall&);
};

std::span<const OnnxOp> onnx_elementwise_ops();
std::span<const OnnxOp> onnx_activation_ops();
std::span<const OnnxOp> onnx_shape_ops();
std::span<const OnnxOp> onnx_table_ops();
std::span<const OnnxOp> onnx_index_ops();
std::span<const OnnxOp> onnx_product_ops();
std::span<const OnnxOp> onnx_convolution_ops();
std::span<const OnnxOp> onnx_pooling_ops();
std::span<const OnnxOp> onnx_resize_ops();
std::span<const OnnxOp> onnx_grid_ops();
std::span<const OnnxOp> onnx_column_ops();
std::span<const OnnxOp> onnx_norm_ops();
std::span<const OnnxOp> onnx_attention_ops();
std::span<const OnnxOp> onnx_reduction_ops();
std::span<const OnnxOp> onnx_einsum_ops();
std::span<const OnnxOp> onnx_quantize_ops();

// Nothing for an operator of another domain or an unknown one.
const OnnxOp* find_onnx_op(const OnnxNode& node);

// A constant of the graph that holds a tensor of the file.
ValueId add_tensor(GraphBuilder& builder, const OnnxTensor& tensor);

// Codes may be moved and dequantized; anything else would take them for numbers: an error.
Status check_codes(const OnnxCall& call);
// What moves codes gives codes.
Status hand_on_codes(const OnnxCall& call);

constexpr int64_t kMaxListed = 1000000;  // entries of what is spelt out number by number

// What to ask of ONNX Runtime's quantizer instead of codes with zero points of their own.
inline constexpr const char* kAskForSymmetricCodes =
    "quantize_static(quant_format=QuantFormat.QDQ, activation_type=QuantType.QInt8, "
    "extra_options={'ActivationSymmetric': "
    "True}) writes a model that is supported; so is the float model, with --precision int8";

// What several families are made of.
// 0, 1, ... along `axis` of a tensor of `rank` axes, size 1 along the others.
Result<ValueId> count_along(OnnxCall& c, int64_t size, size_t axis, size_t rank);
// y = x by `ids` along an axis: the axes of ids take that axis' place.
Result<ValueId> take(OnnxCall& c, ValueId x, size_t axis, ValueId ids);
// fn over the axes that are marked; they stay with size 1 where `keep`.
Result<ValueId> reduce_axes(OnnxCall& c, ValueId x, const std::vector<bool>& reduced, bool keep, const std::string& fn);
// y = x w^T for x [..., m, k] and w [..., n, k] whose leading axes broadcast.
Result<ValueId> product(OnnxCall& c, ValueId x, ValueId w, const std::string& name);
// The constant that holds a layer's weight carries the layer's name, whatever the exporter called it; codes keep the
// name that messages about them and their scales use.
void name_weight(OnnxCall& c, ValueId weight, const std::string& layer);

// MatMulNBits, whose weight is codes in blocks (block_weights.cc).
Result<Values> matmul_of_block_weights(OnnxCall& c);

// One result.
inline Result<Values> single(Result<ValueId> value) {
  if (!value.ok()) return value.status();
  return Values{*value};
}

}  // namespace tessera
