// SPDX-License-Identifier: Apache-2.0
#include "import/checkpoints/checkpoint_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/memory.h"
#include "io/mmap.h"
#include "ir/region.h"

namespace tessera {
namespace {

constexpr uintptr_t kAlign = 64;  // Buffer's

std::string list_of(const std::vector<Shape>& shapes) {
  std::string out;
  for (const Shape& s : shapes) out += cat(out.empty() ? "" : " or ", to_string(s));
  return out;
}

std::string list_of(const std::vector<SafetensorsType>& types) {
  std::string out;
  for (SafetensorsType t : types) out += cat(out.empty() ? "" : " or ", name_of(t));
  return out;
}

const std::vector<SafetensorsType> kFloats = {SafetensorsType::F32, SafetensorsType::F16, SafetensorsType::BF16,
                                              SafetensorsType::F64};

}  // namespace

std::string shown_name(const std::string& name) {
  std::string out = name.substr(0, 120);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > out.size() ? out + "..." : out;
}

std::optional<Element> element_of(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::F64:
      return Element::f64;
    case SafetensorsType::F32:
      return Element::f32;
    case SafetensorsType::F16:
      return Element::f16;
    case SafetensorsType::BF16:
      return Element::bf16;
    case SafetensorsType::F8_E4M3:
      return Element::e4m3;
    case SafetensorsType::F8_E5M2:
      return Element::e5m2;
    case SafetensorsType::I64:
      return Element::i64;
    case SafetensorsType::I32:
      return Element::i32;
    case SafetensorsType::I8:
      return Element::i8;
    case SafetensorsType::U8:
      return Element::u8;
    default:
      return std::nullopt;
  }
}

Status CheckpointTensors::add(SafetensorsEntry tensor, const std::string& file) {
  const std::string name = tensor.name;
  if (const auto it = file_of_.find(name); it != file_of_.end())
    return bad_input(cat("tensor '", shown_name(name), "' is in ", it->second, " and in ", file));
  if (!checked_elements(tensor.shape, kMaxElements))
    return bad_input(cat(file, ": tensor '", shown_name(name), "' is too large"));
  file_of_[name] = file;
  tensors_[name] = std::move(tensor);
  return {};
}

Status CheckpointTensors::add_file(const std::string& path) {
  auto file = read_safetensors(path);
  if (!file.ok()) return file.status();
  files_.push_back(std::filesystem::path(path).filename().string());
  for (SafetensorsEntry& t : file->tensors) TS_TRY(add(std::move(t), files_.back()));
  return {};
}

Status CheckpointTensors::add_index(const std::string& path) {
  TS_ASSIGN(const SafetensorsIndex index, read_safetensors_index(path));
  std::set<std::string> paths;
  for (const auto& [tensor, file] : index) paths.insert(file);
  for (const std::string& p : paths) TS_TRY(add_file(p));
  for (const auto& [tensor, file] : index) {
    const auto it = file_of_.find(tensor);
    const std::string wanted = std::filesystem::path(file).filename().string();
    if (it == file_of_.end() || it->second != wanted)
      return bad_input(cat(path, ": tensor '", shown_name(tensor), "' is not in ", wanted, ", where the index has it"));
  }
  for (const auto& [tensor, file] : file_of_) {
    if (!index.contains(tensor))
      return bad_input(cat(file, ": tensor '", shown_name(tensor), "' is not in the index ", path));
  }
  return {};
}

Status CheckpointTensors::add_made(const std::string& name, const Shape& shape, Make make) {
  TS_TRY(add({.name = name, .type = SafetensorsType::F32, .shape = shape, .data = {}}, "the seeded weights"));
  makers_[name] = std::move(make);
  return {};
}

const SafetensorsEntry* CheckpointTensors::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Status CheckpointTensors::expect(const std::string& name, const Shape& shape) {
  const SafetensorsEntry* t = find(name);
  if (t == nullptr) return bad_input(cat("tensor '", name, "' is missing; wanted is ", to_string(shape)));
  if (t->shape != shape)
    return bad_input(cat("tensor '", name, "' has the shape ", to_string(t->shape), "; wanted is ", to_string(shape)));
  taken_.insert(name);
  return {};
}

Result<Bytes> CheckpointTensors::take(const std::string& name, const std::vector<Shape>& shapes,
                                      const std::vector<SafetensorsType>& types) {
  const SafetensorsEntry* t = find(name);
  if (t == nullptr)
    return bad_input(cat("tensor '", name, "' is missing; wanted is ", list_of(types), " ", list_of(shapes)));
  if (std::find(types.begin(), types.end(), t->type) == types.end())
    return bad_input(cat("tensor '", name, "' is ", name_of(t->type), "; wanted is ", list_of(types)));
  if (std::find(shapes.begin(), shapes.end(), t->shape) == shapes.end())
    return bad_input(cat("tensor '", name, "' has the shape ", to_string(t->shape), "; wanted is ", list_of(shapes)));
  taken_.insert(name);
  if (const auto maker = makers_.find(name); maker != makers_.end()) return made(name, maker->second);
  if (reinterpret_cast<uintptr_t>(t->data.data()) % kAlign == 0) return t->data;
  if (const auto moved = moved_.find(name); moved != moved_.end()) return moved->second;
  TS_ASSIGN(Buffer copy, allocate(static_cast<int64_t>(t->data.size()), cat("tensor '", name, "'")));
  if (!t->data.empty()) std::memcpy(copy.data(), t->data.data(), t->data.size());
  give_back(t->data.data(), t->data.size());
  return moved_[name] = derived_->keep(std::move(copy));
}

Result<Bytes> CheckpointTensors::made(const std::string& name, const Make& make) {
  if (const auto known = moved_.find(name); known != moved_.end()) return known->second;
  const int64_t count = elements(find(name)->shape);
  TS_ASSIGN(Buffer numbers, allocate(count * static_cast<int64_t>(sizeof(float)), cat("tensor '", name, "'")));
  make({reinterpret_cast<float*>(numbers.data()), static_cast<size_t>(count)});
  return moved_[name] = derived_->keep(std::move(numbers));
}

Result<Bytes> CheckpointTensors::take_f32(const std::string& name, const std::vector<Shape>& shapes) {
  TS_ASSIGN(const Bytes data, take(name, shapes, kFloats));
  const SafetensorsEntry& t = *find(name);
  if (t.type == SafetensorsType::F32) return data;
  if (const auto wide = widened_.find(name); wide != widened_.end()) return wide->second;
  const int64_t count = elements(t.shape);
  TS_ASSIGN(Buffer numbers, allocate(count * static_cast<int64_t>(sizeof(float)), cat("tensor '", name, "'")));
  info(*element_of(t.type)).decode(data.data(), 0, count, reinterpret_cast<float*>(numbers.data()));
  give_back(data.data(), data.size());
  return widened_[name] = derived_->keep(std::move(numbers));
}

Result<std::vector<float>> CheckpointTensors::take_floats(const std::string& name, const std::vector<Shape>& shapes) {
  TS_ASSIGN(const Bytes data, take_f32(name, shapes));
  std::vector<float> numbers(data.size() / sizeof(float));
  if (!numbers.empty()) std::memcpy(numbers.data(), data.data(), data.size());
  return numbers;
}

Result<std::vector<float>> CheckpointTensors::take_scales(const std::string& name, const std::vector<Shape>& shapes) {
  TS_ASSIGN(std::vector<float> scales, take_floats(name, shapes));
  for (size_t i = 0; i < scales.size(); ++i) {
    if (std::isfinite(scales[i]) && scales[i] > 0) continue;
    return bad_input(cat("tensor '", name, "': scale ", i, " is ", scales[i], "; scales are positive finite numbers"));
  }
  return scales;
}

Result<float> CheckpointTensors::take_scale(const std::string& name) {
  TS_ASSIGN(const std::vector<float> scales, take_scales(name, {Shape{}, Shape{1}}));
  return scales[0];
}

Result<Bytes> CheckpointTensors::take_scale_codes(const std::string& name, const Shape& shape, Element element) {
  std::vector<SafetensorsType> types = {SafetensorsType::U8};
  if (element == Element::e4m3) types.insert(types.begin(), SafetensorsType::F8_E4M3);
  if (element == Element::e8m0) types.insert(types.begin(), SafetensorsType::F8_E8M0);
  TS_ASSIGN(Bytes codes, take(name, {shape}, types));
  float number[256];
  uint8_t code[256];
  for (int i = 0; i < 256; ++i) code[i] = static_cast<uint8_t>(i);
  info(element).decode(code, 0, 256, number);
  for (size_t i = 0; i < codes.size(); ++i) {
    const float scale = number[codes.data()[i]];
    if (std::isfinite(scale) && scale > 0) continue;
    return bad_input(cat("tensor '", name, "': scale [", static_cast<int64_t>(i) / shape.back(), ",",
                         static_cast<int64_t>(i) % shape.back(), "] is ", scale,
                         "; scales are positive finite numbers"));
  }
  return codes;
}

std::vector<std::string> CheckpointTensors::left() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (!taken_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace tessera
