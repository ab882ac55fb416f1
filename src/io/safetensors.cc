// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "io/beside.h"
#include "io/json.h"
#include "io/mmap.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMostAxes = 64;

struct TypeInfo {
  const char* name;
  int64_t bytes;
};
constexpr std::array kTypes = {  // in the order of the enum
    TypeInfo{"F64", 8},     TypeInfo{"F32", 4},     TypeInfo{"F16", 2},  TypeInfo{"BF16", 2},
    TypeInfo{"F8_E4M3", 1}, TypeInfo{"F8_E5M2", 1}, TypeInfo{"I64", 8},  TypeInfo{"I32", 4},
    TypeInfo{"I16", 2},     TypeInfo{"I8", 1},      TypeInfo{"U64", 8},  TypeInfo{"U32", 4},
    TypeInfo{"U16", 2},     TypeInfo{"U8", 1},      TypeInfo{"BOOL", 1}, TypeInfo{"F8_E8M0", 1}};
static_assert(kTypes.size() == static_cast<size_t>(SafetensorsType::F8_E8M0) + 1);

// A name as a message shows it.
std::string shown(const std::string& name) {
  std::string out = name.substr(0, 120);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > out.size() ? out + "..." : out;
}

std::optional<uint64_t> whole_number(const Json& j) {
  if (!j.is_number_unsigned()) return std::nullopt;
  return j.get<uint64_t>();
}

Result<SafetensorsType> read_type(const Json& j) {
  if (!j.is_string()) return bad_input("its dtype is not a word");
  const std::string& word = j.get_ref<const std::string&>();
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (word == kTypes[i].name) return static_cast<SafetensorsType>(i);
  }
  std::string known;
  for (const TypeInfo& t : kTypes) known += cat(known.empty() ? "" : " ", t.name);
  return bad_input(cat("its dtype '", shown(word), "' is not read; ", known, " are"));
}

// Elements; the shape's sizes are positive or zero and their bytes fit 63 bits, those beside a zero too.
Result<int64_t> read_shape(const Json& j, int64_t element_bytes, std::vector<int64_t>* shape) {
  if (!j.is_array() || j.size() > kMostAxes)
    return bad_input(cat("its shape is not a list of at most ", kMostAxes, " sizes"));
  const uint64_t most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / element_bytes);
  uint64_t count = 1;
  bool empty = false;
  for (const Json& size : j) {
    const auto d = whole_number(size);
    if (!d) return bad_input("its shape holds something that is no size");
    if (*d > 0 && count > most / *d) return bad_input("its shape is too large for any memory");
    count *= std::max<uint64_t>(*d, 1);
    empty |= *d == 0;
    shape->push_back(static_cast<int64_t>(*d));
  }
  return empty ? 0 : static_cast<int64_t>(count);
}

struct Range {
  uint64_t begin, end;
};

Result<SafetensorsEntry> read_entry(const std::string& name, const Json& j, const Bytes& data, Range* range) {
  if (!j.is_object()) return bad_input("is not an object with dtype, shape and data_offsets");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!j.contains(key)) return bad_input(cat("has no ", key));
  }
  if (j.size() != 3) return bad_input("has fields other than dtype, shape and data_offsets");
  SafetensorsEntry out;
  out.name = name;
  TS_ASSIGN(out.type, read_type(j["dtype"]));
  TS_ASSIGN(const int64_t count, read_shape(j["shape"], bytes_of(out.type), &out.shape));
  const Json& offsets = j["data_offsets"];
  const auto begin = offsets.is_array() && offsets.size() == 2 ? whole_number(offsets[0]) : std::nullopt;
  const auto end = begin ? whole_number(offsets[1]) : std::nullopt;
  if (!end) return bad_input("its data_offsets are not two whole numbers");
  if (*begin > *end || *end > data.size()) {
    return bad_input(cat("its bytes ", *begin, " to ", *end, " do not lie in the ", data.size(), " bytes of data",
                         *begin <= *end ? " (cut short?)" : ""));
  }
  const uint64_t want = static_cast<uint64_t>(count * bytes_of(out.type));
  if (*end - *begin != want) return bad_input(cat("has ", *end - *begin, " bytes, its shape and dtype take ", want));
  out.data = data.slice(*begin, want);
  *range = {*begin, *end};
  return out;
}

Status read_metadata(const Json& j, std::map<std::string, std::string>* out) {
  if (!j.is_object()) return bad_input("__metadata__ is not an object");
  for (const auto& [key, value] : j.items()) {
    if (!value.is_string()) return bad_input(cat("__metadata__: '", shown(key), "' is not text"));
    (*out)[key] = value.get_ref<const std::string&>();
  }
  return {};
}

}  // namespace

const char* name_of(SafetensorsType type) { return kTypes[static_cast<size_t>(type)].name; }
int64_t bytes_of(SafetensorsType type) { return kTypes[static_cast<size_t>(type)].bytes; }

const SafetensorsEntry* Safetensors::find(std::string_view name) const {
  const auto it =
      std::find_if(tensors.begin(), tensors.end(), [&](const SafetensorsEntry& t) { return t.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

Result<Safetensors> parse_safetensors(const Bytes& file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) return bad_input("is too short for a safetensors file");
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (header_bytes > kMostHeaderBytes) {
    return bad_input(
        cat("claims a header of ", header_bytes, " bytes; a safetensors file has at most ", kMostHeaderBytes));
  }
  if (header_bytes > file.size() - sizeof(header_bytes)) {
    return bad_input(cat("is cut short: its header takes ", header_bytes, " bytes, ",
                         file.size() - sizeof(header_bytes), " are left"));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof(header_bytes), header_bytes);
  if (!text.starts_with('{')) return bad_input("is not a safetensors file: its header does not begin with '{'");
  auto header = parse_json(text, {.text_bytes = kMostHeaderBytes, .depth = 4});
  if (!header.ok()) return header.status().at("the header");
  const Bytes data = file.slice(sizeof(header_bytes) + header_bytes, file.size() - sizeof(header_bytes) - header_bytes);

  Safetensors out;
  struct Found {
    Range range;
    SafetensorsEntry entry;
  };
  std::vector<Found> found;
  for (const auto& [name, j] : header->items()) {
    if (name == "__metadata__") {
      TS_TRY(read_metadata(j, &out.metadata));
      continue;
    }
    Range range{};
    auto entry = read_entry(name, j, data, &range);
    if (!entry.ok()) return entry.status().at(cat("tensor '", shown(name), "'"));
    found.push_back({range, std::move(*entry)});
  }
  // Empty tensors share their place with whatever follows them: they go first.
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.range.begin, a.range.end, a.entry.name) < std::tie(b.range.begin, b.range.end, b.entry.name);
  });
  uint64_t at = 0;
  for (Found& f : found) {
    if (f.range.begin != at) {
      return bad_input(cat("tensor '", shown(f.entry.name), "' begins at byte ", f.range.begin, " of the data, ",
                           f.range.begin < at ? "inside the tensor before it" : "which leaves a hole before it"));
    }
    at = f.range.end;
    out.tensors.push_back(std::move(f.entry));
  }
  if (at != data.size()) return bad_input(cat("its tensors end at byte ", at, " of ", data.size(), " bytes of data"));
  return out;
}

Result<Safetensors> read_safetensors(const std::string& path) {
  TS_ASSIGN(Bytes map, map_file(path));
  const Bytes file = read_by_turns(std::move(map));  // weights
  auto out = parse_safetensors(file);
  if (!out.ok()) return out.status().at(path);
  return out;
}

Result<SafetensorsIndex> parse_safetensors_index(std::string_view json, const std::string& path) {
  TS_ASSIGN(const Json index, parse_json(json, {.text_bytes = kMostHeaderBytes, .depth = 8}));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    return bad_input("is not an index of safetensors: want an object with weight_map");
  SafetensorsIndex out;
  std::map<std::string, std::string> paths;  // by name: many tensors share a file
  for (const auto& [tensor, file] : map->items()) {
    const std::string place = cat("tensor '", shown(tensor), "'");
    if (!file.is_string()) return bad_input(cat(place, ": its file is not a word"));
    const std::string& name = file.get_ref<const std::string&>();
    auto known = paths.find(name);
    if (known == paths.end()) {
      auto beside = path_beside(path, name);
      if (!beside.ok()) return beside.status().at(cat(place, ": its file"));
      known = paths.emplace(name, std::move(*beside)).first;
    }
    out[tensor] = known->second;
  }
  return out;
}

Result<SafetensorsIndex> read_safetensors_index(const std::string& path) {
  TS_ASSIGN(const Bytes file, map_file(path));
  auto out = parse_safetensors_index({reinterpret_cast<const char*>(file.data()), file.size()}, path);
  if (!out.ok()) return out.status().at(path);
  return out;
}

}  // namespace tessera
