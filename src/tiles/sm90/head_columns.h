// SPDX-License-Identifier: Apache-2.0
// Which channels a block of the swapped mainloop takes where a program has the step rotary (steps/rotary.h), so that
// both numbers of a pair are made by one warp. A block's 64 channels are two runs of 32: heads of r = 32, 64 ... pairs
// give it 32 of the first half of what rotates and the 32 that they are paired with; where r is 8 or 16, and where
// nothing rotates, the 64 are neighbours. Eight threads have eight channels each of a token ("pieces", 0 .. 7), and the
// other number of a pair is in the same place of piece ^ partner(). A run begins at a multiple of 32, so weights are
// stored as for other kernels (pairs32). Host and device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera::sm90 {

struct HeadColumns {
  int head = 0, pairs = 0, columns = 0;  // as the step has them; all 0: nothing rotates

  static constexpr bool fits(int64_t head, int64_t pairs) {
    const int64_t unit = pairs % 32 == 0 ? 64 : 2 * pairs;
    return (pairs == 8 || pairs == 16 || (pairs > 0 && pairs % 32 == 0)) && head % unit == 0;
  }

  TS_HOST_DEVICE constexpr bool turns(int channel) const { return channel < columns && channel % head < 2 * pairs; }
  // The first channel of both runs of a block; `channel`: 64 times its number.
  TS_HOST_DEVICE constexpr int first_run(int channel) const {
    return pairs % 32 == 0 && turns(channel) ? channel - channel % head / 2 : channel;
  }
  TS_HOST_DEVICE constexpr int second_run(int channel) const {
    return pairs % 32 == 0 && turns(channel) ? channel - channel % head / 2 + pairs : channel + 32;
  }
  TS_HOST_DEVICE constexpr int channel_of(int channel, int piece) const {
    return (piece < 4 ? first_run(channel) : second_run(channel)) + piece % 4 * 8;
  }
  TS_HOST_DEVICE constexpr int partner() const { return pairs < 32 ? pairs / 8 : 4; }
  // The angle of a channel that turns, and whether it is the second number of its pair.
  TS_HOST_DEVICE constexpr int pair(int channel) const { return channel % head % pairs; }
  TS_HOST_DEVICE constexpr bool is_second(int channel) const { return channel % head >= pairs; }
};

}  // namespace tessera::sm90
