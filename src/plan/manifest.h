// SPDX-License-Identifier: Apache-2.0
// The manifest of an engine file: everything of an Engine but the bytes of its constants and golden values, as JSON.
// Types are written by their text form, layouts, archs and storages by name, attributes with their kind ({"int": 3},
// {"float": 0.5} ...), numbers so that they read back exactly. Bytes are given as {"offset", "bytes"} in the data
// section.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

constexpr int64_t kDataAlign = 256;  // of each piece: as CUDA aligns its own allocations

// The pieces of the data section in order: constants, golden inputs, golden outputs, original outputs; each begins at
// the next multiple of kDataAlign.
std::vector<std::span<const uint8_t>> data_pieces(const Engine& engine);

std::string write_manifest(const Engine& engine);
// Pieces become slices of `data`. `checksums`: each piece has one; golden values and constants up to kSmallConstant
// bytes are held against theirs, larger ones keep it (EngineConstant). The result is well formed; check_engine tells
// whether it makes sense.
Result<Engine> read_manifest(std::string_view text, const Bytes& data, bool checksums);
constexpr size_t kSmallConstant = 64 << 10;

// The program that wrote a manifest of any version; empty where it does not say.
std::string producer_of(std::string_view text);

}  // namespace tessera
