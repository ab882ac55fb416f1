// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.h"

#include <algorithm>
#include <numeric>

#include "base/buffer.h"

namespace tessera {

ArenaPlacement place_blocks(const std::vector<Lifetime>& blocks) {
  ArenaPlacement result{.offsets = std::vector<int64_t>(blocks.size(), 0)};
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<size_t> placed;
  for (size_t b : order) {
    const int64_t bytes = round_up(std::max<int64_t>(blocks[b].bytes, 1), 256);
    std::vector<std::pair<int64_t, int64_t>> taken;  // offset, end of blocks alive together with b
    for (size_t p : placed) {
      if (blocks[p].first <= blocks[b].last && blocks[b].first <= blocks[p].last) {
        taken.push_back({result.offsets[p], result.offsets[p] + round_up(std::max<int64_t>(blocks[p].bytes, 1), 256)});
      }
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes <= begin) break;
      offset = std::max(offset, end);
    }
    result.offsets[b] = offset;
    result.bytes = std::max(result.bytes, offset + bytes);
    placed.push_back(b);
  }
  return result;
}

}  // namespace tessera
