// SPDX-License-Identifier: Apache-2.0
// The same model and options give the same file: with any number of threads, and with the vectors of a smaller CPU.
#include "archs/cpu/simd.h"
// Highway after the targets that kernels have.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/parallel.h"
#include "hwy/targets.h"
#include "plan/engine_file.h"
#include "testing/engine_from.h"

namespace tessera {
namespace {

const std::string kDigits = std::string(TS_SOURCE_DIR) + "/assets/digits";

// As `tessera build` writes it.
std::string file_of(const std::string& precision) {
  BuildOptions o{.model_path = kDigits + "/vit.onnx",
                 .precision = precision,
                 .batches = {1, 3},
                 .target = Arch::cpu,
                 .calib_path = find_precision(precision)->needs_ranges() ? kDigits + "/calib.npz" : "",
                 .quiet = true};
  const auto engine = engine_from(o);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return "";
  const std::string path = testing::TempDir() + "/engine_bytes_test.tess";
  const Status written = write_engine(*engine, path);
  EXPECT_TRUE(written.ok()) << written.message();
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(path);
  EXPECT_GT(bytes.size(), 200000u);
  return bytes;
}

// The first byte that differs, or "".
std::string difference(const std::string& a, const std::string& b) {
  if (a == b) return "";
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  return cat("byte ", at, " of ", a.size(), ", ", b.size());
}

class EngineBytes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { set_threads(1), one_ = file_of(GetParam()); }
  void TearDown() override { set_threads(0), hwy::SetSupportedTargetsForTest(0); }
  std::string one_;  // of one thread
};

TEST_P(EngineBytes, DoNotDependOnTheNumberOfThreads) {
  for (const int threads : {2, 5}) {
    set_threads(threads);
    EXPECT_EQ(difference(one_, file_of(GetParam())), "") << threads << " threads";
  }
}

// Of the instruction sets that kernels are compiled for. (Matrix instructions stay: their sums are exact, or a layer's
// alone that no build runs.)
TEST_P(EngineBytes, DoNotDependOnTheLengthOfVectors) {
#if defined(__x86_64__)
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) GTEST_SKIP() << "this machine has no longer vectors than AVX2";
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
  EXPECT_EQ(difference(one_, file_of(GetParam())), "") << "AVX2";
#else
  GTEST_SKIP() << "kernels have one length of vectors here";
#endif
}

INSTANTIATE_TEST_SUITE_P(Of, EngineBytes, testing::Values("fp32", "fp16", "fp8", "int8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera
