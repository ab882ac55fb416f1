// SPDX-License-Identifier: Apache-2.0
#include "precision/choose_precisions.h"

#include <algorithm>
#include <cctype>

#include "base/refused_layers.h"
#include "precision/roles.h"

namespace tessera {
namespace {

class Chooser {
 public:
  Chooser(Graph& g, const QuantizeOptions& options) : g_(g), options_(options) {}

  Result<Choices> run() {
    TS_ASSIGN(base_, base_precision(options_.precision));
    carrier_ = &plain_precision(base_->carrier);
    assign_roles(g_);
    Choices choices{.carrier = base_->carrier, .layers = std::vector<LayerChoice>(g_.nodes.size())};
    rule_used_.assign(options_.rules.size(), false);
    allow_used_.assign(options_.allow.size(), false);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (weight_is_left(node)) accept_left(node);
      if (is_linear(g_, node)) choices.layers[n] = choice_of(node);
    }
    TS_TRY(choose_attention(choices));
    if (!left_.empty()) {
      std::string names, flags;
      for (const RefusedLayer& l : left_) {
        names += cat(names.empty() ? " " : ", ", l.layer);
        flags += cat(" --allow '", l.layer, "=", carrier_->name, "'");
      }
      return refused(cat("layers whose weight is the left operand of the product are never ", asked_in_words(), ":",
                         names, "; to accept them in ", carrier_->name, ":", flags),
                     std::move(left_));
    }
    choices.rule_used = rule_used_, choices.allow_used = allow_used_;
    if (options_.part) return choices;
    TS_TRY(check_used());
    TS_TRY(check_realised(choices));
    return choices;
  }

 private:
  LayerChoice choice_of(const Node& node) {
    // A weight that keeps its type is rounded only where the layer is named, or its role.
    const bool exact = node.role == kExactRole;
    LayerChoice c{.precision = in_block(node) ? base_ : carrier_, .sparse = options_.sparse && in_block(node)};
    if (exact) c = {.precision = &plain_precision(g_.at(node.inputs[1]).type.quant.element)};
    for (size_t r = 0; r < options_.rules.size(); ++r) {
      const Rule& rule = options_.rules[r];
      if (!matches(rule.layer.c_str(), node.name.c_str()) || !matches(rule.role.c_str(), node.role.c_str())) continue;
      if (exact && rule.layer == "*" && rule.role != kExactRole) continue;
      if (!rule.precision.empty()) c.precision = find_precision(rule.precision);
      if (!rule.sparsity.empty()) {
        c.sparse = rule.sparsity != "none";
        c.pattern = c.sparse ? rule.sparsity : "";
      }
      c.named = c.named || rule.layer != "*";
      rule_used_[r] = true;
    }
    for (size_t a = 0; a < options_.allow.size(); ++a) {
      if (!matches(options_.allow[a].pattern.c_str(), node.name.c_str())) continue;
      c.precision = find_precision(options_.allow[a].precision);
      if (!c.precision->weight.scaled()) c.sparse = false;
      allow_used_[a] = c.named = true;
    }
    return c;
  }

  // Codes must reach every attention that is not allowed away, those that were not recognised as one included.
  Status choose_attention(Choices& choices) {
    if (options_.attention.empty()) return {};
    const Result<const Precision*> asked = find_attention_precision(options_.attention);
    if (!asked.ok()) return usage_error(cat("--attention: ", asked.status().message()));
    const std::string flag = cat("--attention ", options_.attention);
    if (!(*asked)->attention->scaled()) {
      if (*asked != carrier_)
        return refused(cat(flag, ": with ", base_->name, " everything but the linear layers is ", carrier_->name,
                           "; leave it out"));
      for (const Node& n : g_.nodes) {
        if (n.op == "attention" && n.attrs.has("type.0"))
          return refused_layer(n, (*asked)->name,
                               cat("the model states types for it, ", flag, " would change them; leave it out"));
      }
      return {};
    }
    bool any = false, recognised = false;
    int64_t spelt = 0;
    std::vector<RefusedLayer> unreached;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      const bool spelt_out = node.op == "softmax" && weighs_values(node);
      if (node.op != "attention" && !spelt_out) continue;
      recognised = recognised || !spelt_out;
      spelt += spelt_out;
      bool allowed = false;
      for (size_t a = 0; a < options_.allow.size(); ++a) {
        if (options_.allow[a].precision != carrier_->name ||
            !matches(options_.allow[a].pattern.c_str(), node.name.c_str()))
          continue;
        allowed = allow_used_[a] = true;
      }
      if (allowed) continue;
      if (spelt_out)
        unreached.push_back(
            {node.name, node.op, (*asked)->name, {{"", "it is not recognised as part of an attention"}}});
      if (!spelt_out) choices.layers[n].attention = *asked;
      any = any || !spelt_out;
    }
    if (!recognised)
      return refused(cat(
          flag, ": no attention was recognised in this model",
          spelt > 0 ? cat("; ", spelt, spelt == 1 ? " softmax runs" : " softmaxes run", " op by op in ", carrier_->name)
                    : "",
          "; leave --attention out"));
    if (!unreached.empty()) {
      std::string names;
      for (const RefusedLayer& l : unreached) names += cat(names.empty() ? "" : ", ", l.layer);
      return refused(cat(flag, ": the softmax of these is not recognised as part of an attention: ", names,
                         "; --allow 'LAYER=", carrier_->name, "' accepts one in ", carrier_->name),
                     std::move(unreached));
    }
    return any ? Status()
               : refused(cat(flag, ": --allow leaves no attention in ", options_.attention, "; leave --attention out"));
  }

  // A softmax whose result is multiplied with another activation.
  bool weighs_values(const Node& softmax) const {
    const std::vector<int> producers = g_.producers();
    return std::any_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) {
      return n.op == "matmul" && n.inputs.size() > 1 && !g_.at(n.inputs[1]).constant && !g_.at(n.inputs[0]).constant &&
             placement_of(g_, producers, n.inputs[0]).base == softmax.outputs[0];
    });
  }

  // W x: a constant times an activation.
  bool weight_is_left(const Node& n) const {
    if (n.op != "matmul" || n.inputs.size() < 2 || g_.at(n.inputs[1]).constant) return false;
    return g_.at(placement_of(g_, g_.producers(), n.inputs[0]).base).constant;
  }

  void accept_left(const Node& node) {
    bool accepted = !base_->weight.scaled() && !options_.sparse;
    for (size_t a = 0; a < options_.allow.size(); ++a) {
      if (!matches(options_.allow[a].pattern.c_str(), node.name.c_str())) continue;
      if (options_.allow[a].precision == carrier_->name) accepted = allow_used_[a] = true;
    }
    if (accepted) return;
    left_.push_back({node.name, node.op, asked_in_words(), {{"", "its weight is the left operand of the product"}}});
  }

  std::string asked_in_words() const { return cat(base_->name, options_.sparse ? " or 2:4" : ""); }

  Status check_used() const {
    for (size_t a = 0; a < allow_used_.size(); ++a) {
      const std::string& pattern = options_.allow[a].pattern;
      if (!allow_used_[a])
        return usage_error(
            cat("--allow ", pattern, ": no linear layer or attention has such a name", nearest_layers(pattern)));
    }
    for (size_t r = 0; r < rule_used_.size(); ++r) {
      const Rule& rule = options_.rules[r];
      if (rule_used_[r]) continue;
      return usage_error(cat("recipe, rule ", r + 1, ": no linear layer has the ",
                             rule.layer == "*" ? cat("role '", rule.role, "'") : cat("name '", rule.layer, "'"),
                             rule.layer == "*" || rule.role == "*" ? "" : cat(" and the role '", rule.role, "'"),
                             rule.layer == "*" ? "" : nearest_layers(rule.layer)));
    }
    return {};
  }

  // What was asked must be somewhere: a name without effect would be the lie that this product is against.
  Status check_realised(const Choices& choices) const {
    const auto any = [&](auto&& what) { return std::any_of(choices.layers.begin(), choices.layers.end(), what); };
    if (options_.sparse && !any([](const LayerChoice& c) { return c.sparse; }))
      return refused(
          "no layer would be 2:4: this model has no linear layer in a block, or the recipe excludes them all");
    if (!base_->weight.scaled() || !options_.rules.empty()) return {};
    if (any([&](const LayerChoice& c) { return c.precision == base_; })) return {};
    const bool allowed_away =
        std::any_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) { return is_linear(g_, n) && in_block(n); });
    if (allowed_away) {
      return usage_error(cat("--allow leaves no layer in ", base_->name, ": ask for --precision ",
                             options_.allow.back().precision,
                             " instead, allow fewer layers, or build for a --target that runs ", base_->name));
    }
    if (states_types(g_))
      return refused(
          cat("no layer would be ", base_->name,
              ": the model states the types of its layers, which --precision does not change; leave it out"));
    return refused(cat("no layer would be ", base_->name,
                       ": every linear layer of this model is an embedding or a head, which stay ", carrier_->name,
                       "; --allow '*=", base_->name, "' takes them too"));
  }

  // "; the nearest are 'a', 'b', 'c'": the linear layers that share the longest subsequence with the pattern, by
  // length.
  std::string nearest_layers(const std::string& pattern) const {
    std::vector<std::pair<double, std::string>> ranked;
    for (const Node& n : g_.nodes) {
      if (!is_linear(g_, n)) continue;
      std::vector<size_t> row(n.name.size() + 1, 0);
      for (const char c : pattern) {
        size_t diagonal = 0;
        for (size_t j = 0; j < n.name.size(); ++j) {
          const size_t above = row[j + 1];
          row[j + 1] = c == n.name[j] ? diagonal + 1 : std::max(above, row[j]);
          diagonal = above;
        }
      }
      ranked.emplace_back(-2.0 * static_cast<double>(row.back()) / static_cast<double>(pattern.size() + n.name.size()),
                          n.name);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string text;
    for (size_t i = 0; i < ranked.size() && i < 3; ++i)
      text += cat(i == 0 ? "; the nearest are '" : ", '", ranked[i].second, "'");
    return text;
  }

  Graph& g_;
  const QuantizeOptions& options_;
  const Precision *base_ = nullptr, *carrier_ = nullptr;
  std::vector<bool> rule_used_, allow_used_;
  std::vector<RefusedLayer> left_;  // layers without an allowance
};

}  // namespace

Result<const Precision*> base_precision(const std::string& name) {
  if (const Precision* p = find_precision(name == kImported ? "fp16" : name)) return p;
  std::string small = name;
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return usage_error(cat("precision '", name, "' is unknown; accepted: ", precision_list(), ", and build takes auto",
                         find_precision(small) != nullptr ? cat("; did you mean ", small, "?") : ""));
}

bool states_types(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    if (is_linear(graph, n) && graph.at(n.inputs[1]).type.quant.scaled()) return true;
    return std::any_of(n.attrs.all().begin(), n.attrs.all().end(),
                       [](const auto& attr) { return attr.first.starts_with("type."); });
  });
}

bool attention_has_codes(std::string_view attention) {
  const Result<const Precision*> p = find_attention_precision(attention);
  return p.ok() && (*p)->attention->scaled();
}

bool needs_ranges(const QuantizeOptions& options) {
  const auto needs = [](const std::string& name) {
    const Precision* p = find_precision(name);
    return p != nullptr && p->needs_ranges();
  };
  return needs(options.precision) || attention_has_codes(options.attention) ||
         std::any_of(options.rules.begin(), options.rules.end(), [&](const Rule& r) { return needs(r.precision); }) ||
         std::any_of(options.allow.begin(), options.allow.end(),
                     [&](const Allowance& a) { return needs(a.precision); });
}

Result<Choices> choose_precisions(Graph& graph, const QuantizeOptions& options) {
  return Chooser(graph, options).run();
}

}  // namespace tessera
