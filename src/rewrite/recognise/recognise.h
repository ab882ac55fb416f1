// SPDX-License-Identifier: Apache-2.0
// Patterns that exporters spell out in small operators, found again and replaced by the op that stands for them. One
// file per pattern. Each computes the same function; what changes is where roundings fall (fewer of them: the ops keep
// f32 or better inside). Constants of a pattern (0.5, sqrt(2), 1.702 ...) must agree with the op's to a few steps of
// their own type, else nothing is replaced: erf and tanh GELU are never mistaken for each other. Contract: views are
// merged (simplify_views). Nodes without readers are left for drop_dead.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// (x - mean) / sqrt(mean((x - mean)^2) + eps), x / sqrt(mean(x^2) + eps), in their various spellings, then gain and
// shift by constant vectors -> norm.
Status recognise_norm(Graph& graph);
// norm(x) * factor + shift, where these are values of one row for all rows (adaRMS, adaptive LayerNorm at batch 1) ->
// the norm's gain and shift. Factors of each item of a batch stay maps.
Status recognise_modulation(Graph& graph);
// x/2 (1 + erf(x / sqrt 2)), x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x sigmoid(1.702 x), x sigmoid(x), in any
// association -> map.
Status recognise_gelu(Graph& graph);
// x cos + rotate(x) sin with rotate = (-x2, x1), pairs being the halves of a head or neighbours, in any order of
// slices, signs, products and sums -> rotary. Tokens or parts of a head that are joined to it unturned become part of
// it.
Status recognise_rotary(Graph& graph);
// Types that a model was quantized with (docs/design/0008-imported-types.md). A constant that a copy decodes for a
// matmul or conv2d becomes its weight, [n, k], codes and scales bit for bit as they were; the layer's `asked` is
// "imported". A copy to codes and one back, before a product, become the product's attrs `type.<i>` and `scale.<i>` for
// its input i; before anything else they stay. Runs before constants are folded.
Status recognise_qdq(Graph& graph);
// softmax(scale * q k^T + bias) v, with the scale on q, on k, on both or on the product -> attention. Types of its
// products' inputs become its own: `type.0` ... `type.2` of q, k and v, `p` of the probabilities. Where attention does
// not compute with these types, or not with that scale of the probabilities, the two products stay.
Status recognise_attention(Graph& graph);

}  // namespace tessera
