// SPDX-License-Identifier: Apache-2.0
#include "import/onnx_tensor.h"

#include <charconv>
#include <cstring>

#include "io/mmap.h"
#include "ir/region.h"

namespace tessera {
namespace {

enum DataType : int64_t {
  kFloat = 1,
  kUint8 = 2,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBfloat16 = 16
};

int64_t bytes_of(int64_t data_type) {
  switch (data_type) {
    case kInt64:
    case kDouble:
      return 8;
    case kFloat:
    case kInt32:
      return 4;
    case kFloat16:
    case kBfloat16:
      return 2;
    default:
      return 1;
  }
}

Bytes owned(const uint8_t* data, size_t size) {
  Buffer buffer(size);
  if (size > 0) std::memcpy(buffer.data(), data, size);
  return Bytes::own(std::move(buffer));
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

Result<Bytes> external_bytes(const TensorParts& parts, const std::string& folder, int64_t want) {
  const auto location = parts.external_data.find("location");
  if (location == parts.external_data.end()) return bad_input("external data without a location");
  const std::string& file = location->second;
  if (folder.empty())
    return bad_input(cat("its data lie in '", shown(file), "', but the model was not read from a file"));
  bool climbs = file.empty() || file.front() == '/' || file.find('\\') != std::string::npos ||
                file.find('\0') != std::string::npos;
  for (size_t start = 0; start <= file.size();) {
    const size_t end = std::min(file.find('/', start), file.size());
    climbs |= file.substr(start, end - start) == "..";
    start = end + 1;
  }
  if (climbs) return bad_input(cat("external data '", shown(file), "' must lie in the model's folder"));
  TS_ASSIGN(const int64_t offset, number_of(parts.external_data, "offset", 0));
  TS_ASSIGN(const int64_t length, number_of(parts.external_data, "length", want));
  if (length != want) return bad_input(cat("external data of ", length, " bytes, its shape takes ", want));
  TS_ASSIGN(const Bytes map, map_file(folder + "/" + file));
  const int64_t size = static_cast<int64_t>(map.size());
  if (offset > size || want > size - offset)
    return bad_input(cat("external data '", shown(file), "' ends at byte ", size, ", ", want, " bytes from ", offset,
                         " are needed"));
  const Bytes slice = map.slice(static_cast<size_t>(offset), static_cast<size_t>(want));
  // Kernels and casts expect aligned numbers; a map begins on a page, so this is the file's own choice of offsets.
  return reinterpret_cast<uintptr_t>(slice.data()) % 64 == 0 ? slice : owned(slice.data(), slice.size());
}

// Numbers in a list whose entries are wider than the type itself (f16, bools and bytes in int32s).
template <class Wide, class Narrow>
Result<Bytes> narrowed(const TypedField& field, int64_t count) {
  if (static_cast<int64_t>(field.count) != count)
    return bad_input(cat("holds ", field.count, " numbers, its shape takes ", count));
  Buffer buffer(static_cast<size_t>(count) * sizeof(Narrow));
  for (int64_t i = 0; i < count; ++i) {
    Wide wide;
    std::memcpy(&wide, field.data + static_cast<size_t>(i) * sizeof(Wide), sizeof(Wide));
    const Narrow narrow = static_cast<Narrow>(wide);
    std::memcpy(buffer.data() + static_cast<size_t>(i) * sizeof(Narrow), &narrow, sizeof(Narrow));
  }
  return Bytes::own(std::move(buffer));
}

Result<Bytes> typed_bytes(const TensorParts& p, int64_t count) {
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
    default:
      return narrowed<int32_t, uint8_t>(p.int32s, count);
  }
}

}  // namespace

std::optional<Element> element_of_onnx(int64_t data_type) {
  switch (data_type) {
    case kFloat:
    case kDouble:
      return Element::f32;
    case kFloat16:
      return Element::f16;
    case kBfloat16:
      return Element::bf16;
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

Result<OnnxTensor> make_tensor(const TensorParts& parts, const std::string& folder) {
  const auto element = element_of_onnx(parts.data_type);
  if (!element)
    return bad_input(cat("holds ", onnx_type_name(parts.data_type),
                         "; FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT64, INT32, UINT8 and BOOL can be read"));
  const auto count = checked_elements(parts.shape, kMaxElements);
  if (!count) return bad_input(cat("has shape ", to_string(parts.shape), ": negative or too large"));
  const int64_t bytes = *count * bytes_of(parts.data_type);
  Bytes data;
  if (parts.external) {
    TS_ASSIGN(data, external_bytes(parts, folder, bytes));
  } else if (parts.has_raw) {
    if (static_cast<int64_t>(parts.raw.count) != bytes)
      return bad_input(cat("holds ", parts.raw.count, " bytes, its shape ", to_string(parts.shape), " takes ", bytes));
    data = owned(parts.raw.data, parts.raw.count);
  } else {
    TS_ASSIGN(data, typed_bytes(parts, *count));
  }
  if (parts.data_type == kDouble) {
    TS_ASSIGN(data, (narrowed<double, float>({data.data(), static_cast<size_t>(*count)}, *count)));
  } else if (parts.data_type == kBool) {  // any byte but 0 is true
    Buffer truth(data.size());
    for (size_t i = 0; i < data.size(); ++i) truth.data()[i] = data.data()[i] != 0;
    data = Bytes::own(std::move(truth));
  }
  return OnnxTensor{parts.name, Type{parts.shape, *element}, std::move(data)};
}

std::string shown(const std::string& name) {
  std::string out = name.substr(0, 120);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > out.size() ? out + "..." : out;
}

}  // namespace tessera
