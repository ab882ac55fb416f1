// SPDX-License-Identifier: Apache-2.0
// Structs that begin with their size, of programs that are older or newer than this library. One that is smaller than
// ours lacks fields that came later: they are zero. One that is larger has fields that this library does not know: they
// must be zero.
#pragma once

#include <algorithm>
#include <cstring>

#include "library/status.h"

namespace tessera {

// Structs without a size, of which programs hand over arrays: they never grow.
static_assert(sizeof(tess_device) == 8 && sizeof(tess_dtype) == 4 && sizeof(tess_case) == 2 * sizeof(void*));
static_assert(sizeof(tess_tensor) == 48 || sizeof(void*) != 8, "the layout of DLPack's DLTensor");

inline constexpr size_t kLargestStruct = 4096;  // a size beyond it was never set

// `first`: bytes of the struct in the first version that had it.
template <class T>
Status read_struct(const T* given, size_t first, const char* name, T& out) {
  out = T{};
  out.size = sizeof(T);
  if (given == nullptr) return {};
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < first || size > kLargestStruct)
    return usage_error(cat(name, ".size is ", size, ": set it to sizeof(", name, "), which is ", sizeof(T), " here"));
  const auto* bytes = reinterpret_cast<const uint8_t*>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](uint8_t b) { return b != 0; }))
    return usage_error(cat(name, " has fields that this library, ", TS_VERSION,
                           ", does not know: leave them zero, or use a newer library"));
  std::memcpy(&out, given, std::min(size, sizeof(T)));
  out.size = sizeof(T);
  return {};
}

// Fills as much as the caller's struct has; its size stays.
template <class T>
Status write_struct(const T& full, size_t first, const char* name, T* out) {
  TS_TRY(check_argument(out, name));
  size_t size = 0;
  std::memcpy(&size, out, sizeof(size));
  if (size < first || size > kLargestStruct)
    return usage_error(cat(name, ".size is ", size, ": set it to sizeof(", name, "), which is ", sizeof(T), " here"));
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  std::memset(bytes + sizeof(size), 0, size - sizeof(size));
  std::memcpy(bytes + sizeof(size), reinterpret_cast<const uint8_t*>(&full) + sizeof(size),
              std::min(size, sizeof(T)) - sizeof(size));
  return {};
}

// What contexts and sessions are told of the machine.
inline Status check_machine_options(const char* name, int32_t threads, int32_t device) {
  constexpr int32_t kMostThreads = 4096;  // as --threads
  if (threads < 0 || threads > kMostThreads)
    return usage_error(cat(name, ".threads is ", threads, ": 0 to ", kMostThreads));
  if (device < 0) return usage_error(cat(name, ".device is ", device, ": 0 or more"));
  return {};
}

// Up to and with a field: what a struct was in its first version.
#define TS_UP_TO(type, field) (offsetof(type, field) + sizeof(type::field))

}  // namespace tessera
