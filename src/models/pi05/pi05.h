// SPDX-License-Identifier: Apache-2.0
// π0 and π0.5: images, a prompt and noise become a chunk of actions (flow matching, Euler steps). Three graphs over
// shared states (docs/design/0031):
//   vision  images [b, views, 3, n, n] in [-1, 1], or u8 [b, views, n, n, 3] -> image_tokens
//   prefix  tokens, image_rows, prefix_rows, noise (π0: state) -> keys and values of every layer, x = noise
//   step    one Euler step: x = x + dt v(x, t); as often as there are steps. With rtc=on prefix takes prev_actions and
//           prev_weights as well, and v is corrected (real-time chunking)
// Valid rows lie at the front: those of the views that there are, then the prompt's. How many is known only while
// running (image_rows, prefix_rows), so one engine serves every number of views and every prompt up to its sizes.
#pragma once

#include "models/zoo.h"

namespace tessera {

Result<Graph> pi05_graph(Checkpoint& checkpoint, const FamilySizes& sizes);

}  // namespace tessera
