// SPDX-License-Identifier: Apache-2.0
// The table of pointers in device memory through which a CUDA graph finds the caller's buffers (docs/design/0004).
#pragma once

#include <span>

#include "base/status.h"
#include "op/variant.h"

namespace tessera {

// table[i] = pointers[i], in the order of the stream. The pointers travel as arguments of a kernel: `pointers` may
// change at once, nothing waits for the host, and a captured write repeats the same pointers.
Status write_slots(void** table, std::span<void* const> pointers, Stream stream);

}  // namespace tessera
