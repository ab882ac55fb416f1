// SPDX-License-Identifier: Apache-2.0
#include "ops/builder.h"

#include <algorithm>
#include <cstring>

#include "ir/derived_constants.h"
#include "ir/gather_codes.h"
#include "ir/text.h"
#include "op/reference.h"
#include "ops/ops.h"

namespace tessera {
namespace {

// Folding is for shape arithmetic and small tables: beyond these sizes (numbers held as f64, seconds of work) a node
// stays a node.
constexpr int64_t kFoldElements = int64_t{1} << 24;
constexpr double kFoldFlops = 0x1p33;
// A FoldBudget: these, and so much for each byte of the graph's constants. Casting and transposing all weights takes
// two or three times their bytes; a product of two weights of 1024 x 1024 takes 512 operations per byte.
constexpr double kFreeBytes = 0x1p22, kBytesPerByte = 4, kFreeFlops = 0x1p27, kFlopsPerByte = 0x1p12;
constexpr double kFlopsPerElement = 32;  // decoding, walking and encoding, in multiplications that take as long
// A repeated constant is spelt out up to this size; a larger one stays a view.
constexpr int64_t kSpeltElements = int64_t{1} << 20;

std::string text_of(const Operand& o, int64_t offset) {
  return o.present ? cat(" ", to_string(o.type), to_string(o.shape), to_string(o.strides), "+", offset) : " -";
}

// All that a folded result depends on but the operands' bytes.
std::string recipe_of(const Problem& p, const std::vector<int64_t>& offsets) {
  std::string text = "fold " + p.op;
  for (size_t i = 0; i < p.in.size(); ++i) text += text_of(p.in[i], offsets[i]);
  text += " ->" + text_of(p.out[0], 0);
  for (const auto& [key, value] : p.attrs.all()) {
    text += cat(" ", key, "=");
    if (const auto* i = std::get_if<int64_t>(&value)) text += std::to_string(*i);
    if (const auto* d = std::get_if<double>(&value)) text += number_text(*d);
    if (const auto* s = std::get_if<std::string>(&value)) text += cat(s->size(), ":", *s);
    if (const auto* l = std::get_if<std::vector<int64_t>>(&value)) text += to_string(*l);
  }
  for (const Step& step : p.then.steps) text += " " + text_of(step);
  return text;
}

}  // namespace

Result<size_t> resolve_axis(int64_t axis, size_t rank) {
  const int64_t n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n)
    return bad_input(cat("axis ", axis, " does not exist, a tensor of ", n, " axes has ", -n, " to ", n - 1));
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

Result<Shape> broadcast_shape(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return bad_input(cat("shapes ", to_string(a), " and ", to_string(b), " do not broadcast"));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

bool FoldBudget::take(int64_t bytes, double flops) {
  for (; seen_ < g_.values.size(); ++seen_) {
    const Value& v = g_.values[seen_];
    if (v.constant) given_ += static_cast<double>(v.data.size());
  }
  given_ = std::max(0.0, given_ - unseen_);
  unseen_ = 0;
  if (made_ + static_cast<double>(bytes) > kFreeBytes + kBytesPerByte * given_ ||
      worked_ + flops > kFreeFlops + kFlopsPerByte * given_) {
    return false;
  }
  made_ += static_cast<double>(bytes);
  unseen_ = static_cast<double>(bytes);
  worked_ += flops;
  return true;
}

GraphBuilder::GraphBuilder(Graph& graph, size_t position, FoldBudget* budget)
    : g_(graph), position_(position), appending_(position == graph.nodes.size()), own_budget_(graph), budget_(budget) {
  for (size_t i = 0; i < position_; ++i) {
    const Node& n = g_.nodes[i];
    if (n.op == "view") {
      Place p = place(n.inputs[0]);
      p.region = {shape(n.outputs[0]), n.attrs.list("strides"), p.region.offset + n.attrs.integer("offset")};
      if (places_.size() < g_.values.size()) place(static_cast<ValueId>(g_.values.size()) - 1);
      places_[static_cast<size_t>(n.outputs[0])] = std::move(p);
    } else if (n.op == "copy" && g_.at(n.inputs[0]).type.quant == g_.at(n.outputs[0]).type.quant &&
               !g_.at(n.inputs[0]).type.quant.scaled()) {
      copied_[n.outputs[0]] = n.inputs[0];
    }
  }
}

Place GraphBuilder::place(ValueId v) {
  while (places_.size() <= static_cast<size_t>(v)) {
    const ValueId next = static_cast<ValueId>(places_.size());
    places_.push_back({next, dense_region(shape(next))});
  }
  return places_[static_cast<size_t>(v)];
}

Result<std::vector<int64_t>> GraphBuilder::integers(ValueId v, const std::string& what) {
  if (v == kNoValue) return bad_input(what + " is missing");
  const Place p = place(v);
  const Value& base = g_.at(p.base);
  const Element e = base.type.quant.element;
  if (!base.constant)
    return bad_input(cat(what, " ('", g_.at(v).name, "') must be known at build, but depends on the model's input"));
  if (info(e).kind != ElementKind::kInteger || info(e).bits < 8)
    return bad_input(cat(what, " ('", g_.at(v).name, "') is ", info(e).name, ", integers of whole bytes are needed"));
  const int64_t n = elements(shape(v));
  if (n > 1000000) return bad_input(cat(what, " holds ", n, " numbers"));
  const Buffer codes = gather_codes(base.data.data(), info(e).bits, p.region);
  std::vector<int64_t> out(static_cast<size_t>(n));
  if (e == Element::i64) {
    if (n > 0) std::memcpy(out.data(), codes.data(), codes.size());
    return out;
  }
  std::vector<double> numbers(static_cast<size_t>(n));
  info(e).decode_f64(codes.data(), 0, n, numbers.data());
  std::transform(numbers.begin(), numbers.end(), out.begin(), [](double x) { return static_cast<int64_t>(x); });
  return out;
}

ValueId GraphBuilder::add(Node node, Type type) {
  const ValueId id = g_.add_value(
      {.name = node.name.empty() ? node.op : node.name, .type = std::move(type), .constant = false, .data = {}});
  node.outputs = {id};
  g_.nodes.insert(g_.nodes.begin() + static_cast<std::ptrdiff_t>(position_), std::move(node));
  ++position_;
  return id;
}

Result<ValueId> GraphBuilder::emit(std::string op, std::vector<ValueId> inputs, Attrs attrs, std::string name) {
  return emit(Node{.name = std::move(name),
                   .op = std::move(op),
                   .inputs = std::move(inputs),
                   .outputs = {},
                   .attrs = std::move(attrs),
                   .then = {},
                   .role = {},
                   .asked = {}});
}

Result<ValueId> GraphBuilder::emit(Node node) {
  const OpInfo* op = find_op(node.op);
  if (op == nullptr) return bad_input(cat("unknown op '", node.op, "'"));
  Problem problem{.op = node.op, .in = {}, .out = {}, .attrs = node.attrs, .then = node.then};
  for (ValueId id : node.inputs) {
    if (id == kNoValue) {
      problem.in.emplace_back();
      continue;
    }
    Operand o = dense_operand(shape(id), g_.at(id).type.quant, g_.at(id).constant);
    o.strides = place(id).region.strides;
    problem.in.push_back(std::move(o));
  }
  TS_ASSIGN(const std::vector<Type> types, infer_types(*op, problem));
  TS_CHECK(types.size() == 1, node.op, " has ", types.size(), " results");
  if (!checked_elements(types[0].shape, kMaxElements))
    return bad_input(cat(node.op, ": its result ", to_string(types[0].shape), " is too large"));
  problem.out.push_back(dense_operand(types[0].shape, types[0].quant));
  TS_ASSIGN(const std::optional<ValueId> folded, fold(*op, node, problem));
  if (folded) return *folded;
  const bool plain_copy = node.op == "copy" && problem.in[0].type == types[0].quant;
  const ValueId source = node.inputs.empty() ? kNoValue : node.inputs[0];
  const ValueId id = add(std::move(node), types[0]);
  if (plain_copy) copied_[id] = source;
  return id;
}

Result<std::optional<ValueId>> GraphBuilder::fold(const OpInfo& op, const Node& node, const Problem& problem) {
  const std::optional<ValueId> none;
  int64_t work = elements(problem.out[0].shape);
  for (ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    const QuantType& type = g_.at(id).type.quant;
    if (!is_constant(id) || type.scaled() || info(type.element).bits < 8) return none;
    work = std::max(work, elements(shape(id)));
  }
  if (work > kFoldElements || (op.flops != nullptr && op.flops(problem) > kFoldFlops)) return none;
  std::vector<TensorView> in;
  std::vector<Bytes> from;
  std::vector<int64_t> offsets(node.inputs.size(), 0);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    TensorView t;
    if (node.inputs[i] != kNoValue) {
      const Place p = place(node.inputs[i]);
      const Value& base = g_.at(p.base);
      t.desc = &problem.in[i];
      // Read only: evaluate() writes to its results alone.
      t.data = const_cast<uint8_t*>(base.data.data()) + p.region.offset * (info(base.type.quant.element).bits / 8);
      from.push_back(base.data);
      offsets[i] = p.region.offset;
    }
    in.push_back(t);
  }
  if (!budget().take(packed_bytes(problem.out[0].type.element, elements(problem.out[0].shape)),
                     kFlopsPerElement * static_cast<double>(work) + (op.flops != nullptr ? op.flops(problem) : 0))) {
    return none;
  }
  TS_ASSIGN(std::vector<Bytes> bytes,
            derive(g_, recipe_of(problem, offsets), from, [&] { return evaluate(op, problem, in); }));
  return std::optional<ValueId>(g_.add_constant(node.name.empty() ? node.op : node.name,
                                                Type{problem.out[0].shape, problem.out[0].type}, std::move(bytes[0])));
}

Result<ValueId> GraphBuilder::map(std::string fn, std::vector<ValueId> inputs, std::string name) {
  return emit("map", std::move(inputs), {{"fn", std::move(fn)}}, std::move(name));
}

Result<ValueId> GraphBuilder::cast(ValueId v, Element element, std::string name) {
  if (g_.at(v).type.quant == QuantType(element)) return v;
  return emit("copy", {v}, {{"element", std::string(info(element).name)}}, std::move(name));
}

ValueId GraphBuilder::quantize(ValueId v, const QuantType& type, ValueId scale, ValueId scale2, std::string name) {
  Node node{.name = std::move(name),
            .op = "copy",
            .inputs = {v},
            .outputs = {},
            .attrs = {},
            .then = {},
            .role = {},
            .asked = {}};
  const ValueId id = add(std::move(node), Type{shape(v), type});
  g_.at(id).scale = scale;
  g_.at(id).scale2 = scale2;
  return id;
}

Result<ValueId> GraphBuilder::concat(std::vector<ValueId> inputs, int64_t axis, std::string name) {
  if (inputs.size() == 1) return inputs[0];
  return emit("concat", std::move(inputs), {{"axis", axis}}, std::move(name));
}

ValueId GraphBuilder::scalar(double x, Element element, std::string name) {
  Buffer buffer(static_cast<size_t>(packed_bytes(element, 1)));
  info(element).encode_f64(&x, 1, buffer.data(), 0);
  return g_.add_constant(name.empty() ? "scalar" : std::move(name), Type{{}, element}, Bytes::own(std::move(buffer)));
}

ValueId GraphBuilder::integer_list(const std::vector<int64_t>& numbers, const std::string& name) {
  Buffer buffer(numbers.size() * sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(buffer.data(), numbers.data(), buffer.size());
  return g_.add_constant(name.empty() ? "list" : name, Type{{static_cast<int64_t>(numbers.size())}, Element::i64},
                         Bytes::own(std::move(buffer)));
}

std::optional<ValueId> GraphBuilder::spelt_out(ValueId constant, const Region& region) {
  const Type type{region.shape, g_.at(constant).type.quant};
  const int64_t count = elements(region.shape);
  const int bits = info(type.quant.element).bits;
  if (type.quant.scaled()) return std::nullopt;
  if (count > elements(shape(constant)) && count > kSpeltElements) return std::nullopt;
  Bytes data = g_.at(constant).data;
  if (!region.whole() || count != elements(shape(constant))) {
    if (!budget().take(packed_bytes(type.quant.element, count), 0)) return std::nullopt;
    const std::string recipe =
        cat("view ", bits, to_string(region.shape), to_string(region.strides), "+", region.offset);
    auto made = derive(g_, recipe, {&data, 1}, [&]() -> Result<std::vector<Buffer>> {
      std::vector<Buffer> one;
      one.push_back(gather_codes(data.data(), bits, region));
      return one;
    });
    data = std::move(made).value()[0];
  }
  return g_.add_constant(g_.at(constant).name, type, std::move(data));
}

Status check_ops(const Graph& graph) {
  const std::vector<int> producers = graph.producers();
  for (const Node& n : graph.nodes) {
    if (n.op == "view") continue;
    const OpInfo* op = find_op(n.op);
    if (op == nullptr) return bad_input(cat("node '", n.name, "': unknown op '", n.op, "'"));
    TS_TRY(check_problem(*op, problem_of(graph, producers, n)).at(cat("node '", n.name, "'")));
  }
  return {};
}

}  // namespace tessera
