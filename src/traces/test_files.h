// SPDX-License-Identifier: Apache-2.0
// Files for the tests of this room: those of tests/data/profiles, and scratch files that go away with the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "traces/reader.h"

namespace tessera {

inline std::string fixture(const std::string& name) {
  return std::string(TS_SOURCE_DIR "/tests/data/profiles/") + name;
}

// Where it is developed, the project has data beside it that users do not have.
inline std::string shared_profile(const std::string& name) {
  const char* given = std::getenv("TESSERA_SHARED");
  return (given != nullptr ? std::string(given) : TS_SOURCE_DIR "/../shared") + "/data/profiles/" + name;
}

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ScratchFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("tessera_traces_" + std::to_string(getpid()) + "_" + test->test_suite_name() + "_" + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  Result<Profile> read(const std::string& file, const ReadOptions& options = {}) const {
    return read_profile(file, with_built_in({}), options);
  }
  // The sentence of the error, without the path; empty where it was read.
  std::string refusal(const std::string& bytes, const ReadOptions& options = {}) const {
    const std::string file = write("file", bytes);
    const auto profile = read(file, options);
    if (profile.ok()) return "";
    EXPECT_EQ(profile.status().code(), Code::kBadInput) << profile.status().message();
    EXPECT_EQ(profile.status().message().substr(0, file.size() + 2), file + ": ");
    EXPECT_EQ(profile.status().message().find('\n'), std::string::npos);
    return profile.status().message().substr(file.size() + 2);
  }

 private:
  std::filesystem::path folder_;
};

inline const KernelTime* find_kernel(const Profile& profile, const std::string& part_of_name) {
  for (const KernelTime& k : profile.kernels) {
    if (k.name.find(part_of_name) != std::string::npos) return &k;
  }
  return nullptr;
}

inline double us_of(const Profile& profile, KernelClass c, const std::string& precision = "") {
  double us = 0;
  for (const KernelTime& k : profile.kernels) {
    if (k.kernel_class == c && (precision.empty() || k.precision == precision)) us += k.us;
  }
  return us;
}

}  // namespace tessera
