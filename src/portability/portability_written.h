// SPDX-License-Identifier: Apache-2.0
// What design rules ask of a graph as its file wrote it, before canonicalise gives every model the same form: how its
// attentions are spelt, how many tokens there are, what makes them, which layers bring scales or zeros.
//   attention: softmax(... q k^T ...), or one operator          tokens: concat of learnt ones with those of the input
//   patches:   the linear layer that reads an image piece by piece      spelt norm: the mean of squares
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera {

struct WrittenAttention {
  std::string layer;
  int64_t keys = 0, head_size = 0;
  bool one_operator = false;
  size_t axes = 0;      // of its scores
  std::string foreign;  // a function between product and softmax that is no scale and no mask; empty: none
};
struct WrittenTokens {
  std::string layer;
  int64_t learnt = 0, all = 0;
};
struct WrittenPatches {
  std::string layer;
  int64_t height = 0, width = 0, count = 0;
};
struct WrittenLinear {
  std::string layer;
  bool scaled = false;  // its weight or an operand has a type with scales, stored or asked for
  bool sparse = false;  // at most two of four numbers along k are not zero
};

struct WrittenModel {
  std::vector<WrittenAttention> attentions;
  std::vector<WrittenTokens> tokens;
  std::vector<WrittenPatches> patches;
  std::vector<WrittenLinear> linears;
  std::vector<std::string> norms, spelt_norms;  // one operator; written out
};

// The graph as import_onnx gives it.
WrittenModel read_written(const Graph& graph);

}  // namespace tessera
