// SPDX-License-Identifier: Apache-2.0
#include "models/random_weights.h"

#include <cmath>
#include <filesystem>

#include "base/parallel.h"
#include "io/atomic_file.h"
#include "io/safetensors_writer.h"
#include "models/seeded.h"
#include "types/bf16.h"

namespace tessera {
namespace {

constexpr int64_t kPiece = int64_t{1} << 16;  // numbers of one thread at a time

void make_numbers(const RandomTensor& t, uint64_t seed, int64_t first, std::span<float> out) {
  fill_seeded(seed, t.name, first, t.mean, t.deviation, out);
  parallel_for(static_cast<int64_t>(out.size()), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& x = out[static_cast<size_t>(i)];
      x = Bf16::decode(Bf16::encode(x));
    }
  });
}

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

}  // namespace

RandomTensor random_tensor(std::string name, Shape shape) {
  const bool layer_norm = has(name, "layer_norm") || has(name, "post_layernorm");
  const int64_t row = shape.empty() ? 1 : elements(shape) / shape[0];
  const float even = 1 / std::sqrt(static_cast<float>(row));  // of a matrix whose result is as large as what it reads
  float mean = 0, deviation = even;
  if (name.ends_with(".bias")) {
    deviation = layer_norm ? 0.1f : 0.02f;
  } else if (shape.size() < 2) {
    mean = layer_norm ? 1.0f : 0.0f;  // RMS norms of Gemma add 1 to what is stored
    deviation = 0.1f;
  } else if (has(name, ".dense.")) {
    deviation = 0.5f * even;  // adaRMS scales, which are added to 1
  } else if (has(name, "position_embedding")) {
    deviation = 0.1f;
  }
  return {.name = std::move(name), .shape = std::move(shape), .mean = mean, .deviation = deviation};
}

Result<nlohmann::json> completed_config(const nlohmann::json& known, const nlohmann::json& given) {
  nlohmann::json all = known;
  for (const auto& [key, value] : given.items()) {
    if (!known.contains(key)) {
      std::string keys;
      for (const auto& [k, v] : known.items()) keys += cat(keys.empty() ? "" : ", ", k);
      return bad_input(cat("'", shown_name(key), "' is nothing that random weights depend on; there are ", keys));
    }
    if (!value.is_null()) all[key] = value;
  }
  return all;
}

Result<Checkpoint> random_checkpoint(const std::string& family, const RandomModel& model, uint64_t seed) {
  CheckpointTensors tensors;
  for (const RandomTensor& t : model.tensors)
    TS_TRY(tensors.add_made(t.name, t.shape, [t, seed](std::span<float> out) { make_numbers(t, seed, 0, out); }));
  return Checkpoint::of(cat(family, " with random weights (seed ", seed, ")"), model.config, std::move(tensors));
}

Result<int64_t> write_random_checkpoint(const RandomModel& model, uint64_t seed, SafetensorsType type,
                                        const std::string& folder) {
  TS_CHECK(type == SafetensorsType::F32 || type == SafetensorsType::BF16, "random weights are f32 or bf16");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return machine_error(cat(folder, ": cannot be made: ", error.message()));
  std::vector<SafetensorsEntry> entries;
  for (const RandomTensor& t : model.tensors)
    entries.push_back({.name = t.name, .type = type, .shape = t.shape, .data = {}});
  TS_ASSIGN(SafetensorsWriter file, SafetensorsWriter::create(folder + "/model.safetensors", entries));
  constexpr int64_t kTogether = int64_t{1} << 24;  // numbers that are made before they are written
  std::vector<float> numbers;
  std::vector<uint16_t> halves;
  for (const RandomTensor& t : model.tensors) {
    const int64_t count = elements(t.shape);
    for (int64_t at = 0; at < count; at += kTogether) {
      numbers.resize(static_cast<size_t>(std::min(kTogether, count - at)));
      make_numbers(t, seed, at, numbers);
      if (type == SafetensorsType::F32) {
        TS_TRY(file.write({reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(float)}));
        continue;
      }
      halves.resize(numbers.size());
      parallel_for(static_cast<int64_t>(numbers.size()), kPiece, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          halves[static_cast<size_t>(i)] = Bf16::encode(numbers[static_cast<size_t>(i)]);
      });
      TS_TRY(file.write({reinterpret_cast<const uint8_t*>(halves.data()), halves.size() * sizeof(uint16_t)}));
    }
  }
  TS_TRY(file.commit());
  TS_TRY(write_file(folder + "/config.json", model.config.dump(1) + "\n"));
  return file.bytes();
}

}  // namespace tessera
