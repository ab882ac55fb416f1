// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/onnx.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "import/onnx/convert.h"
#include "import/onnx/float_types.h"
#include "import/onnx/missing.h"
#include "import/onnx/reader.h"
#include "io/mmap.h"
#include "ir/check.h"

namespace tessera {
namespace {

// "/blocks/blocks.0/attn/qkv/MatMul" -> "blocks.0.attn.qkv": modules from the outside in, a numbered one repeats its
// parent's name.
std::string module_path(const OnnxNode& node) {
  if (!node.scope.empty()) return node.scope;
  if (!node.name.starts_with("/")) return "";
  std::string out, previous;
  for (size_t start = 1, end; (end = node.name.find('/', start)) != std::string::npos; start = end + 1) {
    const std::string part = node.name.substr(start, end - start);
    if (!previous.empty() && part.starts_with(previous + ".")) {
      out.resize(out.size() - previous.size());
      out += part;
    } else {
      out += (out.empty() ? "" : ".") + part;
    }
    previous = part;
  }
  return out;
}

class Importer {
 public:
  Importer(const OnnxOptions& options, std::shared_ptr<DerivedConstants> derived)
      : options_(options), builder_(graph_) {
    graph_.derived = std::move(derived);
  }

  Result<Graph> run(const OnnxModel& model) {
    constants_ = constant_names(model);
    unsupported_ = unsupported_operators(model.nodes, constants_);
    count_readers(model.nodes);
    for (const OnnxNode& n : model.nodes) made_.insert(n.outputs.begin(), n.outputs.end());
    context_.outputs.insert(model.outputs.begin(), model.outputs.end());
    TS_TRY(add_tensors(model.tensors));
    TS_TRY(fix_sizes(model));
    for (const OnnxInput& input : model.inputs) TS_TRY(add_input(input).at(cat("input '", shown(input.name), "'")));
    TS_TRY(add_nodes(model.nodes));
    TS_TRY(all_failures());
    for (const std::string& name : model.outputs) TS_TRY(add_output(name));
    TS_TRY(check(graph_));
    return std::move(graph_);
  }

 private:
  Status define(const std::string& name, ValueId id) {
    if (name.empty()) return {};
    if (!ids_.emplace(name, id).second) return bad_input(cat("'", shown(name), "' is made twice"));
    defined_.push_back(name);
    return {};
  }

  void count_readers(const std::vector<OnnxNode>& nodes) {
    for (const OnnxNode& n : nodes) {
      for (const std::string& name : n.inputs) ++context_.readers[name];
      for (const auto& [key, a] : n.attrs) {
        if (a.branch == nullptr) continue;
        count_readers(a.branch->nodes);
        for (const std::string& name : a.branch->outputs) ++context_.readers[name];
      }
    }
  }

  Status add_tensors(const std::vector<OnnxTensor>& tensors) {
    for (const OnnxTensor& t : tensors) {
      const ValueId id = add_tensor(builder_, t);
      context_.stored[t.name] = t.stored;
      floats_.note(t.name, t.stored);
      context_.code_count += elements(t.type.shape);
      if (t.is_byte) context_.bytes.insert(id);
      TS_TRY(define(t.name, id));
    }
    return {};
  }

  // What fails is noted, and what depends on it is left out, so that one refusal names all that a model needs.
  Status add_nodes(const std::vector<OnnxNode>& nodes) {
    for (const OnnxNode& n : nodes) {
      const bool branches = is_if(n), known = branches || find_onnx_op(n) != nullptr,
                 lost =
                     std::any_of(n.inputs.begin(), n.inputs.end(), [&](const auto&in) { return lost_.contains(in); });
      Status status;
      if (known && !lost) status = branches ? add_if(n) : add_node(n, index_);
      if (!status.ok() && status.code() != Code::kBadInput) return status;
      if (!status.ok()) failures_.push_back(status.at(cat("node '", shown(n.name), "' (", shown(n.op), ")")).message());
      if (!known || lost || !status.ok()) lost_.insert(n.outputs.begin(), n.outputs.end());
      lost_.erase("");  // no operand
      index_ += n.op != "Constant";
    }
    return {};
  }

  Status all_failures() const {
    constexpr size_t kListed = 8;
    std::string text = unsupported_;
    for (size_t i = 0; i < std::min(kListed, failures_.size()); ++i)
      text += cat(text.empty() ? "" : "; ", failures_[i]);
    if (failures_.size() > kListed) text += cat("; and ", failures_.size() - kListed, " nodes more");
    return text.empty() ? Status() : bad_input(text);
  }

  // The branch that a condition known at build chooses; its names are seen by nobody else.
  Status add_if(const OnnxNode& node) {
    const auto condition = node.inputs.size() == 1 ? ids_.find(node.inputs[0]) : ids_.end();
    if (condition == ids_.end()) return bad_input("reads no condition that an earlier node makes");
    const std::vector<double> numbers = graph_.numbers(condition->second);
    if (numbers.size() != 1)
      return bad_input(cat("its condition '", shown(node.inputs[0]),
                           "' depends on the model's input; only conditions known at build are supported, those that "
                           "shapes decide among them; torch.onnx.export writes the branch that was taken where the "
                           "model is traced (dynamo=False), not scripted"));
    const auto attr = node.attrs.find(numbers[0] != 0 ? "then_branch" : "else_branch");
    if (attr == node.attrs.end() || attr->second.branch == nullptr) return bad_input("has no such branch");
    const OnnxBranch& branch = *attr->second.branch;
    if (branch.outputs.size() != node.outputs.size())
      return bad_input(cat("its branch gives ", branch.outputs.size(), " results, not ", node.outputs.size()));
    const size_t before = defined_.size();
    const Result<Values> results = add_branch(branch);
    for (; defined_.size() > before; defined_.pop_back()) ids_.erase(defined_.back());
    if (!results.ok()) return results.status();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if ((*results)[i] == kNoValue) {
        lost_.insert(node.outputs[i]);
      } else {
        TS_TRY(define(node.outputs[i], (*results)[i]));
      }
    }
    return {};
  }

  // Its results; kNoValue where one depends on what failed.
  Result<Values> add_branch(const OnnxBranch& branch) {
    if (const std::string missing = unsupported_operators(branch.nodes, constants_); !missing.empty())
      return bad_input(missing);
    TS_TRY(add_tensors(branch.tensors));
    TS_TRY(add_nodes(branch.nodes));
    Values results;
    for (const std::string& name : branch.outputs) {
      const auto it = ids_.find(name);
      if (it == ids_.end() && !lost_.contains(name))
        return bad_input(cat("the result '", shown(name), "' of its branch is made by no node"));
      if (context_.codes.contains(name)) return bad_input(cat("the result '", shown(name), "' of its branch is codes"));
      results.push_back(it == ids_.end() ? kNoValue : it->second);
    }
    return results;
  }

  // Shapes that the caller gives say what the names in them stand for, in other inputs, too.
  Status fix_sizes(const OnnxModel& model) {
    std::set<std::string> used;
    for (const OnnxInput& input : model.inputs) {
      batch_open_ |= !input.dims.empty() && input.dims[0].size < 0;
      const auto given = options_.shapes.find(input.name);
      if (given == options_.shapes.end()) continue;
      used.insert(input.name);
      const Shape& shape = given->second;
      bool fits = shape.size() == input.dims.size();
      for (size_t i = 0; fits && i < shape.size(); ++i) {
        const OnnxDim& d = input.dims[i];
        if (i == 0 && shape[i] == 0) continue;  // the batch
        fits = shape[i] >= 1 && (d.size < 0 || d.size == shape[i]);
        if (d.size < 0 && !d.symbol.empty()) fits &= sizes_.emplace(d.symbol, shape[i]).first->second == shape[i];
      }
      if (!fits)
        return bad_input(cat("input '", shown(input.name), "': shape ", to_string(shape), " does not fit the model's ",
                             described(input)));
    }
    for (const auto& [name, shape] : options_.shapes) {
      if (!used.contains(name))
        return bad_input(cat("a shape is given for '", shown(name), "', which is not an input of the model"));
    }
    return {};
  }

  Status add_input(const OnnxInput& input) {
    const auto given = options_.shapes.find(input.name);
    Shape shape = given != options_.shapes.end() ? given->second : Shape(input.dims.size(), 0);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != 0) continue;
      TS_ASSIGN(shape[i], size_of_axis(input, i));
    }
    if (!checked_elements(shape, kMaxElements)) return bad_input(cat("shape ", to_string(shape), " is too large"));
    const ValueId id =
        graph_.add_value({.name = input.name, .type = {shape, input.element}, .constant = false, .data = {}});
    graph_.inputs.push_back(id);
    if (input.is_byte) context_.bytes.insert(id);
    floats_.note(input.name, input.stored);
    return define(input.name, id);
  }

  // Of an axis that no given shape says.
  Result<int64_t> size_of_axis(const OnnxInput& input, size_t axis) const {
    const OnnxDim& d = input.dims[axis];
    const auto known = d.symbol.empty() ? sizes_.end() : sizes_.find(d.symbol);
    const int64_t size = d.size >= 0 ? d.size : known != sizes_.end() ? known->second : axis == 0 ? options_.batch : 0;
    // A model that leaves the batch open in one input may fix the first axis of another (positions, say).
    if (axis == 0 && d.size >= 0 && !batch_open_ && !options_.own_batch && options_.batch > 0 &&
        options_.batch != d.size)
      return bad_input(cat("the model fixes the batch to ", d.size, ", ", options_.batch, " was asked for"));
    if (size < 1 && axis == 0)
      return bad_input(cat("the batch is open in ", described(input), ": say which one to build for"));
    if (size < 1)
      return bad_input(cat("axis ", axis, " is open in ", described(input), ": give the input's whole shape, --shape ",
                           shown(input.name), "=", example(input)));
    return size;
  }

  // A shape that would fit, as it is written on the command line: "1,128".
  std::string example(const OnnxInput& input) const {
    std::string out;
    for (size_t i = 0; i < input.dims.size(); ++i) {
      const OnnxDim& d = input.dims[i];
      out += cat(i == 0 ? "" : ",", d.size >= 0 ? d.size : i == 0 ? std::max<int64_t>(options_.batch, 1) : 128);
    }
    return out;
  }

  static std::string described(const OnnxInput& input) {
    std::string out = "[";
    for (const OnnxDim& d : input.dims)
      out += cat(out.size() == 1 ? "" : ",", d.size >= 0        ? std::to_string(d.size)
                                             : d.symbol.empty() ? "?"
                                                                : shown(d.symbol));
    return out + "]";
  }

  Status add_node(const OnnxNode& node, int64_t index) {
    OnnxCall call{.b = builder_, .file = context_, .node = node, .in = {}, .layer = module_path(node), .index = index};
    for (const std::string& name : node.inputs) {
      const auto it = ids_.find(name);
      if (it == ids_.end() && !name.empty())
        return bad_input(
            cat("reads '", shown(name), "', which no earlier node makes",
                made_.contains(name) ? ", but this one or a later one: a cycle, or nodes out of order" : ""));
      call.in.push_back(name.empty() ? kNoValue : it->second);
    }
    TS_TRY(check_codes(call));
    TS_TRY(floats_.check(node));
    floats_.note(node);
    const size_t before = graph_.values.size();
    TS_ASSIGN(const Values results, find_onnx_op(node)->convert(call));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const std::string& name = node.outputs[i];
      if (name.empty()) continue;
      // Results that we do not make (a norm's statistics, a dropout's mask) may stand in the list as long as no node
      // reads them.
      if (i >= results.size()) continue;
      Value& v = graph_.at(results[i]);
      if (static_cast<size_t>(results[i]) >= before && (!v.constant || node.op == "Constant")) v.name = name;
      TS_TRY(define(name, results[i]));
    }
    note_bytes(call, results);
    return hand_on_codes(call);
  }

  // UINT8 and BOOL are both u8: what moves bytes gives bytes, what compares gives bools.
  void note_bytes(const OnnxCall& call, const Values& results) {
    constexpr const char* kTruths[] = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And",
                                       "Or",    "Xor",  "Not",         "IsNaN",   "IsInf"};
    bool bytes = false;
    if (call.node.op == "Cast") {
      bytes = call.integer("to", 0).value() == kOnnxUint8;
    } else if (std::find(std::begin(kTruths), std::end(kTruths), call.node.op) == std::end(kTruths)) {
      for (ValueId v : call.in) bytes |= v != kNoValue && context_.bytes.contains(v);
    }
    for (ValueId v : results) {
      if (bytes && builder_.element(v) == Element::u8) context_.bytes.insert(v);
    }
  }

  Status add_output(const std::string& name) {
    const auto it = ids_.find(name);
    if (it == ids_.end()) return bad_input(cat("output '", shown(name), "' is made by no node"));
    if (context_.codes.contains(name) || graph_.at(it->second).type.quant.scaled())
      return bad_input(cat("output '", shown(name),
                           "' is the codes of a quantization; numbers can be given out: end with ",
                           "DequantizeLinear"));
    ValueId id = it->second;
    // A result has the name that the model gives it. One that has another name already (an input, a constant, another
    // output) is copied.
    bool taken = graph_.at(id).constant || !results_.insert(id).second;
    for (ValueId input : graph_.inputs) taken |= input == id;
    if (taken) {
      Node copy{
          .name = name, .op = "copy", .inputs = {id}, .outputs = {}, .attrs = {}, .then = {}, .role = {}, .asked = {}};
      id = graph_.add_value({.name = name, .type = graph_.at(id).type, .constant = false, .data = {}});
      copy.outputs = {id};
      graph_.nodes.push_back(std::move(copy));
    }
    graph_.at(id).name = name;
    graph_.outputs.push_back(id);
    return {};
  }

  const OnnxOptions& options_;
  Graph graph_;
  GraphBuilder builder_;
  OnnxContext context_;
  FloatTypes floats_;
  std::unordered_map<std::string, ValueId> ids_;
  std::unordered_set<std::string> lost_;       // names that depend on what failed
  std::vector<std::string> failures_;          // of nodes, each with its node
  std::string unsupported_;                    // operators
  std::unordered_set<std::string> constants_;  // names that no input changes
  std::vector<std::string> defined_;           // the names in ids_, in order
  int64_t index_ = 0;                          // of the next node, without Constants
  std::map<std::string, int64_t> sizes_;       // of open axes, by their names
  bool batch_open_ = false;                    // some input leaves its first axis open
  std::set<ValueId> results_;
  std::unordered_set<std::string> made_;  // by any node of the file
};

Result<Graph> convert(const OnnxModel& model, std::shared_ptr<DerivedConstants> derived, const std::string& name,
                      const OnnxOptions& options) {
  if (options.batch < 0) return usage_error(cat("batch ", options.batch, ": a batch is at least 1"));
  TS_ASSIGN(Graph graph, Importer(options, std::move(derived)).run(model));
  graph.name = name.empty() ? model.name : name;
  return graph;
}

}  // namespace

Result<OnnxFile> OnnxFile::open(const std::string& path) {
  TS_ASSIGN(Bytes map, map_file(path));
  const Bytes file = read_by_turns(std::move(map));
  const std::filesystem::path p(path);
  OnnxFile out;
  out.path_ = path;
  out.name_ = as_utf8(p.stem().string());
  out.derived_ = std::make_shared<DerivedConstants>();
  auto model = read_onnx(file, p.has_parent_path() ? p.parent_path().string() : ".", out.derived_.get());
  if (!model.ok()) return model.status().at(path);
  out.model_ = std::make_shared<const OnnxModel>(std::move(model).value());
  return out;
}

std::optional<Shape> OnnxFile::axes_of_input(const std::string& name) const {
  for (const OnnxInput& input : model_->inputs) {
    if (input.name != name) continue;
    Shape axes;
    for (const OnnxDim& d : input.dims) axes.push_back(d.size);
    return axes;
  }
  return std::nullopt;
}

Result<Graph> OnnxFile::graph(const OnnxOptions& options) const {
  Result<Graph> graph = convert(*model_, derived_, name_, options);
  if (!graph.ok()) return graph.status().at(path_);
  return graph;
}

Result<Graph> import_onnx(const std::string& path, const OnnxOptions& options) {
  TS_ASSIGN(const OnnxFile file, OnnxFile::open(path));
  return file.graph(options);
}

Result<Graph> import_onnx(const Bytes& file, const std::string& name, const OnnxOptions& options) {
  TS_ASSIGN(const OnnxModel model, read_onnx(file, ""));
  return convert(model, nullptr, name, options);
}

}  // namespace tessera
