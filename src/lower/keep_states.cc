// SPDX-License-Identifier: Apache-2.0
#include "lower/keep_states.h"

#include <algorithm>

namespace tessera {
namespace {

class StateKeeper {
 public:
  explicit StateKeeper(Graph& graph) : g_(graph), producers_(graph.producers()) {}

  void run() {
    std::vector<StatePair> whole;
    for (const StatePair& s : g_.states) {
      if (s.output && !write_in_place(g_.inputs[s.input], g_.outputs[*s.output])) whole.push_back(s);
    }
    // A result that lies in a state (two states that change places) is brought out of it before the first is written.
    for (const StatePair& s : whole) bring_out(g_.outputs[*s.output]);
    for (const StatePair& s : whole) write_whole(g_.inputs[s.input], g_.outputs[*s.output]);
  }

 private:
  // Marks the chain from `after` back to `before`; false where there is none or it is not safe.
  bool write_in_place(ValueId before, ValueId after) {
    std::vector<int> chain;
    ValueId at = after;
    while (at != before) {
      const int maker = producers_[static_cast<size_t>(at)];
      if (maker < 0 || g_.nodes[static_cast<size_t>(maker)].op != "write") return false;
      chain.push_back(maker);
      at = g_.nodes[static_cast<size_t>(maker)].inputs[0];
      if (is_read_after(at, maker)) return false;
    }
    for (const int n : chain) g_.nodes[static_cast<size_t>(n)].attrs.set(kInPlace, int64_t{1});
    return !chain.empty();
  }

  // By a later node, by the writing node as another operand, or by the caller; through views, too.
  bool is_read_after(ValueId value, int writer) const {
    const auto lies_there = [&](ValueId id) {
      return id != kNoValue && !g_.at(id).constant && placement_of(g_, producers_, id).base == value;
    };
    for (size_t n = static_cast<size_t>(writer); n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op == "view") continue;  // its readers are asked
      const size_t own = n == static_cast<size_t>(writer) ? 1 : 0;
      if (std::any_of(node.inputs.begin() + static_cast<std::ptrdiff_t>(own), node.inputs.end(), lies_there))
        return true;
    }
    return std::any_of(g_.outputs.begin(), g_.outputs.end(), lies_there);
  }

  void bring_out(ValueId& out) {
    const ValueId base = placement_of(g_, producers_, out).base;
    if (std::find(g_.inputs.begin(), g_.inputs.end(), base) == g_.inputs.end()) return;
    Value copy{.name = g_.at(out).name + ".copy", .type = g_.at(out).type, .constant = false, .data = {}};
    copy.scale = g_.at(out).scale, copy.scale2 = g_.at(out).scale2;
    const ValueId id = g_.add_value(std::move(copy));
    g_.nodes.push_back({.name = g_.at(id).name, .op = "copy", .inputs = {out}, .outputs = {id}});
    out = id;
    producers_ = g_.producers();
  }

  void write_whole(ValueId before, ValueId& out) {
    Value after{.name = g_.at(out).name, .type = g_.at(before).type, .constant = false, .data = {}};
    after.scale = g_.at(before).scale, after.scale2 = g_.at(before).scale2;
    g_.at(out).name += ".inner";
    const ValueId id = g_.add_value(std::move(after));
    Node node{.name = g_.at(before).name + ".keep", .op = "write", .inputs = {before, out}, .outputs = {id}};
    node.attrs.set("axis", int64_t{0});
    node.attrs.set(kInPlace, int64_t{1});
    g_.nodes.push_back(std::move(node));
    out = id;
    producers_ = g_.producers();
  }

  Graph& g_;
  std::vector<int> producers_;
};

}  // namespace

void keep_states(Graph& graph) { StateKeeper(graph).run(); }

}  // namespace tessera
