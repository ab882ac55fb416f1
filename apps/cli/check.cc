// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/words/nearest_word.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "compile/compile.h"
#include "portability/portability.h"

namespace tessera {
namespace {

constexpr size_t kNamed = 3;  // layers that are named for a breach; JSON has all
constexpr size_t kNameColumns = 60;

struct Options {
  std::string model, tool = "tensorrt";
  ModelFlags flags;
};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

Json report_json(const RuleReport& r) {
  Json breaches = Json::array();
  for (const Breach& b : r.finding.breaches) breaches.push_back({{"what", b.what}, {"layers", b.layers}});
  return {{"rule", r.rule->name},       {"wants", r.rule->rule}, {"broken", r.broken()}, {"applies", r.applies()},
          {"places", r.finding.places}, {"breaches", breaches},  {"cost", r.cost()},     {"instead", r.rule->instead}};
}

// "12 places: blocks.0.attn.softmax, blocks.1.attn.softmax, ..."
std::string places(const Breach& b) {
  std::string out = plural(static_cast<int64_t>(b.layers.size()), "place") + ": ";
  for (size_t i = 0; i < std::min(kNamed, b.layers.size()); ++i)
    out += (i == 0 ? "" : ", ") + shorten(printable(b.layers[i]), kNameColumns);
  return out + (b.layers.size() > kNamed ? ", ..." : "");
}

void print(const RuleReport& r) {
  const auto say = [](size_t first, size_t rest, const std::string& text) {
    fmt::print("{}\n", wrap(text, first, rest));
  };
  if (!r.applies()) {
    say(2, 4, cat("not applicable  ", r.rule->name, " (the model has nothing that the rule is about)"));
    return;
  }
  if (!r.broken()) {
    say(2, 4, cat("kept    ", r.rule->name, " (", plural(r.finding.places, "place"), " looked at)"));
    return;
  }
  say(2, 4, cat("BROKEN  ", r.rule->name, ": ", r.rule->rule));
  for (const Breach& b : r.finding.breaches) say(6, 8, cat(b.what, "; ", places(b)));
  say(6, 8, cat("there: ", r.cost()));
  say(6, 8, cat("Tessera: ", r.rule->instead));
}

Status check(const Options& o, const Common& common) {
  const std::vector<std::string> tools = portability_names();
  if (std::find(tools.begin(), tools.end(), o.tool) == tools.end())
    return usage_error(
        cat("--for ", o.tool, ": no rules of it are known; accepted: ", joined(tools), did_you_mean(o.tool, tools)));
  TS_ASSIGN(const LoadOptions load, load_options(o.flags));
  if (!load.states.empty()) return usage_error("--state: check looks at the model as written, leave it out");
  TS_ASSIGN(const bool engine, is_engine_file(o.model, o.flags.family));
  if (engine) return usage_error(cat(o.model, " is an engine, already built; check takes an ONNX model"));
  TS_ASSIGN(const Graph graph, import_model(o.model, 1, load));
  const std::vector<RuleReport> reports = check_portability(graph, o.tool);
  const auto broken = std::count_if(reports.begin(), reports.end(), [](const RuleReport& r) { return r.broken(); });
  if (common.json) {
    Json rules = Json::array();
    for (const RuleReport& r : reports) rules.push_back(report_json(r));
    print_json({{"model", o.model}, {"for", o.tool}, {"broken", broken}, {"needed_here", 0}, {"rules", rules}});
    return {};
  }
  fmt::print("{}\n", wrap(cat(printable(o.model), ": breaks ", broken, " of ", reports.size(), " design rules for ",
                              o.tool, "; Tessera needs none of them"),
                          0, 2));
  for (const RuleReport& r : reports) print(r);
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("model", o->model, "MODEL", "an ONNX model, or with --family a folder").required = true;
  options.add("--for", o->tool, "TOOL", "whose design rules: " + joined(portability_names()) + " (default: tensorrt)");
  add_model_flags(options, o->flags);
  return [o, &common] { return check(*o, common); };
}

}  // namespace

const Command check_command{
    "check",
    "hold a model against the design rules of another tool",
    "Other tools want models to be designed for their low-precision kernels: lengths and heads that blocks divide, no "
    "class token, attention in three axes, scales in the file. Reads the model as it was written, and says of each "
    "rule whether it is broken, at which layers, what that costs there (in the words of that tool's documentation and "
    "of its users' reports), and what is done here instead. Nothing is built, and a broken rule is no error: Tessera "
    "needs none of them.",
    "  tessera check vit.onnx --for tensorrt\n"
    "  tessera check bert.onnx --shape input_ids=1,128\n"
    "  tessera check vit.onnx --json | jq -r '.rules[] | select(.broken) | .rule'\n",
    "",
    false,
    add};

}  // namespace tessera
