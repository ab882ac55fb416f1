// SPDX-License-Identifier: Apache-2.0
#include "assemble/build_engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "import/onnx/reader.h"
#include "models/zoo.h"
#include "runtime/batches.h"

namespace tessera {
namespace {

// Calibration, every plan, the golden plan and the model as written are all of one import.
TEST(BuildEngine, ReadsItsModelOnce) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / cat("build_engine_test_", getpid(), ".onnx");
  std::ofstream(path, std::ios::binary) << zoo_onnx("vit-tiny-test", 1).value();
  for (const Arch target : {Arch::cpu, Arch::sm90}) {
    BuildOptions options;
    options.model_path = path.string();
    options.precision = "fp8";
    options.batches = {1, 8, 64};
    options.target = target;
    options.quiet = true;
    const int64_t before = onnx_files_read();
    const auto built = build_engine(options);
    ASSERT_TRUE(built.ok()) << built.status().message();
    EXPECT_EQ(onnx_files_read() - before, 1) << info(target).name;
    EXPECT_EQ(runnable_plans(built->engine).size(), 3u);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera
