// SPDX-License-Identifier: Apache-2.0
// A build for the CPU as `tessera build` does it, golden values included, with a fault planted in the middle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/engine.h"
#include "verify/golden.h"

namespace tessera::testing {

// The zoo's smallest model, as a file.
std::string tiny_vit();

struct Faults {
  std::function<void(Graph&)> in_import = [](Graph&) {};    // of the model as written
  std::function<void(Graph&)> in_passes = [](Graph&) {};    // of the canonical graph, in f32
  std::function<void(Graph&)> in_quantize = [](Graph&) {};  // of the graph with types
  std::string model = tiny_vit();
};

struct Made {
  Status status;  // of the whole
  Engine engine;
  ModelReport report;
};
Made made(const std::string& precision, const Faults& faults);
// The build failed, and said all of this.
void expect_caught(const Made& m, const std::vector<std::string>& words);

// Precisions that this program has, of those wanted.
std::vector<std::string> known(const std::vector<std::string>& names);

Node& node_of(Graph& graph, const std::string& name);
Value& weight_of(Graph& graph, const std::string& layer);
// A changed copy of a constant's bytes: the same bytes may be another layer's too.
void change(Value& v, const std::function<void(uint8_t* bytes, size_t size)>& body);
// Scales in f32.
void multiply(Graph& graph, ValueId scales, float factor);

}  // namespace tessera::testing
