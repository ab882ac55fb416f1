// SPDX-License-Identifier: Apache-2.0
// One .npy array as bytes: "\x93NUMPY", version, header length, a Python dict {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), }, then the numbers.
#pragma once

#include "io/npz.h"

namespace tessera {

struct NpyHeader {
  std::string dtype;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  int64_t count = 0;        // elements
  size_t header_bytes = 0;  // where the numbers begin
};

// `bytes` may end after the header.
Result<NpyHeader> parse_npy_header(std::span<const uint8_t> bytes);
// The whole member: header and exactly the numbers it speaks of.
Result<Array> parse_npy(std::span<const uint8_t> bytes, const std::string& name);
// Header (version 1) of an array, padded so that the numbers begin at a multiple of 64.
std::string npy_header(const Array& array);

}  // namespace tessera
