// SPDX-License-Identifier: Apache-2.0
// Faults planted in kernels, to see that their tests catch them. A kernel's source is compiled with
// -DTS_PLANTED_FAULT=n and its test must fail then (tools/plant_faults.py, on a GPU); every build of the product has 0,
// which is none.
#pragma once

namespace tessera {

enum class Fault : int {
  kNone,
  kLastBlockOfK,         // normal mainloop: the last block of K is not multiplied
  kStageParity,          // normal mainloop: the other parity of a full stage is waited for
  kNoWait,               // normal mainloop: no warpgroup waits for a full stage
  kResidualSwizzle,      // normal mainloop: the residual is read without its swizzle
  kNeighboursBias,       // normal mainloop: bias of the neighbouring column
  kShortActivation,      // normal mainloop: the activation's last coefficient is left out
  kTapsTurned,           // normal mainloop on windows: taps go down before they go right
  kGroupEnd,             // normal mainloop on windows: tiles leave out the last columns of a group
  kNoPromotion,          // promoted sums: an accumulator goes on where it should begin again
  kSliceMissing,         // swapped mainloop: the last slice of K is not added
  kSliceOrder,           // swapped mainloop: slices are added from the last to the first
  kStaleStatistics,      // swapped mainloop: the factor of the row before; normal one: the scale of a neighbouring row
  kAngleOfNeighbour,     // swapped mainloop: heads are turned by the angles of the token before
  kRowIgnored,           // swapped mainloop: columns are kept from row 0 on, whatever the number says
  kLastKey,              // short attention: a key that does not exist takes part
  kWeightsOfBefore,      // short attention: the second product has the weights of the first
  kNoShrink,             // streaming attention: results so far are not scaled when the maximum rises
  kLowestIsNone,         // streaming attention: a bias of the lowest f32 counts as minus infinity
  kLengthOfFirst,        // streaming attention: the length of the first batch item holds for all
  kStaleValues,          // streaming attention: values behind the last valid key are multiplied by 0 as they are
  kKeySliceMissing,      // streaming attention: the last slice of keys is not added
  kTokenOrder,           // streaming attention in FP8: codes of a word in another order
  kMeanKept,             // norm: the mean is not taken off the last column of a chunk
  kOddRows,              // cuBLASLt: it is given the bias of rows that are no units of 16 bytes, too
  kNoGain,               // swapped mainloop: codes beside the result are not multiplied by their gain
  kNeighboursGain,       // swapped mainloop: they are multiplied by that of the eight channels before
  kNoPhaseWait,          // chain: a block says that its phase has ended when one of its warps has
  kMetadataOfNeighbour,  // sparse mainloop: all products of a block have the places of its first
  kCount
};

#ifdef TS_PLANTED_FAULT
inline constexpr Fault kPlantedFault = static_cast<Fault>(TS_PLANTED_FAULT);
#else
inline constexpr Fault kPlantedFault = Fault::kNone;
#endif
constexpr bool planted(Fault fault) { return fault == kPlantedFault; }

}  // namespace tessera
