// SPDX-License-Identifier: Apache-2.0
// SigLIP's vision model, from checkpoints in the names of transformers' SiglipVisionModel (or of a model that holds
// one): pixel_values -> last_hidden_state [b, patches, width], and pooler_output [b, width] where the checkpoint has
// the pooling head: attention of one learnt query over all patches, a norm and an MLP.
#include <cmath>

#include "import/checkpoints/json_fields.h"
#include "models/siglip_tower.h"
#include "models/zoo.h"

namespace tessera {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 24;

Result<SiglipSettings> read_settings(const nlohmann::json& whole) {
  const auto part = whole.find("vision_config");
  const nlohmann::json& c = part != whole.end() && part->is_object() ? *part : whole;
  SiglipSettings s{};
  const std::tuple<const char*, int64_t*, int64_t> sizes[] = {
      {"image_size", &s.image, 224},        {"patch_size", &s.patch, 16},          {"hidden_size", &s.width, 768},
      {"num_hidden_layers", &s.layers, 12}, {"num_attention_heads", &s.heads, 12}, {"intermediate_size", &s.mlp, 3072}};
  for (const auto& [key, into, otherwise] : sizes) {
    TS_ASSIGN(*into, json_integer(c, key, otherwise));
    if (*into < 1 || *into > (into == &s.layers ? 1000 : kMostSize))
      return bad_input(cat("config.json: '", key, "' is ", *into, "; a positive size is wanted"));
  }
  TS_ASSIGN(s.eps, json_number(c, "layer_norm_eps", 1e-6));
  TS_ASSIGN(const std::string act, json_word(c, "hidden_act", "gelu_pytorch_tanh"));
  if (act != "gelu_pytorch_tanh")
    return bad_input(cat("config.json: hidden_act '", shown_name(act), "' is not known; gelu_pytorch_tanh is"));
  if (s.image % s.patch != 0 || s.width % s.heads != 0)
    return bad_input(cat("config.json: image_size ", s.image, " in patches of ", s.patch, ", hidden_size ", s.width,
                         " in ", s.heads, " heads: these divide without a rest"));
  return s;
}

class Pooling {
 public:
  Pooling(LayerBuilder& layers, std::string module, const SiglipSettings& settings)
      : l_(layers), module_(std::move(module)), s_(settings) {}

  // x [b, patches, width] -> [b, width]
  Result<ValueId> pooled(ValueId x) {
    const Shape in = l_.b.shape(x);
    TS_ASSIGN(const ValueId probe, l_.constant(module_ + ".probe", {1, 1, s_.width}));
    TS_ASSIGN(weights_, l_.constant(module_ + ".attention.in_proj_weight", {3 * s_.width, s_.width}));
    TS_ASSIGN(biases_, l_.constant(module_ + ".attention.in_proj_bias", {3 * s_.width}));
    TS_ASSIGN(ValueId q, l_.b.expand(probe, {in[0], 1, s_.width}));
    TS_ASSIGN(q, projected(q, 0, ".q"));
    TS_ASSIGN(const ValueId k, projected(x, 1, ".k"));
    TS_ASSIGN(const ValueId v, projected(x, 2, ".v"));
    const double scale = 1 / std::sqrt(static_cast<double>(s_.width / s_.heads));
    TS_ASSIGN(ValueId y, l_.b.emit("attention", {q, k, v}, {{"scale", scale}}, module_ + ".attention"));
    TS_ASSIGN(y, l_.b.reshape(y, {in[0], 1, s_.width}));
    TS_ASSIGN(y, l_.linear(module_ + ".attention.out_proj", y, s_.width));
    TS_ASSIGN(ValueId z, l_.layer_norm(module_ + ".layernorm", y, s_.eps));
    TS_ASSIGN(z, l_.linear(module_ + ".mlp.fc1", z, s_.mlp));
    TS_ASSIGN(z, l_.b.map("gelu_tanh", {z}, module_ + ".mlp.act"));
    TS_ASSIGN(z, l_.linear(module_ + ".mlp.fc2", z, s_.width));
    TS_ASSIGN(y, l_.add(y, z, module_ + ".mlp.residual"));
    return l_.b.reshape(y, {in[0], s_.width});
  }

 private:
  // Third `part` of the joined projection, as heads.
  Result<ValueId> projected(ValueId x, int64_t part, const char* name) {
    const Shape in = l_.b.shape(x);
    TS_ASSIGN(const ValueId w, l_.b.slice(weights_, 0, part * s_.width, 1, s_.width));
    TS_ASSIGN(const ValueId bias, l_.b.slice(biases_, 0, part * s_.width, 1, s_.width));
    TS_ASSIGN(ValueId y, l_.b.emit("matmul", {x, w}, {}, module_ + ".attention" + name));
    TS_ASSIGN(y, l_.b.map("add", {y, bias}, module_ + ".attention" + name));
    return l_.b.reshape(y, {in[0], in[1], s_.heads, s_.width / s_.heads});
  }

  LayerBuilder& l_;
  const std::string module_;
  const SiglipSettings& s_;
  ValueId weights_ = kNoValue, biases_ = kNoValue;
};

Result<Graph> siglip_graph(Checkpoint& checkpoint, const FamilySizes& asked) {
  TS_ASSIGN(const SiglipSettings s, read_settings(checkpoint.config()));
  std::string module;
  for (const char* before : {"", "vision_tower.", "model.vision_tower."}) {
    const std::string at = cat(before, "vision_model");
    if (checkpoint.tensors().has(at + ".embeddings.patch_embedding.weight")) module = at;
  }
  if (module.empty())
    return bad_input(
        "tensor 'vision_model.embeddings.patch_embedding.weight' is missing, with and without 'vision_tower.' before "
        "it: no checkpoint of SigLIP");
  for (const auto& [name, shape] : siglip_tensors(module, s)) TS_TRY(checkpoint.tensors().expect(name, shape));
  Graph graph;
  LayerBuilder l(graph, checkpoint);
  const ValueId pixels = l.input("pixel_values", {asked.batch, 3, s.image, s.image}, Element::f32);
  TS_ASSIGN(const ValueId x, siglip_tower(l, module, s, pixels));
  graph.at(x).name = "last_hidden_state";
  graph.outputs.push_back(x);
  if (!checkpoint.tensors().has(module + ".head.probe")) return graph;
  TS_ASSIGN(const ValueId pooled, Pooling(l, module + ".head", s).pooled(x));
  graph.at(pooled).name = "pooler_output";
  graph.outputs.push_back(pooled);
  return graph;
}

// The text tower of a whole SigLIP, and what compares the two.
std::vector<std::string> harmless() { return {"text_model.*", "logit_scale", "logit_bias"}; }

// So400m, patch 14, 224 pixels where nothing else is said.
Result<RandomModel> random_siglip(const nlohmann::json& given) {
  const nlohmann::json published = {{"model_type", "siglip_vision_model"},
                                    {"image_size", 224},
                                    {"patch_size", 14},
                                    {"hidden_size", 1152},
                                    {"num_hidden_layers", 27},
                                    {"num_attention_heads", 16},
                                    {"intermediate_size", 4304},
                                    {"layer_norm_eps", 1e-6},
                                    {"hidden_act", "gelu_pytorch_tanh"}};
  RandomModel model;
  TS_ASSIGN(model.config, completed_config(published, given));
  TS_ASSIGN(const SiglipSettings s, read_settings(model.config));
  std::vector<std::pair<std::string, Shape>> all = siglip_tensors("vision_model", s);
  const std::string head = "vision_model.head.";
  all.push_back({head + "probe", {1, 1, s.width}});
  all.push_back({head + "attention.in_proj_weight", {3 * s.width, s.width}});
  all.push_back({head + "attention.in_proj_bias", {3 * s.width}});
  all.push_back({head + "layernorm.weight", {s.width}});
  all.push_back({head + "layernorm.bias", {s.width}});
  for (const auto& [name, outputs, inputs] :
       {std::tuple{"attention.out_proj", s.width, s.width}, {"mlp.fc1", s.mlp, s.width}, {"mlp.fc2", s.width, s.mlp}}) {
    all.push_back({cat(head, name, ".weight"), {outputs, inputs}});
    all.push_back({cat(head, name, ".bias"), {outputs}});
  }
  for (auto& [name, shape] : all) {
    model.tensors.push_back(random_tensor(name, shape));
    if (name == head + "layernorm.weight") model.tensors.back().mean = 1;  // a LayerNorm's, nothing is added to it
  }
  return model;
}

}  // namespace

extern const Family siglip_family;
const Family siglip_family{nullptr, nullptr, siglip_graph, harmless, {}, nullptr, random_siglip};

}  // namespace tessera
