// SPDX-License-Identifier: Apache-2.0
#include "verify/model_as_written.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "base/memory.h"
#include "io/mmap.h"
#include "op/op.h"
#include "op/reference.h"
#include "ops/ops.h"
#include "rewrite/keep_caches.h"

namespace tessera {
namespace {

// Values in memory while they are needed: a graph that is run node by node would otherwise hold all of them.
class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) : g_(graph), producers_(graph.producers()) {
    const size_t n = graph.values.size();
    storage_.resize(n), scales_.resize(n), operands_.resize(n), last_read_.assign(n, -1);
    for (size_t v = 0; v < n; ++v) {
      const ValueId id = static_cast<ValueId>(v);
      placements_.push_back(placement_of(graph, producers_, id));
      operands_[v] = dense_operand(graph.values[v].type.shape, graph.values[v].type.quant, graph.values[v].constant);
      operands_[v].strides = placements_[v].strides;
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (ValueId id : graph.nodes[i].inputs) {
        if (id != kNoValue) last_read_[base(id)] = static_cast<int64_t>(i);
      }
      for (ValueId id : graph.nodes[i].outputs) last_read_[base(id)] = std::max(last_read_[base(id)], int64_t(i));
    }
    for (ValueId id : graph.outputs) last_read_[base(id)] = static_cast<int64_t>(graph.nodes.size());
  }

  Status set_input(ValueId id, const Bytes& data) {
    TS_TRY(hold(id));
    Buffer& b = storage_[static_cast<size_t>(id)];
    if (b.size() != data.size()) {
      return machine_error(cat("internal: input '", g_.at(id).name, "' has ", b.size(), " bytes as written, ",
                               data.size(), " in the engine"));
    }
    if (b.size() > 0) std::memcpy(b.data(), data.data(), b.size());
    return {};
  }

  Status run() {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& n = g_.nodes[i];
      if (n.op == "view") continue;
      const OpInfo* op = find_op(n.op);
      if (op == nullptr) return bad_input(cat("node '", n.name, "': unknown op '", n.op, "'"));
      std::vector<TensorView> in, out;
      for (ValueId id : n.inputs) in.push_back(view(id));
      for (ValueId id : n.outputs) {
        TS_TRY(hold(id));
        out.push_back(view(id));
      }
      TS_TRY(run_reference(*op, problem_of(g_, producers_, n), in, out).at(cat("layer ", n.name)));
      release(n.inputs, i), release(n.outputs, i);
    }
    return {};
  }

  std::vector<double> numbers(ValueId id) { return decode(view(id)).v; }

 private:
  size_t base(ValueId id) const { return static_cast<size_t>(placements_[static_cast<size_t>(id)].base); }

  Status hold(ValueId id) {
    const size_t v = static_cast<size_t>(id);
    const Type& type = g_.values[v].type;
    const int64_t count = elements(type.shape);
    TS_ASSIGN(storage_[v], allocate(packed_bytes(type.quant.element, count), cat("'", g_.values[v].name, "'")));
    if (type.quant.dynamic) {
      const int64_t cols = type.shape.empty() ? 1 : std::max<int64_t>(1, type.shape.back());
      const int64_t scales = scale_count(type.quant.scale, count / cols, cols);
      TS_ASSIGN(scales_[v], allocate(packed_bytes(type.quant.scale.element, scales),
                                     cat("the scales of '", g_.values[v].name, "'")));
    }
    return {};
  }

  void release(const std::vector<ValueId>& ids, size_t node) {
    for (ValueId id : ids) {
      if (id == kNoValue) continue;
      if (const Value& v = g_.values[base(id)]; v.constant) give_back(v.data.data(), v.data.size());
      if (last_read_[base(id)] > static_cast<int64_t>(node)) continue;
      storage_[base(id)] = Buffer();
      scales_[base(id)] = Buffer();
    }
  }

  TensorView view(ValueId id) {
    TensorView t;
    if (id == kNoValue) return t;
    const size_t v = static_cast<size_t>(id);
    const Value& owner = g_.values[base(id)];
    uint8_t* data = owner.constant ? const_cast<uint8_t*>(owner.data.data()) : storage_[base(id)].data();
    t.desc = &operands_[v];
    t.data = data + placements_[v].offset * info(owner.type.quant.element).bits / 8;
    t.scale = scales_of(g_.values[v].scale);
    t.scale2 = scales_of(g_.values[v].scale2);
    if (t.scale == nullptr && scales_[base(id)].size() > 0) t.scale = scales_[base(id)].data();
    return t;
  }
  void* scales_of(ValueId id) {
    if (id == kNoValue) return nullptr;
    return g_.at(id).constant ? const_cast<uint8_t*>(g_.at(id).data.data()) : storage_[base(id)].data();
  }

  const Graph& g_;
  const std::vector<int> producers_;
  std::vector<Placement> placements_;
  std::vector<Operand> operands_;
  std::vector<Buffer> storage_, scales_;
  std::vector<int64_t> last_read_;  // node after which a storage is not needed
};

// Fraction bits that a number needs, as an f32.
int fraction_bits(double x) {
  int exponent = 0;
  const double fraction = std::ldexp(std::frexp(std::fabs(static_cast<double>(static_cast<float>(x))), &exponent), 24);
  int64_t bits = static_cast<int64_t>(fraction);
  int count = 23;
  for (; count > 0 && bits % 2 == 0; --count) bits /= 2;
  return count;
}

// A past of the model as written is as long as it was imported; the engine's cache has room for the new rows, too
// (rewrite/keep_caches.h). Its first rows, where concat(past, new) is as large as the data.
Result<Bytes> without_new_rows(const Graph& graph, const Value& past, Bytes data) {
  const int64_t bits = info(past.type.quant.element).bits, have = static_cast<int64_t>(data.size()) * 8 / bits;
  if (have == elements(past.type.shape)) return data;
  for (const Node& n : graph.nodes) {
    if (n.op != "concat" || &graph.at(n.inputs[0]) != &past) continue;
    const Shape& all = graph.at(n.outputs[0]).type.shape;
    const int64_t axis = n.attrs.integer("axis"), a = axis < 0 ? axis + static_cast<int64_t>(all.size()) : axis;
    if (elements(all) != have) continue;
    int64_t outer = 1;
    for (int64_t d = 0; d < a; ++d) outer *= all[static_cast<size_t>(d)];
    const size_t from = data.size() / static_cast<size_t>(outer);
    const size_t to = static_cast<size_t>(elements(past.type.shape) / outer * bits / 8);
    Buffer cut(to * static_cast<size_t>(outer));
    for (size_t r = 0; r < static_cast<size_t>(outer); ++r)
      std::memcpy(cut.data() + r * to, data.data() + r * from, to);
    return Bytes::own(std::move(cut));
  }
  return machine_error(cat("internal: input '", past.name, "' has ", have, " numbers, the model as written ",
                           elements(past.type.shape)));
}

// The model as written has no input for the length of its past: it is as long as the model was imported with.
Status check_full_caches(const Graph& graph, const Samples& samples) {
  const auto named = std::find(samples.names.begin(), samples.names.end(), kPastLength);
  if (named == samples.names.end()) return {};
  for (const ValueId id : graph.inputs) {
    if (graph.at(id).name == kPastLength) return {};
  }
  const Bytes& lengths = samples.data[static_cast<size_t>(named - samples.names.begin())];
  for (const Node& n : graph.nodes) {
    if (n.op != "concat" || n.inputs.empty() || n.inputs[0] == kNoValue) continue;
    if (std::find(graph.inputs.begin(), graph.inputs.end(), n.inputs[0]) == graph.inputs.end()) continue;
    const Shape& past = graph.at(n.inputs[0]).type.shape;
    const int64_t axis = n.attrs.integer("axis");
    const int64_t rows = past[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(past.size()) : axis)];
    for (size_t at = 0; at + sizeof(int32_t) <= lengths.size(); at += sizeof(int32_t)) {
      int32_t length;
      std::memcpy(&length, lengths.data() + at, sizeof(length));
      if (length != rows)
        return bad_input(cat("input '", kPastLength, "' has ", length, " and input '", graph.at(n.inputs[0]).name,
                             "' of the model as written ", rows, " rows: the model can be compared at ", rows,
                             " alone; leave ", kPastLength, " at it, or out"));
    }
  }
  return {};
}

}  // namespace

Result<Outputs64> run_as_written(const Graph& graph, const Samples& samples) {
  TS_TRY(check_full_caches(graph, samples));
  Interpreter interpreter(graph);
  for (ValueId id : graph.inputs) {
    const auto named = std::find(samples.names.begin(), samples.names.end(), graph.at(id).name);
    if (named == samples.names.end())
      return machine_error(cat("internal: the engine has no input '", graph.at(id).name, "'"));
    const size_t at = static_cast<size_t>(named - samples.names.begin());
    const Element is = graph.at(id).type.quant.element;
    Bytes data = samples.data[at];
    if (!samples.elements.empty() && samples.elements[at] != is) data = converted(data, samples.elements[at], is);
    TS_ASSIGN(data, without_new_rows(graph, graph.at(id), std::move(data)));
    TS_TRY(interpreter.set_input(id, data));
  }
  TS_TRY(interpreter.run());
  Outputs64 outputs;
  for (ValueId id : graph.outputs) outputs.push_back(interpreter.numbers(id));
  return outputs;
}

std::string foreign_activation(const Graph& written, const Graph& canonical) {
  std::set<std::string> have;
  const auto collect = [&](const Graph& graph, const std::function<void(const Node&, const std::string&)>& body) {
    for (const Node& n : graph.nodes) {
      if (n.op == "map") body(n, n.attrs.word("fn"));
      for (const Step& s : n.then.steps) {
        if (names_function(s.kind)) body(n, name_of(s.fn));
      }
    }
  };
  collect(written, [&](const Node&, const std::string& fn) { have.insert(fn); });
  // What each is computed from where it is spelt out.
  const std::map<std::string, std::string> spelt = {
      {"gelu_erf", "erf"}, {"gelu_tanh", "tanh"}, {"gelu_quick", "sigmoid"}, {"silu", "sigmoid"}};
  std::string found;
  collect(canonical, [&](const Node& n, const std::string& fn) {
    const auto it = spelt.find(fn);
    if (!found.empty() || it == spelt.end() || have.contains(fn) || have.contains(it->second)) return;
    found = cat("layer ", n.name, " computes ", fn, ", and the model as written has neither that nor ", it->second);
  });
  return found;
}

double coarseness_of(const Graph& graph) {
  int most = 0;
  for (const Value& v : graph.values) {
    const bool number = v.constant && elements(v.type.shape) == 1 && !v.type.quant.scaled() &&
                        info(v.type.quant.element).kind == ElementKind::kFloat;
    if (!number) continue;
    double x = 0;
    info(v.type.quant.element).decode_f64(v.data.data(), 0, 1, &x);
    // Epsilons and numbers that hide keys are read as they are, whatever their type.
    if (std::fabs(x) > 0x1p-6 && std::fabs(x) < 0x1p6) most = std::max(most, fraction_bits(x));
  }
  // Numbers of so few bits (0.5, 1, 0.044) are the same in every type.
  constexpr int kPlain = 4;
  for (const Element narrow : {Element::bf16, Element::f16}) {
    if (most > kPlain && most <= info(narrow).mantissa_bits) return std::ldexp(1.0, -info(narrow).mantissa_bits - 1);
  }
  return 0;
}

bool is_in_bf16(const Graph& graph) {
  // All numbers end where bf16 ends, and a quarter reach as far: of random ones half do, of whole numbers few.
  const auto in_bf16 = [](const Value& v, int64_t count) {
    int64_t last_bit = 0;
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, v.data.data() + 4 * i, 4);
      if ((bits & 0xffff) != 0) return false;
      last_bit += bits >> 16 & 1;
    }
    return last_bit >= count / 4;
  };
  int64_t all = 0, found = 0;
  for (const Value& v : graph.values) {
    const int64_t count = elements(v.type.shape);
    if (!v.constant || v.type.shape.size() < 2 || count < 64 || v.type.quant != QuantType(Element::f32)) continue;
    all += count;
    if (in_bf16(v, count)) found += count;
    give_back(v.data.data(), v.data.size());
  }
  return found > all / 2;
}

}  // namespace tessera
