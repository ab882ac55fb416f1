// SPDX-License-Identifier: Apache-2.0
// An engine file behind its checksums. Two forms of input: a `.tess` file, whose checksums are put right before it is
// read; or a manifest, a zero byte and the data section, around which a right header is put, so that a fuzzer may
// change lengths as it likes. Both are read as version 1, whose data has one checksum: manifests are read alike.
#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/status.h"
#include "fuzz/feeds.h"
#include "fuzz/run_small.h"
#include "plan/engine_file.h"
#include "plan/manifest.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kHeader = 64, kPage = 4096, kMostData = size_t{1} << 24;

void put(uint8_t* file, size_t at, uint64_t value) { std::memcpy(file + at, &value, sizeof(value)); }
uint64_t get(const uint8_t* file, size_t at) {
  uint64_t value;
  std::memcpy(&value, file + at, sizeof(value));
  return value;
}

// Both checksums where the sections lie inside the file.
void repair(std::span<uint8_t> file) {
  file[8] = 1;
  for (const size_t section : {size_t{16}, size_t{40}}) {
    const uint64_t offset = get(file.data(), section), bytes = get(file.data(), section + 8);
    if (offset <= file.size() && bytes <= file.size() - offset)
      put(file.data(), section + 16, checksum64(file.subspan(offset, bytes)));
  }
}

Bytes file_around(std::span<const uint8_t> input) {
  const auto zero = std::find(input.begin(), input.end(), 0);
  const size_t manifest = static_cast<size_t>(zero - input.begin());
  const std::span<const uint8_t> data = zero == input.end() ? std::span<const uint8_t>() : input.subspan(manifest + 1);
  const size_t data_offset = (kHeader + manifest + kPage - 1) / kPage * kPage;
  Buffer file(data_offset + data.size());
  std::memcpy(file.data(), "TESSERA", 8);
  put(file.data(), 16, kHeader), put(file.data(), 24, manifest);
  put(file.data(), 40, data_offset), put(file.data(), 48, data.size());
  std::copy(input.begin(), zero, file.data() + kHeader);
  std::copy(data.begin(), data.end(), file.data() + data_offset);
  repair({file.data(), file.size()});
  return Bytes::own(std::move(file));
}

Bytes repaired(std::span<const uint8_t> input) {
  Buffer file(input.size());
  std::copy(input.begin(), input.end(), file.data());
  repair({file.data(), file.size()});
  return Bytes::own(std::move(file));
}

// What was read prints as a manifest that reads back as the same text. Its places are those of a data section laid out
// anew, in which pieces that shared bytes have their own, where they are not too many.
void check_reads_back(const Engine& engine) {
  const std::string text = write_manifest(engine);
  const auto end = [](size_t at, size_t bytes) {
    return static_cast<size_t>(round_up(static_cast<int64_t>(at + bytes), kDataAlign));
  };
  size_t bytes = 0;
  for (const std::span<const uint8_t> piece : data_pieces(engine)) {
    bytes = end(bytes, piece.size());
    if (bytes > kMostData) return;
  }
  Buffer data(bytes);
  size_t at = 0;
  for (const std::span<const uint8_t> piece : data_pieces(engine)) {
    std::copy(piece.begin(), piece.end(), data.data() + at);
    at = end(at, piece.size());
  }
  const auto again = read_manifest(text, Bytes::own(std::move(data)), /*checksums=*/true);
  TS_CHECK(again.ok(), "a manifest that was written is refused: ", again.status().message());
  TS_CHECK(write_manifest(*again) == text, "a manifest reads back as another");
}

}  // namespace

void feed_engine(std::span<const uint8_t> input) {
  const bool whole = input.size() >= kHeader && std::memcmp(input.data(), "TESSERA", 8) == 0;
  const auto engine = parse_engine(whole ? repaired(input) : file_around(input));
  if (!engine.ok()) {
    TS_CHECK(!engine.status().message().empty(), "an error without a sentence");
    return;
  }
  check_reads_back(*engine);
  run_small(*engine);
}

}  // namespace tessera::fuzz
