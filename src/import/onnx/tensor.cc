// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/tensor.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>

#include "io/mmap.h"
#include "ir/region.h"

namespace tessera {
namespace {

enum DataType : int64_t {
  kFloat = 1,
  kUint8 = kOnnxUint8,
  kInt32 = 6,
  kInt64 = 7,
  kBool = kOnnxBool,
  kFloat16 = kOnnxFloat16,
  kDouble = 11,
  kBfloat16 = kOnnxBfloat16
};

int64_t bits_of(int64_t data_type) {
  switch (data_type) {
    case kInt64:
    case kDouble:
      return 64;
    case kFloat:
    case kInt32:
      return 32;
    case kFloat16:
    case kBfloat16:
      return 16;
    case kOnnxUint4:
    case kOnnxInt4:
    case kOnnxFloat4:
      return 4;
    default:
      return 8;
  }
}

Bytes kept(Buffer buffer, DerivedConstants* derived) {
  return derived != nullptr ? derived->keep(std::move(buffer)) : Bytes::own(std::move(buffer));
}

Bytes owned(const uint8_t* data, size_t size, DerivedConstants* derived) {
  Buffer buffer(size);
  if (size > 0) std::memcpy(buffer.data(), data, size);
  return kept(std::move(buffer), derived);
}

Result<int64_t> number_of(const std::map<std::string, std::string>& entries, const std::string& key, int64_t fallback) {
  const auto it = entries.find(key);
  if (it == entries.end()) return fallback;
  int64_t n = -1;
  const char* end = it->second.data() + it->second.size();
  if (std::from_chars(it->second.data(), end, n).ptr != end || n < 0)
    return bad_input(cat("external data: ", key, " '", shown(it->second), "' is not a size"));
  return n;
}

// Absolute, or with a part that climbs: what no location inside the folder needs.
bool leaves_folder(const std::string& location) {
  bool leaves = location.empty() || location.front() == '/' || location.find('\\') != std::string::npos ||
                location.find('\0') != std::string::npos;
  for (size_t start = 0; start <= location.size();) {
    const size_t end = std::min(location.find('/', start), location.size());
    leaves |= location.substr(start, end - start) == "..";
    start = end + 1;
  }
  return leaves;
}

Result<Bytes> external_bytes(const TensorParts& parts, ExternalFiles& files, int64_t want, DerivedConstants* derived) {
  const auto location = parts.external_data.find("location");
  if (location == parts.external_data.end()) return bad_input("external data without a location");
  TS_ASSIGN(const int64_t offset, number_of(parts.external_data, "offset", 0));
  TS_ASSIGN(const int64_t length, number_of(parts.external_data, "length", want));
  if (length != want) return bad_input(cat("external data of ", length, " bytes, its shape takes ", want));
  TS_ASSIGN(const Bytes map, files.open(location->second));
  const int64_t size = static_cast<int64_t>(map.size());
  if (offset > size || want > size - offset)
    return bad_input(cat("external data '", shown(location->second), "' ends at byte ", size, ", ", want,
                         " bytes from ", offset, " are needed"));
  const Bytes slice = map.slice(static_cast<size_t>(offset), static_cast<size_t>(want));
  // Kernels and casts expect aligned numbers; a map begins on a page, so this is the file's own choice of offsets.
  return reinterpret_cast<uintptr_t>(slice.data()) % 64 == 0 ? slice : owned(slice.data(), slice.size(), derived);
}

// Numbers in a list whose entries are wider than the type itself (f16, bools and bytes in int32s).
template <class Wide, class Narrow>
Result<Buffer> narrowed(const TypedField& field, int64_t count) {
  if (static_cast<int64_t>(field.count) != count)
    return bad_input(cat("holds ", field.count, " numbers, its shape takes ", count));
  Buffer buffer(static_cast<size_t>(count) * sizeof(Narrow));
  for (int64_t i = 0; i < count; ++i) {
    Wide wide;
    std::memcpy(&wide, field.data + static_cast<size_t>(i) * sizeof(Wide), sizeof(Wide));
    const Narrow narrow = static_cast<Narrow>(wide);
    std::memcpy(buffer.data() + static_cast<size_t>(i) * sizeof(Narrow), &narrow, sizeof(Narrow));
  }
  return buffer;
}

Result<Buffer> typed_bytes(const TensorParts& p, int64_t count) {
  switch (p.data_type) {
    case kFloat:
      return narrowed<float, float>(p.floats, count);
    case kDouble:
      return narrowed<double, double>(p.doubles, count);
    case kInt64:
      return narrowed<int64_t, int64_t>(p.int64s, count);
    case kInt32:
      return narrowed<int32_t, int32_t>(p.int32s, count);
    case kFloat16:
    case kBfloat16:
      return narrowed<int32_t, uint16_t>(p.int32s, count);
    default:  // 4-bit codes lie two in an entry, as they do in a byte
      return narrowed<int32_t, uint8_t>(p.int32s, (count * bits_of(p.data_type) + 7) / 8);
  }
}

// A mask in f16 (one number, or zeros and that) hides keys by the lowest number there is, -65504: added to a score in
// f16 it swallows it. The graph adds in f32, where f32's lowest number does (ops/attention/attention.h).
void lower_masks(std::span<float> numbers) {
  const auto lowest = static_cast<float>(-info(Element::f16).max);
  if (!std::all_of(numbers.begin(), numbers.end(), [&](float x) { return x == 0 || x == lowest; })) return;
  std::replace(numbers.begin(), numbers.end(), lowest, std::numeric_limits<float>::lowest());
}

Buffer widened(const uint8_t* codes, Element element, int64_t count) {
  Buffer buffer(static_cast<size_t>(count) * sizeof(float));
  auto* numbers = reinterpret_cast<float*>(buffer.data());
  info(element).decode(codes, 0, count, numbers);
  if (element == Element::f16) lower_masks({numbers, static_cast<size_t>(count)});
  return buffer;
}

}  // namespace

Result<Bytes> ExternalFiles::open(const std::string& location) {
  if (folder_.empty())
    return bad_input(cat("its data lie in '", shown(location), "', but the model was not read from a file"));
  if (const auto known = open_.find(location); known != open_.end()) return known->second;
  const Status outside = bad_input(cat("external data '", shown(location), "' must lie in the model's folder"));
  if (leaves_folder(location)) return outside;
  const std::string path = folder_ + "/" + location;
  std::error_code missing;
  const std::filesystem::path inside = std::filesystem::canonical(folder_, missing);
  const std::filesystem::path real = std::filesystem::canonical(path, missing);
  if (!missing && std::mismatch(inside.begin(), inside.end(), real.begin(), real.end()).first != inside.end())
    return outside;
  TS_ASSIGN(Bytes map, map_file(path));
  return open_[location] = read_by_turns(std::move(map));
}

std::optional<Element> element_of_onnx(int64_t data_type) {
  switch (data_type) {
    case kFloat:
    case kDouble:
    case kFloat16:
    case kBfloat16:
      return Element::f32;
    case kInt64:
      return Element::i64;
    case kInt32:
      return Element::i32;
    case kBool:
    case kUint8:
      return Element::u8;
    default:
      return std::nullopt;
  }
}

std::optional<Element> code_of_onnx(int64_t data_type) {
  switch (data_type) {
    case kOnnxInt8:
      return Element::i8;
    case kOnnxFloat8E4m3:
      return Element::e4m3;
    case kOnnxFloat8E5m2:
      return Element::e5m2;
    case kOnnxUint4:
    case kOnnxInt4:
      return Element::i4;
    case kOnnxFloat4:
      return Element::e2m1;
    case kOnnxFloat8E8m0:
      return Element::e8m0;
    default:
      return std::nullopt;
  }
}

namespace {

// As the file has them, at an address that any kernel may read.
Result<Bytes> stored_bytes(const TensorParts& parts, int64_t count, int64_t bytes, ExternalFiles& files,
                           DerivedConstants* derived) {
  if (parts.external) return external_bytes(parts, files, bytes, derived);
  if (!parts.has_raw) {
    TS_ASSIGN(Buffer list, typed_bytes(parts, count));
    return kept(std::move(list), derived);
  }
  if (static_cast<int64_t>(parts.raw.count) != bytes)
    return bad_input(cat("holds ", parts.raw.count, " bytes, its shape ", to_string(parts.shape), " takes ", bytes));
  return owned(parts.raw.data, parts.raw.count, derived);
}

}  // namespace

Result<OnnxTensor> make_tensor(const TensorParts& parts, ExternalFiles& files, DerivedConstants* derived) {
  const auto code = code_of_onnx(parts.data_type), element = code ? code : element_of_onnx(parts.data_type);
  if (!element)
    return bad_input(cat("holds ", onnx_type_name(parts.data_type),
                         "; FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT64, INT32, UINT8 and BOOL can be read, and as codes "
                         "INT8, UINT4, INT4, FLOAT8E4M3FN, FLOAT8E5M2, FLOAT4E2M1 and FLOAT8E8M0"));
  const auto count = checked_elements(parts.shape, kMaxElements);
  if (!count) return bad_input(cat("has shape ", to_string(parts.shape), ": negative or too large"));
  const int64_t bytes = (*count * bits_of(parts.data_type) + 7) / 8;
  const bool converted = parts.data_type == kDouble || parts.data_type == kFloat16 || parts.data_type == kBfloat16 ||
                         parts.data_type == kBool;
  TS_ASSIGN(Bytes data, stored_bytes(parts, *count, bytes, files, converted ? nullptr : derived));
  if (parts.data_type == kDouble) {
    TS_ASSIGN(Buffer single, (narrowed<double, float>({data.data(), static_cast<size_t>(*count)}, *count)));
    data = kept(std::move(single), derived);
  } else if (parts.data_type == kFloat16 || parts.data_type == kBfloat16) {
    const Element narrow = parts.data_type == kFloat16 ? Element::f16 : Element::bf16;
    Buffer wide = widened(data.data(), narrow, *count);
    give_back(data.data(), data.size());
    data = kept(std::move(wide), derived);
  } else if (parts.data_type == kBool) {  // any byte but 0 is true
    Buffer truth(data.size());
    for (size_t i = 0; i < data.size(); ++i) truth.data()[i] = data.data()[i] != 0;
    data = kept(std::move(truth), derived);
  }
  return OnnxTensor{parts.name, Type{parts.shape, *element}, std::move(data), parts.data_type == kUint8,
                    parts.data_type};
}

std::string as_utf8(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const auto byte = [&](size_t k) { return i + k < name.size() ? static_cast<uint8_t>(name[i + k]) : 0; };
    const auto follows = [&](size_t k, int low = 0x80, int high = 0xbf) { return byte(k) >= low && byte(k) <= high; };
    const int b = byte(0);
    // Lead byte -> length of the sequence; overlong forms, surrogates and numbers above 10FFFF are none.
    size_t length = 0;
    if (b < 0x80) length = 1;
    if (b >= 0xc2 && b <= 0xdf && follows(1)) length = 2;
    if (b >= 0xe0 && b <= 0xef && follows(1, b == 0xe0 ? 0xa0 : 0x80, b == 0xed ? 0x9f : 0xbf) && follows(2))
      length = 3;
    if (b >= 0xf0 && b <= 0xf4 && follows(1, b == 0xf0 ? 0x90 : 0x80, b == 0xf4 ? 0x8f : 0xbf) && follows(2) &&
        follows(3))
      length = 4;
    if (length == 0) {
      constexpr const char* kHex = "0123456789ABCDEF";
      out += '%', out += kHex[b >> 4], out += kHex[b & 15];
    }
    out += name.substr(i, length);
    i += std::max<size_t>(1, length);
  }
  return out;
}

std::string shown(const std::string& name) {
  constexpr size_t kLine = 120;
  std::string out = as_utf8(name.substr(0, kLine + 8));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (out.size() <= kLine) return out;
  size_t end = kLine;  // not inside a character
  while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xc0) == 0x80) --end;
  return out.substr(0, end) + "...";
}

}  // namespace tessera
