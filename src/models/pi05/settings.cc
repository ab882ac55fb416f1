// SPDX-License-Identifier: Apache-2.0
#include "models/pi05/settings.h"

#include <tuple>

#include "import/checkpoints/json_fields.h"

namespace tessera {
namespace {

constexpr int64_t kHead = 256;  // of Gemma, where config.json does not say
constexpr int64_t kVisionHead = 72;
constexpr int64_t kVisionWidth = 1152;  // of SigLIP So400m
constexpr int64_t kMostSize = int64_t{1} << 24;

class Reader {
 public:
  explicit Reader(Checkpoint& checkpoint) : c_(checkpoint), config_(checkpoint.config()) {}

  Result<PolicySettings> read() {
    TS_TRY(find_names());
    TS_TRY(read_vision());
    TS_TRY(read_language());
    TS_TRY(read_policy());
    TS_TRY(check_tensors());
    return s_;
  }

 private:
  // Size `axis` of a tensor that must be there.
  Result<int64_t> size(const std::string& name, size_t axis) const {
    const SafetensorsEntry* t = c_.tensors().find(name);
    if (t == nullptr)
      return bad_input(cat("tensor '", shown_name(name), "' is missing: no checkpoint of pi0 or pi0.5"));
    if (axis >= t->shape.size() || t->shape[axis] < 1 || t->shape[axis] > kMostSize)
      return bad_input(cat("tensor '", shown_name(name), "' has the shape ", to_string(t->shape), "; ", axis + 1,
                           " axes of 1 to ", kMostSize, " are wanted"));
    return t->shape[axis];
  }
  int64_t count_layers(const std::string& before, const std::string& after) const {
    int64_t n = 0;
    while (c_.tensors().has(cat(before, n, after))) ++n;
    return n;
  }
  // By any of the names that a tool gives it.
  Result<int64_t> number(std::initializer_list<const char*> keys, int64_t otherwise) const {
    for (const char* key : keys) {
      TS_ASSIGN(const int64_t n, json_integer(config_, key, 0));
      if (n == 0) continue;
      if (n < 1 || n > kMostSize)
        return bad_input(cat("config.json: '", key, "' is ", n, "; a number from 1 to ", kMostSize, " is wanted"));
      return n;
    }
    return otherwise;
  }

  Status find_names() {
    for (const char* prefix : {"", "model."}) {
      if (c_.tensors().has(cat(prefix, "action_in_proj.weight"))) {
        s_.prefix = prefix;
        s_.pi05 = c_.tensors().has(cat(prefix, "time_mlp_in.weight"));
        const std::string table = s_.paligemma() + "language_model.embed_tokens.weight";
        s_.embedding = c_.tensors().has(table) ? table : s_.prefix + "paligemma_with_expert.paligemma.lm_head.weight";
        TS_ASSIGN(const bool said, json_truth(config_, "pi05", s_.pi05));
        if (said != s_.pi05)
          return bad_input(cat("config.json says that this is ", said ? "pi0.5" : "pi0",
                               ", and the tensors are those of ",
                               s_.pi05 ? "pi0.5 (time_mlp_in)" : "pi0 (no time_mlp_in)"));
        return {};
      }
    }
    return bad_input(
        "tensor 'action_in_proj.weight' is missing, with and without 'model.' before it: no checkpoint of "
        "pi0 or pi0.5");
  }

  Status read_vision() {
    const std::string tower = s_.paligemma() + "vision_tower.vision_model.";
    SiglipSettings& v = s_.vision;
    TS_ASSIGN(v.width, size(tower + "embeddings.patch_embedding.weight", 0));
    TS_ASSIGN(v.patch, size(tower + "embeddings.patch_embedding.weight", 3));
    TS_ASSIGN(const int64_t patches, size(tower + "embeddings.position_embedding.weight", 0));
    int64_t side = 1;
    while (side * side < patches) ++side;
    v.image = side * v.patch;
    v.layers = count_layers(tower + "encoder.layers.", ".mlp.fc1.weight");
    if (v.layers > 0) {
      TS_ASSIGN(v.mlp, size(tower + "encoder.layers.0.mlp.fc1.weight", 0));
    }
    // Tensors do not tell how many heads share their columns.
    TS_ASSIGN(v.heads, number({"v_heads"}, v.width == kVisionWidth ? kVisionWidth / kVisionHead : 0));
    if (v.heads == 0)
      return bad_input(cat("the vision tower has ", v.width, " columns, the published one ", kVisionWidth,
                           ": config.json must say its heads as 'v_heads'"));
    if (side * side != patches || v.layers == 0 || v.width % v.heads != 0)
      return bad_input(cat("the vision tower has ", patches, " positions, ", v.layers, " layers and ", v.heads,
                           " heads over ", v.width,
                           " columns: a square of positions, a layer and equal heads are wanted"));
    TS_ASSIGN(v.eps, json_number(config_, "ln_eps", 1e-6));
    return {};
  }

  Result<GemmaSettings> read_gemma(const std::string& module) {
    GemmaSettings g{};
    TS_ASSIGN(g.head, number({"head_dim"}, kHead));
    TS_ASSIGN(g.width, size(module + "layers.0.self_attn.q_proj.weight", 1));
    TS_ASSIGN(const int64_t q, size(module + "layers.0.self_attn.q_proj.weight", 0));
    TS_ASSIGN(const int64_t k, size(module + "layers.0.self_attn.k_proj.weight", 0));
    TS_ASSIGN(g.mlp, size(module + "layers.0.mlp.gate_proj.weight", 0));
    g.heads = q / g.head, g.kv_heads = k / g.head;
    if (q % g.head != 0 || k % g.head != 0 || g.head % 2 != 0 || g.kv_heads == 0 || g.heads % g.kv_heads != 0)
      return bad_input(cat("heads of ", g.head, " numbers do not fit ", q, " columns of queries and ", k,
                           " of keys; config.json may say another size as 'head_dim'"));
    TS_ASSIGN(g.eps, json_number(config_, "rms_eps", 1e-6));
    return g;
  }

  Status read_language() {
    TS_ASSIGN(s_.language, read_gemma(s_.paligemma() + "language_model."));
    TS_ASSIGN(s_.expert, read_gemma(s_.gemma_expert()));
    s_.layers = count_layers(s_.paligemma() + "language_model.layers.", ".self_attn.q_proj.weight");
    const int64_t expert = count_layers(s_.gemma_expert() + "layers.", ".self_attn.q_proj.weight");
    const GemmaSettings &a = s_.language, &b = s_.expert;
    if (s_.layers != expert || a.kv_heads != b.kv_heads || a.heads != b.heads)
      return bad_input(cat("the language model has ", s_.layers, " layers of ", a.heads, " heads on ", a.kv_heads,
                           ", the expert ", expert, " of ", b.heads, " on ", b.kv_heads,
                           ": the expert reads the language model's keys, so these are the same"));
    TS_ASSIGN(s_.vocabulary, size(s_.embedding, 0));
    TS_ASSIGN(s_.rope_base, json_number(config_, "rope_base", 10000.0));
    return {};
  }

  Status read_policy() {
    TS_ASSIGN(s_.action, size(s_.prefix + "action_in_proj.weight", 1));
    TS_ASSIGN(s_.horizon, number({"horizon", "action_horizon", "chunk_size"}, 50));
    TS_ASSIGN(s_.prompt, number({"max_token_len", "tokenizer_max_length"}, s_.pi05 ? 200 : 48));
    TS_ASSIGN(s_.steps, number({"num_steps", "num_inference_steps"}, 10));
    TS_ASSIGN(s_.min_period, json_number(config_, "min_period", 4e-3));
    TS_ASSIGN(s_.max_period, json_number(config_, "max_period", 4.0));
    if (!(s_.min_period > 0) || !(s_.max_period >= s_.min_period) || !(s_.rope_base > 0))
      return bad_input("config.json: 'min_period', 'max_period' and 'rope_base' are positive, the first two in order");
    return {};
  }

  Status check_tensors() {
    for (const auto& [name, shape] : policy_tensors(s_)) TS_TRY(c_.tensors().expect(name, shape));
    return {};
  }

  Checkpoint& c_;
  const nlohmann::json& config_;
  PolicySettings s_{};
};

}  // namespace

Result<PolicySettings> read_policy_settings(Checkpoint& checkpoint) { return Reader(checkpoint).read(); }

std::vector<std::pair<std::string, Shape>> policy_tensors(const PolicySettings& s) {
  const int64_t e = s.expert.width;
  std::vector<std::pair<std::string, Shape>> all =
      siglip_tensors(s.paligemma() + "vision_tower.vision_model", s.vision);
  const auto linear = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    all.push_back({name + ".weight", {outputs, inputs}});
    all.push_back({name + ".bias", {outputs}});
  };
  linear(s.paligemma() + "multi_modal_projector.linear", s.language.width, s.vision.width);
  all.push_back({s.embedding, {s.vocabulary, s.language.width}});
  for (int64_t i = 0; i < s.layers; ++i) {
    for (auto& t : gemma_tensors(cat(s.paligemma(), "language_model.layers.", i), s.language, false)) all.push_back(t);
    for (auto& t : gemma_tensors(cat(s.gemma_expert(), "layers.", i), s.expert, s.pi05)) all.push_back(t);
  }
  if (s.pi05) {
    linear(s.gemma_expert() + "norm.dense", 3 * e, e);
    linear(s.prefix + "time_mlp_in", e, e);
    linear(s.prefix + "time_mlp_out", e, e);
  } else {
    all.push_back({s.gemma_expert() + "norm.weight", {e}});
    linear(s.prefix + "state_proj", e, s.action);
    linear(s.prefix + "action_time_mlp_in", e, 2 * e);
    linear(s.prefix + "action_time_mlp_out", e, e);
  }
  linear(s.prefix + "action_in_proj", e, s.action);
  linear(s.prefix + "action_out_proj", s.action, e);
  return all;
}

namespace {

// π0.5 as published.
nlohmann::json published() {
  return {{"pi05", true},     {"image_size", 224}, {"patch", 14},    {"v_width", 1152},    {"v_layers", 27},
          {"v_heads", 16},    {"v_mlp", 4304},     {"width", 2048},  {"mlp", 16384},       {"e_width", 1024},
          {"e_mlp", 4096},    {"layers", 18},      {"heads", 8},     {"kv_heads", 1},      {"head_dim", kHead},
          {"vocab", 257152},  {"action_dim", 32},  {"horizon", 50},  {"num_steps", 10},    {"max_token_len", 200},
          {"rope_base", 1e4}, {"rms_eps", 1e-6},   {"ln_eps", 1e-6}, {"min_period", 4e-3}, {"max_period", 4.0}};
}

Result<PolicySettings> settings_of(const nlohmann::json& c) {
  PolicySettings s{};
  s.embedding = s.paligemma() + "language_model.embed_tokens.weight";
  TS_ASSIGN(s.pi05, json_truth(c, "pi05", true));
  SiglipSettings& v = s.vision;
  GemmaSettings &l = s.language, &e = s.expert;
  constexpr int64_t kMostLayers = 1000;
  const std::tuple<const char*, int64_t*, int64_t> sizes[] = {
      {"image_size", &v.image, kMostSize},  {"patch", &v.patch, kMostSize},     {"v_width", &v.width, kMostSize},
      {"v_layers", &v.layers, kMostLayers}, {"v_heads", &v.heads, kMostSize},   {"v_mlp", &v.mlp, kMostSize},
      {"width", &l.width, kMostSize},       {"mlp", &l.mlp, kMostSize},         {"e_width", &e.width, kMostSize},
      {"e_mlp", &e.mlp, kMostSize},         {"layers", &s.layers, kMostLayers}, {"heads", &l.heads, kMostSize},
      {"kv_heads", &l.kv_heads, kMostSize}, {"head_dim", &l.head, kMostSize},   {"vocab", &s.vocabulary, kMostSize},
      {"action_dim", &s.action, kMostSize}};
  for (const auto& [key, into, most] : sizes) {
    TS_ASSIGN(*into, json_integer(c, key, 0));
    if (*into < 1 || *into > most)
      return bad_input(cat("'", key, "' is ", *into, "; a number from 1 to ", most, " is wanted"));
  }
  e.heads = l.heads, e.kv_heads = l.kv_heads, e.head = l.head;
  if (v.image % v.patch != 0 || v.width % v.heads != 0 || l.heads % l.kv_heads != 0 || l.head % 2 != 0)
    return bad_input(cat("image_size ", v.image, " in patches of ", v.patch, ", v_width ", v.width, " in ", v.heads,
                         " heads, ", l.heads, " heads on ", l.kv_heads, " of ", l.head,
                         " numbers: these divide without a rest, and a head has an even size"));
  return s;
}

}  // namespace

Result<RandomModel> random_policy(const nlohmann::json& given) {
  nlohmann::json known = published();
  TS_ASSIGN(const bool pi05, json_truth(given, "pi05", true));
  if (!pi05) known["max_token_len"] = 48;
  RandomModel model;
  TS_ASSIGN(model.config, completed_config(known, given));
  TS_ASSIGN(const PolicySettings s, settings_of(model.config));
  for (auto& [name, shape] : policy_tensors(s)) model.tensors.push_back(random_tensor(name, shape));
  // Has no influence; the published files have it.
  model.tensors.push_back(random_tensor(s.paligemma() + "language_model.norm.weight", {s.language.width}));
  return model;
}

}  // namespace tessera
