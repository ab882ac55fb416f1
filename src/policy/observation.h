// SPDX-License-Identifier: Apache-2.0
// What a policy is given, as arrays of one batch:
//   images u8 [b, views, h, w, 3] of any size, or f32 [b, views, 3, n, n] in [-1, 1]; image_valid bool [b, views]
//   tokens i64 [b, prompt], token_valid bool [b, prompt]
//   noise f32 [b, horizon, actions], state f32 [b, actions] (π0)
//   prev_actions f32 [b, horizon, actions], prev_weights f32 [b, horizon], from 0 to 1: what is left of the chunk
//   before, for an engine with real-time chunking; without them every weight is 0
// Bytes are fitted into the engine's square (camera.h). An engine that takes f32 gets x / 127.5 - 1 of them; one that
// takes bytes gets nothing but bytes. Views and tokens that are not valid are dropped: those that are lie at the front,
// in their order, so that a masked camera and a missing one are the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/npz.h"

namespace tessera {

// One observation, packed for an engine's sizes.
struct PackedObservation {
  std::vector<uint8_t> images;  // as the engine's port has them; zeros behind the valid views
  std::vector<int64_t> tokens;  // [engine's prompt], zeros behind the valid ones
  std::vector<float> noise, state, prev, weights;
  int32_t image_rows = 0, prefix_rows = 0;
  // Rows of the sequence as it was given (all views, then all tokens) that the packed rows are, in order.
  std::vector<int64_t> rows;
};

// The sizes of an engine's ports.
struct PolicySizes {
  int64_t views = 0, image = 0, patches = 0, prompt = 0, horizon = 0, actions = 0;
  int64_t vocabulary = 1;
  bool state = false;  // π0
  bool bytes = false;  // images are u8
  bool rtc = false;    // takes the chunk before
  int64_t view_bytes() const { return 3 * image * image * (bytes ? 1 : static_cast<int64_t>(sizeof(float))); }
};

// Random pixels, ids, noise and state for every view and token that the engine takes; for runs that are timed.
PackedObservation seeded_observation(const PolicySizes& sizes, uint64_t seed);

class Observations {
 public:
  // Arrays of a file; what is missing, has another shape or another type is an error that says what is wanted.
  static Result<Observations> of(std::vector<Array> arrays, const PolicySizes& sizes);
  int64_t count() const { return count_; }
  int64_t views() const { return views_; }
  int64_t prompt() const { return prompt_; }
  // Contract: index < count().
  Result<PackedObservation> packed(int64_t index) const;

 private:
  Status take_images(const Array& images);
  Status take_numbers(const std::vector<Array>& arrays);
  const std::vector<double>& numbers(const char* name) const;
  PolicySizes sizes_;
  int64_t count_ = 0, views_ = 0, prompt_ = 0;
  bool guided_ = false;          // the arrays hold the chunk before
  std::vector<uint8_t> images_;  // [b, views] of view_bytes
  std::vector<std::pair<std::string, std::vector<double>>> arrays_;
};

}  // namespace tessera
