// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/words/nearest_word.h"
#include "cli/policy_actions.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

struct Action {
  const char* name;
  Status (*run)(const PolicyOptions& options, const Common& common);
  std::vector<std::string> own;  // options that are its alone, or shared with some others
};

const std::vector<Action>& actions() {
  static const std::vector<Action> all = {
      {"build",
       policy_build,
       {"--model", "--random", "--config", "--output", "--views", "--prompt", "--horizon", "--steps", "--images",
        "--rope", "--rtc"}},
      {"run",
       policy_run,
       {"--model", "--random", "--config", "--inputs", "--outputs", "--stages", "--views", "--prompt", "--horizon",
        "--steps", "--images", "--rope", "--rtc"}},
      {"bench", policy_bench, {"engine", "--repeats", "--warmup", "--inputs", "--views", "--prompt"}},
      {"verify", policy_verify, {"engine", "--all"}},
      {"weights", policy_weights, {"--random", "--config", "--output", "--type", "--family"}}};
  return all;
}

// Options that say how an engine is built, where none is.
Status refuse_build_options(const Action& action, const PolicyOptions& o, const OptionList& options) {
  std::error_code none;
  const bool engine =
      action.run == policy_bench || action.run == policy_verify ||
      (action.run == policy_run && o.flags.random < 0 && std::filesystem::is_regular_file(o.model, none));
  if (!engine && action.run != policy_weights) return {};
  const auto refuse = [&](const std::string& option) {
    return usage_error(cat("policy ", action.name, ": ", option, " says how an engine is built, ",
                           engine ? "and this one is" : "and none is here", "; give it to policy build"));
  };
  for (const char* size : {"--config", "--views", "--prompt", "--horizon", "--steps", "--images", "--rope", "--rtc"}) {
    const bool own = std::find(action.own.begin(), action.own.end(), size) != action.own.end();
    if (engine && options.given(size) && !(own && action.run == policy_bench)) return refuse(size);
  }
  for (size_t i = o.first_of_build; i < o.end_of_build; ++i) {
    const std::string name = options.all()[i].spellings().back();
    const bool own = std::find(action.own.begin(), action.own.end(), name) != action.own.end();
    if (!own && options.given(name) && !(name == "--no-verify" && action.run == policy_run)) return refuse(name);
  }
  return {};
}

// An option of another action would be ignored silently.
Status refuse_ignored(const Action& action, const OptionList& options) {
  for (const Action& other : actions()) {
    for (const std::string& option : other.own) {
      const bool mine = std::find(action.own.begin(), action.own.end(), option) != action.own.end();
      if (!mine && options.given(option))
        return usage_error(cat("policy ", action.name, " has no ", option == "engine" ? "ENGINE" : option,
                               ": it is policy ", other.name, "'s"));
    }
  }
  return {};
}

Status policy(const PolicyOptions& o, const OptionList& options, const Common& common) {
  std::vector<std::string> names;
  std::string list;
  for (const Action& a : actions()) {
    names.emplace_back(a.name);
    list += cat(list.empty() ? "" : ", ", a.name);
    if (o.action != a.name) continue;
    TS_TRY(refuse_ignored(a, options));
    TS_TRY(refuse_build_options(a, o, options));
    return a.run(o, common);
  }
  return usage_error(cat("policy ", o.action, ": there are ", list, did_you_mean(o.action, names)));
}

void add_sizes(OptionList& options, PolicyOptions& o) {
  options.group("Policy");
  options.add("--config", o.config, "FILE",
              "with --random: config.json with sizes other than the published pi0.5's; {\"pi05\": false} is pi0");
  const WordCheck size = within(1, 1 << 24);
  options.add(
      "--views", o.views, "N,...",
      "cameras, at most; a plan for each number (default: 3; run: those of --inputs; bench: how many are seeded)");
  options.add("--prompt", o.prompt, "N,...",
              "tokens, at most; a plan for each number (default: config.json's, else 200, pi0 48; bench: how many are "
              "seeded)");
  options.add("--horizon", o.horizon, "N", "actions of a chunk (default: config.json's, else 50)").check = size;
  options.add("--steps", o.steps, "N", "Euler steps (default: config.json's, else 10)").check = size;
  options.add("--images", o.images, "TYPE",
              "how the engine takes images: u8 [views,n,n,3], or f32 [views,3,n,n] in [-1,1] (default: u8; run: as "
              "--inputs has them)");
  options.add("--rope", o.rope, "NAME",
              "rotary frequencies: jax, in f32 as the models were trained, or openpi-pytorch, rounded to bf16 as its "
              "bf16 model has them (default: jax)");
  options.add("--rtc", o.rtc,
              "real-time chunking: observations may hold prev_actions and prev_weights, which velocities are drawn to");
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<PolicyOptions>();
  options.add("action", o->action, "ACTION", "build, run, bench, verify or weights").required = true;
  options.add("engine", o->engine, "ENGINE", "bench, verify: an engine of a policy");
  options.add("--model", o->model, "DIR|FILE", "build, run: a checkpoint's folder; run: or an engine of one");
  options.add("-o,--output", o->output, "FILE|DIR", "build: the engine to write; weights: the folder");
  options.add("--inputs", o->inputs, "FILE",
              "run, bench: npz with images u8 [b,views,h,w,3] or f32 [b,views,3,n,n] in [-1,1], image_valid, tokens, "
              "token_valid, noise, and state for pi0 (bench: default seeded)");
  options.add("--outputs", o->outputs, "FILE", "run: npz to write: actions");
  options.add("--stages", o->stages, "run: also image_tokens, K, V and v0, rows of dropped tokens as zeros");
  options.add("--repeats", o->repeats, "N", "bench: timed runs, up to 1000000 (default: 20)").check =
      within(1, 1000000);
  options.add("--warmup", o->warmup, "N", "bench: runs before the first that counts (default: as tessera bench)")
      .check = within(0, 1000000);
  options.add("--all", o->all, "verify: show every layer (default: the five nearest to their bound)");
  options.add("--type", o->type, "TYPE", "weights: bf16 or f32, which hold the same numbers (default: bf16)");
  add_sizes(options, *o);
  o->first_of_build = options.all().size();
  add_build_flags(options, o->flags);
  o->end_of_build = options.all().size();
  return [o, &options, &common] { return policy(*o, options, common); };
}

}  // namespace

BuildFlags policy_flags(const PolicyOptions& o) {
  BuildFlags flags = o.flags;
  if (flags.family.empty()) flags.family = kPolicyFamily;
  if (flags.precision.empty() && flags.recipe.empty()) flags.precision = kPolicyPrecision;
  if (flags.golden.empty() && !flags.no_verify) flags.golden = "smallest";
  if (!o.views.empty()) flags.sizes.push_back("views=" + o.views);
  if (!o.prompt.empty()) flags.sizes.push_back("prompt=" + o.prompt);
  if (o.horizon > 0) flags.sizes.push_back(cat("horizon=", o.horizon));
  if (o.steps > 0) flags.sizes.push_back(cat("steps=", o.steps));
  if (!o.images.empty()) flags.sizes.push_back("images=" + o.images);
  if (!o.rope.empty()) flags.sizes.push_back("rope=" + o.rope);
  if (o.rtc) flags.sizes.emplace_back("rtc=on");
  return flags;
}

std::string plans_in_words(const std::vector<std::string>& plans) {
  std::string text = "plans ";
  for (const std::string& p : plans) text += cat(&p == &plans.front() ? "" : ", ", p);
  return text;
}

const Command policy_command{
    "policy",
    "robot policies (pi0, pi0.5): build, run, bench, verify, random weights",
    "A policy is an engine of three graphs: vision, prefix and step. build makes one from a checkpoint or from seeded "
    "random weights, in bf16 where nothing else is said; all options of tessera build apply. run takes observations "
    "to actions; views and tokens that are not valid are dropped, and the smallest plans that hold the rest run. bench "
    "times the whole schedule, from inputs on the "
    "device to actions there and from host to host, and each graph by itself. verify compares every graph with its "
    "golden values and layer by layer, as tessera verify does. weights writes random weights as a checkpoint in "
    "openpi's names, for comparison with other programs.",
    "  tessera policy build --model pi05/ -o pi05.tess --views 2 --horizon 10\n"
    "  tessera policy build --model pi05/ -o pi05.tess --views 1,2,3 --prompt 48,200\n"
    "  tessera policy build --random 1 -o pi05.tess --target sm90 --precision fp8\n"
    "  tessera policy run --model pi05.tess --inputs observation.npz --outputs actions.npz\n"
    "  tessera policy bench pi05.tess --repeats 100\n"
    "  tessera policy verify pi05.tess\n"
    "  tessera policy weights --random 1 -o pi05_random/\n",
    "",
    true,
    add};

}  // namespace tessera
