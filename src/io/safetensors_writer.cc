// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_writer.h"

#include <nlohmann/json.hpp>

namespace tessera {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<SafetensorsEntry>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end = 0;
  for (const SafetensorsEntry& t : tensors) {
    const int64_t begin = end;
    int64_t count = 1;
    for (const int64_t n : t.shape) count *= n;
    end += count * bytes_of(t.type);
    header[t.name] = {{"dtype", name_of(t.type)}, {"shape", t.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  constexpr size_t kAlign = 8;  // of the numbers behind it
  text.append((kAlign - text.size() % kAlign) % kAlign, ' ');
  TS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const uint64_t size = text.size();
  uint8_t little_endian[8];
  for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<uint8_t>(size >> (8 * i));
  TS_TRY(file.write(std::span<const uint8_t>(little_endian)));
  TS_TRY(file.write(text));
  return SafetensorsWriter(std::move(file), static_cast<int64_t>(8 + size), end);
}

Status SafetensorsWriter::write(std::span<const uint8_t> bytes) {
  written_ += static_cast<int64_t>(bytes.size());
  return file_.write(bytes);
}

Status SafetensorsWriter::commit() {
  TS_CHECK(written_ == data_, "wrote ", written_, " bytes of tensors that have ", data_);
  return file_.commit();
}

}  // namespace tessera
