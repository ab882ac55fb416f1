// SPDX-License-Identifier: Apache-2.0
#include "io/scratch_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "io/mmap.h"

namespace tessera {
namespace {

Buffer counted(size_t bytes) {
  Buffer b(bytes);
  for (size_t i = 0; i < bytes; ++i) b.data()[i] = static_cast<uint8_t>(i * 31 >> 3);
  return b;
}

bool is_counted(const Bytes& b) {
  const Buffer want = counted(b.size());
  return b.empty() || std::memcmp(b.data(), want.data(), b.size()) == 0;
}

// Bytes of this process that lie in pages of files, from the kernel.
int64_t resident_file_bytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  long size = 0, resident = 0, shared = 0;
  const int read = std::fscanf(f, "%ld %ld %ld", &size, &resident, &shared);
  std::fclose(f);
  return read == 3 ? shared * sysconf(_SC_PAGESIZE) : -1;
}

TEST(ScratchFile, GivesTheSameBytesBack) {
  ScratchFile scratch;
  std::vector<Bytes> kept;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{5} << 20) + 3, size_t{1} << 21})
    kept.push_back(scratch.keep(counted(bytes)));
  for (const Bytes& b : kept) EXPECT_TRUE(is_counted(b)) << b.size();
  for (const Bytes& b : kept) EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0u);
  EXPECT_GE(scratch.stored_bytes(), int64_t{8} << 20);
}

TEST(ScratchFile, PagesThatAreGivenBackAreReadAgain) {
  ScratchFile scratch;
  constexpr size_t kBytes = size_t{64} << 20;
  const Bytes kept = scratch.keep(counted(kBytes));
  const int64_t empty = resident_file_bytes();
  EXPECT_TRUE(is_counted(kept));
  const int64_t read = resident_file_bytes();
  EXPECT_GE(read - empty, static_cast<int64_t>(kBytes / 2));
  give_back(kept.data(), kept.size());
  EXPECT_LE(resident_file_bytes() - empty, static_cast<int64_t>(kBytes / 8));
  EXPECT_TRUE(is_counted(kept));
}

TEST(ScratchFile, PagesThatAreKeptStay) {
  ScratchFile scratch;
  constexpr size_t kBytes = size_t{64} << 20;
  const Bytes kept = scratch.keep(counted(kBytes));
  const int64_t empty = resident_file_bytes();
  keep_pages(kept.data() + kBytes / 2);
  EXPECT_TRUE(is_counted(kept));
  give_back(kept.data(), kept.size());
  EXPECT_GE(resident_file_bytes() - empty, static_cast<int64_t>(kBytes / 2));
}

TEST(ScratchFile, OtherMemoryIsLeftAlone) {
  ScratchFile scratch;
  const Bytes mapped = scratch.keep(counted(size_t{4} << 20));
  const Buffer heap = counted(size_t{4} << 20);
  give_back(heap.data(), heap.size());
  const Buffer want = counted(heap.size());
  EXPECT_EQ(std::memcmp(heap.data(), want.data(), heap.size()), 0);
}

TEST(ScratchFile, WithoutAFolderBytesStayOnTheHeap) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept_name = before != nullptr ? before : "";
  setenv("TMPDIR", "/nonexistent/folder", 1);
  ScratchFile scratch;
  const Bytes b = scratch.keep(counted(size_t{2} << 20));
  before != nullptr ? setenv("TMPDIR", kept_name.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_TRUE(is_counted(b));
  EXPECT_EQ(scratch.stored_bytes(), 0);
}

}  // namespace
}  // namespace tessera
