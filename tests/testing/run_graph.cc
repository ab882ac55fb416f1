// SPDX-License-Identifier: Apache-2.0
#include "testing/run_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ir/text.h"
#include "op/reference.h"
#include "ops/ops.h"
#include "rewrite/canonicalise.h"

namespace tessera::testing {

Result<std::vector<Numbers>> run_graph(const Graph& graph, std::span<const Numbers> inputs) {
  const std::vector<int> producers = graph.producers();
  std::vector<Buffer> storage(graph.values.size()), scales(graph.values.size());  // scales made while running
  std::vector<Operand> operands(graph.values.size());
  const auto pointer = [&](ValueId id) {
    const Placement p = placement_of(graph, producers, id);
    const Value& base = graph.at(p.base);
    uint8_t* data =
        base.constant ? const_cast<uint8_t*>(base.data.data()) : storage[static_cast<size_t>(p.base)].data();
    return data + p.offset * info(base.type.quant.element).bits / 8;
  };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const ValueId id = static_cast<ValueId>(v);
    operands[v] = dense_operand(value.type.shape, value.type.quant, value.constant);
    operands[v].strides = placement_of(graph, producers, id).strides;
    if (value.constant || placement_of(graph, producers, id).base != id) continue;
    storage[v] = Buffer(static_cast<size_t>(packed_bytes(value.type.quant.element, elements(value.type.shape))));
    if (storage[v].size() > 0) std::memset(storage[v].data(), 0xff, storage[v].size());
    if (!value.type.quant.dynamic) continue;
    const int64_t cols = value.type.shape.empty() ? 1 : value.type.shape.back();
    const int64_t rows = elements(value.type.shape) / std::max<int64_t>(1, cols);
    const ScaleLevel& level = value.type.quant.scale;
    scales[v] = Buffer(static_cast<size_t>(packed_bytes(level.element, scale_count(level, rows, cols))));
    if (scales[v].size() > 0) std::memset(scales[v].data(), 0xff, scales[v].size());
  }
  const auto view = [&](ValueId id) {
    TensorView t;
    if (id == kNoValue) return t;
    const Value& value = graph.at(id);
    t.desc = &operands[static_cast<size_t>(id)];
    t.data = pointer(id);
    if (value.scale != kNoValue) t.scale = const_cast<uint8_t*>(graph.at(value.scale).data.data());
    if (value.type.quant.dynamic) t.scale = scales[static_cast<size_t>(placement_of(graph, producers, id).base)].data();
    if (value.scale2 != kNoValue) t.scale2 = const_cast<uint8_t*>(graph.at(value.scale2).data.data());
    return t;
  };
  if (inputs.size() != graph.inputs.size()) return bad_input("another number of inputs");
  for (size_t i = 0; i < inputs.size(); ++i)
    encode({graph.at(graph.inputs[i]).type.shape, inputs[i]}, view(graph.inputs[i]));
  for (const Node& n : graph.nodes) {
    if (n.op == "view") continue;
    const OpInfo* op = find_op(n.op);
    if (op == nullptr) return bad_input("unknown op " + n.op);
    const Problem problem = problem_of(graph, producers, n);
    std::vector<TensorView> in, out;
    for (ValueId id : n.inputs) in.push_back(view(id));
    for (ValueId id : n.outputs) out.push_back(view(id));
    TS_TRY(run_reference(*op, problem, in, out).at(n.name));
  }
  std::vector<Numbers> results;
  for (ValueId id : graph.outputs) results.push_back(decode(view(id)).v);
  return results;
}

std::vector<Numbers> random_inputs(const Graph& graph, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<Numbers> out;
  for (ValueId id : graph.inputs) {
    Numbers numbers(static_cast<size_t>(elements(graph.at(id).type.shape)));
    for (double& x : numbers) x = normal(bits);
    out.push_back(std::move(numbers));
  }
  return out;
}

double relative_error(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(difference / length);
}

Graph canonical(const std::string& text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  const Status status = canonicalise(*graph);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(graph).value();
}

std::map<std::string, int> count_ops(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& n : graph.nodes) {
    const std::string fn = n.attrs.word("fn");
    ++counts[fn.empty() ? n.op : n.op + "." + fn];
  }
  return counts;
}

}  // namespace tessera::testing
