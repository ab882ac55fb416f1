// SPDX-License-Identifier: Apache-2.0
#include "lower/boundary.h"

#include <map>
#include <set>

#include "op/op.h"
#include "ops/ops.h"

namespace tessera {
namespace {

bool is_boundary(const Node& node) {
  const OpInfo* op = find_op(node.op);
  return op != nullptr && op->boundary;
}

Node copy_node(const std::string& name, ValueId from, ValueId to) {
  return {.name = name, .op = "copy", .inputs = {from}, .outputs = {to}};
}

}  // namespace

void add_boundary_copies(Graph& g) {
  std::set<ValueId> inputs(g.inputs.begin(), g.inputs.end()), kept;
  for (const StatePair& s : g.states) {
    inputs.erase(g.inputs[s.input]);
    if (s.output) kept.insert(g.outputs[*s.output]);
  }
  std::map<ValueId, ValueId> inner;  // value in the caller's buffer -> its copy in the arena
  const std::vector<int> producers = g.producers();
  std::vector<bool> callers;  // per value: it lies in a buffer of the caller. Asked before any node is moved
  for (size_t v = 0; v < g.values.size(); ++v)
    callers.push_back(!g.values[v].constant &&
                      inputs.contains(placement_of(g, producers, static_cast<ValueId>(v)).base));
  std::vector<Node> nodes;
  for (Node& node : g.nodes) {
    if (node.op != "view" && !is_boundary(node)) {
      for (ValueId& in : node.inputs) {
        if (in == kNoValue || !callers[static_cast<size_t>(in)]) continue;
        auto [it, fresh] = inner.emplace(in, kNoValue);
        if (fresh) {
          Value v;
          v.name = g.at(in).name + ".in";
          v.type = g.at(in).type;
          it->second = g.add_value(std::move(v));
          nodes.push_back(copy_node(g.at(in).name + ".in", in, it->second));
        }
        in = it->second;
      }
    }
    nodes.push_back(std::move(node));
  }
  g.nodes = std::move(nodes);
  for (ValueId& out : g.outputs) {
    if (kept.contains(out)) continue;
    const std::vector<int> makers = g.producers();
    const int maker = makers[static_cast<size_t>(out)];
    const bool read_here = g.use_counts()[static_cast<size_t>(out)] > 1;  // by ops that could not reach it
    if (maker >= 0 && is_boundary(g.nodes[static_cast<size_t>(maker)]) && !read_here) continue;
    Value v;
    v.name = g.at(out).name;
    v.type = g.at(out).type;
    g.at(out).name += ".inner";
    const ValueId fresh = g.add_value(std::move(v));
    g.nodes.push_back(copy_node(g.at(fresh).name + ".out", out, fresh));
    out = fresh;
  }
}

}  // namespace tessera
