// SPDX-License-Identifier: Apache-2.0
// An ONNX file as plain structs: everything that the conversion needs, checked (sizes, types, ranges), without
// protobuf. Calls of local functions are replaced by the functions' nodes, so that `nodes` is one flat list. All names
// are UTF-8 (as_utf8).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "ir/derived_constants.h"
#include "ir/graph.h"

namespace tessera {

struct OnnxTensor {
  std::string name;
  Type type;
  Bytes data;            // dense, 64-byte aligned
  bool is_byte = false;  // UINT8; u8 is otherwise BOOL
  int64_t stored = 0;    // its ONNX data type
};

struct OnnxBranch;

struct OnnxAttr {
  enum class Kind : uint8_t { kInt, kFloat, kString, kTensor, kInts, kFloats, kBranch, kOther };
  Kind kind = Kind::kOther;
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::shared_ptr<const OnnxTensor> tensor;
  std::shared_ptr<const OnnxBranch> branch;
  std::string refers_to;  // in a function: the attribute of the call that gives the value
};

struct OnnxNode {
  std::string name, op, domain;
  int64_t opset = 0;                         // of its domain
  std::vector<std::string> inputs, outputs;  // "" where an optional one is absent
  std::map<std::string, OnnxAttr> attrs;
  std::string scope;  // path of the module that the exporter noted, "blocks.0.attn.qkv"; may be empty
};

// What an If does in one of its two cases: nodes that read names of the graph around them, too.
struct OnnxBranch {
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxNode> nodes;
  std::vector<std::string> outputs;
};

struct OnnxDim {
  int64_t size = -1;   // -1: not known
  std::string symbol;  // its name, where it has one
};

struct OnnxInput {
  std::string name;
  Element element = Element::f32;
  bool is_byte = false;  // UINT8; u8 is otherwise BOOL
  int64_t stored = 0;    // its ONNX data type
  std::vector<OnnxDim> dims;
};

struct OnnxFunction {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, OnnxAttr> defaults;
  std::vector<OnnxNode> nodes;
};

struct OnnxModel {
  std::string name;
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxInput> inputs;
  std::vector<std::string> outputs;
  std::vector<OnnxNode> nodes;
};

// `folder` holds the model's external data files; empty: a model with external data is refused. Tensors lie in the file
// where they can be used as they are there; others (not aligned, of 16 bits, DOUBLE) are kept by `derived`, or on the
// heap where it is null.
Result<OnnxModel> read_onnx(const Bytes& file, const std::string& folder, DerivedConstants* derived = nullptr);
// How many models this process has read whole: what says that a build reads its model once.
int64_t onnx_files_read();
// The inputs alone, as the file declares them: no weight is looked at.
Result<std::vector<OnnxInput>> read_onnx_inputs(const Bytes& file);

// Replaces calls of functions by their nodes, at any depth, in branches, too. A function that calls itself, or a result
// of more than a million nodes, is an error.
Result<std::vector<OnnxNode>> inline_functions(std::vector<OnnxNode> nodes, const std::vector<OnnxFunction>& functions);

// The element that stands for an ONNX data type: f32 for all floats (how they are stored is the build's choice, not the
// file's), u8 for bools. Nothing for types that no graph holds.
std::optional<Element> element_of_onnx(int64_t data_type);
// The element that holds the codes of a quantized tensor; nothing for other types. UINT4 codes are kept as i4's bits.
std::optional<Element> code_of_onnx(int64_t data_type);
std::string onnx_type_name(int64_t data_type);
constexpr int64_t kOnnxFloat = 1, kOnnxUint8 = 2, kOnnxInt8 = 3, kOnnxInt32 = 6, kOnnxBool = 9, kOnnxFloat16 = 10,
                  kOnnxBfloat16 = 16, kOnnxFloat8E4m3 = 17, kOnnxFloat8E5m2 = 19, kOnnxUint4 = 21, kOnnxInt4 = 22,
                  kOnnxFloat4 = 23, kOnnxFloat8E8m0 = 24;

// A name from a file as UTF-8: bytes that are none become %XX, so that whatever prints names prints valid text.
std::string as_utf8(const std::string& name);
// A name from a file as a message shows it: UTF-8 without control characters, not longer than a line.
std::string shown(const std::string& name);

}  // namespace tessera
