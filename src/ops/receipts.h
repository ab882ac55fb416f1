// SPDX-License-Identifier: Apache-2.0
// Receipts: proof that a variant's present sources ran on a GPU. The hash covers the variant's file, its op's headers, and tiles, archs and types.
#pragma once

#include <string_view>

namespace tessera {

// Hash of the sources that a variant was built from ("matmul/sm90_cublaslt"); empty for an unknown name.
std::string_view source_hash(std::string_view variant);

}  // namespace tessera
