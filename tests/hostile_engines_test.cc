// SPDX-License-Identifier: Apache-2.0
// Engines that say what is not so. Real ones, for the CPU and for a GPU, with one word or number changed in turn: each
// is refused on load, by plan and layer.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "assemble/build_engine.h"
#include "op/op.h"
#include "ops/ops.h"
#include "plan/engine_file.h"
#include "plan/promise.h"
#include "runtime/bind.h"
#include "testing/engine_from.h"
#include "types/precisions/precision.h"

namespace tessera {
namespace {

const std::string kDigits = std::string(TS_SOURCE_DIR) + "/assets/digits";

// fp8 with fp8 attention, batch 4 and 20.
BuildOptions options_for(Arch target) {
  return {.model_path = kDigits + "/vit.onnx",
          .precision = "fp8",
          .attention = "fp8",
          .batches = {4, 20},
          .target = target,
          .calib_path = kDigits + "/calib.npz",
          .golden_samples = 1,
          .quiet = true};
}

const Engine& engine_for(Arch target) {
  static const auto build = [](Arch arch) {
    auto built = engine_from(options_for(arch));
    EXPECT_TRUE(built.ok()) << built.status().message();
    return built.ok() ? std::move(built).value() : Engine{};
  };
  static const Engine cpu = build(Arch::cpu), sm90 = build(Arch::sm90);
  return target == Arch::cpu ? cpu : sm90;
}

class HostileEngine : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override { ASSERT_GE(engine().plans.size(), 3u); }
  const Engine& engine() const { return engine_for(GetParam()); }
  // What an engine is refused with after `change`; empty where it is not.
  std::string refusal(const std::function<void(Engine&)>& change) const {
    Engine e = engine();
    change(e);
    return check_engine(e).message();
  }
  // The sentence names plan and layer.
  static void expect_named(const std::string& said, const Plan& plan, const PlanStep& step) {
    EXPECT_NE(said.find(cat("plan '", plan.name, "'")), std::string::npos) << step.layer << ": " << said;
    EXPECT_NE(said.find(cat("('", step.layer, "')")), std::string::npos) << step.layer << ": " << said;
  }
  template <class Body>
  void each_step(Body body) const {
    for (size_t p = 0; p < engine().plans.size(); ++p) {
      for (size_t s = 0; s < engine().plans[p].steps.size(); ++s)
        body(p, s, engine().plans[p], engine().plans[p].steps[s]);
    }
  }
};

TEST_P(HostileEngine, IsSoundBeforeItIsChanged) {
  EXPECT_EQ(refusal([](Engine&) {}), "");
}

TEST_P(HostileEngine, AnAllowanceIsForTheLayersThatItNames) {
  BuildOptions options = options_for(GetParam());
  options.allow = {"blocks.0.mlp.fc1=fp16"};
  auto built = engine_from(options);
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_TRUE(check_engine(*built).ok()) << check_engine(*built).message();
  for (const char* other : {"head=fp16", "blocks.1.*=fp16", "blocks.0.mlp.fc1=bf16", "=fp16", "fp16"}) {
    built->allowed = {other};
    EXPECT_NE(check_engine(*built).message().find("layer blocks.0.mlp.fc1 of plan"), std::string::npos)
        << other << ": " << check_engine(*built).message();
  }
}

TEST_P(HostileEngine, SilenceIsNoPromise) {
  const std::string said = refusal([](Engine& e) {
    for (Plan& plan : e.plans) {
      for (PlanStep& s : plan.steps) s.asked = s.stored = s.computed = s.arithmetic = "";
    }
  });
  EXPECT_NE(said.find("says nothing of what it stores and computes"), std::string::npos) << said;
}

TEST_P(HostileEngine, EveryClaimIsMadeAgain) {
  std::string PlanStep::*const fields[] = {&PlanStep::stored, &PlanStep::computed, &PlanStep::arithmetic};
  int asked = 0;
  each_step([&](size_t p, size_t s, const Plan& plan, const PlanStep& step) {
    for (const auto field : fields) {
      for (const char* word : {"", "e4m3", "fp16", "fp32", "f64", "nvfp4", "wgmma e4m3 (QGMMA), 14-bit sums",
                               "reference of matmul/abacus"}) {
        if (step.*field == word) continue;
        const std::string said = refusal([&](Engine& e) { e.plans[p].steps[s].*field = word; });
        ASSERT_NE(said, "") << plan.name << " " << step.layer << ": " << word << " for " << step.*field;
        expect_named(said, plan, step);
      }
    }
    for (const char* word : {"", "fp32", "fp16", "bf16", "fp8", "nvfp4", "int8", "fp8 2:4", "imported", "bread"}) {
      if (step.asked == word || (!step.asked.empty() && std::string(word) == kImported))
        continue;  // what a model stated is not in the engine
      const std::string said = refusal([&](Engine& e) { e.plans[p].steps[s].asked = word; });
      ASSERT_NE(said, "") << plan.name << " " << step.layer << ": asked " << word << " for " << step.asked;
      expect_named(said, plan, step);
    }
    asked += !step.asked.empty();
    ASSERT_NE(refusal([&](Engine& e) { e.plans[p].steps[s].config = "3x5"; }), "") << step.layer;
    const std::string said = refusal([&](Engine& e) { e.plans[p].steps[s].slow = "slow on Mondays"; });
    ASSERT_NE(said, "") << step.layer;
  });
  EXPECT_GT(asked, 20);
}

TEST_P(HostileEngine, AGoldenStepStandsForAVariantOfTheTarget) {
  const Plan& golden = engine().plans.back();
  for (size_t s = 0; s < golden.steps.size(); ++s) {
    const std::string other = cat(golden.steps[s].op, GetParam() == Arch::cpu ? "/cuda" : "/cpu");
    ASSERT_NE(refusal([&](Engine& e) { e.plans.back().steps[s].arithmetic = reference_words(other); }), "")
        << golden.steps[s].layer;
  }
}

// A kernel for one machine in a plan for another would take the one's addresses for the other's.
TEST_P(HostileEngine, VariantsAreOfThePlansArch) {
  each_step([&](size_t p, size_t s, const Plan& plan, const PlanStep& step) {
    for (const Variant* v : find_op(step.op)->variants) {
      if (runs(plan.arch, v->arch)) continue;
      const auto swap = [&](Engine& e) { e.plans[p].steps[s].variant = v->name, e.plans[p].steps[s].config.clear(); };
      const std::string said = refusal(swap);
      ASSERT_NE(said.find(cat("'", v->name, "' is for ", info(v->arch).name)), std::string::npos) << said;
      expect_named(said, plan, step);
      Engine unchecked = engine();  // who runs plans without asking check_engine is told by bind
      swap(unchecked);
      Plan one = unchecked.plans[p];
      one.steps = {one.steps[s]};
      const auto bound = bind_steps(one);
      ASSERT_FALSE(bound.ok());
      ASSERT_NE(bound.status().message().find(cat("'", v->name, "' is for ", info(v->arch).name)), std::string::npos)
          << bound.status().message();
    }
  });
}

TEST_P(HostileEngine, PlansAreForTheEnginesTarget) {
  for (const Arch arch : {Arch::ref, Arch::cpu, Arch::cuda, Arch::sm90}) {
    for (size_t p = 0; p < engine().plans.size(); ++p) {
      if (engine().plans[p].arch != arch) {
        EXPECT_NE(refusal([&](Engine& e) { e.plans[p].arch = arch; }), "");
      }
    }
    if (arch != GetParam()) {
      EXPECT_NE(refusal([&](Engine& e) { e.target = arch; }), "");
    }
  }
}

TEST_P(HostileEngine, APrecisionThatNoLayerHas) {
  for (const char* word : {"nvfp4", "fp32", "fp16", "int8", "bread"})
    EXPECT_NE(refusal([&](Engine& e) { e.precision = word; }), "") << word;
}

TEST_P(HostileEngine, BoundsThatBindNothing) {
  ASSERT_FALSE(engine().golden.forms.empty());
  ASSERT_FALSE(engine().golden.forms[0].bounds.empty());
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bound : {infinity, -infinity, std::nan(""), -1e-9, 1.0, 2.0, 1e300}) {
    EXPECT_NE(refusal([&](Engine& e) { e.golden.forms[0].bounds[0] = bound; }).find("golden values: a bound of "),
              std::string::npos)
        << bound;
    if (engine().golden.forms[0].values.empty()) continue;
    EXPECT_NE(
        refusal([&](Engine& e) { e.golden.forms[0].values[0].bound = bound; }).find("is none; bounds are relative"),
        std::string::npos)
        << bound;
  }
}

// Kernels that use TMA or vector loads say so; everybody else needs whole elements.
TEST_P(HostileEngine, OperandsThatAreShifted) {
  int shifted = 0;
  each_step([&](size_t p, size_t s, const Plan&, const PlanStep& step) {
    const int64_t align = find_variant(step.variant)->operand_align;
    for (const std::vector<int>* list : {&step.in, &step.out}) {
      for (const int t : *list) {
        if (t == -1) continue;
        const PlanTensor& tensor = engine().plans[p].tensors[static_cast<size_t>(t)];
        const int64_t element = info(tensor.desc.type.element).bits / 8;
        for (const int64_t bytes : {1, 2, 4, 8}) {
          if (bytes % align == 0 && bytes % element == 0 && tensor.desc.layout == Layout::kRows) continue;
          const std::string said = refusal([&](Engine& e) {
            PlanTensor& moved = e.plans[p].tensors[static_cast<size_t>(t)];
            moved.offset_bytes += bytes;
            // Everything still fits: it is the address alone that is wrong.
            e.plans[p].arena_bytes += 256;
            if (moved.storage != Storage::kConstant) return;
            EngineConstant& c = e.constants[static_cast<size_t>(moved.index)];
            Buffer longer(c.data.size() + 64);
            std::copy(c.data.span().begin(), c.data.span().end(), longer.data());
            c.data = Bytes::own(std::move(longer));
          });
          ASSERT_NE(said, "") << step.layer << ": " << tensor.name << " by " << bytes;
          shifted += said.find("does not begin at a multiple of 16 bytes") != std::string::npos;
        }
      }
    }
    for (const int64_t bytes : {1, 2, 4, 8, 16, 32}) {
      ASSERT_NE(refusal([&](Engine& e) {
                  e.plans[p].arena_bytes += 256;
                  e.plans[p].steps[s].workspace_offset += bytes;
                }).find("its workspace"),
                std::string::npos);
    }
  });
  EXPECT_EQ(shifted > 100, GetParam() == Arch::sm90) << shifted;
}

// Only a copy and a concat look into the slots of the caller's buffers.
TEST(HostileGpuEngine, KernelsThatReachForTheCallersBuffers) {
  const Engine& sound = engine_for(Arch::sm90);
  int tried = 0;
  for (size_t s = 0; s < sound.plans[0].steps.size(); ++s) {
    const PlanStep& step = sound.plans[0].steps[s];
    if (find_op(step.op)->boundary) continue;
    Engine e = sound;
    PlanTensor& x = e.plans[0].tensors[static_cast<size_t>(step.in[0])];
    if (x.storage != Storage::kArena) continue;
    x.storage = Storage::kInput, x.index = 0, x.offset_bytes = 0;
    EXPECT_FALSE(check_engine(e).ok()) << step.layer;
    tried += check_engine(e).message().find("is a buffer of the caller") != std::string::npos;
  }
  EXPECT_GT(tried, 0);
}

std::string arch_name(const testing::TestParamInfo<Arch>& arch) {
  return arch.param == Arch::cpu ? "for_the_host" : "for_a_gpu";
}
INSTANTIATE_TEST_SUITE_P(Of, HostileEngine, testing::Values(Arch::cpu, Arch::sm90), arch_name);

}  // namespace
}  // namespace tessera
