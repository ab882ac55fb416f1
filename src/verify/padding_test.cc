// SPDX-License-Identifier: Apache-2.0
// Engines of a model whose mask was lost (its number that hides keys became 0) beside the model as it was: the check
// must see it.
#include "verify/padding.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "assemble/build_engine.h"
#include "import/onnx/onnx.h"
#include "io/npz.h"
#include "rewrite/canonicalise.h"
#include "testing/engine_from.h"

namespace tessera {
namespace {

// The bytes of a case of tests/data/masks.
std::string model_of(const std::string& name) {
  const auto arrays = read_npz(TS_SOURCE_DIR "/tests/data/masks/cases.npz");
  if (!arrays.ok()) return "";
  for (const Array& a : *arrays) {
    if (a.name == name + ".onnx") return {reinterpret_cast<const char*>(a.data.data()), a.data.size()};
  }
  return "";
}

std::string without_mask(std::string model) {
  const std::string lowest("\xff\xff\x7f\xff", 4), nothing(4, '\0');
  for (size_t at = model.find(lowest); at != std::string::npos; at = model.find(lowest, at))
    model.replace(at, 4, nothing);
  return model;
}

Bytes bytes_of(const std::string& text) {
  Buffer b(text.size());
  std::memcpy(b.data(), text.data(), text.size());
  return Bytes::own(std::move(b));
}

class PaddingTest : public ::testing::TestWithParam<const char*> {
 protected:
  // An engine of `model`, whatever its build says of masks.
  Engine engine_of(const std::string& model) {
    const std::string path = ::testing::TempDir() + "/padding_" + GetParam() + ".onnx";
    std::ofstream(path, std::ios::binary) << model;
    auto engine = engine_from({.model_path = path, .precision = "fp16", .batches = {2}, .quiet = true});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(engine).value() : Engine{};
  }
  Graph written(const std::string& model) {
    auto graph = import_onnx(bytes_of(model), "written", {.batch = 2});
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    return std::move(graph).value();
  }
};

TEST_P(PaddingTest, ALostMaskIsSeen) {
  const std::string model = model_of(GetParam());
  ASSERT_NE(model, without_mask(model));
  const Graph as_written = written(model);
  Graph canonical = as_written;
  ASSERT_TRUE(canonicalise(canonical).ok());
  const ModelGraphs graphs{.written = &as_written, .canonical = &canonical, .prepared = &canonical};

  const Engine sound = engine_of(model);
  ASSERT_FALSE(sound.plans.empty());
  const auto found = check_padding(sound, sound.plans.back(), graphs, 1, true);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->mask, "mask");
  EXPECT_EQ(found->farthest, 0);

  const Engine lost = engine_of(without_mask(model));
  ASSERT_FALSE(lost.plans.empty());
  const auto failed = check_padding(lost, lost.plans.back(), graphs, 1, true);
  EXPECT_EQ(failed.status().code(), Code::kVerifyFailed);
  for (const char* words : {"input 'mask' hides tokens", "output 'hidden' still changes", "in 'ids'"})
    EXPECT_NE(failed.status().message().find(words), std::string::npos) << failed.status().message();
}

INSTANTIATE_TEST_SUITE_P(Masks, PaddingTest,
                         ::testing::Values("lowest", "replaced", "multiplied", "two_masks", "before_scaling",
                                           "softcapped"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera
