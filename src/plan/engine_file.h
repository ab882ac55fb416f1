// SPDX-License-Identifier: Apache-2.0
// The `.tess` file, version 2. Little endian.
//   0   8  magic "TESSERA\0"       8  4  version        12  4  reserved, 0
//   16  8  manifest offset         24 8  manifest bytes  32  8  manifest checksum
//   40  8  data offset (4096-aligned)  48  8  data bytes   56  8  0 (version 1: data checksum)
// Manifest: JSON (plans, constants as offset, size and checksum in the data, golden values, states, schedule, the
// record). Data: constants, each at a multiple of 256 bytes. Nothing in it depends on time, host or run: the same model
// and options give the same bytes. docs/engines.md says which versions load. The first 40 bytes and the manifest's
// "producer" stay as they are in all versions: a program can say whose file it is that it cannot read.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

Status write_engine(const Engine& engine, const std::string& path);
// Maps the file; constants point into the map. Checks magic, version, sizes, the manifest's checksum, those of golden
// values and of small constants, and that every reference inside is in range. Large constants are not read: the golden
// check at load computes with them (of a plan without golden values it compares their checksums), and check_constants
// reads them all.
Result<Engine> read_engine(const std::string& path);
// Whether every constant has the checksum that its file has for it.
Status check_constants(const Engine& engine);
// The same of those that are marked, one mark per constant. Reads them whole, with the threads of the calling thread's
// pool.
Status check_constants(const Engine& engine, const std::vector<bool>& which);
// Sets the marks of the constants that the plan reads.
void mark_constants(const Plan& plan, std::vector<bool>& used);
// The same from bytes in memory, which the engine's constants keep alive.
Result<Engine> parse_engine(const Bytes& file);
// Whether every reference inside an engine is in range and its plans, ports and golden values fit each other.
Status check_engine(const Engine& engine);
// The manifest as JSON text, as `inspect --json` shows it. `scales`: constants that are scales have their numbers, as
// they are stored.
std::string manifest_json(const Engine& engine, bool scales = false);

}  // namespace tessera
