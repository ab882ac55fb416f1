// SPDX-License-Identifier: Apache-2.0
// A model all the way to a plan that runs, for `ref` and for `cpu`: import, canonical form, types, plan. External data
// are read from a folder with one file, w.bin.
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/status.h"
#include "compile/compile.h"
#include "fuzz/feeds.h"
#include "fuzz/run_small.h"
#include "import/onnx/onnx.h"
#include "import/onnx/reader.h"
#include "rewrite/canonicalise.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kPlannedNodes = 300;
constexpr int64_t kPlannedElements = 1 << 16;  // of a constant: planning copies and encodes weights

bool small(const Graph& graph) {
  for (const Value& v : graph.values) {
    if (v.constant && elements(v.type.shape) > kPlannedElements) return false;
  }
  return graph.nodes.size() <= kPlannedNodes;
}

// A folder of our own with the one file that seeds speak of; made once.
std::string folder_with_data() {
  static const std::string kFolder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_fuzz_XXXXXX").string();
    TS_CHECK(mkdtemp(name.data()) != nullptr, name);
    std::ofstream(name + "/w.bin", std::ios::binary) << std::string(256, '\x3c');
    static const struct Remove {
      std::string name;
      ~Remove() { std::filesystem::remove_all(name); }
    } remove{name};
    return name;
  }();
  return kFolder;
}

}  // namespace

void feed_onnx(std::span<const uint8_t> input) {
  Buffer buffer(input.size());
  std::copy(input.begin(), input.end(), buffer.data());
  const Bytes file = Bytes::own(std::move(buffer));
  if (std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).find("location") !=
      std::string_view::npos) {
    if (const auto model = read_onnx(file, folder_with_data()); !model.ok())
      TS_CHECK(!model.status().message().empty(), "an error without a sentence");
  }
  auto graph = import_onnx(file, "fuzzed", {.batch = 2, .shapes = {}});
  if (!graph.ok()) {
    TS_CHECK(!graph.status().message().empty(), "an error without a sentence");
    return;
  }
  if (!canonicalise(*graph).ok() || !small(*graph)) return;
  const struct {
    const char* precision;
    bool as_reference;
  } plans[] = {{"fp32", true}, {"fp32", false}, {"imported", true}, {"imported", false}};
  for (const auto& p : plans) {
    LowerOptions options;
    options.plan = {.name = "main", .target = Arch::cpu, .batch = batch_of(*graph), .as_reference = p.as_reference};
    options.types.precision = p.precision;
    Engine engine;
    ConstantPool pool(engine.constants);
    auto plan = lower(*graph, options, pool);
    if (!plan.ok()) continue;
    engine.plans.push_back(std::move(*plan));
    run_small(engine);
  }
}

}  // namespace tessera::fuzz
