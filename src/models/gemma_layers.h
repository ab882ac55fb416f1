// SPDX-License-Identifier: Apache-2.0
// Gemma's layers: RMS norms whose stored gain is added to 1, rotary positions, grouped attention over a KV cache, MLPs
// gated by tanh GELU. Norms may be modulated by a condition that changes from run to run (adaRMS):
//   y = x / rms(x) * factor + shift         and the block's result is multiplied by `gate` before it is added
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/layer_builder.h"
#include "models/rotary_angles.h"

namespace tessera {

struct GemmaSettings {
  int64_t width, mlp, heads, kv_heads, head;
  double eps;
};

// Tensors of one layer, and their shapes. `modulated`: its norms have `dense` in the place of a gain.
std::vector<std::pair<std::string, Shape>> gemma_tensors(const std::string& layer, const GemmaSettings& settings,
                                                         bool modulated);

// What modulates one norm; each [b, 1, width].
struct Modulation {
  ValueId factor, shift, gate;
};

// Rows that a layer's keys and values have behind those that are in the cache already.
struct GemmaCache {
  ValueId keys, values;  // [b, rows, kv heads, head], before this run
  ValueId at;            // i32 [b]: the row that new ones are written at; kNoValue: 0
  ValueId lengths;       // i32 [b]: attention's operand
  int64_t fresh;         // its attribute
  ValueId bias = kNoValue;
  bool causal = false;  // a new token sees those before it
};

class GemmaLayers {
 public:
  GemmaLayers(LayerBuilder& layers, const GemmaSettings& settings, RotaryAngles angles)
      : l_(layers), s_(settings), angles_(angles) {}

  // x [b, tokens, width]. `cache`: on return its keys and values are those after this run. `modulations`: of the norm
  // before attention and of the one before the MLP.
  Result<ValueId> layer(const std::string& name, ValueId x, GemmaCache& cache,
                        const std::vector<Modulation>& modulations = {});
  // Only keys and values of the layer.
  Status keys_and_values(const std::string& name, ValueId x, GemmaCache& cache);
  Result<ValueId> norm(const std::string& module, ValueId x, const Modulation* modulation = nullptr);

 private:
  Status write_new(const std::string& name, ValueId x, GemmaCache& cache);
  Result<ValueId> heads(const std::string& module, ValueId x, int64_t count);
  Result<ValueId> attend(const std::string& name, ValueId x, GemmaCache& cache);
  Result<ValueId> mlp(const std::string& module, ValueId x);
  Result<ValueId> added(ValueId x, ValueId y, const Modulation* modulation, const std::string& name);

  LayerBuilder& l_;
  const GemmaSettings s_;
  const RotaryAngles angles_;
};

}  // namespace tessera
