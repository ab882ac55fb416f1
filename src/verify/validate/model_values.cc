// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/model_values.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "ir/gather_codes.h"
#include "op/extra_results.h"
#include "op/reference.h"
#include "op/whole_numbers.h"
#include "ops/ops.h"
#include "steps/step.h"

namespace tessera {
namespace {

// In [-1, 1]; ids and truth values 0 or 1.
Dense draw(const Shape& shape, const QuantType& type, uint64_t seed) {
  Dense d{shape, std::vector<double>(static_cast<size_t>(elements(shape)))};
  for (size_t i = 0; i < d.v.size(); ++i) {
    const uint64_t bits = mix64(mix64(seed) + i * kMixStep);
    d.v[i] = is_whole(type) ? static_cast<double>(bits & 1) : static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
  }
  return d;
}

QuantType erased(const QuantType& type) { return is_whole(type) ? type : QuantType(Element::f32); }

Problem erased(const Problem& problem, const Cut& cut) {
  Problem p = problem;
  p.out.resize(1);
  for (const char* attr : {"p", kCodesResult, kCodesGain, kMomentsResult, kKeptResults}) p.attrs.erase(attr);
  std::erase_if(p.then.steps, [](const Step& s) { return info(s.kind).rounds; });
  for (Operand& o : p.in) {
    if (o.present) o = dense_operand(o.constant ? o.shape : cut.of(o.shape), erased(o.type), o.constant);
  }
  p.out[0] = dense_operand(cut.of(p.out[0].shape), erased(p.out[0].type));
  return p;
}

}  // namespace

Shape Cut::of(Shape shape) const {
  if (batch > samples && !shape.empty() && shape[0] % batch == 0) shape[0] = shape[0] / batch * samples;
  return shape;
}

Result<Dense> compute_erased(const Problem& problem, std::vector<Dense> in, const Cut& cut) {
  const OpInfo* op = find_op(problem.op);
  if (op == nullptr) return bad_input(cat("no op is called '", problem.op, "'"));
  const Problem p = erased(problem, cut);
  TS_TRY(check_problem(*op, p));
  for (size_t i = 0; i < in.size(); ++i) {
    if (p.in[i].present && elements(p.in[i].shape) != static_cast<int64_t>(in[i].v.size())) {
      return bad_input(cat("operand ", i, " is ", to_string(p.in[i].shape), " and has ", in[i].v.size(), " numbers"));
    }
    in[i].shape = p.in[i].shape;
  }
  if (op->check_numbers != nullptr) TS_TRY(op->check_numbers(p, in));
  return std::move(compute_reference(*op, p, in)[0]);
}

Result<Dense> gather(const std::vector<double>& storage, const Region& region, const Cut& cut) {
  Region few = region;
  few.shape = cut.of(few.shape);
  if (!in_range(few, static_cast<int64_t>(storage.size()))) return bad_input("the first samples do not lie together");
  Dense d{few.shape, std::vector<double>(static_cast<size_t>(elements(few.shape)))};
  for_each_element(few, [&](int64_t i, int64_t at) { d.v[static_cast<size_t>(i)] = storage[static_cast<size_t>(at)]; });
  return d;
}

double distance(const Dense& a, const Dense& b) {
  if (a.v.size() != b.v.size()) return INFINITY;
  const size_t cols = std::max<size_t>(1, b.shape.empty() ? 1 : static_cast<size_t>(b.shape.back())),
               rows = b.v.size() / cols;
  std::vector<double> off(rows, 0.0), size(rows, 0.0);
  double all = 0, worst = 0;
  for (size_t i = 0; i < rows * cols; ++i) {
    if (a.v[i] == b.v[i] || (std::isnan(a.v[i]) && std::isnan(b.v[i]))) continue;
    if (!std::isfinite(a.v[i]) || !std::isfinite(b.v[i])) return INFINITY;
    off[i / cols] += (a.v[i] - b.v[i]) * (a.v[i] - b.v[i]);
  }
  for (size_t i = 0; i < rows * cols; ++i) {
    if (std::isfinite(b.v[i])) size[i / cols] += b.v[i] * b.v[i];
  }
  for (double s : size) all += s / static_cast<double>(rows);
  for (size_t r = 0; r < rows; ++r) {
    if (off[r] > 0)
      worst = std::max(worst, std::sqrt(off[r] / (std::max(size[r], all) > 0 ? std::max(size[r], all) : 1)));
  }
  return worst;
}

ModelValues::ModelValues(const Graph& graph, const Cut& cut) : g_(graph), cut_(cut), producers_(graph.producers()) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id = static_cast<ValueId>(v);
    if (!graph.values[v].constant && placement_of(graph, producers_, id).base == id)
      by_name_[graph.values[v].name] = id;
  }
  for (const Node& n : graph.nodes) {
    const auto [it, fresh] = layers_.emplace(n.name, &n);
    if (!fresh) it->second = nullptr;
  }
  for (ValueId in : graph.inputs) hold(in);
}

ValueId ModelValues::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? kNoValue : it->second;
}

const Node* ModelValues::layer(const std::string& name) const {
  const auto it = layers_.find(name);
  return it == layers_.end() ? nullptr : it->second;
}

const Node* ModelValues::maker(ValueId value) const {
  const int maker = value == kNoValue ? -1 : producers_[static_cast<size_t>(value)];
  return maker < 0 ? nullptr : &g_.nodes[static_cast<size_t>(maker)];
}

Place ModelValues::place(ValueId value) const {
  const Placement p = placement_of(g_, producers_, value);
  return {p.base, {g_.at(value).type.shape, p.strides, p.offset}};
}

std::vector<double> ModelValues::constant(ValueId value) const {
  const Value& v = g_.at(value);
  if (!v.constant) return gather(constant(place(value).base), place(value).region, {}).value().v;
  const Operand desc = dense_operand(v.type.shape, v.type.quant, true);
  const auto bytes = [&](ValueId id) { return id == kNoValue ? nullptr : const_cast<uint8_t*>(g_.at(id).data.data()); };
  return decode({.desc = &desc, .data = bytes(value), .scale = bytes(v.scale), .scale2 = bytes(v.scale2)}).v;
}

void ModelValues::hold(ValueId value) {
  held_.insert(value);
  computed_.clear(), drawn_.clear();  // what was computed without it, and what is drawn again where it is needed
}

Result<const Dense*> ModelValues::numbers(ValueId base) {
  const Type& type = g_.at(base).type;
  if (held_.contains(base)) {
    const auto [it, fresh] = drawn_.emplace(base, Dense{});
    if (fresh) it->second = draw(cut_.of(type.shape), type.quant, static_cast<uint64_t>(base) + 1);
    return &it->second;
  }
  if (const auto it = computed_.find(base); it != computed_.end()) return &it->second;
  const Node* node = maker(base);
  if (node == nullptr) return bad_input(cat("value '", g_.at(base).name, "' has no maker"));
  TS_ASSIGN(Dense made, compute(*node));
  return &(computed_[base] = std::move(made));
}

Result<Dense> ModelValues::compute(const Node& node) {
  std::vector<Dense> in;
  for (ValueId id : node.inputs) {
    if (id == kNoValue) {
      in.emplace_back();
    } else if (is_constant(id)) {
      in.push_back(g_.at(id).constant ? Dense{g_.at(id).type.shape, constant(id)}
                                      : gather(constant(place(id).base), place(id).region, cut_).value());
    } else {
      TS_ASSIGN(Dense d, read(place(id)));
      in.push_back(std::move(d));
    }
  }
  return compute_erased(problem_of(g_, producers_, node), std::move(in), cut_);
}

Result<Dense> ModelValues::read(const Place& place) {
  TS_ASSIGN(const Dense* all, numbers(place.base));
  return gather(all->v, place.region, cut_);
}

}  // namespace tessera
