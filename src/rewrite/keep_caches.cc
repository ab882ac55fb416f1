// SPDX-License-Identifier: Apache-2.0
#include "rewrite/keep_caches.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// Operands of attention (ops/attention/attention.h).
constexpr size_t kKeys = 1, kValues = 2, kBias = 3, kLengths = 4;

// What `*` stands for where the name fits the pattern.
std::optional<std::string> star_of(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return name == pattern ? std::optional<std::string>("") : std::nullopt;
  const std::string head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) return std::nullopt;
  return name.substr(head.size(), name.size() - head.size() - tail.size());
}

std::string with_star(const std::string& pattern, const std::string& text) {
  const size_t star = pattern.find('*');
  return star == std::string::npos ? pattern : pattern.substr(0, star) + text + pattern.substr(star + 1);
}

class CacheKeeper {
 public:
  explicit CacheKeeper(Graph& graph) : g_(graph) {}

  Status run(const std::vector<StatePattern>& patterns) {
    for (const StatePattern& p : patterns) TS_TRY(pair(p));
    for (const StatePair& s : g_.states) TS_TRY(keep(s).at(cat("state '", name(g_.inputs[s.input]), "'")));
    return finish_attention();
  }

 private:
  const std::string& name(ValueId id) const { return g_.at(id).name; }

  Status pair(const StatePattern& pattern) {
    bool any = false;
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      const auto text = star_of(pattern.input, name(g_.inputs[i]));
      if (!text) continue;
      const std::string wanted = with_star(pattern.output, *text);
      const auto out =
          std::find_if(g_.outputs.begin(), g_.outputs.end(), [&](ValueId id) { return name(id) == wanted; });
      if (out == g_.outputs.end())
        return bad_input(cat("--state: input '", name(g_.inputs[i]), "' is to be found as output '", wanted,
                             "', which the model does not have; it has ", names(g_.outputs)));
      g_.states.push_back({.input = i, .output = static_cast<size_t>(out - g_.outputs.begin())});
      any = true;
    }
    if (any) return {};
    return bad_input(cat("--state: no input of the model is called '", pattern.input, "'; it has ", names(g_.inputs)));
  }

  std::string names(const std::vector<ValueId>& ids) const {
    std::string text;
    for (size_t i = 0; i < ids.size() && i < 8; ++i) text += cat(i == 0 ? "'" : ", '", name(ids[i]), "'");
    return ids.size() > 8 ? cat(text, " and ", ids.size() - 8, " more") : text;
  }

  Status keep(const StatePair& s) {
    const ValueId before = g_.inputs[s.input], after = g_.outputs[*s.output];
    if (g_.at(before).type == g_.at(after).type) return {};
    return keep_cache(before, after);
  }

  // present = concat(past, new), read by attention alone.
  Status keep_cache(ValueId past, ValueId present) {
    const Matcher match(g_);
    const int maker = match.producers()[static_cast<size_t>(present)];
    if (maker < 0 || g_.nodes[static_cast<size_t>(maker)].op != "concat" || !is_append(maker, past, present))
      return bad_input(cat("its output '", name(present), "' ", to_string(g_.at(present).type.shape),
                           " has another shape and is not the input with new rows joined to it: a state keeps its "
                           "shape, or is a cache that grows by concat(past, new)"));
    if (match.readers(past).size() != 1)
      return bad_input("it is read by more than the concat that new rows are joined in; a cache has no other reader");
    Node& node = g_.nodes[static_cast<size_t>(maker)];
    int64_t axis = node.attrs.integer("axis");
    if (axis < 0) axis += static_cast<int64_t>(g_.at(present).type.shape.size());
    const int64_t rows = g_.at(node.inputs[1]).type.shape[static_cast<size_t>(axis)];
    TS_TRY(note_readers(match, present, static_cast<size_t>(axis), rows));
    TS_ASSIGN(const ValueId length, past_length());
    g_.at(past).type = g_.at(present).type;
    node.op = "write";
    node.inputs.push_back(length);
    node.attrs = {};
    node.attrs.set("axis", axis);
    return {};
  }

  bool is_append(int maker, ValueId past, ValueId present) const {
    const Node& n = g_.nodes[static_cast<size_t>(maker)];
    return n.then.empty() && n.inputs.size() == 2 && n.inputs[0] == past && n.inputs[1] != past &&
           !n.attrs.has("block") && g_.at(past).type.shape.size() == g_.at(present).type.shape.size() &&
           g_.at(past).type.quant == g_.at(present).type.quant &&
           g_.at(n.inputs[1]).type.quant == g_.at(past).type.quant;
  }

  // Every reader of the cache is attention, which reads it as its keys or as its values, all rows in their order.
  Status note_readers(const Matcher& match, ValueId present, size_t axis, int64_t fresh) {
    const int64_t stride = dense_strides(g_.at(present).type.shape)[axis];
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op == "view") continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId in = node.inputs[i];
        if (in == kNoValue || g_.at(in).constant) continue;
        const Placement p = placement_of(g_, match.producers(), in);
        if (p.base != present) continue;
        const Shape& shape = g_.at(in).type.shape;
        const bool fits = node.op == "attention" && (i == kKeys || i == kValues) && shape.size() == 4 &&
                          p.strides[1] == stride && shape[1] == g_.at(present).type.shape[axis];
        if (!fits)
          return bad_input(cat("it is read by layer ", node.name, " (", node.op,
                               "), which cannot be told how many of its rows are valid; a cache is read by attention "
                               "that Tessera recognises, as keys or values"));
        auto& reads = caches_read_[n];
        reads[i] = fresh;
      }
    }
    return {};
  }

  // The input that says how many rows of the caches are valid; one for all of them.
  Result<ValueId> past_length() {
    if (length_ != kNoValue) return length_;
    for (const std::vector<ValueId>* ports : {&g_.inputs, &g_.outputs}) {
      if (std::none_of(ports->begin(), ports->end(), [&](ValueId id) { return name(id) == kPastLength; })) continue;
      return bad_input(cat("the model has an input or output '", kPastLength,
                           "' already, the name of the number that says how much of a cache is valid"));
    }
    const int64_t batch = g_.at(g_.inputs[0]).type.shape.empty() ? 1 : g_.at(g_.inputs[0]).type.shape[0];
    Value v;
    v.name = kPastLength;
    v.type = {{batch}, Element::i32};
    length_ = g_.add_value(std::move(v));
    g_.inputs.push_back(length_);
    return length_;
  }

  // Queries that are turned by angles which no input has a part in are those of one position: of a full cache.
  Status check_rotary(ValueId queries) const {
    const Matcher match(g_);
    const Node* turn = match.maker(placement_of(g_, match.producers(), queries).base);
    if (turn == nullptr || turn->op != "rotary") return {};
    if (!g_.at(placement_of(g_, match.producers(), turn->inputs[1]).base).constant) return {};
    return bad_input(
        cat("layer ", turn->name,
            " (rotary) turns by constant angles, those of a full cache: with a shorter past they would be another "
            "position's. Positions must be an input of the model: export it with position_ids"));
  }

  Status finish_attention() {
    for (const auto& [n, reads] : caches_read_) {
      Node& node = g_.nodes[n];
      if (reads.size() != 2 || reads.at(kKeys) != reads.at(kValues))
        return bad_input(cat("layer ", node.name,
                             ": its keys and its values must both be states, with as many new "
                             "rows"));
      if (node.inputs.size() > kBias && node.inputs[kBias] != kNoValue)
        TS_TRY(check_mask(node.inputs[kBias], reads.at(kKeys)).at(cat("layer ", node.name)));
      TS_TRY(check_rotary(node.inputs[0]));
      node.inputs.resize(kLengths, kNoValue);
      node.inputs.push_back(length_);
      node.attrs.set("fresh", reads.at(kKeys));
      const int64_t keys = g_.at(node.inputs[kKeys]).type.shape[1];
      for (const ValueId id : g_.inputs) {
        const Type& t = g_.at(id).type;
        if (t.shape.size() > 1 && t.shape.back() == keys && info(t.quant.element).kind == ElementKind::kInteger)
          masks_.insert(id);
      }
    }
    for (const ValueId id : masks_) TS_TRY(check_only_masks(id));
    return {};
  }

  // Columns of the past beyond past_length are not read, so nothing but masks may be made of them: a model that counts
  // its positions from them (a cumulative sum) would count keys that are not there.
  Status check_only_masks(ValueId input) const {
    std::map<ValueId, const Node*> first = {{input, nullptr}};  // what depends on it, by way of which of its readers
    const auto refused = [&](ValueId at, const std::string& what) {
      const Value& v = g_.at(input);
      const Node* const by = first.at(at);
      return bad_input(cat("input '", v.name, "' ", to_string(v.type.shape), " has a column for each key, and ", what,
                           by == nullptr ? std::string() : cat(" by way of layer ", by->name, " (", by->op, ")"),
                           ": columns of the past that no key belongs to are not read by attention, and would count "
                           "there. Only masks of attention may depend on it; positions must be an input of the model: "
                           "export it with position_ids"));
    };
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto found = first.find(node.inputs[i]);
        if (found == first.end() || (i == kBias && caches_read_.contains(n))) continue;
        if (node.op == "attention")
          return refused(found->first, cat("layer ", node.name, " (attention) depends on it"));
        const Node* const by = found->second != nullptr ? found->second : &node;
        for (const ValueId out : node.outputs) first.emplace(out, by);
      }
    }
    for (const ValueId out : g_.outputs) {
      if (first.contains(out)) return refused(out, cat("output '", name(out), "' depends on it"));
    }
    return {};
  }

  // A mask that belongs to a full cache is right for a shorter one only if it does not know where a column is: it may
  // depend on inputs that say it of each key, and on constants that are the same for all keys of the past.
  Status check_mask(ValueId mask, int64_t fresh) {
    const Matcher match(g_);
    const int64_t keys = g_.at(mask).type.shape.back();
    std::set<ValueId> seen;
    std::vector<ValueId> open = {mask};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (id == kNoValue || !seen.insert(id).second) continue;
      const Value& v = g_.at(id);
      const int64_t last = v.type.shape.empty() ? 1 : v.type.shape.back();
      if (v.constant) {
        if (last == keys && keys > 1 && !same_for_past(id, keys - fresh))
          return bad_input(
              cat("its mask has other numbers for some keys of the past than for others ('", v.name,
                  "'): with a shorter past these are other keys; a causal mask, or one that is given as an "
                  "input for each key, is accepted"));
        continue;
      }
      const Node* maker = match.maker(id);
      if (maker != nullptr) {
        open.insert(open.end(), maker->inputs.begin(), maker->inputs.end());
      } else if (last == keys) {
        masks_.insert(id);
      } else {
        return bad_input(cat("its mask depends on input '", v.name, "' ", to_string(v.type.shape),
                             ", which does not say it of each key: with a shorter past it would hide other keys; masks "
                             "of inputs of ",
                             keys, " columns are accepted"));
      }
    }
    return {};
  }

  bool same_for_past(ValueId constant, int64_t past) const {
    const std::vector<double> v = g_.numbers(constant);
    const int64_t cols = g_.at(constant).type.shape.back();
    for (size_t row = 0; row * static_cast<size_t>(cols) < v.size(); ++row) {
      for (int64_t c = 1; c < past; ++c) {
        if (v[row * static_cast<size_t>(cols) + static_cast<size_t>(c)] != v[row * static_cast<size_t>(cols)])
          return false;
      }
    }
    return true;
  }

  Graph& g_;
  ValueId length_ = kNoValue;
  std::map<size_t, std::map<size_t, int64_t>> caches_read_;  // attention node -> operand -> new rows
  std::set<ValueId> masks_;                                  // inputs that have a column for each key
};

}  // namespace

Result<StatePattern> parse_state_pattern(const std::string& text) {
  const size_t equals = text.find('=');
  StatePattern p{text.substr(0, equals), equals == std::string::npos ? "" : text.substr(equals + 1)};
  const auto stars = [](const std::string& s) { return std::count(s.begin(), s.end(), '*'); };
  if (p.input.empty() || p.output.empty() || stars(p.input) > 1 || stars(p.input) != stars(p.output))
    return usage_error(cat("--state '", text, "': wanted INPUT=OUTPUT, with a * in both or in none, for example ",
                           "past_key_values.*=present.*"));
  return p;
}

Status keep_caches(Graph& graph, const std::vector<StatePattern>& patterns) { return CacheKeeper(graph).run(patterns); }

}  // namespace tessera
