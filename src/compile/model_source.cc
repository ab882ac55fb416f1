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
  bool whole = false;  // a shape says that the model is one sample
  for (auto& [name, shape] : shapes) {
    const auto axes = onnx_->axes_of_input(name);
    if (!axes || shape.size() != axes->size() + 1 || shape[0] != 1) continue;
    shape.erase(shape.begin());
    whole = true;
  }
  const auto import = [&](int64_t size) {
    return onnx_->graph({.batch = size, .own_batch = !options.exact, .shapes = shapes});
  };
  TS_ASSIGN(Graph graph, import(batch));
  if (!whole && share_batch(graph)) return graph;
  if (batch > 1 && options.exact)
    return usage_error(cat("inputs and outputs of the model ",
                           share_batch(graph) ? "are those of one sample" : "share no batch", " (", ports_of(graph),
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

bool ModelSource::is_open(const Value& input, size_t axis) const {
  const auto axes = onnx_ ? onnx_->axes_of_input(input.name) : std::nullopt;
  const size_t rank = input.type.shape.size();  // one more than the model's where that is one sample
  return axes && axis + axes->size() >= rank && axis < rank && (*axes)[axis + axes->size() - rank] < 0;
}

Status ModelSource::check_lengths(int64_t batch, const LoadOptions& options, const Graph& written, const Graph& kept) {
  LoadOptions other = options;
  const auto shape_of = [&](ValueId input) -> Shape& {
    return other.shapes.insert_or_assign(written.at(input).name, written.at(input).type.shape).first->second;
  };
  std::set<ValueId> pasts;
  int64_t keys = 0, more = -1;  // keys: old and new ones
  for (const Node& n : kept.nodes) {
    if (n.op != "write") continue;
    const auto past = std::find_if(written.inputs.begin(), written.inputs.end(),
                                   [&](ValueId id) { return written.at(id).name == kept.at(n.inputs[0]).name; });
    if (past == written.inputs.end()) continue;
    const size_t axis = static_cast<size_t>(n.attrs.integer("axis"));
    if (!is_open(written.at(*past), axis)) return {};  // its past has one length alone
    keys = kept.at(n.inputs[0]).type.shape[axis];
    pasts.insert(*past);
    int64_t& rows = shape_of(*past)[axis];
    if (pasts.size() == 1 && rows < 2) more = 1;  // no shorter one: a longer one
    rows += more;
  }
  if (keys == 0) return {};
  // Other inputs that have a column for each key. An axis of their number may be something else: numbers that are
  // integers are masks.
  const std::map<std::string, Shape> pasts_alone = other.shapes;
  Status failed;
  for (const bool masks_alone : {false, true}) {
    other.shapes = pasts_alone;
    for (const ValueId id : written.inputs) {
      const Value& v = written.at(id);
      if (pasts.contains(id) || (masks_alone && info(v.type.quant.element).kind != ElementKind::kInteger)) continue;
      for (size_t axis = 1; axis < v.type.shape.size(); ++axis) {
        if (v.type.shape[axis] != keys || !is_open(v, axis)) continue;
        shape_of(id)[axis] += more;
        break;
      }
    }
    const auto changed = this->written(batch, other);
    if (changed.ok()) return check_positions(written, *changed);
    if (failed.ok()) failed = changed.status();
  }
  return failed.at(
      cat("whether the model depends on the length of its past cannot be found, since it cannot be read "
          "with one row ",
          more < 0 ? "less" : "more",
          " of it (a past of one length alone is accepted where the model "
          "fixes that axis)"));
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
