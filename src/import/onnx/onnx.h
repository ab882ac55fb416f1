// SPDX-License-Identifier: Apache-2.0
// ONNX model -> graph. Opsets 11 to 27, the operators that transformer exports use, all shapes fixed: shape arithmetic
// is evaluated while reading. What is not understood is an error, never a guess: one message lists every operator that
// is not supported, with its first node and its opset. Layers are named as in the source of the model:
// "blocks.0.attn.qkv". Floats of any width (FLOAT16, BFLOAT16, DOUBLE) become f32, weights, values, inputs and outputs
// alike, and casts between them nothing: in which precision a layer runs is said at build, not by the file. A quantized
// model's codes and scales keep their bits (quantize.cc); rewrite/recognise finds the layers that they belong to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

struct OnnxOptions {
  int64_t batch = 0;       // size of inputs' first axis where the model leaves it open; 0: the model must say it
  bool own_batch = false;  // a model that fixes its batch keeps it, whatever `batch` says; else another one is an error
  // Whole shapes of inputs, by name; they count more than `batch`, but a first size of 0 leaves that to it. What a name
  // in the model's shape ("sequence") stands for in one of them, it stands for in all other inputs.
  std::map<std::string, Shape> shapes;
};

struct OnnxModel;

// A model file that is read once and becomes a graph for any batch: its graphs share their constants, and what is made
// of them (ir/derived_constants.h). External data are read from the folder that the model lies in, and from nowhere
// else.
class OnnxFile {
 public:
  static Result<OnnxFile> open(const std::string& path);
  Result<Graph> graph(const OnnxOptions& options) const;
  // Sizes of an input's axes, -1 where the model leaves one open; nothing where the model has no such input.
  std::optional<Shape> axes_of_input(const std::string& name) const;

 private:
  std::string path_, name_;
  std::shared_ptr<const OnnxModel> model_;
  std::shared_ptr<DerivedConstants> derived_;
};

// One graph of a file.
Result<Graph> import_onnx(const std::string& path, const OnnxOptions& options = {});
Result<Graph> import_onnx(const Bytes& file, const std::string& name, const OnnxOptions& options = {});

}  // namespace tessera
