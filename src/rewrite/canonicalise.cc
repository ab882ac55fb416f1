// SPDX-License-Identifier: Apache-2.0
#include "rewrite/canonicalise.h"

#include <set>

#include "ir/check.h"
#include "ops/builder.h"
#include "rewrite/byte_ports.h"
#include "rewrite/concat_before_matmul.h"
#include "rewrite/drop_casts.h"
#include "rewrite/drop_dead.h"
#include "rewrite/drop_rows.h"
#include "rewrite/fold_constants.h"
#include "rewrite/fuse.h"
#include "rewrite/keep_channels_last.h"
#include "rewrite/materialise.h"
#include "rewrite/recognise/recognise.h"
#include "rewrite/shape_outputs.h"
#include "rewrite/share_equal.h"
#include "rewrite/simplify_views.h"
#include "rewrite/sink_row_orders.h"

namespace tessera {
namespace {

void make_unique(std::string& name, std::set<std::string>& taken) {
  const std::string stem = name;
  for (int copy = 2; !taken.insert(name).second; ++copy) name = cat(stem, "_", copy);
}

// Users pick layers by name and calibration finds values by name: each has one of its own. Inputs and outputs keep the
// caller's names, constants those of the file; any other value is called after the layer that makes it.
Status name_everything(Graph& graph) {
  std::set<std::string> layers, values;
  std::vector<bool> settled(graph.values.size(), false);
  const auto settle = [&](ValueId id) {
    if (!settled[static_cast<size_t>(id)]) make_unique(graph.at(id).name, values);
    settled[static_cast<size_t>(id)] = true;
  };
  for (ValueId id : graph.inputs) settle(id);
  // A result that is an input of the model has the input's name, too: ports are two lists.
  std::set<std::string> results;
  for (ValueId id : graph.outputs) {
    if (settled[static_cast<size_t>(id)]) continue;
    make_unique(graph.at(id).name, results);
    values.insert(graph.at(id).name);
    settled[static_cast<size_t>(id)] = true;
  }
  for (Node& n : graph.nodes) {
    const bool view = n.op == "view";
    if (n.name.empty()) n.name = n.op;
    if (!view) make_unique(n.name, layers);
    for (ValueId id : n.outputs) {
      if (settled[static_cast<size_t>(id)]) continue;
      graph.at(id).name = view ? graph.at(n.inputs[0]).name + ".view" : n.name;
      settle(id);
    }
    if (view) n.name.clear();
  }
  for (size_t i = 0; i < graph.values.size(); ++i) settle(static_cast<ValueId>(i));
  return {};
}

}  // namespace

Status canonicalise(Graph& graph) {
  TS_TRY(check(graph));
  TS_TRY(check_ops(graph));
  // clang-format off
  for (Status (*const pass)(Graph&) : {
           simplify_views, recognise_qdq,  // types that a model came with, before anything computes with codes
           fold_constants, simplify_views, drop_dead, drop_casts, simplify_views, share_equal, drop_dead,
           keep_channels_last,  // norms over channels become norms of rows
           recognise_norm, recognise_modulation, recognise_gelu, recognise_rotary,
           simplify_views, share_equal, drop_dead,
           recognise_attention, simplify_views, drop_dead,  // what was a pattern's inside is no reader any more
           fuse, sink_row_orders, simplify_views, drop_dead,
           fuse, simplify_views,  // results whose row order sank meet their residuals
           concat_before_matmul, drop_dead, drop_rows, shape_outputs, simplify_views, materialise,
           copy_bytes_first, drop_dead,  // what is copied is known
           name_everything}) {
    // clang-format on
    TS_TRY(pass(graph));
  }
  TS_TRY(check(graph));
  return check_ops(graph);
}

}  // namespace tessera
