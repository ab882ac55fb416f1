// SPDX-License-Identifier: Apache-2.0
#include "archs/cuda/device_memory.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

const Gpu kHopper{.name = "NVIDIA H200", .capability = "90"}, kBlackwell{.name = "NVIDIA B200", .capability = "100"};

TEST(WhyNotOn, AProgramOfSeveralArchsRunsWhereOneOfThemIs) {
  for (const char* targets : {"90a", "90a,120a", "120a,90a", "80,90a,120a"})
    EXPECT_EQ(why_not_on(Arch::sm90, kHopper, targets), "") << targets;
  for (const char* targets : {"90", "90a", "120a,90f", "80,90,120a"})
    EXPECT_EQ(why_not_on(Arch::cuda, kHopper, targets), "") << targets;
  EXPECT_EQ(why_not_on(Arch::cuda, kBlackwell, "90a,100a"), "");
}

TEST(WhyNotOn, CodeOfAnotherArchIsSaidToBeMissing) {
  const std::string missing = "the GPU here is NVIDIA H200 (sm_90); this program was compiled for ";
  for (const char* targets : {"120a", "100a,120a", "190a", "90a1", "900a"}) {
    for (const Arch arch : {Arch::sm90, Arch::cuda})
      EXPECT_EQ(why_not_on(arch, kHopper, targets), missing + targets + " (TESSERA_CUDA_ARCHS)");
  }
  // Hopper's own files want 90a; plain 90 holds only what every GPU runs.
  EXPECT_EQ(why_not_on(Arch::sm90, kHopper, "90,120a"), missing + "90,120a (TESSERA_CUDA_ARCHS)");
}

TEST(WhyNotOn, AnArchIsForOneCapability) {
  EXPECT_EQ(why_not_on(Arch::sm90, kBlackwell, "90a,100a"), "the GPU here is NVIDIA B200 (sm_100); this needs sm_90");
}

TEST(WhyNoDevice, HostsAreAlwaysThere) {
  for (const Arch arch : {Arch::ref, Arch::cpu}) EXPECT_EQ(why_no_device(arch), "");
}

}  // namespace
}  // namespace tessera
