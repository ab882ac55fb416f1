// SPDX-License-Identifier: Apache-2.0
// The only file that knows protobuf.
#include "import/onnx/reader.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "import/onnx/raw_fields.h"
#include "import/onnx/tensor.h"
#include "io/mmap.h"
#include "ir/region.h"
#include "onnx.pb.h"

namespace tessera {
namespace {

template <class Field>
TypedField as_bytes(const Field& field) {
  return {reinterpret_cast<const uint8_t*>(field.data()), static_cast<size_t>(field.size())};
}

// Where the bytes of tensors come from and where those go that have to be moved.
struct TensorSource {
  const RawFields* raw;  // null: the message has them itself
  ExternalFiles files;
  DerivedConstants* derived;
};

Result<OnnxTensor> read_tensor(const onnx::TensorProto& tensor, TensorSource& source) {
  const onnx::TensorProto* t = &tensor;
  TensorParts parts{
      .name = as_utf8(t->name()), .data_type = t->data_type(), .shape = {t->dims().begin(), t->dims().end()}};
  const std::string place = cat("tensor '", shown(t->name()), "'");
  if (t->has_segment()) return bad_input(place + " is stored in segments, which is not supported");
  parts.external = t->data_location() == onnx::TensorProto::EXTERNAL;
  for (const auto& entry : t->external_data()) parts.external_data[entry.key()] = entry.value();
  parts.has_raw = t->has_raw_data();
  parts.raw = as_bytes(t->raw_data());
  Bytes raw;  // keeps the file
  if (parts.has_raw && source.raw != nullptr) {
    TS_ASSIGN(raw, raw_field(*source.raw, t->raw_data()));
    parts.raw = {raw.data(), raw.size()};
  }
  parts.floats = as_bytes(t->float_data());
  parts.doubles = as_bytes(t->double_data());
  parts.int32s = as_bytes(t->int32_data());
  parts.int64s = as_bytes(t->int64_data());
  Result<OnnxTensor> made = make_tensor(parts, source.files, source.derived);
  if (!made.ok()) return made.status().at(place);
  give_back(parts.raw.data, parts.raw.count);
  return made;
}

using Opsets = std::map<std::string, int64_t>;

Result<OnnxBranch> read_branch(const onnx::GraphProto& graph, const Opsets& opsets, TensorSource& source);

Result<OnnxAttr> read_attr(const onnx::AttributeProto* a, const Opsets& opsets, TensorSource& source) {
  using Kind = OnnxAttr::Kind;
  OnnxAttr out;
  out.refers_to = a->ref_attr_name();
  // Files from before types were mandatory leave the type out: then the field that is there says it.
  auto type = a->type();
  if (type == onnx::AttributeProto::UNDEFINED) {
    type = a->has_i()             ? onnx::AttributeProto::INT
           : a->has_f()           ? onnx::AttributeProto::FLOAT
           : a->has_s()           ? onnx::AttributeProto::STRING
           : a->has_t()           ? onnx::AttributeProto::TENSOR
           : a->ints_size() > 0   ? onnx::AttributeProto::INTS
           : a->floats_size() > 0 ? onnx::AttributeProto::FLOATS
           : a->has_g()           ? onnx::AttributeProto::GRAPH
                                  : onnx::AttributeProto::UNDEFINED;
  }
  switch (type) {
    case onnx::AttributeProto::INT:
      out.kind = Kind::kInt, out.i = a->i();
      break;
    case onnx::AttributeProto::FLOAT:
      out.kind = Kind::kFloat, out.f = a->f();
      break;
    case onnx::AttributeProto::STRING:
      out.kind = Kind::kString, out.s = a->s();
      break;
    case onnx::AttributeProto::INTS:
      out.kind = Kind::kInts, out.ints = {a->ints().begin(), a->ints().end()};
      break;
    case onnx::AttributeProto::FLOATS:
      out.kind = Kind::kFloats, out.floats = {a->floats().begin(), a->floats().end()};
      break;
    case onnx::AttributeProto::TENSOR: {
      TS_ASSIGN(OnnxTensor tensor, read_tensor(a->t(), source));
      out.kind = Kind::kTensor;
      out.tensor = std::make_shared<const OnnxTensor>(std::move(tensor));
      break;
    }
    case onnx::AttributeProto::GRAPH: {
      TS_ASSIGN(OnnxBranch branch, read_branch(a->g(), opsets, source));
      out.kind = Kind::kBranch;
      out.branch = std::make_shared<const OnnxBranch>(std::move(branch));
      break;
    }
    default:
      break;
  }
  return out;
}

// The exporter's note lists the modules around a node and then the call: "['', 'blocks', 'blocks.0', 'blocks.0.norm1',
// 'layer_norm']".
std::string scope_of(const onnx::NodeProto& n) {
  for (const auto& note : n.metadata_props()) {
    if (note.key() != "pkg.torch.onnx.name_scopes") continue;
    std::vector<std::string> scopes;
    for (size_t open = note.value().find('\''); open != std::string::npos; open = note.value().find('\'', open + 1)) {
      const size_t close = note.value().find('\'', open + 1);
      if (close == std::string::npos) break;
      scopes.push_back(note.value().substr(open + 1, close - open - 1));
      open = close;
    }
    if (scopes.size() < 2) return "";
    const std::string& module = scopes[scopes.size() - 2];
    return module.starts_with("_") ? "" : module;  // a placeholder of the exporter's
  }
  return "";
}

template <class Names>
std::vector<std::string> read_names(const Names& names) {
  std::vector<std::string> out;
  for (const auto& name : names) out.push_back(as_utf8(name));
  return out;
}

template <class Imports>
Opsets read_opsets(const Imports& imports) {
  Opsets opsets;
  for (const auto& entry : imports)
    opsets[entry.domain() == "ai.onnx" ? "" : as_utf8(entry.domain())] = entry.version();
  return opsets;
}

Result<OnnxNode> read_node(const onnx::NodeProto* n, const Opsets& opsets, TensorSource& source) {
  OnnxNode out{.name = as_utf8(n->name()),
               .op = as_utf8(n->op_type()),
               .domain = n->domain() == "ai.onnx" ? "" : as_utf8(n->domain()),
               .opset = 0,
               .inputs = read_names(n->input()),
               .outputs = read_names(n->output()),
               .attrs = {},
               .scope = as_utf8(scope_of(*n))};
  if (!n->overload().empty()) out.op += ":" + as_utf8(n->overload());
  const auto opset = opsets.find(out.domain);
  if (opset != opsets.end()) out.opset = opset->second;
  const std::string place = cat("node '", shown(out.name), "' (", shown(out.op), ")");
  for (const auto& a : n->attribute()) {
    Result<OnnxAttr> attr = read_attr(&a, opsets, source);
    if (!attr.ok()) return attr.status().at(place);
    if (!out.attrs.emplace(a.name(), std::move(*attr)).second)
      return bad_input(cat(place, ": attribute '", shown(a.name()), "' is given twice"));
  }
  return out;
}

// Messages inside one another are at most 100 (protobuf), so branches are nested less deep than that.
Result<OnnxBranch> read_branch(const onnx::GraphProto& graph, const Opsets& opsets, TensorSource& source) {
  OnnxBranch out;
  if (graph.sparse_initializer_size() > 0) return bad_input("a branch holds sparse weights, which are not supported");
  for (const auto& t : graph.initializer()) {
    TS_ASSIGN(OnnxTensor tensor, read_tensor(t, source));
    out.tensors.push_back(std::move(tensor));
  }
  for (const auto& n : graph.node()) {
    TS_ASSIGN(OnnxNode node, read_node(&n, opsets, source));
    out.nodes.push_back(std::move(node));
  }
  for (const auto& v : graph.output()) out.outputs.push_back(as_utf8(v.name()));
  return out;
}

Result<OnnxFunction> read_function(const onnx::FunctionProto* f, const Opsets& model_opsets, TensorSource& source) {
  OnnxFunction out{.name = as_utf8(f->name()),
                   .domain = as_utf8(f->domain()),
                   .overload = as_utf8(f->overload()),
                   .inputs = read_names(f->input()),
                   .outputs = read_names(f->output()),
                   .defaults = {},
                   .nodes = {}};
  Opsets opsets = read_opsets(f->opset_import());
  opsets.insert(model_opsets.begin(), model_opsets.end());  // what the function does not say, the model does
  for (const auto& a : f->attribute_proto()) {
    TS_ASSIGN(OnnxAttr attr, read_attr(&a, opsets, source));
    out.defaults[a.name()] = std::move(attr);
  }
  for (const auto& n : f->node()) {
    TS_ASSIGN(OnnxNode node, read_node(&n, opsets, source));
    out.nodes.push_back(std::move(node));
  }
  return out;
}

Result<OnnxInput> read_input(const onnx::ValueInfoProto& v) {
  const std::string place = cat("input '", shown(v.name()), "'");
  if (!v.type().has_tensor_type()) return bad_input(place + " is not a tensor");
  const auto& tensor = v.type().tensor_type();
  const auto element = element_of_onnx(tensor.elem_type());
  if (!element) return bad_input(cat(place, " holds ", onnx_type_name(tensor.elem_type()), ", which no graph holds"));
  if (!tensor.has_shape()) return bad_input(place + " has no shape");
  OnnxInput out{.name = as_utf8(v.name()),
                .element = *element,
                .is_byte = tensor.elem_type() == kOnnxUint8,
                .stored = tensor.elem_type(),
                .dims = {}};
  for (const auto& d : tensor.shape().dim()) {
    OnnxDim dim;
    if (d.has_dim_value()) dim.size = d.dim_value();
    if (d.has_dim_value() && d.dim_value() < 1)
      return bad_input(cat(place, ": axis ", out.dims.size(), " is of size ", d.dim_value(),
                           ", a size is at least 1 (an open one has a name, or nothing)"));
    if (d.has_dim_param()) dim.symbol = as_utf8(d.dim_param());
    out.dims.push_back(std::move(dim));
  }
  return out;
}

Status check_opset(const Opsets& opsets) {
  const auto it = opsets.find("");
  if (it == opsets.end()) return bad_input("the file names no opset of the standard ONNX operators");
  if (it->second < 11 || it->second > 27)
    return bad_input(cat("opset ", it->second, " is not supported: 11 to 27 are"));
  return {};
}

// `raw`: the raw data that the message numbers, none where it has them itself.
Status parse_model(const Bytes& file, onnx::ModelProto& model, std::optional<RawFields>& raw) {
  if (file.size() > static_cast<size_t>(INT_MAX))
    return bad_input("the file is larger than 2 GiB, protobuf's limit; export with external data");
  raw = split_raw_fields(file);
  const bool parsed =
      raw ? model.ParseFromString(raw->message) : model.ParseFromArray(file.data(), static_cast<int>(file.size()));
  if (raw) raw->message = {};
  if (!parsed) return bad_input("not an ONNX model: the file is damaged, cut short, or of another kind");
  if (!model.has_graph() || model.graph().output_size() == 0)
    return bad_input("not an ONNX model: it holds no graph with outputs");
  return {};
}

// `weights`: names of initializers, which old files list among the inputs.
Result<std::vector<OnnxInput>> read_inputs(const onnx::GraphProto& graph,
                                           const std::unordered_set<std::string>& weights) {
  std::vector<OnnxInput> inputs;
  for (const auto& v : graph.input()) {
    if (weights.contains(as_utf8(v.name()))) continue;
    TS_ASSIGN(OnnxInput input, read_input(v));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::atomic<int64_t> files_read = 0;

}  // namespace

int64_t onnx_files_read() { return files_read; }

Result<std::vector<OnnxInput>> read_onnx_inputs(const Bytes& file) {
  onnx::ModelProto model;
  std::optional<RawFields> raw;
  TS_TRY(parse_model(file, model, raw));
  std::unordered_set<std::string> weights;
  for (const auto& t : model.graph().initializer()) weights.insert(as_utf8(t.name()));
  return read_inputs(model.graph(), weights);
}

Result<OnnxModel> read_onnx(const Bytes& file, const std::string& folder, DerivedConstants* derived) {
  ++files_read;
  onnx::ModelProto model;
  std::optional<RawFields> raw;
  TS_TRY(parse_model(file, model, raw));
  TensorSource source{.raw = raw ? &*raw : nullptr, .files = ExternalFiles(folder), .derived = derived};
  const Opsets opsets = read_opsets(model.opset_import());
  TS_TRY(check_opset(opsets));
  const onnx::GraphProto& graph = model.graph();
  if (graph.sparse_initializer_size() > 0) return bad_input("the model holds sparse weights, which are not supported");
  OnnxModel out{.name = as_utf8(graph.name()), .tensors = {}, .inputs = {}, .outputs = {}, .nodes = {}};
  for (const auto& t : graph.initializer()) {
    TS_ASSIGN(OnnxTensor tensor, read_tensor(t, source));
    out.tensors.push_back(std::move(tensor));
  }
  std::unordered_set<std::string> weights;
  for (const OnnxTensor& t : out.tensors) weights.insert(t.name);
  TS_ASSIGN(out.inputs, read_inputs(graph, weights));
  for (const auto& v : graph.output()) out.outputs.push_back(as_utf8(v.name()));
  std::vector<OnnxFunction> functions;
  for (const auto& f : model.functions()) {
    TS_ASSIGN(OnnxFunction function, read_function(&f, opsets, source));
    functions.push_back(std::move(function));
  }
  std::vector<OnnxNode> nodes;
  for (const auto& n : graph.node()) {
    TS_ASSIGN(OnnxNode node, read_node(&n, opsets, source));
    nodes.push_back(std::move(node));
  }
  TS_ASSIGN(out.nodes, inline_functions(std::move(nodes), functions));
  return out;
}

std::string onnx_type_name(int64_t data_type) {
  constexpr const char* kNames[] = {"UNDEFINED",      "FLOAT",    "UINT8",        "INT8",           "UINT16",
                                    "INT16",          "INT32",    "INT64",        "STRING",         "BOOL",
                                    "FLOAT16",        "DOUBLE",   "UINT32",       "UINT64",         "COMPLEX64",
                                    "COMPLEX128",     "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
                                    "FLOAT8E5M2FNUZ", "UINT4",    "INT4",         "FLOAT4E2M1",     "FLOAT8E8M0"};
  if (data_type >= 0 && data_type < static_cast<int64_t>(std::size(kNames))) return kNames[data_type];
  return cat("data type ", data_type);
}

}  // namespace tessera
