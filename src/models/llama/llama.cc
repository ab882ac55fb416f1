// SPDX-License-Identifier: Apache-2.0
#include "models/llama/llama.h"

#include <cmath>

#include "import/checkpoints/json_fields.h"
#include "models/layer_builder.h"
#include "models/rotary_angles.h"

namespace tessera {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 24;
constexpr int64_t kDefaultTokens = 1;

struct Settings {
  int64_t width, layers, heads, kv_heads, head, hidden, vocabulary, positions;
  double eps, theta;
  bool tied, attention_bias, mlp_bias;
};

struct Sizes {
  int64_t batch, tokens, cache;
};

// Models that have a Llama's tensors and compute something else with them are refused, not read as one.
Status check_plain_llama(const nlohmann::json& c) {
  TS_ASSIGN(const std::string type, json_word(c, "model_type", "llama"));
  if (type != "llama")
    return bad_input(cat("config.json: model_type '", shown_name(type), "' is no plain Llama; 'llama' is read"));
  for (const char* key : {"rope_scaling", "sliding_window", "partial_rotary_factor"}) {
    const auto it = c.find(key);
    const bool plain = it == c.end() || it->is_null() || (it->is_number() && it->get<double>() == 1) ||
                       (it->is_object() && it->contains("rope_type") && (*it)["rope_type"] == "default");
    if (!plain)
      return bad_input(cat("config.json: '", key,
                           "' is not supported; plain rotary positions and attention over all "
                           "keys are"));
  }
  return {};
}

// As older files have it, or in `rope_parameters`.
Result<double> rope_theta(const nlohmann::json& c) {
  const auto it = c.find("rope_parameters");
  if (it == c.end() || it->is_null()) return json_number(c, "rope_theta", 10000.0);
  if (!it->is_object()) return bad_input("config.json: 'rope_parameters' is not an object");
  TS_ASSIGN(const std::string type, json_word(*it, "rope_type", "default"));
  if (type != "default")
    return bad_input(cat("config.json: rope_type '", shown_name(type), "' is not supported; 'default' is"));
  return json_number(*it, "rope_theta", 10000.0);
}

Result<Settings> read_settings(const nlohmann::json& c) {
  TS_TRY(check_plain_llama(c));
  Settings s{};
  const auto size = [&](const char* key, int64_t fallback, int64_t* into) -> Status {
    TS_ASSIGN(*into, json_integer(c, key, fallback));
    if (*into < 1 || *into > kMostSize)
      return bad_input(cat("config.json: '", key, "' is ", *into, "; a size from 1 to ", kMostSize, " is wanted"));
    return {};
  };
  TS_TRY(size("hidden_size", 0, &s.width));
  TS_TRY(size("num_hidden_layers", 0, &s.layers));
  TS_TRY(size("num_attention_heads", 0, &s.heads));
  TS_TRY(size("num_key_value_heads", s.heads, &s.kv_heads));
  TS_TRY(size("head_dim", std::max<int64_t>(1, s.width / s.heads), &s.head));
  TS_TRY(size("intermediate_size", 0, &s.hidden));
  TS_TRY(size("vocab_size", 0, &s.vocabulary));
  TS_TRY(size("max_position_embeddings", 2048, &s.positions));
  if (s.heads % s.kv_heads != 0 || s.head % 2 != 0)
    return bad_input(cat("config.json: ", s.heads, " heads over ", s.kv_heads, " key heads of ", s.head,
                         " numbers; heads must be a multiple of key heads, and a head has an even size"));
  TS_ASSIGN(s.eps, json_number(c, "rms_norm_eps", 1e-6));
  TS_ASSIGN(s.theta, rope_theta(c));
  if (!(s.theta > 0)) return bad_input(cat("config.json: 'rope_theta' is ", s.theta, "; a positive number is wanted"));
  TS_ASSIGN(s.tied, json_truth(c, "tie_word_embeddings", false));
  TS_ASSIGN(s.attention_bias, json_truth(c, "attention_bias", false));
  TS_ASSIGN(s.mlp_bias, json_truth(c, "mlp_bias", false));
  TS_ASSIGN(const std::string act, json_word(c, "hidden_act", "silu"));
  if (act != "silu") return bad_input(cat("config.json: hidden_act '", shown_name(act), "' is not known; silu is"));
  return s;
}

class LlamaGraph {
 public:
  LlamaGraph(Graph& graph, Checkpoint& checkpoint, const Settings& settings, const Sizes& sizes)
      : g_(graph), s_(settings), n_(sizes), l_(graph, checkpoint) {}

  Status build() {
    const ValueId ids = l_.input("input_ids", {n_.batch, n_.tokens}, Element::i64);
    length_ = l_.input("past_length", {n_.batch}, Element::i32);
    TS_ASSIGN(angles_, angles_from(l_, length_, n_.tokens, n_.cache, {.head = s_.head, .base = s_.theta}));
    TS_ASSIGN(const ValueId table, l_.constant("model.embed_tokens.weight", {s_.vocabulary, s_.width}));
    TS_ASSIGN(ValueId x, l_.b.emit("gather", {table, ids}, {}, "model.embed_tokens"));
    for (int64_t i = 0; i < s_.layers; ++i) {
      TS_ASSIGN(x, layer(cat("model.layers.", i), x));
    }
    TS_ASSIGN(x, norm("model.norm", x));
    TS_ASSIGN(const ValueId logits,
              s_.tied ? l_.b.emit("matmul", {x, table}, {}, "lm_head") : l_.linear("lm_head", x, s_.vocabulary, false));
    g_.at(logits).name = "logits";
    g_.outputs.insert(g_.outputs.begin(), logits);
    for (StatePair& s : g_.states) ++*s.output;  // the logits come first
    return {};
  }

 private:
  Result<ValueId> norm(const std::string& module, ValueId x) {
    TS_ASSIGN(const ValueId gain, l_.constant(module + ".weight", {s_.width}));
    return l_.b.emit("norm", {x, gain}, {{"kind", std::string("rms")}, {"eps", s_.eps}}, module);
  }

  // [b, tokens, heads, size]
  Result<ValueId> heads(const std::string& module, ValueId x, int64_t count) {
    TS_ASSIGN(const ValueId y, l_.linear(module, x, count * s_.head, s_.attention_bias));
    return l_.b.reshape(y, {n_.batch, n_.tokens, count, s_.head});
  }

  Result<ValueId> rotated(const std::string& name, ValueId x) {
    return l_.b.emit("rotary", {x, angles_.cos, angles_.sin}, {}, name);
  }

  // New rows behind the valid ones of a cache, which the next run finds there.
  Result<ValueId> cached(const std::string& name, ValueId rows) {
    const ValueId before = l_.input(name, {n_.batch, n_.cache, s_.kv_heads, s_.head}, Element::f32);
    TS_ASSIGN(const ValueId after,
              l_.b.emit("write", {before, rows, length_}, {{"axis", int64_t{1}}}, name + ".write"));
    g_.at(after).name = name + ".after";
    g_.states.push_back({.input = g_.inputs.size() - 1, .output = g_.outputs.size()});
    g_.outputs.push_back(after);
    return after;
  }

  Result<ValueId> attend(const std::string& layer, ValueId x) {
    const std::string module = layer + ".self_attn";
    TS_ASSIGN(ValueId q, heads(module + ".q_proj", x, s_.heads));
    TS_ASSIGN(ValueId k, heads(module + ".k_proj", x, s_.kv_heads));
    TS_ASSIGN(ValueId v, heads(module + ".v_proj", x, s_.kv_heads));
    TS_ASSIGN(q, rotated(module + ".q_rotary", q));
    TS_ASSIGN(k, rotated(module + ".k_rotary", k));
    TS_ASSIGN(k, cached(layer + ".key", k));
    TS_ASSIGN(v, cached(layer + ".value", v));
    Node node{.name = module, .op = "attention", .inputs = {q, k, v, kNoValue, length_}};
    node.attrs.set("scale", 1 / std::sqrt(static_cast<double>(s_.head)));
    node.attrs.set("causal", int64_t{1});
    node.attrs.set("fresh", n_.tokens);
    TS_ASSIGN(ValueId y, l_.b.emit(std::move(node)));
    TS_ASSIGN(y, l_.b.reshape(y, {n_.batch, n_.tokens, s_.heads * s_.head}));
    return l_.linear(module + ".o_proj", y, s_.width, s_.attention_bias);
  }

  Result<ValueId> layer(const std::string& name, ValueId x) {
    TS_ASSIGN(ValueId y, norm(name + ".input_layernorm", x));
    TS_ASSIGN(y, attend(name, y));
    TS_ASSIGN(x, l_.add(x, y, name + ".self_attn.residual"));
    TS_ASSIGN(y, norm(name + ".post_attention_layernorm", x));
    TS_ASSIGN(ValueId gate, l_.linear(name + ".mlp.gate_proj", y, s_.hidden, s_.mlp_bias));
    TS_ASSIGN(gate, l_.b.map("silu", {gate}, name + ".mlp.act"));
    TS_ASSIGN(const ValueId up, l_.linear(name + ".mlp.up_proj", y, s_.hidden, s_.mlp_bias));
    TS_ASSIGN(y, l_.b.map("mul", {gate, up}, name + ".mlp.mul"));
    TS_ASSIGN(y, l_.linear(name + ".mlp.down_proj", y, s_.width, s_.mlp_bias));
    return l_.add(x, y, name + ".mlp.residual");
  }

  Graph& g_;
  const Settings& s_;
  const Sizes& n_;
  LayerBuilder l_;
  ValueId length_ = kNoValue;
  RotaryAngles angles_{};
};

// Angles are counted; a head that is the embedding is stored once.
std::vector<std::string> harmless() { return {"model.layers.*.self_attn.rotary_emb.inv_freq", "lm_head.weight"}; }

}  // namespace

Result<Graph> llama_graph(Checkpoint& checkpoint, const FamilySizes& asked) {
  TS_ASSIGN(const Settings s, read_settings(checkpoint.config()));
  const Sizes sizes{asked.batch, asked.get("tokens", kDefaultTokens), asked.get("cache", s.positions)};
  if (sizes.tokens > sizes.cache || sizes.cache > s.positions)
    return usage_error(cat("sizes tokens=", sizes.tokens, ", cache=", sizes.cache,
                           ": new tokens fit the cache, and the cache the model's ", s.positions, " positions"));
  Graph graph;
  TS_TRY(LlamaGraph(graph, checkpoint, s, sizes).build());
  return graph;
}

extern const Family llama_family;
const Family llama_family{
    nullptr, nullptr, llama_graph, harmless, {{"tokens", "new tokens in a run"}, {"cache", "rows of the KV caches"}}};

}  // namespace tessera
