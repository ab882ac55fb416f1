// SPDX-License-Identifier: Apache-2.0
// Arch: a kind of machine that plans are made for. An arch also runs the variants of the archs it builds on (sm90 runs
// `cuda` variants). archs.inc lists them; each folder of this room holds what is particular to one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "types/element.h"

namespace tessera {

enum class Arch : uint8_t {
#define TS_ARCH(name, parent, device, nvcc, elements, what) name,
#include "archs/archs.inc"
#undef TS_ARCH
};

enum class DeviceKind : uint8_t { kHost, kCuda };

struct ArchInfo {
  const char* name;
  Arch parent;  // itself where it builds on nothing
  DeviceKind device;
  const char* nvcc;      // what its own .cu files are compiled for ("90a"); empty: nothing, or every GPU
  const char* elements;  // with native multiply instructions, by name ("f16 e4m3"); empty on hosts, which decode first
  const char* what;
};

const ArchInfo& info(Arch arch);
std::optional<Arch> find_arch(std::string_view name);
// True where a plan for `target` may use a variant written for `variant`.
bool runs(Arch target, Arch variant);
// Whether a GPU has instructions that multiply codes of this element.
bool multiplies(Arch arch, Element element);

}  // namespace tessera
