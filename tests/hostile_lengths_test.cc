// SPDX-License-Identifier: Apache-2.0
// What an engine says of its lengths, with one word or number changed in turn: arrays would be padded and results cut
// by it, so each is refused on load.
#include <gtest/gtest.h>

#include <functional>

#include "plan/engine_file.h"
#include "testing/engine_from.h"

namespace tessera {
namespace {

const Engine& sound_engine() {
  static const Engine engine = [] {
    const RangedShape ids = {{1, 2}, {3, 5, 8}};
    auto built = engine_from({.model_path = std::string(TS_SOURCE_DIR) + "/tests/data/models/llama_dyn18.onnx",
                              .precision = "fp32",
                              .ranges = {{"input_ids", ids}, {"attention_mask", ids}},
                              .golden = false,
                              .quiet = true});
    EXPECT_TRUE(built.ok()) << built.status().message();
    return built.ok() ? std::move(built).value() : Engine{};
  }();
  return engine;
}

std::string refusal(const std::function<void(Engine&)>& change) {
  Engine e = sound_engine();
  change(e);
  return check_engine(e).message();
}

TEST(HostileLengths, IsSoundBeforeItIsChanged) {
  const Lengths& l = sound_engine().lengths;
  ASSERT_EQ(l.why_exact, (std::map<std::string, std::string>{{"sequence", ""}}));
  EXPECT_EQ(l.inputs.size(), 2u);
  ASSERT_EQ(l.outputs.size(), 1u);
  EXPECT_EQ(l.outputs[0].port, "logits");
  EXPECT_EQ(refusal([](Engine&) {}), "");
}

TEST(HostileLengths, IsReadAsItWasWritten) {
  const std::string path = testing::TempDir() + "/hostile_lengths.tess";
  ASSERT_TRUE(write_engine(sound_engine(), path).ok());
  const auto read = read_engine(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(manifest_json(*read), manifest_json(sound_engine()));
  EXPECT_FALSE(read->lengths.none());
}

TEST(HostileLengths, EveryWordIsHeldAgainstThePlans) {
  const std::vector<std::pair<std::function<void(Engine&)>, std::string>> changes = {
      {[](Engine& e) { e.lengths.why_exact.clear(); }, "no size that they go with"},
      {[](Engine& e) { e.lengths.why_exact["other"] = ""; }, "other sizes than those of the lengths"},
      {[](Engine& e) { e.lengths.inputs.clear(); }, "is the length of no input"},
      {[](Engine& e) { e.lengths.inputs.pop_back(); }, "as in the first plan"},
      {[](Engine& e) { e.lengths.inputs[0].port = "ids"; }, "there is no such input"},
      {[](Engine& e) { e.lengths.inputs[0].axis = 0; }, "or it counts samples"},
      {[](Engine& e) { e.lengths.inputs[0].axis = -1; }, "or it counts samples"},
      {[](Engine& e) { e.lengths.inputs[0].axis = 2; }, "there is no such axis"},
      {[](Engine& e) { e.lengths.inputs[0].plus = 1; }, "the length of an input is a size as it is"},
      {[](Engine& e) { e.lengths.inputs[0].per["sequence"] = 2; }, "the length of an input is a size as it is"},
      {[](Engine& e) {
         e.lengths.inputs[0].per = {{"other", 1}};
       },
       "it goes with no size of the plans"},
      {[](Engine& e) { e.lengths.inputs.push_back(e.lengths.inputs[0]); }, "it stands there twice"},
      {[](Engine& e) { e.lengths.outputs.clear(); }, "as in the first plan"},
      {[](Engine& e) { e.lengths.outputs[0].per.clear(); }, "it goes with no size of the plans"},
      {[](Engine& e) { e.lengths.outputs[0].per["sequence"] = 0; }, "0 times 'sequence'"},
      {[](Engine& e) { e.lengths.outputs[0].per["sequence"] = INT64_MAX; }, "times 'sequence'"},
      {[](Engine& e) { e.lengths.outputs[0].per["sequence"] = 2; }, "which the lengths say"},
      {[](Engine& e) { e.lengths.outputs[0].plus = 1; }, "which the lengths say"},
      {[](Engine& e) { e.lengths.outputs[0].plus = INT64_MIN; }, "more than its sizes"},
      {[](Engine& e) { e.plans[0].sizes["sequence"] = 7; }, ""},
      {[](Engine& e) { e.plans[0].sizes.clear(); }, ""},
      {[](Engine& e) {
         e.schedule = {{"main", 1}};
       },
       "without states and schedules"},
  };
  for (const auto& [change, said] : changes) {
    const std::string why = refusal(change);
    EXPECT_NE(why, "") << said;
    EXPECT_NE(why.find(said), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace tessera
