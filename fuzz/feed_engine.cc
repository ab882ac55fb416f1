// SPDX-License-Identifier: Apache-2.0
// An engine file behind its checksums. Two forms of input: a `.tess` file, whose checksums in the header are put right
// before it is read; or a manifest, a zero byte and the data section, around which a right header is put, so that a
// fuzzer may change lengths as it likes. The second is read as version 2, with right checksums of its pieces, and where
// that is refused as version 1, which asks less of where pieces lie.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/checksum.h"
#include "base/status.h"
#include "fuzz/feeds.h"
#include "fuzz/run_small.h"
#include "io/json.h"
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

// Checksums of the header where the sections lie inside the file. Of version 2 the data has none there.
void repair(std::span<uint8_t> file) {
  for (const size_t section : {size_t{16}, size_t{40}}) {
    const uint64_t offset = get(file.data(), section), bytes = get(file.data(), section + 8);
    if (section == 40 && file[8] != 1)
      put(file.data(), section + 16, 0);
    else if (offset <= file.size() && bytes <= file.size() - offset)
      put(file.data(), section + 16, checksum64(file.subspan(offset, bytes)));
  }
}

// Every place of a manifest (an object with offset, bytes, checksum) gets the checksum of the bytes that it names.
void sign_places(nlohmann::json& j, std::span<const uint8_t> data) {
  if (j.is_object() && j.contains("checksum") && j.contains("offset") && j.contains("bytes") &&
      j["offset"].is_number_unsigned() && j["bytes"].is_number_unsigned()) {
    const uint64_t offset = j["offset"].get<uint64_t>(), bytes = j["bytes"].get<uint64_t>();
    if (offset > data.size() || bytes > data.size() - offset) return;
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016" PRIx64, checksum64(data.subspan(offset, bytes)));
    j["checksum"] = digits;
  } else if (j.is_structured()) {
    for (nlohmann::json& child : j) sign_places(child, data);
  }
}

struct Parts {
  std::span<const uint8_t> manifest, data;
};
Parts parts_of(std::span<const uint8_t> input) {
  const size_t zero = static_cast<size_t>(std::find(input.begin(), input.end(), 0) - input.begin());
  return {input.first(zero), zero == input.size() ? std::span<const uint8_t>() : input.subspan(zero + 1)};
}

// The manifest with right checksums; as it is where it is no JSON.
std::string signed_manifest(const Parts& parts) {
  const std::string text(parts.manifest.begin(), parts.manifest.end());
  auto j = parse_json(text);
  if (!j.ok()) return text;
  sign_places(*j, parts.data);
  return j->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Bytes file_around(std::string_view manifest, std::span<const uint8_t> data, uint8_t version) {
  const size_t data_offset = (kHeader + manifest.size() + kPage - 1) / kPage * kPage;
  Buffer file(data_offset + data.size());
  std::memcpy(file.data(), "TESSERA", 8);
  file.data()[8] = version;
  put(file.data(), 16, kHeader), put(file.data(), 24, manifest.size());
  put(file.data(), 40, data_offset), put(file.data(), 48, data.size());
  std::copy(manifest.begin(), manifest.end(), file.data() + kHeader);
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
  const Parts parts = parts_of(input);
  auto engine = parse_engine(whole ? repaired(input) : file_around(signed_manifest(parts), parts.data, 2));
  if (!engine.ok() && !whole) {
    TS_CHECK(!engine.status().message().empty(), "an error without a sentence");
    const std::string_view manifest(reinterpret_cast<const char*>(parts.manifest.data()), parts.manifest.size());
    engine = parse_engine(file_around(manifest, parts.data, 1));
  }
  if (!engine.ok()) {
    TS_CHECK(!engine.status().message().empty(), "an error without a sentence");
    return;
  }
  (void)check_constants(*engine);
  check_reads_back(*engine);
  run_small(*engine);
}

}  // namespace tessera::fuzz
