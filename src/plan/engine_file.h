// SPDX-License-Identifier: Apache-2.0
// The `.tess` file, version 1. Little endian.
//   0   8  magic "TESSERA\0"       8  4  version        12  4  reserved, 0
//   16  8  manifest offset         24 8  manifest bytes  32  8  manifest checksum
//   40  8  data offset (4096-aligned)  48  8  data bytes   56  8  data checksum
// Manifest: JSON (plans, constants as offset and size in the data, golden values, the record). Data: constants, each at
// a multiple of 256 bytes. Nothing in it depends on time, host or run: the same model and options give the same bytes.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

Status write_engine(const Engine& engine, const std::string& path);
// Maps the file; constants point into the map. Checks magic, version, sizes, both checksums and that every reference
// inside is in range.
Result<Engine> read_engine(const std::string& path);
// The same from bytes in memory, which the engine's constants keep alive.
Result<Engine> parse_engine(const Bytes& file);
// Whether every reference inside an engine is in range and its plans, ports and golden values fit each other.
Status check_engine(const Engine& engine);
// The manifest as JSON text, as `inspect --json` shows it.
std::string manifest_json(const Engine& engine);

}  // namespace tessera
