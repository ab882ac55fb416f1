// SPDX-License-Identifier: Apache-2.0
// Graphs as text. Printing is deterministic; printing what was parsed from printed text gives the same text.
//   graph tiny {
//     in %image: f32[2,3,8,8]
//     const %w: f32[64,48] = seed(3)       (normal numbers * 0.05; or {1, 2.5}, or data(<hex>); nothing: zeros)
//     %y: f32[2,17,64] = matmul(%x, %w, %b) {eps=0.5, perm=[0,2,1], kind="layer"} then bias(2) act(gelu_erf) @"fc1"
//     out %y
//     state %past = %present               (an input that the next run finds as this output; alone: it is only read)
//   }
// `_` is an absent operand; a step's number is an index into the operands. After the layer's name: `role block`,
// `asked fp8`. Scales: `%q: e4m3:tensor(f32)[2,3] scale=%s = copy(%x)`. `#` starts a comment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// Shortest text that reads back as the same number; always with a mark that tells it from an integer.
std::string number_text(double x);
// with_data: constants' bytes too; else only their types.
std::string print_graph(const Graph& graph, bool with_data = false);
// The error names the line. What is read is checked (ir/check.h).
Result<Graph> parse_graph(std::string_view text);
Result<std::vector<Graph>> parse_graphs(std::string_view text);

}  // namespace tessera
