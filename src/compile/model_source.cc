// SPDX-License-Identifier: Apache-2.0
#include "compile/model_source.h"

#include <algorithm>
#include <set>

#include "compile/check_positions.h"
#include "ir/check.h"
#include "rewrite/canonicalise.h"
#include "rewrite/one_sample.h"
#include "rewrite/port_types.h"

namespace tessera {
namespace {

// "x [8,3], pos [24] -> y [8,10]"
std::string ports_of(const Graph& g) {
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string text;
    for (const ValueId id : ids)
      text += cat(text.empty() ? "" : ", ", "'", g.at(id).name, "' ", to_string(g.at(id).type.shape));
    return text;
  };
  return cat(list(g.inputs), " -> ", list(g.outputs));
}

}  // namespace

Result<ModelSource> ModelSource::open(const std::string& path, const std::string& family,
                                      std::optional<uint64_t> random) {
  ModelSource source;
  if (family.empty()) {
    TS_ASSIGN(source.onnx_, OnnxFile::open(path));
  } else if (random) {
    TS_ASSIGN(source.family_, FamilyCheckpoint::random(family, path, *random));
  } else {
    TS_ASSIGN(source.family_, FamilyCheckpoint::open(family, path));
  }
  return source;
}

Result<Graph> ModelSource::written(int64_t batch, const LoadOptions& options) {
  TS_ASSIGN(Graph graph, imported(batch, options));
  TS_TRY(give_port_types(graph, options.ports, options.states));
  return graph;
}

Result<Graph> ModelSource::imported(int64_t batch, const LoadOptions& options) {
  if (family_) {
    if (!options.shapes.empty() || !options.states.empty())
      return usage_error("--shape and --state: a family has its inputs and states, leave them out");
    if (!options.ports.empty()) {
      TS_ASSIGN(const FamilySchedule own, schedule(options.sizes));
      if (!own.graphs.empty())
        return usage_error("--io: graphs that hand each other numbers have ports of their own types, leave it out");
    }
    return family_->graph({.batch = batch, .graph = options.graph, .named = options.sizes});
  }
  if (!options.sizes.empty())
    return usage_error("--size is for models of a family (--family); an ONNX model takes --shape");
  std::map<std::string, Shape> shapes = options.shapes;
  for (auto& [name, shape] : shapes) {  // as an engine has them whose model was one sample
    const auto axes = onnx_->axes_of_input(name);
    if (axes && shape.size() == *axes + 1 && shape[0] == 1) shape.erase(shape.begin());
  }
  const auto import = [&](int64_t size) {
    return onnx_->graph({.batch = size, .own_batch = !options.exact, .shapes = shapes});
  };
  TS_ASSIGN(Graph graph, import(batch));
  if (share_batch(graph)) return graph;
  if (batch > 1 && options.exact)
    return usage_error(cat("inputs and outputs of the model share no batch (", ports_of(graph),
                           "), so it is one sample as it stands: leave --batch out; --shape gives an input whole"));
  if (batch != 1) {
    TS_ASSIGN(graph, import(1));
  }
  make_one_sample(graph);
  return graph;
}

Result<FamilySchedule> ModelSource::schedule(const std::map<std::string, int64_t>& sizes) {
  if (!family_) return FamilySchedule{};
  return family_->schedule({.named = sizes});
}

Status ModelSource::check_lengths(int64_t batch, const LoadOptions& options, const Graph& written, const Graph& kept) {
  LoadOptions shorter = options;
  const auto shape_of = [&](ValueId input) -> Shape& {
    return shorter.shapes.insert_or_assign(written.at(input).name, written.at(input).type.shape).first->second;
  };
  std::set<ValueId> pasts;
  int64_t keys = 0;  // old and new ones
  for (const Node& n : kept.nodes) {
    if (n.op != "write") continue;
    const auto past = std::find_if(written.inputs.begin(), written.inputs.end(),
                                   [&](ValueId id) { return written.at(id).name == kept.at(n.inputs[0]).name; });
    if (past == written.inputs.end()) continue;
    const size_t axis = static_cast<size_t>(n.attrs.integer("axis"));
    keys = kept.at(n.inputs[0]).type.shape[axis];
    pasts.insert(*past);
    if (--shape_of(*past)[axis] < 1) return {};
  }
  if (keys == 0) return {};
  for (const ValueId id : written.inputs) {
    const Shape& is = written.at(id).type.shape;
    const auto columns = std::find(is.begin() + !is.empty(), is.end(), keys);
    if (columns != is.end() && !pasts.contains(id)) --shape_of(id)[columns - is.begin()];
  }
  const auto other = this->written(batch, shorter);
  return other.ok() ? check_positions(written, *other) : Status();  // a model whose past has one length alone
}

Result<Graph> ModelSource::canonical(int64_t batch, const LoadOptions& options) {
  for (const Known& k : known_) {
    if (k.batch == batch && k.options == options) return k.graph;
  }
  TS_ASSIGN(Graph graph, written(batch, options));
  if (options.states.empty()) {
    TS_TRY(canonicalise(graph));
  } else {
    const Graph as_written = graph;
    TS_TRY(canonicalise(graph));
    TS_TRY(keep_caches(graph, options.states));
    TS_TRY(check(graph));
    TS_TRY(check_lengths(batch, options, as_written, graph));
  }
  // Nodes and names alone are this graph's own; a build has a few batches.
  constexpr size_t kMostKnown = 16;
  if (known_.size() < kMostKnown) known_.push_back({batch, options, graph});
  return graph;
}

}  // namespace tessera
