// SPDX-License-Identifier: Apache-2.0
// The raw bytes of a model file's tensors, found without copying them. Parsing a file makes a copy of every field, and
// nearly all of a model is raw_data: here each raw_data of a tensor that the reader looks at (an initializer, or the
// attribute `t` of a node or a function) is replaced by its number in the list, and what is left is small.
//   key = varint (field << 3 | wire type); a message, string or bytes field: varint length, then so many bytes
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera {

struct RawFields {
  std::string message;      // the file with a number of 8 bytes in place of each raw_data
  std::vector<Bytes> data;  // by that number: parts of the file
};
// None where the file is no message of this form, or uses what only a full parser reads (groups).
std::optional<RawFields> split_raw_fields(const Bytes& file);

// The bytes that a raw_data of RawFields::message stands for.
Result<Bytes> raw_field(const RawFields& fields, const std::string& number);

}  // namespace tessera
