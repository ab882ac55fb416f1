// SPDX-License-Identifier: Apache-2.0
#include "compile/advise.h"

#include <algorithm>
#include <map>

#include "ops/matmul/matmul.h"

namespace tessera {
namespace {

// Patterns for layers; those that differ in numbers alone ("blocks.0.mlp.fc1") share one.
std::vector<std::string> patterns_of(const std::vector<std::string>& layers) {
  std::map<std::string, std::vector<std::string>> alike;
  for (const std::string& layer : layers) {
    std::string pattern;
    for (size_t at = 0; at <= layer.size();) {
      const size_t end = std::min(layer.find('.', at), layer.size());
      const std::string part = layer.substr(at, end - at);
      const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      pattern += cat(at == 0 ? "" : ".", number ? "*" : part);
      at = end + 1;
    }
    alike[pattern].push_back(layer);
  }
  std::vector<std::string> patterns;
  for (const auto& [pattern, names] : alike) patterns.push_back(names.size() == 1 ? names[0] : pattern);
  return patterns;
}

Graph without_sparsity(Graph graph) {
  for (Node& n : graph.nodes) n.attrs.erase(kSparse24);
  return graph;
}

class Adviser {
 public:
  Adviser(const Graph& graph, const LowerOptions& options,
          const std::function<bool(const Graph&, const LowerOptions&)>& runs)
      : graph_(graph), options_(options), runs_(runs) {}

  std::string run(const std::vector<RefusedLayer>& failures) {
    std::string text = allowing(failures);
    if (text.empty()) text = asking_less();
    if (text.empty()) text = in_plain_numbers();
    if (info(options_.plan.target).device == DeviceKind::kCuda) {
      LowerOptions o = options_;
      o.plan.target = Arch::cpu;
      o.plan.tuning = nullptr;
      if (runs_(graph_, o)) text += "\n  as asked it runs with --target cpu";
    }
    if (!text.empty()) return text;
    return cat(
        "\n  no option changes that",
        states_types(graph_) ? ": the types are part of the model, which runs with scales that a kernel takes" : "");
  }

 private:
  std::string carrier() const {
    const auto base = base_precision(options_.types.precision);
    return base.ok() ? plain_precision((*base)->carrier).name : "fp16";
  }

  // What to try instead, the nearest first: 8 bits where there are scales for them.
  std::vector<std::string> offers() const {
    std::vector<std::string> names = {carrier()};
    if (options_.types.ranges != nullptr && names[0] == "fp16") names.insert(names.begin(), "fp8");
    return names;
  }

  std::string allowing(const std::vector<RefusedLayer>& failures) const {
    std::vector<std::string> layers;
    for (const RefusedLayer& f : failures) {
      if (!f.asked.empty() && !read_asked(f.asked).imported()) layers.push_back(f.layer);
    }
    for (const std::string& precision : offers()) {
      LowerOptions o = options_;
      std::string flags;
      for (const std::string& pattern : patterns_of(layers)) {
        o.types.allow.push_back({pattern, precision});
        flags += cat(" --allow '", pattern, "=", precision, "'");
      }
      if (!flags.empty() && runs_(graph_, o)) return cat("\n  to accept another precision:", flags);
    }
    return "";
  }

  // The same precision, but for what comes on top of it.
  std::string asking_less() const {
    LowerOptions o = options_;
    o.types.sparse = false;
    if (options_.types.sparse && runs_(without_sparsity(graph_), o)) return "\n  dense it runs: leave --sparsity out";
    o = options_;
    o.types.promoted = false;
    if (options_.types.promoted && runs_(graph_, o))
      return "\n  with sums as the kernels make them it runs: leave --accumulate out";
    o = options_;
    o.types.attention = "fp16";
    if (options_.types.attention == "fp8" && runs_(graph_, o))
      return "\n  with other attention it runs: --attention fp16";
    return "";
  }

  std::string in_plain_numbers() const {
    if (!options_.types.rules.empty()) return "";  // a recipe says what layers get
    std::vector<std::string> precisions = offers();
    precisions.push_back("fp32");
    for (const std::string& precision : precisions) {
      LowerOptions o = options_;
      o.types.precision = precision;
      o.types.sparse = o.types.promoted = false;
      if (o.types.attention == "fp8") o.types.attention.clear();
      if (!runs_(without_sparsity(graph_), o)) continue;
      std::string without;
      const auto leave = [&](bool given, const char* flag) {
        if (given) without += cat(without.empty() ? ", without " : " and ", flag);
      };
      leave(options_.types.sparse, "--sparsity");
      leave(options_.types.promoted, "--accumulate");
      leave(options_.types.attention == "fp8", "--attention");
      if (precision == options_.types.precision && without.empty()) continue;
      return cat("\n  another precision runs: --precision ", precision, without);
    }
    return "";
  }

  const Graph& graph_;
  const LowerOptions& options_;
  const std::function<bool(const Graph&, const LowerOptions&)>& runs_;
};

}  // namespace

std::string advise(const Graph& graph, const LowerOptions& options, const std::vector<RefusedLayer>& failures,
                   const std::function<bool(const Graph&, const LowerOptions&)>& runs) {
  return Adviser(graph, options, runs).run(failures);
}

}  // namespace tessera
