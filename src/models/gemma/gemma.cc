// SPDX-License-Identifier: Apache-2.0
// Gemma as a language model, from checkpoints in the names of transformers' GemmaForCausalLM: new tokens and the number
// of those before them -> logits; keys and values are states, so that one graph prefills and another decodes.
#include <cmath>

#include "import/checkpoints/json_fields.h"
#include "models/gemma_layers.h"
#include "models/zoo.h"

namespace tessera {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 24;
constexpr const char* kTable = "model.embed_tokens.weight";

struct Settings {
  GemmaSettings layer;
  int64_t layers, vocabulary, positions;
  double theta;
};

struct Sizes {
  int64_t batch, tokens, cache;
};

// Later Gemmas have the same tensors and more norms, windows and soft caps: they are refused, not read as this one.
Status check_first_gemma(const nlohmann::json& c) {
  TS_ASSIGN(const std::string type, json_word(c, "model_type", "gemma"));
  if (type != "gemma")
    return bad_input(cat("config.json: model_type '", shown_name(type), "' is no first Gemma; 'gemma' is read"));
  TS_ASSIGN(const std::string act, json_word(c, "hidden_activation", "gelu_pytorch_tanh"));
  if (act != "gelu_pytorch_tanh")
    return bad_input(cat("config.json: hidden_activation '", shown_name(act), "' is not known; gelu_pytorch_tanh is"));
  if (const auto scaling = c.find("rope_scaling"); scaling != c.end() && !scaling->is_null())
    return bad_input("config.json: 'rope_scaling' is not supported; plain rotary positions are");
  TS_ASSIGN(const bool bias, json_truth(c, "attention_bias", false));
  return bias ? bad_input("config.json: 'attention_bias' is not supported: Gemma has none") : Status();
}

Result<double> rope_theta(const nlohmann::json& c) {
  const auto it = c.find("rope_parameters");
  return it != c.end() && it->is_object() ? json_number(*it, "rope_theta", 1e4) : json_number(c, "rope_theta", 1e4);
}

Result<Settings> read_settings(const nlohmann::json& c) {
  TS_TRY(check_first_gemma(c));
  Settings s{};
  GemmaSettings& l = s.layer;
  const std::tuple<const char*, int64_t*, int64_t> sizes[] = {{"hidden_size", &l.width, 0},
                                                              {"intermediate_size", &l.mlp, 0},
                                                              {"num_hidden_layers", &s.layers, 0},
                                                              {"num_attention_heads", &l.heads, 0},
                                                              {"num_key_value_heads", &l.kv_heads, 0},
                                                              {"head_dim", &l.head, 256},
                                                              {"vocab_size", &s.vocabulary, 256000},
                                                              {"max_position_embeddings", &s.positions, 8192}};
  for (const auto& [key, into, otherwise] : sizes) {
    TS_ASSIGN(*into, json_integer(c, key, otherwise));
    if (*into < 1 || *into > (into == &s.layers ? 1000 : kMostSize))
      return bad_input(cat("config.json: '", key, "' is ", *into, "; a positive size is wanted"));
  }
  TS_ASSIGN(l.eps, json_number(c, "rms_norm_eps", 1e-6));
  TS_ASSIGN(s.theta, rope_theta(c));
  if (l.heads % l.kv_heads != 0 || l.head % 2 != 0 || !(s.theta > 0))
    return bad_input(cat("config.json: ", l.heads, " heads over ", l.kv_heads, " key heads of ", l.head,
                         " numbers, rope_theta ", s.theta,
                         "; heads are a multiple of key heads, a head has an even size, rope_theta is positive"));
  return s;
}

class GemmaGraph {
 public:
  GemmaGraph(Graph& graph, Checkpoint& checkpoint, const Settings& settings, const Sizes& sizes)
      : g_(graph), s_(settings), n_(sizes), l_(graph, checkpoint) {}

  Status build() {
    const ValueId ids = l_.input("input_ids", {n_.batch, n_.tokens}, Element::i64);
    const ValueId length = l_.input("past_length", {n_.batch}, Element::i32);
    TS_ASSIGN(const RotaryAngles angles,
              angles_from(l_, length, n_.tokens, n_.cache, {.head = s_.layer.head, .base = s_.theta}));
    TS_ASSIGN(const ValueId table, l_.constant(kTable, {s_.vocabulary, s_.layer.width}));
    TS_ASSIGN(ValueId x, l_.b.emit("gather", {table, ids}, {}, "model.embed_tokens"));
    const ValueId root = l_.b.scalar(std::sqrt(static_cast<double>(s_.layer.width)), Element::f32);
    TS_ASSIGN(x, l_.b.map("mul", {x, root}, "model.embed_tokens.scale"));
    GemmaLayers layers(l_, s_.layer, angles);
    for (int64_t i = 0; i < s_.layers; ++i) {
      const std::string name = cat("model.layers.", i);
      const Shape rows = {n_.batch, n_.cache, s_.layer.kv_heads, s_.layer.head};
      GemmaCache cache{.keys = l_.input(name + ".key", rows, Element::f32),
                       .values = l_.input(name + ".value", rows, Element::f32),
                       .at = length,
                       .lengths = length,
                       .fresh = n_.tokens,
                       .bias = kNoValue,
                       .causal = true};
      const size_t port = g_.inputs.size() - 2;
      TS_ASSIGN(x, layers.layer(name, x, cache));
      keep(name + ".key", port, cache.keys);
      keep(name + ".value", port + 1, cache.values);
    }
    TS_ASSIGN(x, layers.norm("model.norm", x));
    TS_ASSIGN(const ValueId logits, l_.b.emit("matmul", {x, table}, {}, "lm_head"));
    g_.at(logits).name = "logits";
    g_.outputs.insert(g_.outputs.begin(), logits);
    for (StatePair& s : g_.states) ++*s.output;  // the logits come first
    return {};
  }

 private:
  // The next run finds `after` in the place of input number `port`.
  void keep(const std::string& name, size_t port, ValueId after) {
    g_.at(after).name = name + ".after";
    g_.states.push_back({.input = port, .output = g_.outputs.size()});
    g_.outputs.push_back(after);
  }

  Graph& g_;
  const Settings& s_;
  const Sizes& n_;
  LayerBuilder l_;
};

Result<Graph> gemma_graph(Checkpoint& checkpoint, const FamilySizes& asked) {
  TS_ASSIGN(const Settings s, read_settings(checkpoint.config()));
  const Sizes sizes{asked.batch, asked.get("tokens", 1), asked.get("cache", s.positions)};
  if (sizes.tokens > sizes.cache || sizes.cache > s.positions)
    return usage_error(cat("sizes tokens=", sizes.tokens, ", cache=", sizes.cache,
                           ": new tokens fit the cache, and the cache the model's ", s.positions, " positions"));
  Graph graph;
  TS_TRY(GemmaGraph(graph, checkpoint, s, sizes).build());
  return graph;
}

// The embedding under its other name, and angles, which are counted.
std::vector<std::string> harmless() { return {"lm_head.weight", "model.layers.*.self_attn.rotary_emb.inv_freq"}; }

// Gemma 2B where nothing else is said.
Result<RandomModel> random_gemma(const nlohmann::json& given) {
  const nlohmann::json published = {{"model_type", "gemma"},
                                    {"hidden_size", 2048},
                                    {"intermediate_size", 16384},
                                    {"num_hidden_layers", 18},
                                    {"num_attention_heads", 8},
                                    {"num_key_value_heads", 1},
                                    {"head_dim", 256},
                                    {"vocab_size", 256000},
                                    {"max_position_embeddings", 8192},
                                    {"hidden_activation", "gelu_pytorch_tanh"},
                                    {"rms_norm_eps", 1e-6},
                                    {"rope_theta", 1e4}};
  RandomModel model;
  TS_ASSIGN(model.config, completed_config(published, given));
  TS_ASSIGN(const Settings s, read_settings(model.config));
  model.tensors.push_back(random_tensor(kTable, {s.vocabulary, s.layer.width}));
  for (int64_t i = 0; i < s.layers; ++i) {
    for (auto& [name, shape] : gemma_tensors(cat("model.layers.", i), s.layer, /*modulated=*/false))
      model.tensors.push_back(random_tensor(name, shape));
  }
  model.tensors.push_back(random_tensor("model.norm.weight", {s.layer.width}));
  return model;
}

}  // namespace

extern const Family gemma_family;
const Family gemma_family{nullptr,
                          nullptr,
                          gemma_graph,
                          harmless,
                          {{"tokens", "new tokens in a run"}, {"cache", "rows of the KV caches"}},
                          nullptr,
                          random_gemma};

}  // namespace tessera
