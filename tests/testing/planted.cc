// SPDX-License-Identifier: Apache-2.0
#include "testing/planted.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "calibrate/calibrate.h"
#include "compile/compile.h"
#include "io/npz.h"
#include "lower/boundary.h"
#include "lower/fold_norms.h"
#include "lower/fuse_gate.h"
#include "lower/join_gathers.h"
#include "lower/pool_norms.h"
#include "lower/quantize_in_epilogue.h"
#include "rewrite/unfuse.h"
#include "testing/run_graph.h"

namespace tessera::testing {
namespace {

PlantedModel calibrated(const std::string& name, Result<Graph> graph) {
  EXPECT_TRUE(graph.ok()) << name << ": " << graph.status().message();
  PlantedModel m{.name = name, .canonical = std::move(graph).value(), .ranges = {}, .folded = {}};
  auto ranges = calibrate(m.canonical, {});
  EXPECT_TRUE(ranges.ok()) << name << ": " << ranges.status().message();
  m.ranges = std::move(ranges).value();
  return m;
}

// compile.cc's order of passes, with the fault in it.
Status lower_all(const PlantedModel& model, const std::string& precision, Arch target, const Fault* fault, Lowered& out,
                 Plan& plan, ConstantPool& pool) {
  Graph g = model.canonical;
  QuantizeOptions types;
  types.precision = precision;
  types.ranges = &model.ranges;
  types.target = target;
  const bool cuda = info(target).device == DeviceKind::kCuda;
  if (cuda) types.folded_norms = model.folded, types.plain_norms = model.plain;
  TS_TRY(fold_norms(g, types.folded_norms, types.plain_norms));
  TS_TRY(quantize(g, types));
  if (cuda) TS_TRY(join_gathers(g));
  if (fault != nullptr && fault->typed) out.layer = fault->typed(g);
  quantize_in_epilogue(g, target);
  TS_TRY(fuse_gate(g, target));
  TS_ASSIGN(const Precision* base, base_precision(precision));
  unfuse(g, target, base->carrier);
  if (cuda) TS_TRY(pool_norms(g, target));
  if (fault != nullptr && fault->fused) out.layer = fault->fused(g);
  if (cuda) add_boundary_copies(g);
  const PlanOptions options{.name = "golden", .target = target, .batch = batch_of(g), .as_reference = true};
  TS_ASSIGN(plan, make_plan(g, options, pool));
  return {};
}

}  // namespace

PlantedModel planted_model(const std::string& name, const std::string& path, int64_t batch) {
  return calibrated(name, load_model(path, batch, {.exact = false}));
}

PlantedModel exported_model(const std::string& folder, const std::string& stem) {
  const std::string path = cat(folder, "/", stem);
  const auto arrays = read_npz(path + ".npz");
  EXPECT_TRUE(arrays.ok()) << arrays.status().message();
  LoadOptions load{.exact = false};
  for (const Array& a : *arrays) {
    if (!a.name.starts_with("expected_")) load.shapes[a.name] = a.shape;
  }
  return calibrated(stem, load_model(path + ".onnx", 1, load));
}

PlantedModel text_model(const std::string& name, const std::string& text) { return calibrated(name, canonical(text)); }

PlantedModel graph_model(const std::string& name, Graph graph) { return calibrated(name, std::move(graph)); }

Lowered lowered_with(const PlantedModel& model, const std::string& precision, Arch target, const Fault* fault) {
  Lowered out;
  Engine engine;
  ConstantPool pool(engine.constants);
  Plan plan;
  out.status = lower_all(model, precision, target, fault, out, plan, pool);
  if (out.status.ok()) out.found = validate_plan(engine.constants, plan, model.canonical, {.ranges = &model.ranges});
  return out;
}

void expect_caught(const std::vector<Fault>& faults, const std::vector<PlantedModel>& models,
                   const std::vector<std::string>& precisions) {
  std::map<std::string, std::map<std::string, std::pair<int, int>>> table;  // by fault and precision: caught, planted
  for (const PlantedModel& model : models) {
    for (const std::string& precision : precisions) {
      for (const Arch target : {Arch::cpu, Arch::sm90}) {
        if (!lowered_with(model, precision, target).status.ok()) continue;
        for (const Fault& fault : faults) {
          const Lowered l = lowered_with(model, precision, target, &fault);
          if (l.layer.empty() || !l.status.ok()) continue;  // a fault may take a layer's kernel away
          const bool caught = std::any_of(l.found.faults.begin(), l.found.faults.end(), [&](const std::string& s) {
            return s.starts_with("layer ") && s.find(l.layer) != std::string::npos;
          });
          auto& [found, planted] = table[fault.name][precision];
          found += caught, ++planted;
          EXPECT_TRUE(caught) << fault.name << " in " << l.layer << ", " << precision << ", " << info(target).name
                              << ", " << model.name << ": "
                              << (l.found.faults.empty() ? "nothing was found" : l.found.faults[0]);
        }
      }
    }
  }
  for (const Fault& fault : faults) {
    EXPECT_FALSE(table[fault.name].empty()) << fault.name << " was planted nowhere";
    std::printf("%-34s", fault.name.c_str());
    for (const std::string& p : precisions)
      std::printf(" %s %d/%d", p.c_str(), table[fault.name][p].first, table[fault.name][p].second);
    std::printf("\n");
  }
}

int expect_none_found(const PlantedModel& model, const std::vector<std::string>& precisions) {
  int lowered = 0;
  for (const std::string& precision : precisions) {
    for (const Arch target : {Arch::cpu, Arch::sm90}) {
      const Lowered l = lowered_with(model, precision, target);
      if (!l.status.ok()) continue;
      ++lowered;
      EXPECT_TRUE(l.found.faults.empty())
          << model.name << ", " << precision << ", " << info(target).name << ": " << l.found.faults[0];
      EXPECT_TRUE(l.found.followed) << model.name;
      EXPECT_GT(l.found.steps, 0) << model.name;
    }
  }
  return lowered;
}

std::vector<std::string> all_precisions() {
  std::vector<std::string> out;
  for (const char* name :
       {"fp32", "fp16", "bf16", "fp8", "fp8_tensor", "fp8_token", "mxfp8", "nvfp4", "w4a16", "w4a8", "int8"}) {
    if (find_precision(name) != nullptr) out.emplace_back(name);
  }
  return out;
}

Value& own_constant(Graph& graph, Node& node, size_t input) {
  const auto copied = [&](ValueId id) {
    if (id == kNoValue) return kNoValue;
    const Value from = graph.at(id);
    Buffer bytes(from.data.size());
    std::memcpy(bytes.data(), from.data.data(), bytes.size());
    return graph.add_constant(from.name, from.type, Bytes::own(std::move(bytes)));
  };
  const ValueId was = node.inputs[input], id = copied(was);
  const ValueId scale = copied(graph.at(was).scale), scale2 = copied(graph.at(was).scale2);
  graph.at(id).scale = scale, graph.at(id).scale2 = scale2;
  node.inputs[input] = id;
  return graph.at(id);
}

uint64_t code_at(const Value& v, int64_t i) {
  const int bits = info(v.type.quant.element).bits;
  if (bits == 4) return v.data.data()[i / 2] >> (i % 2 * 4) & 15;
  uint64_t code = 0;
  std::memcpy(&code, v.data.data() + i * bits / 8, static_cast<size_t>(bits / 8));
  return code;
}

void set_code(Value& v, int64_t i, uint64_t code) {
  const int bits = info(v.type.quant.element).bits;
  auto* bytes = const_cast<uint8_t*>(v.data.data());  // own_constant's copy
  if (bits == 4) {
    uint8_t& b = bytes[i / 2];
    b = static_cast<uint8_t>((b & (i % 2 == 0 ? 0xf0 : 0x0f)) | (code & 15) << (i % 2 * 4));
    return;
  }
  std::memcpy(bytes + i * bits / 8, &code, static_cast<size_t>(bits / 8));
}

uint64_t two_steps_off(const ElementInfo& element, uint64_t code) {
  if (element.kind == ElementKind::kInteger)
    return static_cast<uint8_t>(static_cast<int8_t>(code) > 0 ? code - 2 : code + 2);
  const uint64_t sign = uint64_t{1} << (element.bits - 1), magnitude = code & (sign - 1);
  return (code & sign) | (magnitude >= 2 ? magnitude - 2 : magnitude + 2);
}

void reorder_codes(Value& v, const std::function<int64_t(int64_t)>& from) {
  std::vector<uint64_t> codes;
  for (int64_t i = 0; i < elements(v.type.shape); ++i) codes.push_back(code_at(v, i));
  for (int64_t i = 0; i < elements(v.type.shape); ++i) set_code(v, i, codes[static_cast<size_t>(from(i))]);
}

void change_numbers(Value& v, const std::function<void(std::vector<double>&)>& body) {
  const ElementInfo& element = info(v.type.quant.element);
  std::vector<double> numbers(static_cast<size_t>(elements(v.type.shape)));
  element.decode_f64(v.data.data(), 0, static_cast<int64_t>(numbers.size()), numbers.data());
  body(numbers);
  element.encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), const_cast<uint8_t*>(v.data.data()), 0);
}

}  // namespace tessera::testing
