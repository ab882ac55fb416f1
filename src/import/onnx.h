// SPDX-License-Identifier: Apache-2.0
// ONNX model -> graph. Opsets 11 to 23, the operators that transformer exports use, all shapes fixed: shape arithmetic
// is evaluated while reading. What is not understood is an error, never a guess: one message lists every operator that
// is not supported, with its node and opset. Layers are named as in the source of the model: "blocks.0.attn.qkv".
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/buffer.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

struct OnnxOptions {
  int64_t batch = 0;  // size of inputs' first axis where the model leaves it open; 0: the model must say it
  std::map<std::string, Shape> shapes;  // whole shapes of inputs, by name; they count more than the model's and `batch`
};

// External data are read from the folder that the model lies in, and from nowhere else.
Result<Graph> import_onnx(const std::string& path, const OnnxOptions& options = {});
Result<Graph> import_onnx(const Bytes& file, const std::string& name, const OnnxOptions& options = {});

}  // namespace tessera
