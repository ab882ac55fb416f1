// SPDX-License-Identifier: Apache-2.0
#include "lower/fold_one.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "ir/derived_constants.h"
#include "lower/fold_norms.h"
#include "op/extra_results.h"
#include "plan/plan.h"

namespace tessera {
namespace {

Node with_moments(Graph& g, Node layer) {
  if (layer.attrs.integer(kMomentsResult) != 0) return layer;
  Value v;
  v.name = g.at(layer.outputs[0]).name + ".moments";
  v.type = {g.at(layer.outputs[0]).type.shape, Element::f32};
  v.type.shape.back() = moment_groups(v.type.shape.back());
  v.type.shape.push_back(2);
  layer.attrs.set(kMomentsResult, int64_t{1});
  layer.outputs.push_back(g.add_value(std::move(v)));
  return layer;
}

Node view_of(ValueId base, const Shape& shape, int64_t offset, ValueId out) {
  return {.name = {},
          .op = "view",
          .inputs = {base},
          .outputs = {out},
          .attrs = {{"strides", dense_strides(shape)}, {"offset", offset}}};
}

// A vector of a row that a gather makes: columns from `first` on.
Node vector_of(Graph& g, ValueId row, const std::string& name, int64_t first, int64_t count) {
  Value v;
  v.name = name;
  v.type = {{count}, g.at(row).type.quant};
  v.exact = g.at(row).exact;
  return view_of(row, {count}, first, g.add_value(std::move(v)));
}

// The layer before the norm writes x times the gain, as codes beside x. Appends the view that it reads the gain
// through.
Node with_gained_codes(Graph& g, const Fold& f, Node layer, std::vector<Node>& nodes) {
  const Node& norm = g.nodes[f.norm];
  const TableRow& gain = f.modulated->gain;
  const Type x = g.at(layer.outputs[0]).type;
  nodes.push_back(vector_of(g, g.nodes[gain.gather].outputs[0], norm.name + ".gain", gain.first, x.shape.back()));
  Value v;
  v.name = gained_value(g.at(norm.outputs[0]).name);
  v.type = x;
  layer.attrs.set(kCodesResult, int64_t{1});
  layer.attrs.set(kCodesGain, static_cast<int64_t>(layer.inputs.size()));
  layer.inputs.push_back(nodes.back().outputs[0]);
  layer.outputs.insert(layer.outputs.begin() + 1, g.add_value(std::move(v)));
  return layer;
}

std::vector<double> numbers_or(const Graph& g, const Node& norm, size_t input, int64_t cols, double otherwise) {
  if (norm.inputs.size() > input && norm.inputs[input] != kNoValue) return g.numbers(norm.inputs[input]);
  return std::vector<double>(static_cast<size_t>(cols), otherwise);
}

// The weight with gain and centring in it; `shift`, on return, what the norm's shift adds to each result.
std::vector<float> folded_weight(const std::vector<double>& w, const std::vector<double>& gain,
                                 std::vector<double>& shift, bool centre) {
  const size_t k = gain.size(), rows = w.size() / k;
  std::vector<float> made(w.size());
  std::vector<double> added(rows, 0.0);
  parallel_for(static_cast<int64_t>(rows), 16, [&](int64_t begin, int64_t end) {
    for (size_t r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      double mean = 0;
      for (size_t c = 0; c < k; ++c) {
        mean += w[r * k + c] * gain[c] / static_cast<double>(k);
        added[r] += w[r * k + c] * shift[c];
      }
      for (size_t c = 0; c < k; ++c) made[r * k + c] = static_cast<float>(w[r * k + c] * gain[c] - (centre ? mean : 0));
    }
  });
  shift = std::move(added);
  return made;
}

// The same as a constant of the graph, made once for all graphs of the model.
ValueId fold_into_weight(Graph& g, const Node& norm, ValueId w, std::vector<double>& shift) {
  const int64_t k = g.at(w).type.shape[1];
  const bool rms = norm.attrs.word("kind", "layer") == "rms";
  std::string recipe = rms ? "fold rms norm" : "fold layer norm";
  std::vector<Bytes> from;
  for (const ValueId id :
       {w, norm.inputs.size() > 1 ? norm.inputs[1] : kNoValue, norm.inputs.size() > 2 ? norm.inputs[2] : kNoValue}) {
    recipe +=
        id == kNoValue ? std::string(" -") : cat(" ", to_string(g.at(id).type.quant), to_string(g.at(id).type.shape));
    from.push_back(id == kNoValue ? Bytes() : g.at(id).data);
  }
  const auto make = [&]() -> Result<std::vector<Buffer>> {
    std::vector<double> added = numbers_or(g, norm, 2, k, 0.0);
    const std::vector<float> made = folded_weight(g.numbers(w), numbers_or(g, norm, 1, k, 1.0), added, !rms);
    std::vector<Buffer> both;
    both.emplace_back(made.size() * sizeof(float));
    both.emplace_back(added.size() * sizeof(double));
    std::memcpy(both[0].data(), made.data(), both[0].size());
    std::memcpy(both[1].data(), added.data(), both[1].size());
    return both;
  };
  const std::vector<Bytes> both = derive(g, recipe, from, make).value();
  shift.resize(both[1].size() / sizeof(double));
  std::memcpy(shift.data(), both[1].data(), both[1].size());
  return g.add_constant(g.at(w).name, Type{g.at(w).type.shape, Element::f32}, both[0]);
}

// A constant that only has a shape.
ValueId shape_alone(Graph& g, const std::string& name, const Shape& shape) {
  Value v;
  v.name = name;
  v.type = {shape, Element::f32};
  v.constant = true;
  return g.add_value(std::move(v));
}

Step* bias_of(Node& layer) {
  for (Step& s : layer.then.steps) {
    if (s.kind == StepKind::bias) return &s;
  }
  return nullptr;
}

// In the place of the layer's bias, or as its first step.
void set_bias(Node& layer, ValueId vector) {
  if (const Step* bias = bias_of(layer)) {
    layer.inputs[static_cast<size_t>(bias->operand)] = vector;
    return;
  }
  layer.then.steps.insert(layer.then.steps.begin(),
                          {StepKind::bias, Unary::identity, static_cast<int>(layer.inputs.size())});
  layer.inputs.push_back(vector);
}

// The layer after the norm with gain and centring in its weight, and the shift in its bias: what is left of the norm is
// the division by the deviation, whoever does it.
Node with_gain(Graph& g, const Node& norm, Node layer, Numbers numbers) {
  const ValueId w = layer.inputs[1];
  const int64_t n = g.at(w).type.shape[0];
  std::vector<double> shift(static_cast<size_t>(n));
  if (numbers == Numbers::kMade) {
    layer.inputs[1] = fold_into_weight(g, norm, w, shift);
  }
  if (norm.inputs.size() <= 2 || norm.inputs[2] == kNoValue) return layer;
  const Step* bias = bias_of(layer);
  std::string name = norm.name + ".shift";
  if (bias != nullptr) {
    name = g.at(layer.inputs[static_cast<size_t>(bias->operand)]).name;
    const std::vector<double> own = g.numbers(layer.inputs[static_cast<size_t>(bias->operand)]);
    for (size_t r = 0; r < shift.size(); ++r) shift[r] += own[r];
  }
  const std::vector<float> sum(shift.begin(), shift.end());
  set_bias(layer, numbers == Numbers::kMade ? g.add_constant(name, {n}, sum) : shape_alone(g, name, {n}));
  return layer;
}

// b + w shift for each row of the shift's table.
std::vector<float> shifts_of_rows(const std::vector<double>& w, const std::vector<double>& table,
                                  const std::vector<double>& bias, int64_t rows, int64_t first, int64_t k) {
  const auto n = static_cast<int64_t>(w.size()) / k, cols = static_cast<int64_t>(table.size()) / rows;
  std::vector<float> made(static_cast<size_t>(rows * n));
  parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t r = 0; r < rows; ++r) {
        const double *shift = table.data() + r * cols + first, *weight = w.data() + c * k;
        double sum = bias.empty() ? 0 : bias[static_cast<size_t>(c)];
        for (int64_t i = 0; i < k; ++i) sum += weight[i] * shift[i];
        made[static_cast<size_t>(r * n + c)] = static_cast<float>(sum);
      }
    }
  });
  return made;
}

// That as a constant of the graph, made once for all graphs of the model.
ValueId shift_table(Graph& g, const TableRow& shift, const Node& layer, ValueId bias, const std::string& name) {
  const Type &w = g.at(layer.inputs[1]).type, &table = g.at(shift.table).type;
  const int64_t n = w.shape[0], k = w.shape[1], rows = table.shape[0];
  const std::string recipe = cat("shift of rows ", to_string(w.shape), to_string(table.shape), " ", shift.first);
  const std::vector<Bytes> from = {g.at(layer.inputs[1]).data, g.at(shift.table).data,
                                   bias == kNoValue ? Bytes() : g.at(bias).data};
  const auto make = [&]() -> Result<std::vector<Buffer>> {
    const std::vector<double> own = bias == kNoValue ? std::vector<double>() : g.numbers(bias);
    const std::vector<float> made =
        shifts_of_rows(g.numbers(layer.inputs[1]), g.numbers(shift.table), own, rows, shift.first, k);
    std::vector<Buffer> both;
    both.emplace_back(made.size() * sizeof(float));
    std::memcpy(both[0].data(), made.data(), both[0].size());
    return both;
  };
  return g.add_constant(name, Type{{rows, n}, Element::f32}, derive(g, recipe, from, make).value()[0]);
}

// The layer after a modulated norm, whose bias is the row of this step. Appends what makes it.
Node with_shift_row(Graph& g, const Node& norm, const Modulation& m, Node layer, Numbers numbers,
                    std::vector<Node>& nodes) {
  if (!m.shift) return layer;
  const Step* own = bias_of(layer);
  const ValueId bias = own == nullptr ? kNoValue : layer.inputs[static_cast<size_t>(own->operand)];
  const std::string name = cat(layer.name.empty() ? norm.name : layer.name, ".shift");
  const int64_t n = g.at(layer.inputs[1]).type.shape[0], rows = g.at(m.shift->table).type.shape[0];
  const ValueId table = numbers == Numbers::kMade ? shift_table(g, *m.shift, layer, bias, name + "s")
                                                  : shape_alone(g, name + "s", {rows, n});
  Value row;
  row.name = name;
  row.type = {g.at(m.shift->ids).type.shape, Element::f32};
  row.type.shape.push_back(n);
  const ValueId made = g.add_value(std::move(row));
  nodes.push_back({.name = name,
                   .op = "gather",
                   .inputs = {table, m.shift->ids},
                   .outputs = {made},
                   .attrs = {{kTables, int64_t{1}}}});
  nodes.push_back(vector_of(g, made, name + ".row", 0, n));
  set_bias(layer, nodes.back().outputs[0]);
  return layer;
}

// The layer reads `x`, whose numbers have the gain where no weight has it, with the moments of its rows.
Node with_factors(const Node& norm, Node layer, ValueId x, ValueId moments) {
  layer.inputs[0] = x;
  layer.then.steps.insert(layer.then.steps.begin(),
                          {StepKind::normalise, Unary::identity, static_cast<int>(layer.inputs.size())});
  layer.inputs.push_back(moments);
  layer.attrs.set(kFoldedKind, norm.attrs.word("kind", "layer"));
  layer.attrs.set(kFoldedEps, norm.attrs.number("eps"));
  return layer;
}

}  // namespace

void fold(Graph& g, const Fold& f, Numbers numbers) {
  const Node norm = g.nodes[f.norm];
  std::vector<Node> nodes;
  ValueId y = kNoValue, moments = kNoValue;
  std::map<Shape, ValueId> views;  // one for each grouping: readers share their codes
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (n == f.norm) continue;
    if (n == f.before) {
      Node before = with_moments(g, g.nodes[n]);
      if (f.modulated) before = with_gained_codes(g, f, std::move(before), nodes);
      y = before.outputs[f.modulated ? 1 : 0], moments = before.outputs.back();
      views.emplace(g.at(y).type.shape, y);
      nodes.push_back(std::move(before));
      continue;
    }
    if (std::find(f.behind.begin(), f.behind.end(), n) == f.behind.end()) {
      nodes.push_back(g.nodes[n]);
      continue;
    }
    const Shape shape = g.at(g.nodes[n].inputs[0]).type.shape;
    const auto [view, fresh] = views.emplace(shape, kNoValue);
    if (fresh) {
      Value seen;
      seen.name = cat(g.at(y).name, ".rows", views.size() > 2 ? cat("_", views.size() - 1) : "");
      seen.type = {shape, g.at(y).type.quant};
      view->second = g.add_value(std::move(seen));
      nodes.push_back(view_of(y, shape, 0, view->second));
    }
    Node layer = f.modulated ? with_shift_row(g, norm, *f.modulated, g.nodes[n], numbers, nodes)
                             : with_gain(g, norm, g.nodes[n], numbers);
    nodes.push_back(with_factors(norm, std::move(layer), view->second, moments));
  }
  // Views of the norm's result were its readers' only.
  std::erase_if(nodes, [&](const Node& n) { return n.op == "view" && n.inputs[0] == norm.outputs[0]; });
  g.nodes = std::move(nodes);
}

void make_plain(Graph& g, const Fold& f) {
  if (f.modulated) return;
  const Node norm = g.nodes[f.norm];
  for (const size_t layer : f.behind) {
    Node made = with_gain(g, norm, g.nodes[layer], Numbers::kMade);
    g.nodes[layer] = std::move(made);
  }
  g.nodes[f.norm].inputs = {norm.inputs[0]};
  Value& y = g.at(norm.outputs[0]);
  y.name = plain_value(y.name);
}

}  // namespace tessera
