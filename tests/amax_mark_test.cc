// SPDX-License-Identifier: Apache-2.0
// Golden inputs that static scales are the amax of: an engine may say so, say that it is not so, or, where it was
// written before the mark existed, say nothing. Scales are judged without the model unless it is so.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "io/mmap.h"
#include "plan/engine_file.h"
#include "testing/engine_from.h"
#include "verify/verify.h"

namespace tessera {
namespace {

constexpr const char* kLayer = "blocks.1.mlp.fc1";

Result<Engine> fp8_engine() {
  return engine_from({.model_path = TS_SOURCE_DIR "/assets/digits/vit.onnx",
                      .precision = "fp8",
                      .batches = {2},
                      .calib_path = TS_SOURCE_DIR "/assets/digits/calib.npz",
                      .calib_samples = 32,
                      .quiet = true});
}

// The golden plan's scale of what the layer reads, 64 times too small: most codes are the largest.
void shrink_scale(Engine& engine) {
  Plan& golden = engine.plans.back();
  bool found = false;
  for (const PlanStep& s : golden.steps) {
    if (s.layer != kLayer || s.op != "matmul") continue;
    PlanTensor& scale = golden.tensors[static_cast<size_t>(golden.tensors[static_cast<size_t>(s.in[0])].scale)];
    float number = 0;
    std::memcpy(&number, engine.constants[static_cast<size_t>(scale.index)].data.data() + scale.offset_bytes, 4);
    number /= 64;
    Buffer bytes(4);
    std::memcpy(bytes.data(), &number, 4);
    scale.index = static_cast<int64_t>(engine.constants.size()), scale.offset_bytes = 0;
    engine.constants.push_back({"too small", Bytes::own(std::move(bytes))});
    found = true;
  }
  ASSERT_TRUE(found) << kLayer;
}

// Written, read and judged by its own golden inputs: what was found of the layer's scales.
std::string judged_from_file(const Engine& engine, bool marked) {
  const std::string path = std::filesystem::temp_directory_path() / cat("amax_mark_", getpid(), ".tess");
  const Status written = write_engine(engine, path);
  EXPECT_TRUE(written.ok()) << written.message();
  const auto text = map_file(path);
  EXPECT_TRUE(text.ok());
  const std::string_view bytes(reinterpret_cast<const char*>(text->data()), text->size());
  EXPECT_EQ(bytes.find("within_amax") != std::string_view::npos, marked);
  const auto read = read_engine(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(read.ok()) << read.status().message();
  if (!read.ok()) return "";
  EXPECT_EQ(read->golden.within_amax, engine.golden.within_amax);
  const auto report = measure_quantization(*read, nullptr, {.quiet = true});
  EXPECT_TRUE(report.ok()) << report.status().message();
  std::string found;
  for (const LayerQuality& q : report->layers) {
    for (const Finding& f : q.found) found += cat(found.empty() ? "" : "; ", q.layer, ": ", f.text);
  }
  return found;
}

TEST(AmaxMark, AnEngineWithoutItLoadsAndIsJudged) {
  auto engine = fp8_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ(engine->golden.within_amax, true) << "its golden inputs are among the samples";
  engine->golden.within_amax.reset();
  EXPECT_EQ(judged_from_file(*engine, false), "") << "sound scales say nothing";
  shrink_scale(*engine);
  const std::string unmarked = judged_from_file(*engine, false);
  EXPECT_NE(unmarked.find(cat(kLayer, ": activation scale may be too small, ")), std::string::npos) << unmarked;
  engine->golden.within_amax = false;
  EXPECT_EQ(judged_from_file(*engine, true), unmarked);
  // The mark says that the largest code is the amax itself.
  engine->golden.within_amax = true;
  EXPECT_EQ(judged_from_file(*engine, true), "");
}

}  // namespace
}  // namespace tessera
