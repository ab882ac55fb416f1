// SPDX-License-Identifier: Apache-2.0
// Small ONNX models made in tests, with protobuf.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "onnx.pb.h"

namespace tessera::testing {

inline Bytes bytes_of(const std::string& text) {
  Buffer buffer(text.size());
  std::copy(text.begin(), text.end(), buffer.data());
  return Bytes::own(std::move(buffer));
}

// A model with inputs and outputs set up: x [2,4] -> z.
inline onnx::ModelProto empty_model(int64_t opset = 17) {
  onnx::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(opset);
  auto* x = m.mutable_graph()->add_input();
  x->set_name("x");
  x->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  for (int64_t d : {2, 4}) x->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(d);
  m.mutable_graph()->add_output()->set_name("z");
  return m;
}

inline onnx::NodeProto* add_node(onnx::ModelProto& m, const std::string& op, const std::vector<std::string>& in,
                                 const std::string& out) {
  auto* n = m.mutable_graph()->add_node();
  n->set_op_type(op);
  n->set_name("node_" + out);
  for (const std::string& i : in) n->add_input(i);
  n->add_output(out);
  return n;
}

inline onnx::TensorProto* add_tensor(onnx::ModelProto& m, const std::string& name, int32_t type,
                                     const std::vector<int64_t>& dims) {
  auto* t = m.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(type);
  for (int64_t d : dims) t->add_dims(d);
  return t;
}

}  // namespace tessera::testing
