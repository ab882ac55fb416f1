// SPDX-License-Identifier: Apache-2.0
// Receipts: proof that a variant, as it stands here, passed its tests on a GPU. The hash covers all that can change its
// results or their verdict: its own file and whatever that includes, its op's reference, error rules and tests, the
// harness, and what nvcc is told (cmake/hash_variants.cmake). Who compiled it stands in the receipt itself, so that a
// build without a toolkit can tell whether a receipt holds.
#pragma once

#include <string_view>

namespace tessera {

// Hash of what a variant and its tests were built from ("matmul/sm90_fp8"); empty for an unknown name.
std::string_view source_hash(std::string_view variant);
// Who compiled this program's kernels ("nvcc 13.0.88, ptxas 13.0.88"); empty where it holds none.
std::string_view device_compiler();

}  // namespace tessera
