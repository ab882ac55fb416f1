// SPDX-License-Identifier: Apache-2.0
// An image as its bytes: the input becomes u8 [batch, height, width, channels], what cameras and decoders give, and the
// graph makes the numbers that the model was trained on (io/images_prepare.h). A byte has 256 values, so they are
// looked up: a gather in a table that was computed in double and rounded once gives the bits of prepare_image.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "io/images_prepare.h"
#include "ir/graph.h"

namespace tessera {

// Attr of the gather: what its table says, with the layout of the model (to_string of Pixels).
inline constexpr const char* kPixels = "pixels";
// Nothing where a node or plan step with these attrs is another one.
std::optional<Pixels> pixels_of(const Attrs& attrs);

// The model's own shape of an image of these bytes; they come with the channels last.
Shape model_shape(const Shape& bytes, ImageLayout layout);

// What stands in the way of bytes at input `input`, in words that follow its name; else `pixels` with its layout. Axes
// of 1, 3 or 4 are channels.
Result<Pixels> fit_pixels(const Graph& graph, size_t input, const Pixels& pixels);
// Contract: fit_pixels gave `pixels`. The nodes go to `before`, which run first.
void give_bytes(Graph& graph, size_t input, const Pixels& pixels, std::vector<Node>& before);

// Where one copy reads the numbers of an image (patches), and one table serves all channels, the bytes are copied and
// their numbers looked up in that order: a quarter of the bytes moved, and on a GPU a launch less, since copies read
// the caller's buffer. Contract: views are merged; changes no number.
Status copy_bytes_first(Graph& graph);

}  // namespace tessera
