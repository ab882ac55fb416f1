// SPDX-License-Identifier: Apache-2.0
// Engine files of earlier versions (docs/engines.md). tests/data/engines/version1.tess: a small MLP in fp16 for the
// CPU, written by the last program that wrote version 1.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "io/mmap.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"
#include "verify/verify.h"

namespace tessera {
namespace {

std::string fixture(const char* name) { return std::string(TS_SOURCE_DIR) + "/tests/data/engines/" + name; }

uint32_t version_of(const std::string& path) {
  const auto file = map_file(path);
  EXPECT_TRUE(file.ok());
  return file.ok() ? file->data()[8] : 0;
}

TEST(EngineVersions, Version1Loads) {
  const std::string path = fixture("version1.tess");
  ASSERT_EQ(version_of(path), 1u);
  const auto engine = read_engine(path);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ(engine->plans[0].graph, "main");
  EXPECT_TRUE(engine->schedule.empty() && engine->states.empty());
  const auto reports = verify_plans(*engine, {});
  ASSERT_TRUE(reports.ok()) << reports.status().message();
  for (const VerifyReport& r : *reports) EXPECT_TRUE(r.ok) << r.sentence;

  // Written again it is of this program's version, and holds the same.
  const std::string again = (std::filesystem::temp_directory_path() / cat("again_", getpid(), ".tess")).string();
  ASSERT_TRUE(write_engine(*engine, again).ok());
  EXPECT_EQ(version_of(again), 2u);
  const auto second = read_engine(again);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_TRUE(check_constants(*second).ok());
  EXPECT_EQ(manifest_json(*second), manifest_json(*engine));
  std::filesystem::remove(again);
}

// Its data has one checksum, which is asked at load.
TEST(EngineVersions, DamageInVersion1IsSeen) {
  std::ifstream in(fixture("version1.tess"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 16);
  Buffer file(bytes.size());
  std::copy(bytes.begin(), bytes.end(), file.data());
  const auto engine = parse_engine(Bytes::own(std::move(file)));
  EXPECT_EQ(engine.status().message(), "the data section (weights) does not match its checksum: the file is damaged");
}

// A kernel that this program no longer has is named, with who wrote the engine.
TEST(EngineVersions, MissingKernelIsNamed) {
  auto engine = read_engine(fixture("version1.tess"));
  ASSERT_TRUE(engine.ok());
  engine->plans[0].steps[1].variant = "matmul/cpu_of_old";
  const auto bound = bind(*engine, engine->plans[0]);
  const std::string says = bound.status().message();
  EXPECT_TRUE(says.starts_with("layer fc2 wants kernel 'matmul/cpu_of_old', which this program (tessera ")) << says;
  EXPECT_TRUE(
      says.ends_with("does not have; the engine was written by tessera 0.1.0: build it again with this program "
                     "(tessera build)"))
      << says;
}

}  // namespace
}  // namespace tessera
