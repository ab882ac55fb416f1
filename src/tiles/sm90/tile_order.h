// SPDX-License-Identifier: Apache-2.0
// In which order attention's tiles of rows are taken. Tiles of one (batch, head) share their keys, so `together` heads,
// whose keys fit into the L2, are worked on at a time. Among them the last rows come first: under a causal mask they
// see the most keys, and short tiles at the end even out what is left. Host and device, constexpr: tested on the CPU.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct TilePlace {
  int head = 0, row_tile = 0;  // head: of all batch items
};

// Of `heads` heads with `row_tiles` tiles each.
TS_HOST_DEVICE constexpr TilePlace place_tile(int index, int heads, int row_tiles, int together) {
  const int group = index / (together * row_tiles), first = group * together;
  const int count = heads - first < together ? heads - first : together;
  const int rest = index - first * row_tiles;
  return {first + rest % count, row_tiles - 1 - rest / count};
}

// The tile that block `block` of `blocks` takes in its round: to and fro, so that whoever had the longest of a round
// has the shortest of the next.
TS_HOST_DEVICE constexpr int tile_of_round(int round, int block, int blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

}  // namespace tessera
