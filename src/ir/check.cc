// SPDX-License-Identifier: Apache-2.0
#include "ir/check.h"

#include <set>

#include "ir/region.h"

namespace tessera {
namespace {

class Checker {
 public:
  explicit Checker(const Graph& graph) : g_(graph), made_(graph.values.size(), false) {}

  Status run() {
    for (size_t i = 0; i < g_.values.size(); ++i) {
      const Value& v = g_.values[i];
      TS_TRY(check_value(v).at(cat("value '", v.name, "'")));
      made_[i] = v.constant;
    }
    for (ValueId id : g_.inputs) {
      if (!in_list(id) || made(id)) return bad_input("a graph input is unknown, a constant, or listed twice");
      made_[static_cast<size_t>(id)] = true;
    }
    for (const Node& n : g_.nodes) TS_TRY(check_order(n).at(cat("node '", n.name, "' (", n.op, ")")));
    // Only now every value has one maker, so that views can be followed to their bases.
    producers_ = g_.producers();
    for (const Node& n : g_.nodes) {
      if (n.op == "view") TS_TRY(check_view(n).at(cat("view '", n.name, "'")));
      TS_TRY(check_program(n).at(cat("node '", n.name, "' (", n.op, ")")));
    }
    for (ValueId id : g_.outputs) {
      if (!in_list(id) || !made(id)) return bad_input("a graph output is made by no node");
    }
    return check_states();
  }

 private:
  bool in_list(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < g_.values.size(); }
  bool made(ValueId id) const { return made_[static_cast<size_t>(id)]; }

  // Each port is part of one state at most, and what a run leaves has the form of what the next one finds.
  Status check_states() const {
    std::set<size_t> inputs, outputs;
    for (const StatePair& s : g_.states) {
      if (s.input >= g_.inputs.size() || (s.output && *s.output >= g_.outputs.size()))
        return bad_input("a state names a port that the graph does not have");
      const Value& before = g_.at(g_.inputs[s.input]);
      if (!inputs.insert(s.input).second || (s.output && !outputs.insert(*s.output).second))
        return bad_input(cat("state '", before.name, "': its input or output belongs to another state, too"));
      if (before.type.quant.scaled() && before.type.quant.dynamic)
        return bad_input(cat("state '", before.name, "' is ", to_string(before.type.quant),
                             "; a state has no scales that are made while running"));
      if (!s.output) continue;
      const Value& after = g_.at(g_.outputs[*s.output]);
      if (after.type != before.type)
        return bad_input(cat("state '", before.name, "' begins as ", to_string(before.type.quant),
                             to_string(before.type.shape), " and ends as ", to_string(after.type.quant),
                             to_string(after.type.shape), "; a run leaves what the next one can read"));
    }
    return {};
  }

  Status check_value(const Value& v) const {
    const auto count = checked_elements(v.type.shape, kMaxElements);
    if (!count)
      return bad_input(cat("shape ", to_string(v.type.shape), " is negative somewhere or holds more than ",
                           kMaxElements, " elements"));
    const int64_t bytes = packed_bytes(v.type.quant.element, *count);
    if (v.constant && static_cast<int64_t>(v.data.size()) != bytes) {
      return bad_input(cat("holds ", v.data.size(), " bytes, its type ", to_string(v.type.quant),
                           to_string(v.type.shape), " takes ", bytes));
    }
    if (v.type.quant.dynamic && (v.constant || v.scale != kNoValue || !v.type.quant.scaled()))
      return bad_input(cat("its type ", to_string(v.type.quant),
                           " has scales that are made while running: it is no constant and names none"));
    TS_TRY(check_scale(v, v.scale, v.type.quant.scale));
    return check_scale(v, v.scale2, v.type.quant.scale2);
  }

  Status check_scale(const Value& v, ValueId id, const ScaleLevel& level) const {
    if (id == kNoValue) return {};  // not calibrated yet, dynamic, or a plain type
    if (level.granularity == Granularity::kNone)
      return bad_input(cat("has a scale, its type ", to_string(v.type.quant), " takes none"));
    if (!in_list(id) || !g_.at(id).constant) return bad_input("its scale is not a constant of the graph");
    const int64_t cols = v.type.shape.empty() ? 1 : v.type.shape.back();
    const int64_t rows = cols == 0 ? 0 : elements(v.type.shape) / cols;
    const int64_t want = scale_count(level, rows, cols), have = elements(g_.at(id).type.shape);
    if (have != want)
      return bad_input(cat("has ", have, " scales, its type ", to_string(v.type.quant), " takes ", want));
    return {};
  }

  Status check_order(const Node& n) {
    for (ValueId id : n.inputs) {
      if (id == kNoValue) continue;
      if (!in_list(id)) return bad_input("reads an unknown value");
      if (!made(id)) return bad_input(cat("reads '", g_.at(id).name, "', which no earlier node makes"));
    }
    for (ValueId id : n.outputs) {
      if (!in_list(id)) return bad_input("makes an unknown value");
      if (made(id)) return bad_input(cat("makes '", g_.at(id).name, "', which is made already"));
      made_[static_cast<size_t>(id)] = true;
    }
    if (n.outputs.empty()) return bad_input("makes nothing");
    return {};
  }

  // Scales of rows and blocks follow the storage: a view of them has all the rows of its base, in their order.
  bool keeps_rows(const QuantType& type, const Placement& p, const Shape& shape) const {
    const Granularity g = type.scale.granularity;
    if (g == Granularity::kNone || g == Granularity::kTensor) return true;
    const Shape& base = g_.at(p.base).type.shape;
    const auto cols = [](const Shape& s) { return s.empty() ? 1 : s.back(); };
    return p.offset == 0 && cols(shape) == cols(base) && elements(shape) == elements(base) &&
           is_dense(shape, p.strides);
  }

  Status check_view(const Node& n) const {
    if (n.inputs.size() != 1 || n.inputs[0] == kNoValue || n.outputs.size() != 1)
      return bad_input("a view has one input and one result");
    const Value& x = g_.at(n.inputs[0]);
    const Value& y = g_.at(n.outputs[0]);
    if (x.type.quant != y.type.quant) return bad_input("a view keeps its input's type");
    const Region region{y.type.shape, n.attrs.list("strides"), n.attrs.integer("offset")};
    if (region.strides.size() != region.shape.size())
      return bad_input(cat("a view of ", region.shape.size(), " axes needs as many strides"));
    // A view of a view addresses the first one's base, so its range is known only there.
    const Placement p = placement_of(g_, producers_, n.outputs[0]);
    if (!in_range({region.shape, p.strides, p.offset}, elements(g_.at(p.base).type.shape))) {
      return bad_input(cat("a view of shape ", to_string(region.shape), ", strides ", to_string(region.strides),
                           ", offset ", p.offset, " leaves its base ", to_string(g_.at(p.base).type.shape)));
    }
    if (!keeps_rows(y.type.quant, p, region.shape))
      return bad_input(cat("a view of shape ", to_string(region.shape), ", strides ", to_string(p.strides), ", offset ",
                           p.offset, " cuts rows of ", to_string(y.type.quant), to_string(g_.at(p.base).type.shape),
                           " apart from their scales; views that fold or unfold leading axes are accepted"));
    if (info(y.type.quant.element).bits < 8 && p.offset % 2 != 0)
      return bad_input(cat("a view of ", info(y.type.quant.element).name, " at offset ", p.offset,
                           " begins inside a byte; even offsets are accepted"));
    return {};
  }

  Status check_program(const Node& n) const {
    if (std::string misplaced = misplaced_step(n.then); !misplaced.empty()) return bad_input(std::move(misplaced));
    for (size_t i = 0; i < n.then.steps.size(); ++i) {
      const Step& s = n.then.steps[i];
      if (operand_of(s.kind) == StepOperand::kNone) continue;
      if (s.operand < 0 || static_cast<size_t>(s.operand) >= n.inputs.size() ||
          n.inputs[static_cast<size_t>(s.operand)] == kNoValue) {
        return bad_input(cat("step ", name_of(s.kind), " reads operand ", s.operand, ", which is not there"));
      }
      const Shape& y = g_.at(n.outputs[0]).type.shape;
      const Shape& r = g_.at(n.inputs[static_cast<size_t>(s.operand)]).type.shape;
      const int64_t cols = n.then.cols_before(i, y.empty() ? 1 : y.back());
      if (operand_of(s.kind) == StepOperand::kVector && elements(r) != cols) {
        return bad_input(cat("step ", name_of(s.kind), " reads ", to_string(r), ", wanted ", cols, " numbers"));
      }
      if (operand_of(s.kind) == StepOperand::kMatrix && (r.empty() || r.back() != cols || elements(r) == 0 ||
                                                         n.then.cols_before(i, elements(y)) % elements(r) != 0)) {
        return bad_input(cat("step ", name_of(s.kind), " reads ", to_string(r), ", which does not repeat over rows of ",
                             to_string(y)));
      }
    }
    return {};
  }

  const Graph& g_;
  std::vector<bool> made_;
  std::vector<int> producers_;
};

}  // namespace

Status check(const Graph& graph) { return Checker(graph).run(); }

}  // namespace tessera
