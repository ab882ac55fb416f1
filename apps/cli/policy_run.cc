// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "cli/batches.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/policy_actions.h"
#include "policy/policy.h"

namespace tessera {
namespace {

// An engine file, or a checkpoint that is built in memory with room for what the observations hold.
Result<Engine> engine_of(const PolicyOptions& o, const std::vector<Array>& arrays, const Common& common) {
  std::error_code none;
  if (o.flags.random < 0 && !std::filesystem::is_directory(o.model, none)) return open_engine(o.model);
  BuildFlags flags = policy_flags(o);
  const auto size_from = [&](const char* array, size_t axis, const char* size) {
    for (const std::string& given : flags.sizes) {
      if (given.starts_with(cat(size, "="))) return;
    }
    for (const Array& a : arrays) {
      if (a.name == array && axis < a.shape.size()) flags.sizes.push_back(cat(size, "=", a.shape[axis]));
    }
  };
  size_from("images", 1, "views");
  size_from("tokens", 1, "prompt");
  size_from("noise", 1, "horizon");
  const bool bytes =
      std::any_of(arrays.begin(), arrays.end(), [](const Array& a) { return a.name == "images" && a.dtype == "|u1"; });
  const auto guides = [](const Array& a) { return a.name == "prev_actions" || a.name == "prev_weights"; };
  if (!o.rtc && std::any_of(arrays.begin(), arrays.end(), guides)) flags.sizes.emplace_back("rtc=on");
  if (o.images.empty()) flags.sizes.push_back(bytes ? "images=u8" : "images=f32");
  TS_ASSIGN(const BuildOptions options,
            build_options(flags, o.flags.random < 0 ? o.model : o.config, {1}, common.quiet || common.json));
  TS_ASSIGN(Built built, build_engine(options));
  return std::move(built.engine);
}

// Arrays of all observations, one after the other.
class Results {
 public:
  Results(const Policy& policy, const Observations& all) : policy_(policy), all_(all) {}

  void add(const std::vector<float>& actions, const PolicyStages* stages) {
    append("actions", actions);
    if (stages == nullptr) return;
    append("image_tokens", stages->image_tokens);
    append("v0", stages->velocity);
    k_.push_back(stages->k), v_.push_back(stages->v);
  }
  std::vector<Array> arrays() {
    const int64_t b = all_.count(), rows = all_.views() * policy_.sizes().patches + all_.prompt();
    const Shape chunk = {b, policy_.sizes().horizon, policy_.sizes().actions};
    std::vector<Array> out = {make_array("actions", chunk, numbers_["actions"])};
    if (k_.empty()) return out;
    out.push_back(make_array("image_tokens", {b, all_.views() * policy_.sizes().patches, policy_.width()},
                             numbers_["image_tokens"]));
    out.push_back(make_array("v0", chunk, numbers_["v0"]));
    const Shape cache = policy_.cache_shape();
    for (const auto& [name, per_observation] : {std::pair{"K", &k_}, {"V", &v_}})
      out.push_back(make_array(name, {policy_.layers(), b, cache[1], rows, cache[2]},
                               heads_first(*per_observation, rows, cache[1], cache[2])));
    return out;
  }

 private:
  void append(const char* name, const std::vector<float>& more) {
    numbers_[name].insert(numbers_[name].end(), more.begin(), more.end());
  }
  // [observation][layer] of [rows, heads, head] -> [layer, observation, heads, rows, head]
  static std::vector<float> heads_first(const std::vector<std::vector<std::vector<float>>>& caches, int64_t rows,
                                        int64_t heads, int64_t head) {
    std::vector<float> all;
    for (size_t layer = 0; layer < caches[0].size(); ++layer) {
      for (const auto& observation : caches) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t r = 0; r < rows; ++r) {
            const auto at = observation[layer].begin() + (r * heads + h) * head;
            all.insert(all.end(), at, at + head);
          }
        }
      }
    }
    return all;
  }

  const Policy& policy_;
  const Observations& all_;
  std::map<std::string, std::vector<float>> numbers_;
  std::vector<std::vector<std::vector<float>>> k_, v_;
};

}  // namespace

Status policy_run(const PolicyOptions& o, const Common& common) {
  if (o.model.empty() && o.flags.random < 0)
    return usage_error("policy run wants --model, a checkpoint's folder or an engine of one, or --random SEED");
  if (!o.model.empty() && o.flags.random >= 0) return usage_error("policy run: give --model or --random, not both");
  if (o.inputs.empty() || o.outputs.empty()) return usage_error("policy run wants --inputs and --outputs, npz files");
  TS_TRY(refuse_overwrite(o.outputs, {o.model, o.inputs}));
  TS_ASSIGN(std::vector<Array> arrays, read_npz(o.inputs));
  TS_ASSIGN(const Engine engine, engine_of(o, arrays, common));
  TS_TRY(check_target(engine));
  SessionOptions options;
  if (!o.flags.no_verify) options.admit = golden_first(engine);
  if (!o.flags.no_verify && engine.golden.forms.empty()) warn(kNoGoldenValues);
  auto policy = Policy::make(engine, options);
  if (!policy.ok()) return policy.status().at(o.model);
  auto observations = Observations::of(std::move(arrays), (*policy)->sizes());
  if (!observations.ok()) return observations.status().at(o.inputs);
  Results results(**policy, *observations);
  std::vector<std::vector<std::string>> plans;  // of each observation
  const int64_t rows = observations->views() * (*policy)->sizes().patches + observations->prompt();
  for (int64_t i = 0; i < observations->count(); ++i) {
    TS_ASSIGN(const PackedObservation observation, observations->packed(i));
    PolicyStages stages;
    auto actions =
        o.stages ? (*policy)->act(observation, observations->views(), rows, stages) : (*policy)->act(observation);
    if (!actions.ok()) return actions.status();
    results.add(*actions, o.stages ? &stages : nullptr);
    plans.push_back((*policy)->plans());
  }
  TS_TRY(write_npz(o.outputs, results.arrays()));
  if (common.json) {
    print_json({{"observations", observations->count()}, {"outputs", o.outputs}, {"plans", plans}});
  } else {
    fmt::print("{}: actions of {}\n", o.outputs, plural(observations->count(), "observation"));
    std::map<std::vector<std::string>, int64_t> counted;
    for (const std::vector<std::string>& p : plans) ++counted[p];
    for (const auto& [names, count] : counted)
      fmt::print("{}\n", wrap(cat(plural(count, "observation"), " through ", plans_in_words(names)), 2, 4));
  }
  return {};
}

}  // namespace tessera
