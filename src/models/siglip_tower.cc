// SPDX-License-Identifier: Apache-2.0
#include "models/siglip_tower.h"

#include <cmath>

namespace tessera {
namespace {

constexpr int64_t kColours = 3;

class Tower {
 public:
  Tower(LayerBuilder& layers, const SiglipSettings& settings) : l_(layers), s_(settings) {}

  Result<ValueId> block(const std::string& module, ValueId x) {
    TS_ASSIGN(ValueId y, l_.layer_norm(module + ".layer_norm1", x, s_.eps));
    TS_ASSIGN(y, attend(module + ".self_attn", y));
    TS_ASSIGN(x, l_.add(x, y, module + ".self_attn.residual"));
    TS_ASSIGN(y, l_.layer_norm(module + ".layer_norm2", x, s_.eps));
    TS_ASSIGN(y, l_.linear(module + ".mlp.fc1", y, s_.mlp));
    TS_ASSIGN(y, l_.b.map("gelu_tanh", {y}, module + ".mlp.act"));
    TS_ASSIGN(y, l_.linear(module + ".mlp.fc2", y, s_.width));
    return l_.add(x, y, module + ".mlp.residual");
  }

 private:
  Result<ValueId> attend(const std::string& module, ValueId x) {
    const Shape in = l_.b.shape(x), heads = {in[0], in[1], s_.heads, s_.width / s_.heads};
    std::vector<ValueId> parts;
    for (const char* part : {".q_proj", ".k_proj", ".v_proj"}) {
      TS_ASSIGN(ValueId y, l_.linear(module + part, x, s_.width));
      TS_ASSIGN(y, l_.b.reshape(y, heads));
      parts.push_back(y);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(heads[3]));
    TS_ASSIGN(ValueId y, l_.b.emit("attention", parts, {{"scale", scale}}, module));
    TS_ASSIGN(y, l_.b.reshape(y, in));
    return l_.linear(module + ".out_proj", y, s_.width);
  }

  LayerBuilder& l_;
  const SiglipSettings& s_;
};

}  // namespace

std::vector<std::pair<std::string, Shape>> siglip_tensors(const std::string& module, const SiglipSettings& s) {
  std::vector<std::pair<std::string, Shape>> all;
  const auto linear = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    all.push_back({name + ".weight", {outputs, inputs}});
    all.push_back({name + ".bias", {outputs}});
  };
  const auto norm = [&](const std::string& name) {
    for (const char* part : {".weight", ".bias"}) all.push_back({name + part, {s.width}});
  };
  all.push_back({module + ".embeddings.patch_embedding.weight", {s.width, kColours, s.patch, s.patch}});
  all.push_back({module + ".embeddings.patch_embedding.bias", {s.width}});
  all.push_back({module + ".embeddings.position_embedding.weight", {s.patches(), s.width}});
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = cat(module, ".encoder.layers.", i);
    norm(layer + ".layer_norm1");
    norm(layer + ".layer_norm2");
    for (const char* part : {".q_proj", ".k_proj", ".v_proj", ".out_proj"})
      linear(layer + ".self_attn" + part, s.width, s.width);
    linear(layer + ".mlp.fc1", s.mlp, s.width);
    linear(layer + ".mlp.fc2", s.width, s.mlp);
  }
  norm(module + ".post_layernorm");
  return all;
}

Result<ValueId> siglip_tower(LayerBuilder& l, const std::string& module, const SiglipSettings& s, ValueId images) {
  TS_ASSIGN(ValueId x, l.patches(module + ".embeddings.patch_embedding", images, s.patch, s.patch, s.width));
  TS_ASSIGN(const ValueId positions,
            l.constant(module + ".embeddings.position_embedding.weight", {s.patches(), s.width}));
  TS_ASSIGN(x, l.add(x, positions, module + ".embeddings.position_embedding"));
  Tower tower(l, s);
  for (int64_t i = 0; i < s.layers; ++i) {
    TS_ASSIGN(x, tower.block(cat(module, ".encoder.layers.", i), x));
  }
  return l.layer_norm(module + ".post_layernorm", x, s.eps);
}

}  // namespace tessera
