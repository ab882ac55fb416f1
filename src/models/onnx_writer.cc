// SPDX-License-Identifier: Apache-2.0
#include "models/onnx_writer.h"

#include "base/buffer.h"
#include "onnx.pb.h"

namespace tessera {

struct OnnxWriter::Proto {
  onnx::ModelProto model;
};

namespace {

void set_type(onnx::ValueInfoProto& value, const std::string& name, const OnnxWriter::Dims& dims) {
  value.set_name(name);
  auto* type = value.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  for (int64_t d : dims) {
    auto* dim = type->mutable_shape()->add_dim();
    if (d == 0) {
      dim->set_dim_param("batch");
    } else {
      dim->set_dim_value(d);
    }
  }
}

}  // namespace

Result<ExternalWeights> ExternalWeights::create(const std::string& path) {
  TS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  return ExternalWeights(path.substr(path.rfind('/') + 1), std::move(file));
}

Result<int64_t> ExternalWeights::add(std::span<const uint8_t> bytes) {
  constexpr int64_t kPage = 4096;
  const int64_t begin = round_up(end_, kPage);
  TS_TRY(file_.write_zeros(static_cast<size_t>(begin - end_)));
  TS_TRY(file_.write(bytes));
  end_ = begin + static_cast<int64_t>(bytes.size());
  return begin;
}

OnnxWriter::OnnxWriter(const std::string& graph_name, int opset, ExternalWeights* external)
    : proto_(std::make_unique<Proto>()), external_(external) {
  onnx::ModelProto& m = proto_->model;
  m.set_ir_version(8);
  m.set_producer_name("tessera");
  auto* set = m.add_opset_import();
  set->set_domain("");
  set->set_version(opset);
  m.mutable_graph()->set_name(graph_name);
}
OnnxWriter::~OnnxWriter() = default;

void OnnxWriter::input(const std::string& name, const Dims& dims) {
  set_type(*proto_->model.mutable_graph()->add_input(), name, dims);
}
void OnnxWriter::output(const std::string& name, const Dims& dims) {
  set_type(*proto_->model.mutable_graph()->add_output(), name, dims);
}

std::string OnnxWriter::weight(const std::string& name, const Dims& dims, std::span<const float> numbers) {
  onnx::TensorProto& t = *proto_->model.mutable_graph()->add_initializer();
  t.set_name(name);
  t.set_data_type(onnx::TensorProto::FLOAT);
  int64_t count = 1;
  for (int64_t d : dims) {
    t.add_dims(d);
    count *= d;
  }
  TS_CHECK(count == static_cast<int64_t>(numbers.size()), "weight ", name);
  constexpr size_t kLeastExternal = 1024;
  if (external_ == nullptr || numbers.size_bytes() < kLeastExternal) {
    t.set_raw_data(numbers.data(), numbers.size_bytes());
    return name;
  }
  const auto at = external_->add({reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size_bytes()});
  if (!at.ok() && external_status_.ok()) external_status_ = at.status();
  t.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto note = [&t](const char* key, const std::string& value) {
    auto* entry = t.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  note("location", external_->location());
  note("offset", std::to_string(at.ok() ? *at : 0));
  note("length", std::to_string(numbers.size_bytes()));
  return name;
}

std::string OnnxWriter::integers(const std::string& name, const Dims& dims, const std::vector<int64_t>& numbers) {
  onnx::TensorProto& t = *proto_->model.mutable_graph()->add_initializer();
  t.set_name(name);
  t.set_data_type(onnx::TensorProto::INT64);
  for (int64_t d : dims) t.add_dims(d);
  t.set_raw_data(numbers.data(), numbers.size() * sizeof(int64_t));
  return name;
}

std::string OnnxWriter::scalar(const std::string& name, float number) { return weight(name, {}, {&number, 1}); }

std::string OnnxWriter::node(const std::string& op, const std::string& name, const Names& inputs,
                             const std::vector<Attribute>& attributes, const std::string& result) {
  onnx::NodeProto& n = *proto_->model.mutable_graph()->add_node();
  n.set_op_type(op);
  n.set_name(name);
  for (const std::string& i : inputs) n.add_input(i);
  const std::string& out = result.empty() ? name : result;
  n.add_output(out);
  for (const Attribute& a : attributes) {
    onnx::AttributeProto& p = *n.add_attribute();
    p.set_name(a.name);
    if (const auto* i = std::get_if<int64_t>(&a.value)) {
      p.set_type(onnx::AttributeProto::INT);
      p.set_i(*i);
    } else if (const auto* f = std::get_if<float>(&a.value)) {
      p.set_type(onnx::AttributeProto::FLOAT);
      p.set_f(*f);
    } else {
      p.set_type(onnx::AttributeProto::INTS);
      for (int64_t v : std::get<std::vector<int64_t>>(a.value)) p.add_ints(v);
    }
  }
  return out;
}

Result<std::string> OnnxWriter::finish() {
  TS_TRY(external_status_);
  return proto_->model.SerializeAsString();
}

}  // namespace tessera
