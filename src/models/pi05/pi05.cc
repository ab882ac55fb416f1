// SPDX-License-Identifier: Apache-2.0
#include "models/pi05/pi05.h"

#include <cmath>

#include "models/pi05/modulations.h"
#include "models/pi05/settings.h"

namespace tessera {
namespace {

constexpr int64_t kMostViews = 16, kDefaultViews = 3;
constexpr const char *kVision = "vision", *kPrefix = "prefix", *kStep = "step";
// Lower than every score, as the model's authors have it: fits f32 and bf16.
constexpr float kHidden = -2.3819763e38f;

struct Sizes {
  int64_t batch, views, prompt, horizon, steps;
  bool bytes;      // images are u8
  bool bf16_rope;  // rotary frequencies are rounded to bf16
  bool rtc;        // velocities are corrected towards the chunk before (real-time chunking)
};

// One of the three graphs. States have the same names and types in all of them.
class PolicyGraph {
 public:
  PolicyGraph(Graph& graph, Checkpoint& checkpoint, const PolicySettings& settings, const Sizes& sizes)
      : g_(graph), checkpoint_(checkpoint), s_(settings), n_(sizes), l_(graph, checkpoint) {}

  Status vision() {
    TS_ASSIGN(ValueId x, pixels());
    TS_ASSIGN(x, siglip_tower(l_, s_.paligemma() + "vision_tower.vision_model", s_.vision, x));
    TS_ASSIGN(x, l_.linear(s_.paligemma() + "multi_modal_projector.linear", x, s_.language.width));
    TS_ASSIGN(x, l_.b.reshape(x, {n_.batch, image_rows(), s_.language.width}));
    return leave("image_tokens", x, l_.input("image_tokens", l_.b.shape(x), Element::f32));
  }

  Status prefix() {
    const ValueId ids = l_.input("tokens", {n_.batch, n_.prompt}, Element::i64);
    const ValueId images = l_.input("image_rows", {n_.batch}, Element::i32);
    const ValueId valid = l_.input("prefix_rows", {n_.batch}, Element::i32);
    const ValueId seen = l_.input("image_tokens", {n_.batch, image_rows(), s_.language.width}, Element::f32);
    g_.states.push_back({.input = g_.inputs.size() - 1});
    TS_ASSIGN(ValueId x, sequence(ids, seen, images));
    GemmaLayers layers(l_, s_.language, fixed_angles(g_, rows(), frequencies(s_.language)));
    for (int64_t i = 0; i < s_.layers; ++i) {
      const std::string name = cat(s_.paligemma(), "language_model.layers.", i);
      GemmaCache cache = cache_of(i);
      cache.lengths = valid, cache.fresh = 0;
      // Of the last layer only keys and values are read.
      if (i + 1 < s_.layers) {
        TS_ASSIGN(x, layers.layer(name, x, cache));
      } else {
        TS_TRY(layers.keys_and_values(name, x, cache));
      }
      TS_TRY(leave_cache(i, cache));
    }
    return begin_steps(valid);
  }

  Status step() {
    const ValueId x0 = exact(state("x", {n_.batch, n_.horizon, s_.action}, Element::f32));
    const ValueId count = state("step", {n_.batch}, Element::i32);
    length_ = state("length", {n_.batch}, Element::i32);
    TS_TRY(read_modulations(count));
    TS_ASSIGN(ValueId x, action_tokens(x0, count));
    // The suffix lies right behind the valid rows.
    TS_ASSIGN(const RotaryAngles angles, angles_from(l_, length_, suffix(), rows() + suffix(), frequencies(s_.expert)));
    GemmaLayers layers(l_, s_.expert, angles);
    const ValueId bias = suffix_bias();
    for (int64_t i = 0; i < s_.layers; ++i) {
      GemmaCache cache = cache_of(i);
      cache.at = cache.lengths = length_, cache.fresh = suffix(), cache.bias = bias;
      std::vector<Modulation> both;
      if (s_.pi05) {
        both.resize(2);
        TS_ASSIGN(both[0], modulation(2 * i));
        TS_ASSIGN(both[1], modulation(2 * i + 1));
      }
      TS_ASSIGN(x, layers.layer(cat(s_.gemma_expert(), "layers.", i), x, cache, both));
      TS_TRY(leave_cache(i, cache));
    }
    Modulation last{};
    if (s_.pi05) {
      TS_ASSIGN(last, modulation(2 * s_.layers));
    }
    TS_ASSIGN(x, layers.norm(s_.gemma_expert() + "norm", x, s_.pi05 ? &last : nullptr));
    TS_ASSIGN(x, l_.b.slice(exact(x), 1, suffix() - n_.horizon, 1, n_.horizon));
    TS_ASSIGN(const ValueId velocity, exact_linear(s_.prefix + "action_out_proj", x, s_.action));
    return finish_step(x0, velocity, count);
  }

 private:
  int64_t image_rows() const { return n_.views * s_.vision.patches(); }
  int64_t rows() const { return image_rows() + n_.prompt; }
  int64_t suffix() const { return n_.horizon + (s_.pi05 ? 0 : 1); }

  RotaryFrequencies frequencies(const GemmaSettings& g) const {
    return {.head = g.head, .base = s_.rope_base, .bf16 = n_.bf16_rope};
  }

  // [images, 3, side, side] in [-1, 1], from f32 of that form or from bytes [.., side, side, 3].
  Result<ValueId> pixels() {
    const int64_t side = s_.vision.image, images = n_.batch * n_.views;
    if (!n_.bytes) {
      const ValueId given = l_.input("images", {n_.batch, n_.views, 3, side, side}, Element::f32);
      return l_.b.reshape(given, {images, 3, side, side});
    }
    const ValueId given = l_.input("images", {n_.batch, n_.views, side, side, 3}, Element::u8);
    TS_ASSIGN(ValueId x, l_.b.reshape(given, {images, side, side, 3}));
    TS_ASSIGN(x, l_.b.cast(x, Element::f32, "images.f32"));
    TS_ASSIGN(x, l_.b.map("div", {exact(x), l_.b.scalar(127.5, Element::f32)}, "images.scaled"));
    TS_ASSIGN(x, l_.b.map("sub", {exact(x), l_.b.scalar(1, Element::f32)}, "images.centred"));
    return l_.b.permute(exact(x), {0, 3, 1, 2});
  }

  // Numbers that keep f32 in every precision.
  ValueId exact(ValueId id) {
    g_.at(id).exact = true;
    return id;
  }
  // A layer between actions and tokens, whose weights the published model has in f32.
  // `inner`: what it makes is read by another one, in f32 as well.
  Result<ValueId> exact_linear(const std::string& module, ValueId x, int64_t outputs, bool inner = false) {
    const size_t first = g_.values.size();
    TS_ASSIGN(const ValueId y, l_.linear(module, x, outputs));
    for (size_t v = first; v < g_.values.size(); ++v)
      g_.values[v].exact = g_.values[v].exact || inner || g_.values[v].constant;
    return y;
  }
  // Read by this graph; `leave` may give it a new value.
  ValueId state(const std::string& name, const Shape& shape, Element element) {
    const ValueId id = l_.input(name, shape, element);
    g_.states.push_back({.input = g_.inputs.size() - 1});
    return id;
  }
  Status output(const std::string& name, ValueId value) {
    // An input, or a value that has a name already, leaves under another one by a copy.
    const bool own = std::find(g_.inputs.begin(), g_.inputs.end(), value) == g_.inputs.end() &&
                     !g_.at(value).constant &&
                     std::find(g_.outputs.begin(), g_.outputs.end(), value) == g_.outputs.end();
    if (!own) {
      TS_ASSIGN(value, l_.b.emit("copy", {value}, {}, name));
    }
    g_.at(value).name = name;
    g_.outputs.push_back(value);
    return {};
  }
  // What the state holds after this graph. `before`: the input that it is.
  Status leave(const std::string& name, ValueId after, ValueId before) {
    TS_TRY(output(name + ".after", after));
    g_.at(g_.outputs.back()).exact = g_.at(before).exact;
    const size_t port = static_cast<size_t>(std::find(g_.inputs.begin(), g_.inputs.end(), before) - g_.inputs.begin());
    for (StatePair& s : g_.states) {
      if (s.input == port) {
        s.output = g_.outputs.size() - 1;
        return {};
      }
    }
    g_.states.push_back({.input = port, .output = g_.outputs.size() - 1});
    return {};
  }

  GemmaCache cache_of(int64_t layer) {
    const Shape shape = {n_.batch, rows() + suffix(), s_.language.kv_heads, s_.language.head};
    const ValueId keys = state(cat("keys.", layer), shape, Element::f32);
    const ValueId values = state(cat("values.", layer), shape, Element::f32);
    read_ = {keys, values};
    return {.keys = keys, .values = values, .at = kNoValue, .lengths = kNoValue, .fresh = 0};
  }
  Status leave_cache(int64_t layer, const GemmaCache& cache) {
    const auto [keys, values] = read_;
    TS_TRY(leave(cat("keys.", layer), cache.keys, keys));
    return leave(cat("values.", layer), cache.values, values);
  }

  // Image tokens, and right behind those that are valid the prompt.
  Result<ValueId> sequence(ValueId ids, ValueId images, ValueId image_rows) {
    TS_ASSIGN(const ValueId table, l_.constant(s_.embedding, {s_.vocabulary, s_.language.width}));
    const std::string name = s_.paligemma() + "language_model.embed_tokens";
    TS_ASSIGN(ValueId words, l_.b.emit("gather", {table, ids}, {}, name));
    const ValueId root = l_.b.scalar(std::sqrt(static_cast<double>(s_.language.width)), Element::f32);
    TS_ASSIGN(words, l_.b.map("mul", {words, root}, name + ".scale"));
    TS_ASSIGN(const ValueId all, l_.b.concat({images, words}, 1, "prefix.sequence"));
    return l_.b.emit("write", {all, words, image_rows}, {{"axis", int64_t{1}}}, "prefix.prompt");
  }

  // What the steps begin with.
  Status begin_steps(ValueId valid) {
    const ValueId noise = l_.input("noise", {n_.batch, n_.horizon, s_.action}, Element::f32);
    TS_TRY(leave("x", noise, exact(state("x", l_.b.shape(noise), Element::f32))));
    if (n_.rtc) {
      const ValueId prev = l_.input("prev_actions", l_.b.shape(noise), Element::f32),
                    weights = l_.input("prev_weights", {n_.batch, n_.horizon}, Element::f32);
      TS_TRY(leave("rtc.prev", prev, exact(state("rtc.prev", l_.b.shape(prev), Element::f32))));
      TS_TRY(leave("rtc.weights", weights, exact(state("rtc.weights", l_.b.shape(weights), Element::f32))));
    }
    TS_TRY(leave("length", valid, state("length", {n_.batch}, Element::i32)));
    Buffer zeros(static_cast<size_t>(n_.batch) * sizeof(int32_t));
    std::fill_n(zeros.data(), zeros.size(), uint8_t{0});
    const ValueId none = g_.add_constant("step.first", Type{{n_.batch}, Element::i32}, Bytes::own(std::move(zeros)));
    TS_TRY(leave("step", none, state("step", {n_.batch}, Element::i32)));
    if (s_.pi05) return {};
    const ValueId robot = l_.input("state", {n_.batch, s_.action}, Element::f32);
    TS_ASSIGN(ValueId token, exact_linear(s_.prefix + "state_proj", robot, s_.expert.width));
    TS_ASSIGN(token, l_.b.reshape(token, {n_.batch, 1, s_.expert.width}));
    return leave("state_token", token, state("state_token", l_.b.shape(token), Element::f32));
  }

  // The row of this step of a table with a row for each.
  Result<ValueId> by_step(const std::string& name, const std::vector<std::vector<float>>& per_step, ValueId count) {
    std::vector<float> all;
    for (const std::vector<float>& row : per_step) all.insert(all.end(), row.begin(), row.end());
    const int64_t cols = static_cast<int64_t>(per_step[0].size());
    const ValueId table = g_.add_constant(name, {static_cast<int64_t>(per_step.size()), cols}, all);
    return l_.b.emit("gather", {table, count}, {}, name);
  }
  Result<ValueId> exact_by_step(const std::string& name, const std::vector<std::vector<float>>& per_step,
                                ValueId count) {
    TS_ASSIGN(const ValueId row, by_step(name, per_step, count));
    exact(g_.nodes.back().inputs[0]);
    return exact(row);
  }

  // Gates multiply what a layer adds to the stream, in its epilogue, and have its type, as in the published model.
  // Factors and shifts of norms keep f32.
  Status read_modulations(ValueId count) {
    if (!s_.pi05) return {};
    const auto width = static_cast<std::ptrdiff_t>(s_.expert.width);
    std::vector<std::vector<float>> norms, gates;
    for (const float t : times_of(n_.steps).t) {
      TS_ASSIGN(const std::vector<float> row, modulations(checkpoint_, s_, t));
      norms.emplace_back();
      gates.emplace_back();
      for (auto at = row.begin(); at != row.end(); at += 3 * width) {
        norms.back().insert(norms.back().end(), at, at + 2 * width);
        gates.back().insert(gates.back().end(), at + 2 * width, at + 3 * width);
      }
    }
    TS_ASSIGN(modulations_, exact_by_step("modulations", norms, count));
    TS_ASSIGN(gates_, by_step("gates", gates, count));
    return {};
  }
  // Columns of a table's row, for all rows of the stream.
  Result<ValueId> columns(ValueId row, int64_t part, int64_t width) {
    TS_ASSIGN(const ValueId some, l_.b.slice(row, 1, part * width, 1, width));
    return l_.b.reshape(some, {n_.batch, 1, width});
  }
  Result<Modulation> modulation(int64_t norm) {
    Modulation m{};
    TS_ASSIGN(m.factor, columns(modulations_, 2 * norm, s_.expert.width));
    TS_ASSIGN(m.shift, columns(modulations_, 2 * norm + 1, s_.expert.width));
    TS_ASSIGN(m.gate, columns(gates_, norm, s_.expert.width));
    return m;
  }

  Result<ValueId> action_tokens(ValueId x, ValueId count) {
    TS_ASSIGN(ValueId y, exact_linear(s_.prefix + "action_in_proj", x, s_.expert.width, /*inner=*/!s_.pi05));
    if (s_.pi05) return y;
    const int64_t width = s_.expert.width;
    std::vector<std::vector<float>> rows;
    for (const float t : times_of(n_.steps).t) {
      const std::vector<double> e = time_embedding(t, width, s_.min_period, s_.max_period);
      rows.emplace_back(e.begin(), e.end());
    }
    TS_ASSIGN(ValueId time, exact_by_step("time", rows, count));
    TS_ASSIGN(time, l_.b.reshape(time, {n_.batch, 1, width}));
    TS_ASSIGN(time, l_.b.expand(time, {n_.batch, n_.horizon, width}));
    TS_ASSIGN(y, l_.b.concat({y, time}, 2, "action_time"));
    TS_ASSIGN(y, exact_linear(s_.prefix + "action_time_mlp_in", exact(y), width, /*inner=*/true));
    TS_ASSIGN(y, l_.b.map("silu", {y}, s_.prefix + "action_time_mlp.act"));
    TS_ASSIGN(y, exact_linear(s_.prefix + "action_time_mlp_out", exact(y), width));
    return l_.b.concat({state("state_token", {n_.batch, 1, width}, Element::f32), y}, 1, "suffix");
  }

  // π0: the state's token sees the prefix and itself.
  ValueId suffix_bias() {
    if (s_.pi05) return kNoValue;
    const int64_t keys = rows() + suffix();
    std::vector<float> bias(static_cast<size_t>(suffix() * keys), 0.0f);
    std::fill(bias.begin() + rows() + 1, bias.begin() + keys, kHidden);
    return g_.add_constant("suffix.mask", {1, 1, suffix(), keys}, bias);
  }

  // Real-time chunking: v - guidance * weights * (prev - (x - t v)). What x would end as is drawn towards the chunk
  // before, row by row; a weight of 0 leaves v as it is.
  Result<ValueId> corrected(ValueId x, ValueId v, ValueId count) {
    if (!n_.rtc) return v;
    const ValueId prev = exact(state("rtc.prev", l_.b.shape(x), Element::f32)),
                  per_row = exact(state("rtc.weights", {n_.batch, n_.horizon}, Element::f32));
    std::vector<std::vector<float>> rows;
    for (const float t : times_of(n_.steps).t) rows.push_back({t, guidance(t)});
    TS_ASSIGN(const ValueId row, exact_by_step("rtc.steps", rows, count));
    TS_ASSIGN(const ValueId t, columns(row, 0, 1));
    TS_ASSIGN(const ValueId g, columns(row, 1, 1));
    TS_ASSIGN(const ValueId weights, l_.b.reshape(per_row, {n_.batch, n_.horizon, 1}));
    TS_ASSIGN(ValueId y, l_.b.map("mul", {v, t}, "rtc.rest"));
    TS_ASSIGN(y, l_.b.map("sub", {x, exact(y)}, "rtc.end"));
    TS_ASSIGN(y, l_.b.map("sub", {prev, exact(y)}, "rtc.distance"));
    TS_ASSIGN(y, l_.b.map("mul", {exact(y), weights}, "rtc.weighted"));
    TS_ASSIGN(y, l_.b.map("mul", {exact(y), g}, "rtc.correction"));
    TS_ASSIGN(y, l_.b.map("sub", {v, exact(y)}, "rtc.velocity"));
    return exact(y);
  }

  Status finish_step(ValueId x, ValueId velocity, ValueId count) {
    const ValueId dt = exact(l_.b.scalar(times_of(n_.steps).dt, Element::f32, "dt"));
    TS_ASSIGN(const ValueId drawn, corrected(x, velocity, count));
    TS_ASSIGN(ValueId change, l_.b.map("mul", {drawn, dt}, "euler.change"));
    TS_ASSIGN(const ValueId after, l_.b.map("add", {x, exact(change)}, "euler"));
    TS_TRY(output("velocity", velocity));
    TS_TRY(leave("x", after, x));
    TS_TRY(output("actions", after));  // a copy, which writes where the caller wants it
    TS_ASSIGN(const ValueId next, l_.b.emit("gather", {next_steps(), count}, {}, "step.next"));
    return leave("step", next, count);
  }

  // The step after each; after the last comes the first, so that a graph may run by itself as often as it likes.
  ValueId next_steps() {
    Buffer next(static_cast<size_t>(n_.steps) * sizeof(int32_t));
    for (int64_t i = 0; i < n_.steps; ++i)
      reinterpret_cast<int32_t*>(next.data())[i] = static_cast<int32_t>((i + 1) % n_.steps);
    return g_.add_constant("step.next", Type{{n_.steps}, Element::i32}, Bytes::own(std::move(next)));
  }

  Graph& g_;
  Checkpoint& checkpoint_;
  const PolicySettings& s_;
  const Sizes& n_;
  LayerBuilder l_;
  ValueId length_ = kNoValue, modulations_ = kNoValue, gates_ = kNoValue;
  std::pair<ValueId, ValueId> read_ = {kNoValue, kNoValue};
};

Result<Sizes> sizes_of(const PolicySettings& s, const FamilySizes& asked) {
  const Sizes n{.batch = asked.batch,
                .views = asked.get("views", kDefaultViews),
                .prompt = asked.get("prompt", s.prompt),
                .horizon = asked.get("horizon", s.horizon),
                .steps = asked.get("steps", s.steps),
                .bytes = asked.get("images", 1) == 2,
                .bf16_rope = asked.get("rope", 1) == 2,
                .rtc = asked.get("rtc", 1) == 2};
  if (n.views > kMostViews || n.steps > 1000 || n.prompt > 65536 || n.horizon > 65536)
    return usage_error(cat("sizes views=", n.views, ", prompt=", n.prompt, ", horizon=", n.horizon, ", steps=", n.steps,
                           ": at most ", kMostViews, ", 65536, 65536 and 1000 are accepted"));
  return n;
}

Result<FamilySchedule> schedule(Checkpoint& checkpoint, const FamilySizes& asked) {
  TS_ASSIGN(const PolicySettings s, read_policy_settings(checkpoint));
  TS_ASSIGN(const Sizes n, sizes_of(s, asked));
  // A step reads as many keys as are valid, whatever the cache holds: one plan serves all.
  return FamilySchedule{.graphs = {kVision, kPrefix, kStep},
                        .runs = {{kVision, 1}, {kPrefix, 1}, {kStep, n.steps}},
                        .buckets = {{kVision, {"views"}}, {kPrefix, {"views", "prompt"}}}};
}

// A head that is the embedding's other name, heads that nobody reads, and the norm behind the last layer.
std::vector<std::string> harmless() {
  return {"*paligemma_with_expert.paligemma.lm_head.weight", "*paligemma_with_expert.gemma_expert.lm_head.weight",
          "*paligemma_with_expert.paligemma.model.language_model.norm.weight",
          "*paligemma_with_expert.gemma_expert.model.embed_tokens.weight"};
}

}  // namespace

Result<Graph> pi05_graph(Checkpoint& checkpoint, const FamilySizes& asked) {
  TS_ASSIGN(const PolicySettings s, read_policy_settings(checkpoint));
  TS_ASSIGN(const Sizes n, sizes_of(s, asked));
  Graph graph;
  PolicyGraph policy(graph, checkpoint, s, n);
  if (asked.graph == kVision) {
    TS_TRY(policy.vision());
  } else if (asked.graph == kPrefix) {
    TS_TRY(policy.prefix());
  } else if (asked.graph == kStep) {
    TS_TRY(policy.step());
  } else {
    return usage_error(cat("graph '", asked.graph, "': a policy has the graphs vision, prefix and step"));
  }
  return graph;
}

extern const Family pi05_family;
const Family pi05_family{nullptr,
                         nullptr,
                         pi05_graph,
                         harmless,
                         {{"views", "cameras, at most"},
                          {"prompt", "tokens of the prompt, at most"},
                          {"horizon", "actions of a chunk"},
                          {"steps", "Euler steps"},
                          {"images", "how pixels come", {"f32", "u8"}},
                          {"rope", "rotary frequencies as JAX has them, or rounded to bf16", {"jax", "openpi-pytorch"}},
                          {"rtc", "velocities are corrected towards the chunk before", {"off", "on"}}},
                         schedule,
                         random_policy};

}  // namespace tessera
