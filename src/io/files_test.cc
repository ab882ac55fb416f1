// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "io/atomic_file.h"
#include "io/mmap.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tessera_files_" + std::to_string(getpid()) + "_" +
                                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  std::string content(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path folder_;
};

TEST_F(Files, CommitPutsTheFileInPlace) {
  ASSERT_TRUE(write_file(path("a"), "old").ok());
  {
    auto file = AtomicFile::create(path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("new text").ok());
    ASSERT_TRUE(file->write_zeros(5000).ok());
    EXPECT_EQ(content("a"), "old");
    EXPECT_LE(entries(), 2u);  // with a temporary name where the file system has no files without one
    ASSERT_TRUE(file->commit().ok());
    EXPECT_FALSE(file->write("more").ok());
    EXPECT_FALSE(file->commit().ok());
  }
  EXPECT_EQ(content("a"), "new text" + std::string(5000, '\0'));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, WithoutCommitNothingIsLeft) {
  ASSERT_TRUE(write_file(path("a"), "old").ok());
  {
    auto file = AtomicFile::create(path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("new").ok());
    AtomicFile moved = std::move(*file);
    ASSERT_TRUE(moved.write(" text").ok());
  }
  EXPECT_EQ(content("a"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, LinksKeepPointing) {
  ASSERT_TRUE(write_file(path("real"), "old").ok());
  fs::create_symlink("real", path("link"));
  ASSERT_TRUE(write_file(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content("real"), "new");
}

TEST_F(Files, WhatCannotBeWritten) {
  EXPECT_EQ(write_file(path(""), "x").message(), path("") + ": cannot be written: it is a folder");
  EXPECT_EQ(write_file("/dev/null", "x").message(), "/dev/null: cannot be written: it is not a regular file");
  const Status missing = write_file(path("no/such/folder"), "x");
  EXPECT_EQ(missing.code(), Code::kBadInput);
  EXPECT_EQ(missing.message(), path("no/such/folder") + ": cannot be written: No such file or directory");
  EXPECT_EQ(write_file("", "x").code(), Code::kBadInput);
  EXPECT_EQ(entries(), 0u);
}

// A limit on the size of files fails a write midway, as a full disk does.
TEST_F(Files, AFullDiskLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(write_file(path("a"), "old").ok());
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status whole = write_file(path("a"), std::string(10000, 'x'));
  Status pieces, after, late;
  {
    auto file = AtomicFile::create(path("b"));
    if (file.ok()) pieces = file->write_zeros(1 << 20);
    if (file.ok()) after = file->write("more");
    if (file.ok()) late = file->commit();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(whole.code(), Code::kMachine);
  EXPECT_EQ(whole.message(), path("a") + ": cannot be written: File too large");
  EXPECT_EQ(pieces.message(), path("b") + ": cannot be written: File too large");
  EXPECT_FALSE(after.ok());
  EXPECT_FALSE(late.ok());
  EXPECT_EQ(content("a"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, MapsAndOutlivesTheFile) {
  ASSERT_TRUE(write_file(path("a"), "some bytes").ok());
  auto bytes = map_file(path("a"));
  ASSERT_TRUE(bytes.ok());
  const Bytes tail = bytes->slice(5, 5);
  *bytes = Bytes();
  fs::remove(path("a"));
  EXPECT_EQ(std::string(tail.span().begin(), tail.span().end()), "bytes");
}

TEST_F(Files, WhatCannotBeMapped) {
  EXPECT_EQ(map_file(path("missing")).status().message(),
            path("missing") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(map_file(folder_.string()).status().message(), folder_.string() + ": is a folder, not a file");
  EXPECT_EQ(map_file("/dev/null").status().message(), "/dev/null: is not a regular file");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(map_file(path("pipe")).status().message(), path("pipe") + ": is not a regular file");
  ASSERT_TRUE(write_file(path("empty"), "").ok());
  EXPECT_EQ(map_file(path("empty")).status().message(), path("empty") + ": the file is empty");
}

}  // namespace
}  // namespace tessera
