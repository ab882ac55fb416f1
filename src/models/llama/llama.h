// SPDX-License-Identifier: Apache-2.0
// Llama and what is built like it: RMS norms, rotary positions, grouped attention, gated MLPs. A graph of `tokens` new
// tokens over KV caches of `cache` rows (ir/graph.h, StatePair); prefill and decode are two such graphs over the same
// states.
//   input_ids i64 [b, tokens], past_length i32 [b], model.layers.N.key and .value [b, cache, kv heads, head size]
//   -> logits [b, tokens, vocabulary], the states
#pragma once

#include "models/zoo.h"

namespace tessera {

// From a checkpoint with the names of Hugging Face's LlamaForCausalLM.
Result<Graph> llama_graph(Checkpoint& checkpoint, const FamilySizes& sizes);

}  // namespace tessera
