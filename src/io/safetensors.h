// SPDX-License-Identifier: Apache-2.0
// safetensors, the format of checkpoints:  u64 N (little endian)  |  N bytes of JSON, "{" first  |  the tensors' bytes
//   {"__metadata__": {"format": "pt"}, "blocks.0.w": {"dtype": "BF16", "shape": [64, 48], "data_offsets": [0, 6144]},
//   ...}
// Offsets count from the end of the header. Tensors cover the data without holes or overlaps, so that each byte has one
// owner. Reading maps the file: tensors are slices of the map (numbers may lie at any address), nothing is copied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera {

// The types that are read, by the format's own words.
enum class SafetensorsType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8_E4M3,
  F8_E5M2,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  BOOL,
  F8_E8M0
};
const char* name_of(SafetensorsType type);
int64_t bytes_of(SafetensorsType type);  // of one element

struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::F32;
  std::vector<int64_t> shape;
  Bytes data;
};

struct Safetensors {
  std::vector<SafetensorsEntry> tensors;        // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"

  const SafetensorsEntry* find(std::string_view name) const;  // null: there is none
};

Result<Safetensors> read_safetensors(const std::string& path);
// The same from memory, which the tensors keep alive.
Result<Safetensors> parse_safetensors(const Bytes& file);

// model.safetensors.index.json: {"metadata": {...}, "weight_map": {"blocks.0.w": "model-00001-of-00002.safetensors"}}.
// Tensor -> path of its file; one that does not lie in the folder of the index (at `path`) is refused.
using SafetensorsIndex = std::map<std::string, std::string>;
Result<SafetensorsIndex> read_safetensors_index(const std::string& path);
Result<SafetensorsIndex> parse_safetensors_index(std::string_view json, const std::string& path);

}  // namespace tessera
