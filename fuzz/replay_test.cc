// SPDX-License-Identifier: Apache-2.0
// Feeds every seed, and every input that once broke a reader, to its reader: without a fuzzer, in any build.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "fuzz/feeds.h"

namespace tessera::fuzz {
namespace {

struct Reader {
  const char* name;
  void (*feed)(std::span<const uint8_t>);
};
constexpr Reader kReaders[] = {
#define TS_READER(name) {#name, feed_##name},
#include "fuzz/readers.inc"
#undef TS_READER
};

class Replay : public ::testing::TestWithParam<Reader> {};

TEST_P(Replay, EveryFileOfTheCorpusComesBack) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TS_SOURCE_DIR "/fuzz/corpus/") + GetParam().name))
    files.push_back(entry.path());
  ASSERT_GE(files.size(), 3u) << "seeds are missing";
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    SCOPED_TRACE(path);
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
    std::printf("%s\n", path.filename().c_str());  // says where a crash was
    std::fflush(stdout);
    GetParam().feed({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, Replay, ::testing::ValuesIn(kReaders),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::fuzz
