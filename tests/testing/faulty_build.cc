// SPDX-License-Identifier: Apache-2.0
#include "testing/faulty_build.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "calibrate/calibrate.h"
#include "compile/compile.h"
#include "models/zoo.h"
#include "plan/engine_file.h"
#include "rewrite/canonicalise.h"
#include "verify/verify.h"

namespace tessera::testing {

std::string tiny_vit() {
  // Named after the process: several programs use it, and whoever wrote it anew would cut off what another has mapped.
  static const struct File {
    std::string path = cat(::testing::TempDir(), "/faults_vit_", getpid(), ".onnx");
    File() { std::ofstream(path, std::ios::binary) << zoo_onnx("vit-tiny-test", 3).value(); }
    ~File() { std::filesystem::remove(path); }
  } kFile;
  return kFile.path;
}

std::vector<std::string> known(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& n : names) {
    if (find_precision(n) != nullptr) out.push_back(n);
  }
  return out;
}

// What build_engine does, with a fault in the middle.
Made made(const std::string& precision, const Faults& faults) {
  Made m;
  const auto run = [&]() -> Status {
    TS_ASSIGN(Graph written, import_model(faults.model, 2, {.exact = false}));
    Graph canonical = written;
    faults.in_import(written);
    TS_TRY(canonicalise(canonical));
    TS_ASSIGN(const Ranges ranges, calibrate(canonical, {}));
    faults.in_passes(canonical);
    Graph typed = canonical;
    QuantizeOptions types;
    types.precision = precision;
    types.ranges = &ranges;
    types.target = Arch::cpu;
    TS_TRY(quantize(typed, types));
    faults.in_quantize(typed);
    ConstantPool pool(m.engine.constants);
    m.engine.precision = precision;
    m.engine.target = Arch::cpu;
    for (const bool reference : {false, true}) {
      const PlanOptions plan{
          .name = reference ? "golden" : "batch2", .target = Arch::cpu, .batch = 2, .as_reference = reference};
      TS_ASSIGN(Plan made, make_plan(typed, plan, pool));
      m.engine.plans.push_back(std::move(made));
    }
    TS_TRY(check_engine(m.engine));
    const ModelGraphs graphs{.written = &written, .canonical = &canonical, .prepared = &canonical};
    TS_ASSIGN(m.engine.golden, make_golden(m.engine, {.random_scales = true}, &graphs, &m.report));
    TS_ASSIGN(const VerifyReport report, check_golden(m.engine, m.engine.plans[0]));
    return report.ok ? Status() : Status(Code::kVerifyFailed, report.sentence);
  };
  m.status = run();
  return m;
}

void expect_caught(const Made& m, const std::vector<std::string>& words) {
  EXPECT_FALSE(m.status.ok()) << "nothing was found; looked for: " << words[0];
  for (const std::string& w : words)
    EXPECT_NE(m.status.message().find(w), std::string::npos) << "'" << w << "' is not in: " << m.status.message();
}

Node& node_of(Graph& graph, const std::string& name) {
  for (Node& n : graph.nodes) {
    if (n.name == name) return n;
  }
  ADD_FAILURE() << "no layer " << name;
  return graph.nodes[0];
}

void change(Value& v, const std::function<void(uint8_t* bytes, size_t size)>& body) {
  Buffer b(v.data.size());
  std::memcpy(b.data(), v.data.data(), b.size());
  body(b.data(), b.size());
  v.data = Bytes::own(std::move(b));
}

void multiply(Graph& graph, ValueId scales, float factor) {
  ASSERT_NE(scales, kNoValue);
  ASSERT_EQ(graph.at(scales).type.quant, QuantType(Element::f32));
  change(graph.at(scales), [&](uint8_t* bytes, size_t size) {
    for (size_t i = 0; i + 4 <= size; i += 4) {
      float x;
      std::memcpy(&x, bytes + i, 4);
      x *= factor;
      std::memcpy(bytes + i, &x, 4);
    }
  });
}

Value& weight_of(Graph& graph, const std::string& layer) { return graph.at(node_of(graph, layer).inputs[1]); }

}  // namespace tessera::testing
