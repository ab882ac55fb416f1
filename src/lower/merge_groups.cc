// SPDX-License-Identifier: Apache-2.0
#include "lower/merge_groups.h"

#include <algorithm>
#include <cstring>

#include "ir/derived_constants.h"
#include "ir/padding.h"
#include "lower/pad_layer.h"
#include "lower/pad_products.h"
#include "ops/ops.h"
#include "ops/runnable.h"
#include "rewrite/unfuse.h"
#include "tiles/cpu/product.h"

namespace tessera {
namespace {

struct Groups {
  int64_t count = 1, taps = 1, channels = 0;  // channels of one

  static Groups of(const Graph& g, const Node& conv) {
    const std::vector<int64_t> kernel = conv.attrs.list("kernel");
    Groups all{.count = conv.attrs.integer("groups", 1), .taps = kernel[0] * kernel[1]};
    all.channels = g.at(conv.inputs[1]).type.shape[1] / all.taps;
    return all;
  }
};

Buffer merged(const Bytes& from, int64_t rows, size_t bytes, const Groups& groups, int64_t merge) {
  const int64_t of_group = rows / groups.count;
  Buffer made(static_cast<size_t>(rows * groups.taps * groups.channels * merge) * bytes);
  const size_t run = static_cast<size_t>(groups.channels) * bytes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t tap = 0; tap < groups.taps; ++tap) {
      const int64_t own = row * groups.taps + tap;
      std::memcpy(made.data() + static_cast<size_t>(own * merge + row / of_group % merge) * run,
                  from.data() + static_cast<size_t>(own) * run, run);
    }
  }
  return made;
}

// So many groups as one.
void merge(Graph& g, Node& conv, int64_t count, PaddedNumbers numbers) {
  const Groups groups = Groups::of(g, conv);
  Value w = g.at(conv.inputs[1]);
  const int64_t rows = w.type.shape[0];
  w.type.shape[1] *= count;
  if (numbers == PaddedNumbers::kMade) {
    const size_t bytes = static_cast<size_t>(info(w.type.quant.element).bits) / 8;
    const std::string recipe = cat("merge ", bytes, " ", rows, " of ", groups.count, " groups, ", groups.taps, " x ",
                                   groups.channels, ", ", count, " as one");
    const Bytes from = w.data;
    w.data = derive(g, recipe, {&from, 1}, [&]() -> Result<std::vector<Buffer>> {
               std::vector<Buffer> made;
               made.push_back(merged(from, rows, bytes, groups, count));
               return made;
             }).value()[0];
  } else {
    w.data = {};
  }
  conv.inputs[1] = g.add_value(std::move(w));
  conv.attrs.set("groups", groups.count / count);
  conv.attrs.set(kMergedGroups, std::vector<int64_t>{groups.count, groups.taps});
}

bool may_merge(const Graph& g, const Node& node) {
  if (node.op != "conv2d" || node.attrs.integer("groups", 1) < 2 || node.attrs.has(kMergedGroups)) return false;
  Node one = node;
  one.attrs.set("groups", int64_t{1});
  return can_pad(g, one);
}

// Whether all groups as one run where the layers around it are padded, too.
bool runs_among_padded(const Graph& g, size_t n, int64_t count, Arch target, Element carrier) {
  Graph trial = g;
  merge(trial, trial.nodes[n], count, PaddedNumbers::kMade);
  if (!pad_products(trial, target, carrier).ok()) return false;
  const std::vector<int> producers = trial.producers();
  return std::any_of(trial.nodes.begin(), trial.nodes.end(), [&](const Node& node) {
    return node.name == g.nodes[n].name && node.op == g.nodes[n].op && runnable(trial, producers, node, target);
  });
}

// So many more products are made.
constexpr int64_t kMostMerged = 64;

// How many groups as one a kernel takes: as few as let the layer run as it is, else with zeros around it (pad_products)
// or without all of its program; 1 where nothing helps.
int64_t groups_as_one(const Graph& g, size_t n, Arch target, Element carrier) {
  const int64_t count = g.nodes[n].attrs.integer("groups", 1);
  int64_t padded = 1, unfused = 1;
  for (int64_t some = 2; some <= std::min(count, kMostMerged); ++some) {
    if (count % some != 0) continue;
    Graph trial = g;
    merge(trial, trial.nodes[n], some, PaddedNumbers::kLeftOut);
    if (runnable(trial, trial.producers(), trial.nodes[n], target)) return some;
    if (padded == 1 && runs_padded(trial, n, target, carrier)) padded = some;
    if (unfused == 1 && runs_unfused(trial, n, target, carrier)) unfused = some;
  }
  if (padded > 1 || unfused > 1) return padded > 1 ? padded : unfused;
  return count <= kMostMerged && runs_among_padded(g, n, count, target, carrier) ? count : 1;
}

// A CPU multiplies 16 results at a time: groups of fewer would be filled up with zeros anyhow, each with windows of its
// own, and only weights of whole panels are packed at build.
int64_t groups_of_a_panel(const Graph& g, size_t n, Arch target) {
  const int64_t count = g.nodes[n].attrs.integer("groups", 1),
                results = g.at(g.nodes[n].inputs[1]).type.shape[0] / count;
  for (int64_t some = 2; some * results <= kPanelCols && some <= count; ++some) {
    if (count % some != 0 || some * results % kPanelCols != 0) continue;
    Graph trial = g;
    merge(trial, trial.nodes[n], some, PaddedNumbers::kLeftOut);
    return runnable(trial, trial.producers(), trial.nodes[n], target) ? some : 1;
  }
  return 1;
}

}  // namespace

Status merge_groups(Graph& graph, Arch target, Element carrier) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<int> producers = graph.producers();
    if (!may_merge(graph, graph.nodes[n])) continue;
    const bool runs = runnable(graph, producers, graph.nodes[n], target) || runs_unfused(graph, n, target, carrier);
    if (runs && target != Arch::cpu) continue;
    const Problem p = problem_of(graph, producers, graph.nodes[n]);
    if (find_op(p.op)->by_number(p)) continue;  // no products of matrices, merged or not
    const int64_t some = runs ? groups_of_a_panel(graph, n, target) : groups_as_one(graph, n, target, carrier);
    if (some > 1) merge(graph, graph.nodes[n], some, PaddedNumbers::kMade);
  }
  return {};
}

}  // namespace tessera
