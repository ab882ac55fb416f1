// SPDX-License-Identifier: Apache-2.0
#include "plan/engine_file.h"

#include <cstring>

#include "base/checksum.h"
#include "io/atomic_file.h"
#include "io/mmap.h"
#include "plan/manifest.h"

namespace tessera {
namespace {

constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'E', 'R', 'A', '\0'};
constexpr uint32_t kVersion = 2, kOldestVersion = 1;
constexpr uint64_t kDataSectionAlign = 4096;  // a page: the data can be mapped and registered by itself

struct Header {
  char magic[8];
  uint32_t version, reserved;
  uint64_t manifest_offset, manifest_bytes, manifest_checksum;
  uint64_t data_offset, data_bytes;
  uint64_t data_checksum;  // version 1; later ones have a checksum per piece, in the manifest
};
static_assert(sizeof(Header) == 64);

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

uint64_t data_offset_for(uint64_t manifest_bytes) {
  return (sizeof(Header) + manifest_bytes + kDataSectionAlign - 1) / kDataSectionAlign * kDataSectionAlign;
}

// Calls piece(bytes) and zeros(count) over the data section in order; between two pieces there are zeros up to the next
// multiple of kDataAlign.
template <class Piece, class Zeros>
Status walk_data(const Engine& engine, Piece piece, Zeros zeros) {
  size_t at = 0;
  for (const std::span<const uint8_t> p : data_pieces(engine)) {
    const size_t begin = static_cast<size_t>(round_up(static_cast<int64_t>(at), kDataAlign));
    TS_TRY(zeros(begin - at));
    TS_TRY(piece(p));
    at = begin + p.size();
  }
  return {};
}

}  // namespace

Status write_engine(const Engine& engine, const std::string& path) {
  // What cannot be read back is not written.
  TS_TRY(check_engine(engine).at(path));
  const std::string manifest = write_manifest(engine);
  uint64_t data_bytes = 0;
  const auto count = [&](uint64_t bytes) {
    data_bytes += bytes;
    return Status();
  };
  TS_TRY(walk_data(
      engine, [&](std::span<const uint8_t> p) { return count(p.size()); }, count));
  Header h{.version = kVersion,
           .reserved = 0,
           .manifest_offset = sizeof(Header),
           .manifest_bytes = manifest.size(),
           .manifest_checksum = checksum64(bytes_of(manifest)),
           .data_offset = data_offset_for(manifest.size()),
           .data_bytes = data_bytes,
           .data_checksum = 0};
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  TS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TS_TRY(file.write({reinterpret_cast<const uint8_t*>(&h), sizeof(h)}));
  TS_TRY(file.write(manifest));
  TS_TRY(file.write_zeros(h.data_offset - h.manifest_offset - h.manifest_bytes));
  TS_TRY(walk_data(
      engine, [&](std::span<const uint8_t> p) { return file.write(p); },
      [&](size_t zeros) { return file.write_zeros(zeros); }));
  return file.commit();
}

namespace {

// What a file of a version that this program does not read is told about itself, as far as it can be read.
Status unreadable_version(const Header& h, const Bytes& file) {
  std::string whose;
  if (h.manifest_offset == sizeof(h) && h.manifest_bytes <= file.size() - sizeof(h)) {
    const std::span<const uint8_t> manifest = file.span().subspan(sizeof(h), h.manifest_bytes);
    const std::string producer = checksum64(manifest) == h.manifest_checksum
                                     ? producer_of({reinterpret_cast<const char*>(manifest.data()), manifest.size()})
                                     : std::string();
    if (!producer.empty()) whose = cat(", written by ", producer);
  }
  return bad_input(cat("is engine file version ", h.version, whose, "; this program (tessera ", TS_VERSION,
                       ") reads versions ", kOldestVersion, " to ", kVersion,
                       ": build the engine again with it (tessera build), or run it with a newer program"));
}

// Of a file whose data has one checksum. Its constants need not be asked again.
Status check_whole_data(const Bytes& data, uint64_t checksum) {
  if (checksum64(data.span()) == checksum) return {};
  return bad_input("the data section (weights) does not match its checksum: the file is damaged");
}

// Pieces lie one after the other, as the writer lays them, with zeros between them: no byte of a file is without a
// meaning, and a change of any one shows.
Status check_layout(const Engine& engine, const Bytes& data) {
  size_t at = 0;
  for (const std::span<const uint8_t> p : data_pieces(engine)) {
    const size_t begin = static_cast<size_t>(round_up(static_cast<int64_t>(at), kDataAlign));
    if (p.empty()) continue;
    if (begin > data.size() || p.data() != data.data() + begin)
      return bad_input("manifest: its pieces do not lie in the data section one after the other");
    for (size_t i = at; i < begin; ++i) {
      if (data.data()[i] != 0)
        return bad_input(cat("byte ", i, " of the data section, between two pieces, is not zero: the file is damaged"));
    }
    at = begin + p.size();
  }
  for (size_t i = at; i < data.size(); ++i) {
    if (i - at >= kDataAlign || data.data()[i] != 0)
      return bad_input(cat("byte ", i, " of the data section belongs to no piece: the file is damaged"));
  }
  return {};
}

}  // namespace

void mark_constants(const Plan& plan, std::vector<bool>& used) {
  for (const PlanTensor& t : plan.tensors) {
    if (t.storage == Storage::kConstant) used[static_cast<size_t>(t.index)] = true;
  }
}

Status check_constants(const Engine& engine, const std::vector<bool>& which) {
  std::vector<const EngineConstant*> constants;
  std::vector<std::span<const uint8_t>> pieces;
  for (size_t i = 0; i < which.size(); ++i) {
    const EngineConstant& c = engine.constants[i];
    if (!which[i] || !c.checksum) continue;
    constants.push_back(&c);
    pieces.push_back(c.data.span());
  }
  const std::vector<uint64_t> sums = checksums64(pieces);
  for (size_t i = 0; i < sums.size(); ++i) {
    const EngineConstant& c = *constants[i];
    if (sums[i] != *c.checksum)
      return bad_input(
          cat("constant '", c.name, "' (", c.data.size(), " bytes) does not match its checksum: the file is damaged"));
  }
  return {};
}

Status check_constants(const Engine& engine) {
  return check_constants(engine, std::vector<bool>(engine.constants.size(), true));
}

Result<Engine> parse_engine(const Bytes& file) {
  Header h;
  if (std::memcmp(file.data(), kMagic, std::min(file.size(), sizeof(kMagic))) != 0)
    return bad_input("is not an engine file (it does not begin with \"TESSERA\")");
  if (file.size() < sizeof(h)) return bad_input(cat("is cut short inside its header: ", file.size(), " bytes"));
  std::memcpy(&h, file.data(), sizeof(h));
  if (h.version == 0 || h.reserved != 0) return bad_input("the header is damaged (version or reserved field)");
  if (h.version > kVersion || h.version < kOldestVersion) return unreadable_version(h, file);
  const uint64_t size = file.size();
  // Every field has one right value given the sizes, so that a damaged header never goes unseen.
  if (h.manifest_offset != sizeof(h) || h.manifest_bytes > size || h.data_offset != data_offset_for(h.manifest_bytes) ||
      h.data_bytes > size) {
    return bad_input("the header is damaged, or the file is cut short: its sections lie outside");
  }
  if (h.data_offset + h.data_bytes != size) {
    return bad_input(cat("the header speaks of ", h.data_offset + h.data_bytes, " bytes, the file has ", size,
                         size < h.data_offset + h.data_bytes ? " (cut short?)" : ""));
  }
  const std::span<const uint8_t> manifest = file.span().subspan(h.manifest_offset, h.manifest_bytes);
  if (checksum64(manifest) != h.manifest_checksum)
    return bad_input("the manifest does not match its checksum: the file is damaged");
  for (uint64_t i = h.manifest_offset + h.manifest_bytes; i < h.data_offset; ++i) {
    if (file.data()[i] != 0)
      return bad_input(cat("byte ", i, " between manifest and data is not zero: the file is damaged"));
  }
  const Bytes data = h.data_bytes == 0 ? Bytes() : file.slice(h.data_offset, h.data_bytes);
  if (h.version == 1) TS_TRY(check_whole_data(data, h.data_checksum));
  if (h.version > 1 && h.data_checksum != 0) return bad_input("the header is damaged (its last field is not 0)");
  auto engine = read_manifest({reinterpret_cast<const char*>(manifest.data()), manifest.size()}, data, h.version > 1);
  if (!engine.ok()) return engine.status().at("manifest");
  if (h.version > 1) TS_TRY(check_layout(*engine, data));
  TS_TRY(check_engine(*engine));
  return engine;
}

Result<Engine> read_engine(const std::string& path) {
  TS_ASSIGN(const Bytes file, map_file(path));
  auto engine = parse_engine(file);
  if (!engine.ok()) return engine.status().at(path);
  return engine;
}

}  // namespace tessera
