// SPDX-License-Identifier: Apache-2.0
// Seeded numbers that are the same on every machine: whole-number arithmetic and one multiplication, no libm.
// Bell-shaped: the sum of four uniform numbers of 16 bits, centred; standard deviation 1, never beyond 3.47 of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {

// The i-th number of a stream depends on the seed, the stream's name and i alone, so tensors may be made in any order.
// Numbers first, first + 1, ... of the stream.
void fill_seeded(uint64_t seed, std::string_view stream, int64_t first, float mean, float deviation,
                 std::span<float> out);
std::vector<float> seeded_normals(uint64_t seed, std::string_view stream, int64_t count, float mean, float deviation);

}  // namespace tessera
