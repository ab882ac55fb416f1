// SPDX-License-Identifier: Apache-2.0
// How many forks lie between this process and the one that the program began as. What a fork does not copy (threads, a
// CUDA context) remembers the number it was made under, and is not used under another.
#pragma once

#include <cstdint>

namespace tessera {

int64_t forks();

}  // namespace tessera
