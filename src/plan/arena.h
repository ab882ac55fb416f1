// SPDX-License-Identifier: Apache-2.0
// Static memory: each block is alive from the step that writes it to the last step that reads it; blocks that are never
// alive together may share bytes. Greedy, largest first, lowest offset that fits: within a few per cent of the peak of
// live bytes for chains such as transformers.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0;  // steps, both included
};

struct ArenaPlacement {
  std::vector<int64_t> offsets;  // per block, multiples of 256 (the widest alignment any kernel or library asks for)
  int64_t bytes = 0;
};
ArenaPlacement place_blocks(const std::vector<Lifetime>& blocks);

}  // namespace tessera
