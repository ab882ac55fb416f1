// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile models made in tests, and what reading them says.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

#include "import/onnx/onnx.h"
#include "import/onnx/testing_models.h"
#include "rewrite/canonicalise.h"

namespace tessera::testing {

using Ints = std::vector<int64_t>;

// x of any shape -> z.
inline onnx::ModelProto model_of(const Ints& x, int64_t opset = 19) {
  onnx::ModelProto m = empty_model(opset);
  auto* shape = m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape->clear_dim();
  for (const int64_t d : x) shape->add_dim()->set_dim_value(d);
  return m;
}

inline onnx::AttributeProto* attribute(onnx::NodeProto* n, const std::string& key,
                                       onnx::AttributeProto::AttributeType type) {
  auto* a = n->add_attribute();
  a->set_name(key);
  a->set_type(type);
  return a;
}

inline void set_ints(onnx::NodeProto* n, const std::string& key, const Ints& list) {
  auto* a = attribute(n, key, onnx::AttributeProto::INTS);
  for (const int64_t i : list) a->add_ints(i);
}

inline void set_int(onnx::NodeProto* n, const std::string& key, int64_t i) {
  attribute(n, key, onnx::AttributeProto::INT)->set_i(i);
}

inline void set_word(onnx::NodeProto* n, const std::string& key, const std::string& word) {
  attribute(n, key, onnx::AttributeProto::STRING)->set_s(word);
}

inline void add_floats(onnx::ModelProto& m, const std::string& name, const Ints& dims, float value = 0.5f) {
  auto* t = add_tensor(m, name, onnx::TensorProto::FLOAT, dims);
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  for (int64_t i = 0; i < count; ++i) t->add_float_data(value);
}

// What the import says; empty where it takes the model. Nothing may take long.
inline std::string error_of(const onnx::ModelProto& m) {
  const auto start = std::chrono::steady_clock::now();
  auto graph = import_onnx(bytes_of(m.SerializeAsString()), "hostile", {.batch = 0, .shapes = {}});
  const Status status = graph.ok() ? canonicalise(*graph) : graph.status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  return status.ok() ? "" : status.message();
}

inline void expect_error(const onnx::ModelProto& m, const std::vector<std::string>& words) {
  const std::string error = error_of(m);
  for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << word << " in: " << error;
}

inline void add_ints(onnx::ModelProto& m, const std::string& name, const Ints& numbers) {
  auto* t = add_tensor(m, name, onnx::TensorProto::INT64, {static_cast<int64_t>(numbers.size())});
  for (const int64_t n : numbers) t->add_int64_data(n);
}

}  // namespace tessera::testing
