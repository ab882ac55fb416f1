// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/raw_fields.h"

#include <cstring>

namespace tessera {
namespace {

// The messages on the way to a tensor; numbers of fields as onnx.proto has them.
enum class Kind : uint8_t { kModel, kGraph, kFunction, kNode, kAttribute, kTensor, kOther };

struct Child {
  Kind in;
  uint64_t field;
  Kind kind;
};
constexpr Child kChildren[] = {
    {Kind::kModel, 7, Kind::kGraph},         {Kind::kModel, 25, Kind::kFunction},  {Kind::kGraph, 1, Kind::kNode},
    {Kind::kGraph, 5, Kind::kTensor},        {Kind::kFunction, 7, Kind::kNode},    {Kind::kNode, 5, Kind::kAttribute},
    {Kind::kFunction, 11, Kind::kAttribute}, {Kind::kAttribute, 5, Kind::kTensor}, {Kind::kAttribute, 6, Kind::kGraph},
};
constexpr uint64_t kRawData = 9;  // of a tensor
constexpr int kMaxDepth = 90;     // of messages inside one another; protobuf reads no more than 100

Kind kind_of(Kind in, uint64_t field) {
  for (const Child& c : kChildren) {
    if (c.in == in && c.field == field) return c.kind;
  }
  return Kind::kOther;
}

void put_varint(std::string& out, uint64_t n) {
  for (; n >= 0x80; n >>= 7) out += static_cast<char>(n | 0x80);
  out += static_cast<char>(n);
}

class Splitter {
 public:
  explicit Splitter(const Bytes& file) : file_(file) {}

  // The message between two bytes of the file, with its raw_data replaced.
  bool split(Kind kind, size_t at, size_t end, std::string& out, int depth) {
    if (depth > kMaxDepth) return false;
    while (at < end) {
      const size_t begin = at;
      uint64_t key = 0, length = 0;
      if (!varint(at, end, key)) return false;
      switch (key & 7) {
        case 0:
          if (!varint(at, end, length)) return false;
          break;
        case 1:
          at += 8;
          break;
        case 5:
          at += 4;
          break;
        case 2: {
          if (!varint(at, end, length) || length > end - at) return false;
          if (!field(kind, key, at, at + static_cast<size_t>(length), out, depth)) return false;
          at += static_cast<size_t>(length);
          continue;
        }
        default:
          return false;
      }
      if (at > end) return false;
      out.append(text(begin), at - begin);
    }
    return true;
  }

  std::vector<Bytes> data;

 private:
  const char* text(size_t at) const { return reinterpret_cast<const char*>(file_.data()) + at; }

  bool varint(size_t& at, size_t end, uint64_t& n) const {
    n = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const uint8_t byte = file_.data()[at++];
      n |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // A field that has a length.
  bool field(Kind kind, uint64_t key, size_t at, size_t end, std::string& out, int depth) {
    const Kind inner = kind_of(kind, key >> 3);
    put_varint(out, key);
    if (inner != Kind::kOther) {
      std::string message;
      if (!split(inner, at, end, message, depth + 1)) return false;
      put_varint(out, message.size());
      out += message;
      return true;
    }
    if (kind == Kind::kTensor && key >> 3 == kRawData) {
      const uint64_t number = data.size();
      data.push_back(file_.slice(at, end - at));
      put_varint(out, sizeof(number));
      out.append(reinterpret_cast<const char*>(&number), sizeof(number));
      return true;
    }
    put_varint(out, end - at);
    out.append(text(at), end - at);
    return true;
  }

  const Bytes& file_;
};

}  // namespace

std::optional<RawFields> split_raw_fields(const Bytes& file) {
  Splitter splitter(file);
  RawFields fields;
  if (!splitter.split(Kind::kModel, 0, file.size(), fields.message, 0)) return std::nullopt;
  fields.data = std::move(splitter.data);
  return fields;
}

Result<Bytes> raw_field(const RawFields& fields, const std::string& number) {
  uint64_t index = 0;
  if (number.size() != sizeof(index)) return bad_input("holds raw data where the file has none");
  std::memcpy(&index, number.data(), sizeof(index));
  if (index >= fields.data.size()) return bad_input("holds raw data where the file has none");
  return fields.data[static_cast<size_t>(index)];
}

}  // namespace tessera
