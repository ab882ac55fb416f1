// SPDX-License-Identifier: Apache-2.0
#include "archs/chip.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

TEST(Chip, IsFoundByTheWholeNameThatTheDriverGives) {
  ASSERT_NE(find_chip("NVIDIA H200"), nullptr);
  EXPECT_EQ(find_chip("NVIDIA H200")->bytes_per_s, 4.8e12);
  ASSERT_NE(find_chip("NVIDIA H100 80GB HBM3"), nullptr);
  EXPECT_EQ(find_chip("NVIDIA H100 80GB HBM3")->bytes_per_s, 3.35e12);
}

TEST(Chip, OthersWithALikeNameAreNotTakenForIt) {
  for (const char* name : {"NVIDIA GH200 480GB", "NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA H100", "H200", ""})
    EXPECT_EQ(find_chip(name), nullptr) << name;
}

TEST(Chip, EveryOneIsFoundByItsNameAndListedOnce) {
  for (const Chip& c : kChips) EXPECT_EQ(find_chip(c.name), &c) << c.name;
}

TEST(Chip, ChoicesForAnArchAreMadeForTheFirstOfTheList) {
  EXPECT_EQ(std::string(chip_of(Arch::sm90).name), "NVIDIA H200");
  EXPECT_EQ(chip_of(Arch::sm90).l2_bytes, int64_t{50} << 20);
}

}  // namespace
}  // namespace tessera
