// SPDX-License-Identifier: Apache-2.0
// What a linear layer is for, read from the graph alone. Written to Node::role of each matmul
// and conv2d with a constant weight:
//   embed                 no other layer (linear, norm, attention) before it
//   head                  its result reaches an output and no other linear layer or attention (norms, pooling,
//                         activations and additions may follow), and it adds to no residual stream. A model may have
//                         several; of an MLP only the last layer is one. The last fc2 of a model that returns hidden
//                         states is none.
//   block.attention_in    its result reaches an attention through views, copies and rotary only (q, k, v)
//   block.attention_out   its input is an attention's result
//   block.mlp             every other one
//   exact                 whatever it is for, the graph calls its weight exact: it keeps its type in every precision
// Attention nodes have the role block.attention.
#pragma once

#include "ir/graph.h"
#include "ir/layer_ops.h"

namespace tessera {

inline bool is_linear(const Graph& g, const Node& n) {
  return multiplies_weights(n.op) && n.inputs.size() > 1 && g.at(n.inputs[1]).constant;
}
// Whose rows of x are rows in memory: a convolution's are windows.
inline bool is_matmul_layer(const Graph& g, const Node& n) { return n.op == "matmul" && is_linear(g, n); }
inline constexpr const char* kExactRole = "exact";
inline bool in_block(const Node& n) { return n.role.starts_with("block"); }

void assign_roles(Graph& graph);

}  // namespace tessera
