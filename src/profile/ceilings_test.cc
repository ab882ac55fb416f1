// SPDX-License-Identifier: Apache-2.0
#include "profile/ceilings.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "archs/cuda/device_memory.h"
#include "base/log.h"
#include "base/parallel.h"
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

// A text that is cut short, or one digit away, gives no rates.
TEST_F(CeilingsFile, NoDamageIsTakenForRates) {
  Ceilings c = made_up();
  c.doubt = "other programs had 40 % of the cores meanwhile";
  const std::string text = ceilings_text(c);
  ASSERT_TRUE(read_ceilings_text(text, c.machine));
  EXPECT_EQ(read_ceilings_text(text, c.machine)->doubt, c.doubt);
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    bool damaged = false;
    EXPECT_FALSE(read_ceilings_text(text.substr(0, length), c.machine, &damaged)) << length;
    EXPECT_TRUE(damaged) << length;
  }
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > '9') continue;
    std::string other = text;
    other[at] = text[at] == '9' ? '1' : static_cast<char>(text[at] + 1);
    EXPECT_FALSE(read_ceilings_text(other, c.machine)) << "digit at " << at << ": " << other;
  }
  bool damaged = true;
  EXPECT_FALSE(read_ceilings_text(text, "another machine", &damaged));
  EXPECT_FALSE(damaged) << "a good text of another machine";
}

TEST(Ceilings, AreMeasuredUntilTwoAgree) {
  const auto measured = [](std::vector<double> values) {
    size_t i = 0;
    const Repeated r = repeat_until_agreed([&] { return values.at(i++); });
    return std::tuple(r.best, r.agree(), i);
  };
  EXPECT_EQ(measured({10, 9.5}), std::tuple(10.0, true, size_t{2}));
  EXPECT_EQ(measured({5, 10, 9.8}), std::tuple(10.0, true, size_t{3})) << "the first was disturbed";
  EXPECT_EQ(measured({10, 4, 5, 9.1}), std::tuple(10.0, true, size_t{4}));
  EXPECT_EQ(measured({10, 4, 5, 8.9}), std::tuple(10.0, false, size_t{4}));
  EXPECT_EQ(measured({0, 0, 0, 0}), std::tuple(0.0, false, size_t{4})) << "no kernel runs";
}

// Other programs, two for each thread: this one gets a third of its cores.
TEST(Ceilings, SharedCoresAreNoticed) {
  std::vector<pid_t> others;
  for (int i = 0; i < 2 * threads(); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::atomic<int> spin{0};;) ++spin;
    }
    ASSERT_GT(child, 0);
    others.push_back(child);
  }
  double least = 1;
  for (int i = 0; i < 10; ++i) least = std::min(least, share_of_cores());
  for (const pid_t child : others) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  EXPECT_LT(least, 0.8);
  EXPECT_GT(least, 0.05);
}

KernelTime product_at(double flops_per_s) {
  KernelTime k;
  k.layer = "blocks.0.fc1", k.kernel_class = KernelClass::kGemm, k.precision = "fp32";
  k.us = 100, k.flops = flops_per_s * 1e-4;
  return k;
}

// Kept while the machine was busy: a kernel that is faster has them measured again, and the file is mended.
TEST_F(CeilingsFile, ThatAKernelBeatsAreMeasuredAgain) {
  const Ceilings low = made_up();
  std::vector<std::string> notes;
  const auto same = correct_ceilings(Arch::cpu, low, {product_at(5e9)}, notes);
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(notes.empty()) << "none is beaten";
  Ceilings very_low = low;
  very_low.flops_per_s[0].second = 1e6;
  const auto mended = correct_ceilings(Arch::cpu, very_low, {product_at(2e6)}, notes);
  ASSERT_TRUE(mended.ok()) << mended.status().message();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("layer blocks.0.fc1 was faster than the ceiling for fp32"), std::string::npos) << notes[0];
  if (notes[0].find("other programs use the cores now") != std::string::npos) {
    EXPECT_NEAR(*rate_of(*mended, "fp32"), 2e6, 1) << "no time to measure";
  } else {
    EXPECT_NE(notes[0].find("have been measured again"), std::string::npos) << notes[0];
    EXPECT_GT(*rate_of(*mended, "fp32"), 1e8);
  }
  const auto kept = machine_ceilings(Arch::cpu, low.machine, /*again=*/false, notes);
  ASSERT_TRUE(kept.ok());
  EXPECT_GE(*rate_of(*kept, "fp32"), *rate_of(*mended, "fp32"));
}

// No measurement reaches this: what the kernel did is what the machine can do, and no share is above 100 %.
TEST_F(CeilingsFile, NoKernelStaysAboveThem) {
  std::vector<std::string> notes;
  const std::vector<KernelTime> kernels = {product_at(1e18), product_at(3e18)};
  const auto raised = correct_ceilings(Arch::cpu, made_up(), kernels, notes);
  ASSERT_TRUE(raised.ok()) << raised.status().message();
  EXPECT_NEAR(*rate_of(*raised, "fp32"), 3e18, 1e9);
  for (const KernelTime& k : kernels) EXPECT_LE(*achieved(k, *raised).of_products, 1 + 1e-9);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("what the fastest layer reaches is the ceiling"), std::string::npos) << notes[0];
}

// What a sparse kernel reaches says nothing about dense products.
TEST_F(CeilingsFile, SparseKernelsLeaveTheDenseRateAlone) {
  std::vector<std::string> notes;
  KernelTime sparse = product_at(1.9 * 5e9);  // of the 5e9 of dense ones
  sparse.sparsity = "2:4";
  const auto same = correct_ceilings(Arch::cpu, made_up(), {sparse}, notes);
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ(rate_of(*same, "fp32"), 5e9);
  EXPECT_TRUE(notes.empty());
  sparse = product_at(1e18), sparse.sparsity = "2:4";
  const auto raised = correct_ceilings(Arch::cpu, made_up(), {sparse}, notes);
  ASSERT_TRUE(raised.ok()) << raised.status().message();
  EXPECT_LT(*rate_of(*raised, "fp32"), 1e17);
  EXPECT_NEAR(rate_of(*raised, "fp32 2:4").value_or(0), 1e18, 1e9);
  EXPECT_NE(notes.at(0).find("the ceiling for fp32 2:4"), std::string::npos) << notes[0];
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
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes[0].find("were damaged and have been measured again"), std::string::npos) << notes[0];
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
