// SPDX-License-Identifier: Apache-2.0
#include "io/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/mmap.h"
#include "io/npy.h"

namespace tessera {
namespace {

// Records of a zip file; sizes without the names and extras that follow.
constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint32_t kFull32 = 0xffffffff;  // "see the zip64 field"
constexpr uint16_t kFixedDate = 33;       // 1 January 1980, the first day that zip knows
constexpr uint64_t kDeflateLimit = 1032;  // the most bytes that deflate makes out of one

struct Member {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, unpacked = 0, local_offset = 0;
};

class ZipReader {
 public:
  explicit ZipReader(std::span<const uint8_t> file) : file_(file) {}

  Result<std::vector<Member>> members() {
    TS_ASSIGN(const Directory directory, find_directory());
    taken_.emplace(directory.offset, file_.size());
    std::vector<Member> out;
    uint64_t at = directory.offset;
    for (uint64_t i = 0; i < directory.count; ++i) {
      if (!has(at, kCentralBytes) || u32(at) != kCentral)
        return bad_input(cat("the zip directory is damaged at byte ", at));
      Member m{.flags = u16(at + 8),
               .method = u16(at + 10),
               .crc = u32(at + 16),
               .packed = u32(at + 20),
               .unpacked = u32(at + 24),
               .local_offset = u32(at + 42)};
      const uint64_t name_bytes = u16(at + 28), extra_bytes = u16(at + 30), comment_bytes = u16(at + 32);
      if (!has(at + kCentralBytes, name_bytes + extra_bytes + comment_bytes)) {
        return bad_input(cat("the zip directory is cut short at byte ", at));
      }
      m.name.assign(reinterpret_cast<const char*>(file_.data()) + at + kCentralBytes, name_bytes);
      TS_TRY(read_zip64(at + kCentralBytes + name_bytes, extra_bytes, &m).at("member '" + m.name + "'"));
      out.push_back(std::move(m));
      at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    }
    return out;
  }

  // The member's bytes as they lie in the file. No two members, nor a member and the directory, may share a byte: that
  // is how a small file claims to hold much.
  Result<std::span<const uint8_t>> packed(const Member& m) {
    if (!has(m.local_offset, kLocalBytes) || u32(m.local_offset) != kLocal) {
      return bad_input(cat("no zip member begins at byte ", m.local_offset));
    }
    const uint64_t begin = m.local_offset + kLocalBytes + u16(m.local_offset + 26) + u16(m.local_offset + 28);
    if (!has(begin, m.packed))
      return bad_input(cat("its ", m.packed, " bytes at byte ", begin, " reach beyond the end of the file"));
    const auto next = taken_.lower_bound(begin + m.packed);  // the first that begins at its end or later
    if (next != taken_.begin() && std::prev(next)->second > m.local_offset)
      return bad_input(cat("its bytes from byte ", m.local_offset, " on are also those of another member"));
    taken_.emplace(m.local_offset, begin + m.packed);
    return file_.subspan(begin, m.packed);
  }

 private:
  struct Directory {
    uint64_t offset, count;
  };

  bool has(uint64_t at, uint64_t size) const { return at <= file_.size() && size <= file_.size() - at; }
  template <class T>
  T read(uint64_t at) const {
    T v;
    std::memcpy(&v, file_.data() + at, sizeof(v));
    return v;
  }
  uint16_t u16(uint64_t at) const { return read<uint16_t>(at); }
  uint32_t u32(uint64_t at) const { return read<uint32_t>(at); }
  uint64_t u64(uint64_t at) const { return read<uint64_t>(at); }

  Result<Directory> find_directory() const {
    if (file_.size() < kEndBytes) return bad_input("is too short for a .npz file");
    // The end record is last but for a comment of up to 65535 bytes.
    const uint64_t lowest = file_.size() > kEndBytes + 65535 ? file_.size() - kEndBytes - 65535 : 0;
    uint64_t at = file_.size() - kEndBytes;
    while (u32(at) != kEnd || at + kEndBytes + u16(at + 20) != file_.size()) {
      if (at == lowest) return bad_input("has no zip directory at its end (cut short, or not a .npz file)");
      --at;
    }
    Directory d{.offset = u32(at + 16), .count = u16(at + 10)};
    uint64_t bytes = u32(at + 12), end = at;
    if (at >= kLocatorBytes && u32(at - kLocatorBytes) == kLocator64) {
      const uint64_t at64 = u64(at - kLocatorBytes + 8);
      if (!has(at64, kEnd64Bytes) || u32(at64) != kEnd64)
        return bad_input(cat("the zip64 directory is not at byte ", at64));
      d = {.offset = u64(at64 + 48), .count = u64(at64 + 32)};
      bytes = u64(at64 + 40), end = at64;
    }
    if (!has(d.offset, bytes) || d.offset + bytes > end || d.count > bytes / kCentralBytes) {
      return bad_input("the zip directory's size or place is wrong");
    }
    return d;
  }

  // Sizes that do not fit 32 bits stand in field 1 of the extras, in this order, those only that are needed.
  Status read_zip64(uint64_t at, uint64_t bytes, Member* m) const {
    const uint64_t end = at + bytes;
    while (end - at >= 4) {
      const uint64_t id = u16(at), size = u16(at + 2);
      at += 4;
      if (size > end - at) return bad_input("an extra field is cut short");
      if (id == 1) {
        uint64_t from = at;
        for (uint64_t* field : {&m->unpacked, &m->packed, &m->local_offset}) {
          if (*field != kFull32) continue;
          if (at + size - from < 8) return bad_input("its zip64 field is cut short");
          *field = u64(from);
          from += 8;
        }
      }
      at += size;
    }
    return {};
  }

  std::span<const uint8_t> file_;
  std::map<uint64_t, uint64_t> taken_;  // begin -> end of what has an owner
};

Status inflate_into(std::span<const uint8_t> packed, std::span<uint8_t> out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return machine_error("zlib cannot start");
  // zlib counts in 32 bits: both sides are handed over in pieces.
  constexpr size_t kPiece = size_t{1} << 30;
  size_t read = 0, written = 0;
  int state = Z_OK;
  while (state == Z_OK) {
    const size_t in_piece = std::min(kPiece, packed.size() - read), out_piece = std::min(kPiece, out.size() - written);
    stream.next_in = const_cast<uint8_t*>(packed.data()) + read;
    stream.avail_in = static_cast<uInt>(in_piece);
    stream.next_out = out.data() + written;
    stream.avail_out = static_cast<uInt>(out_piece);
    state = inflate(&stream, Z_NO_FLUSH);
    read += in_piece - stream.avail_in;
    written += out_piece - stream.avail_out;
  }
  inflateEnd(&stream);
  if (state == Z_MEM_ERROR) return machine_error("no memory to unpack it");
  if (state != Z_STREAM_END || written != out.size() || read != packed.size()) {
    return bad_input(
        cat("its packed bytes are damaged near byte ", read, " (", written, " of ", out.size(), " bytes unpacked)"));
  }
  return {};
}

Result<Array> read_member(ZipReader& zip, const Member& m, const std::string& name) {
  if (m.flags & 1) return bad_input("is encrypted, which is not read");
  TS_ASSIGN(const std::span<const uint8_t> packed, zip.packed(m));
  Buffer unpacked;
  std::span<const uint8_t> bytes = packed;
  if (m.method == 8) {
    if (m.unpacked / kDeflateLimit > m.packed + 1) {
      return bad_input(cat("claims ", m.unpacked, " bytes, more than its ", m.packed, " packed bytes can hold"));
    }
    TS_ASSIGN(unpacked, allocate(static_cast<int64_t>(m.unpacked), "its unpacked bytes"));
    TS_TRY(inflate_into(packed, {unpacked.data(), unpacked.size()}));
    bytes = {unpacked.data(), unpacked.size()};
  } else if (m.method != 0) {
    return bad_input(cat("is packed by method ", m.method, "; stored (0) and deflated (8) are read"));
  } else if (m.packed != m.unpacked) {
    return bad_input("is stored, but its two sizes differ");
  }
  if (crc32_z(0, bytes.data(), bytes.size()) != m.crc)
    return bad_input("does not match its CRC-32: the file is damaged");
  return parse_npy(bytes, name);
}

Result<std::vector<Array>> parse_zip(std::span<const uint8_t> file, int64_t limit_bytes) {
  ZipReader zip(file);
  TS_ASSIGN(const std::vector<Member> members, zip.members());
  std::vector<Array> arrays;
  std::set<std::string> names;
  uint64_t packed = 0, unpacked = 0;
  for (const Member& m : members) {
    const std::string place = "member '" + m.name + "'";
    if (!m.name.ends_with(".npy")) return bad_input("is not a .npy array").at(place);
    const std::string name = m.name.substr(0, m.name.size() - 4);
    if (!names.insert(name).second) return bad_input("appears twice").at(place);
    // Each sum stays far below 2^64: both terms are checked against their limit first.
    if (m.packed > file.size() || (packed += m.packed) > file.size())
      return bad_input("the members overlap: more bytes than the file has").at(place);
    if (m.unpacked > static_cast<uint64_t>(limit_bytes) ||
        (unpacked += m.unpacked) > static_cast<uint64_t>(limit_bytes)) {
      return bad_input(cat("the arrays take more than ", limit_bytes, " bytes, which is the limit")).at(place);
    }
    auto array = read_member(zip, m, name);
    if (!array.ok()) return array.status().at(place);
    arrays.push_back(std::move(array).value());
  }
  return arrays;
}

// Little-endian fields of a zip record.
struct Record {
  std::string bytes;
  Record& u16(uint64_t v) { return put(v, 2); }
  Record& u32(uint64_t v) { return put(v, 4); }
  Record& u64(uint64_t v) { return put(v, 8); }
  Record& put(uint64_t v, int n) {
    for (int i = 0; i < n; ++i) bytes += static_cast<char>(v >> (8 * i) & 255);
    return *this;
  }
};

}  // namespace

Result<std::vector<Array>> parse_npz(std::span<const uint8_t> file, const std::string& name, int64_t limit_bytes) {
  if (file.size() >= 4 && std::memcmp(file.data(), "PK", 2) == 0) return parse_zip(file, limit_bytes);
  if (file.empty() || file[0] != 0x93) return bad_input("is neither a .npz nor a .npy file");
  if (file.size() > static_cast<uint64_t>(limit_bytes))
    return bad_input(cat("is larger than ", limit_bytes, " bytes, which is the limit"));
  std::vector<Array> arrays;
  TS_ASSIGN(Array array, parse_npy(file, name));
  arrays.push_back(std::move(array));
  return arrays;
}

Result<std::vector<Array>> read_npz(const std::string& path, int64_t limit_bytes) {
  TS_ASSIGN(const Bytes file, map_file(path));
  auto arrays = parse_npz(file.span(), std::filesystem::path(path).stem().string(), limit_bytes);
  if (!arrays.ok()) return arrays.status().at(path);
  return arrays;
}

Status write_npz(const std::string& path, std::span<const Array> arrays) {
  std::set<std::string> names;
  for (const Array& a : arrays) {
    const int64_t size = dtype_bytes(a.dtype);
    if (size == 0) return bad_input(cat("array '", a.name, "': type '", a.dtype, "' cannot be written to ", path));
    TS_CHECK(a.count() * size == static_cast<int64_t>(a.data.size()), "array ", a.name);
    if (a.name.empty() || a.name.size() > 60000)
      return bad_input(cat("an array without a usable name cannot be written to ", path));
    if (!names.insert(a.name).second)
      return bad_input(cat("two arrays named '", a.name, "' cannot be written to ", path));
  }
  TS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  Record directory;
  uint64_t offset = 0;
  for (const Array& a : arrays) {
    const std::string name = a.name + ".npy", header = npy_header(a);
    const uint64_t size = header.size() + a.data.size(), begin = offset;
    uint64_t crc = crc32_z(0, reinterpret_cast<const uint8_t*>(header.data()), header.size());
    if (!a.data.empty()) crc = crc32_z(crc, a.data.data(), a.data.size());
    // zip64 fields only where 32 bits are too few; version 45 says that they are there.
    const bool big = size >= kFull32, far = begin >= kFull32;
    Record local;
    local.u32(kLocal).u16(big ? 45 : 20).u16(0x800).u16(0).u16(0).u16(kFixedDate).u32(crc);
    local.u32(big ? kFull32 : size).u32(big ? kFull32 : size).u16(name.size()).u16(big ? 20 : 0).bytes += name;
    if (big) local.u16(1).u16(16).u64(size).u64(size);
    directory.u32(kCentral).u16(45).u16(big || far ? 45 : 20).u16(0x800).u16(0).u16(0).u16(kFixedDate).u32(crc);
    directory.u32(big ? kFull32 : size).u32(big ? kFull32 : size).u16(name.size());
    directory.u16(big || far ? 4 + 16 * big + 8 * far : 0)
        .u16(0)
        .u16(0)
        .u16(0)
        .u32(0)
        .u32(far ? kFull32 : begin)
        .bytes += name;
    if (big || far) directory.u16(1).u16(static_cast<uint64_t>(16 * big + 8 * far));
    if (big) directory.u64(size).u64(size);
    if (far) directory.u64(begin);
    TS_TRY(file.write(local.bytes));
    TS_TRY(file.write(header));
    TS_TRY(file.write(a.data.span()));
    offset += local.bytes.size() + size;
  }
  Record end;
  const uint64_t bytes = directory.bytes.size(), count = arrays.size();
  const bool zip64 = offset >= kFull32 || bytes >= kFull32 || count >= 0xffff;
  if (zip64) {
    end.u32(kEnd64).u64(44).u16(45).u16(45).u32(0).u32(0).u64(count).u64(count).u64(bytes).u64(offset);
    end.u32(kLocator64).u32(0).u64(offset + bytes).u32(1);
  }
  end.u32(kEnd).u16(0).u16(0).u16(zip64 ? 0xffff : count).u16(zip64 ? 0xffff : count);
  end.u32(zip64 ? kFull32 : bytes).u32(zip64 ? kFull32 : offset).u16(0);
  TS_TRY(file.write(directory.bytes));
  TS_TRY(file.write(end.bytes));
  return file.commit();
}

}  // namespace tessera
