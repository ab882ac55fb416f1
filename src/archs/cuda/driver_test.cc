// SPDX-License-Identifier: Apache-2.0
#include "archs/cuda/driver.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace tessera {
namespace {

TEST(Driver, RunsItsOwnMajorVersionAndOlderOnes) {
  EXPECT_EQ(why_not_with_driver(13000, 13000), "");
  EXPECT_EQ(why_not_with_driver(13000, 13020), "") << "minor versions are compatible";
  EXPECT_EQ(why_not_with_driver(13010, 12080), "");
}

TEST(Driver, SaysWhatIsHereAndWhatIsNeeded) {
  EXPECT_EQ(why_not_with_driver(12080, 13000),
            "the NVIDIA driver here is for CUDA 12.8, and this program was built with CUDA 13.0: it needs a driver for "
            "CUDA 13 (580.65.06 or newer)");
  EXPECT_EQ(why_not_with_driver(0, 12040),
            "no NVIDIA driver was found; this program needs a driver for CUDA 12 (525.60.13 or newer)");
  EXPECT_EQ(why_not_with_driver(0, 14000), "no NVIDIA driver was found; this program needs a driver for CUDA 14");
}

TEST(Driver, TheTableOfTheDocsSaysTheSame) {
  std::ifstream file(std::string(TS_SOURCE_DIR) + "/docs/install.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_NE(text.find("525.60.13"), std::string::npos);
  EXPECT_NE(text.find("580.65.06"), std::string::npos);
}

}  // namespace
}  // namespace tessera
