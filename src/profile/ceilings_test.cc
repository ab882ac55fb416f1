// SPDX-License-Identifier: Apache-2.0
#include "profile/ceilings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "archs/cuda/device_memory.h"
#include "base/log.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

Ceilings made_up() {
  return {.machine = "Abacus (TM) 3, 2 threads",
          .measured = true,
          .bytes_per_s = 3e9,
          .flops_per_s = {{"fp32", 5e9}, {"int8", 2e10}}};
}

// A cache folder of its own.
class CeilingsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("tessera_ceilings_", ::getpid());
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    set_quiet(true);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
  }
  fs::path folder_;
};

TEST_F(CeilingsFile, IsReadBackForItsMachineAlone) {
  const Ceilings c = made_up();
  const std::string text = ceilings_text(c);
  const auto read = read_ceilings_text(text, c.machine);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->bytes_per_s, c.bytes_per_s);
  EXPECT_EQ(rate_of(*read, "int8"), 2e10);
  EXPECT_TRUE(read->measured);
  EXPECT_FALSE(read_ceilings_text(text, "Abacus (TM) 3, 4 threads"));
  std::string other = text;
  other.replace(other.find("\"program\": \"") + 12, 1, "x");
  EXPECT_FALSE(read_ceilings_text(other, c.machine)) << "of another version of the program";
  for (const char* bad : {"", "{", "[]", "{}", "null", "{\"format\": 3}"})
    EXPECT_FALSE(read_ceilings_text(bad, c.machine)) << bad;
  for (const char* rate : {"0", "-1", "\"fast\"", "null"}) {
    std::string wrong = text;
    wrong.replace(wrong.find("3000000000.0"), 12, rate);
    EXPECT_FALSE(read_ceilings_text(wrong, c.machine)) << rate;
  }
}

TEST_F(CeilingsFile, IsInTheCacheFolder) {
  EXPECT_EQ(ceilings_file(made_up().machine), folder_ / "tessera/ceilings-abacus-tm-3-2-threads.json");
  unsetenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(ceilings_file("x"), "/home/somebody/.cache/tessera/ceilings-x.json");
  unsetenv("HOME");
  EXPECT_EQ(ceilings_file("x"), "");
  if (!before.empty()) setenv("HOME", before.c_str(), 1);
}

TEST_F(CeilingsFile, SparesTheMeasuring) {
  const Ceilings c = made_up();
  const fs::path path = ceilings_file(c.machine);
  fs::create_directories(path.parent_path());
  std::ofstream(path) << ceilings_text(c);
  std::vector<std::string> notes;
  const auto kept = machine_ceilings(Arch::cpu, c.machine, /*again=*/false, notes);
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ(kept->bytes_per_s, 3e9) << "no machine here is as slow as the one that was made up";
  EXPECT_TRUE(notes.empty());
}

// What cannot be read is measured again, and the file is a good one afterwards.
TEST_F(CeilingsFile, ThatIsBrokenIsMeasuredAgain) {
  const fs::path path = ceilings_file("broken");
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "{\"format\": \"tessera ceil";
  std::vector<std::string> notes;
  const auto measured = machine_ceilings(Arch::cpu, "broken", /*again=*/false, notes);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_GT(measured->bytes_per_s, 1e8);
  ASSERT_TRUE(rate_of(*measured, "fp32")) << "every CPU has these products";
  EXPECT_GT(*rate_of(*measured, "fp32"), 1e8);
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(read_ceilings_text(text, "broken"));
  EXPECT_TRUE(notes.empty());
}

// What any Hopper GPU reaches by far, with the rates in their order.
TEST_F(CeilingsFile, sm90_OfAGpu) {
  if (!device_present(Arch::sm90)) GTEST_SKIP() << why_no_device(Arch::sm90);
  const auto c = measure_ceilings(Arch::sm90, device_name(0));
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_GT(c->bytes_per_s, 1e12);
  EXPECT_LT(c->bytes_per_s, 1e13);
  for (const char* precision : {"fp16", "bf16", "fp8", "int8"}) ASSERT_TRUE(rate_of(*c, precision)) << precision;
  EXPECT_GT(*rate_of(*c, "fp16"), 2e14);
  EXPECT_GT(*rate_of(*c, "fp8"), *rate_of(*c, "fp16"));
  EXPECT_LT(*rate_of(*c, "fp8"), 2.5e15);
}

}  // namespace
}  // namespace tessera
