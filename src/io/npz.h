// SPDX-License-Identifier: Apache-2.0
// numpy's .npz (a zip of .npy arrays; stored or deflated, zip64) and .npy (versions 1 to 3). Types are numpy's own
// words: "<f4", "|u1" ... Arrays are handed out in C order, aligned; Fortran order is transposed on reading.
// Little-endian numbers and bools only. What is written is stored, not deflated, with a fixed date: the same arrays
// give the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera {

struct Array {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;  // "<f2" "<f4" "<f8" "|i1" "<i2" "<i4" "<i8" "|u1" "<u2" "<u4" "<u8" "|b1"
  Bytes data;

  int64_t count() const;  // elements
};

// Bytes of one element; 0 for a type that is not in the list above.
int64_t dtype_bytes(const std::string& dtype);

// Arrays hold at most this much when unpacked, all together, unless the reader is told otherwise.
constexpr int64_t kNpzLimitBytes = int64_t{4} << 30;

// By its first bytes a .npz or a single .npy, whose array is named after the file. Memory is bounded by `limit_bytes`
// whatever the file claims.
Result<std::vector<Array>> read_npz(const std::string& path, int64_t limit_bytes = kNpzLimitBytes);
// The same from memory; `name` is the name of a single .npy.
Result<std::vector<Array>> parse_npz(std::span<const uint8_t> file, const std::string& name,
                                     int64_t limit_bytes = kNpzLimitBytes);

Status write_npz(const std::string& path, std::span<const Array> arrays);

// Any array as doubles, in C order (64-bit integers beyond 2^53 round).
std::vector<double> numbers_of(const Array& array);
// An array of f32 with a copy of the numbers.
Array make_array(std::string name, std::vector<int64_t> shape, std::span<const float> numbers);

}  // namespace tessera
