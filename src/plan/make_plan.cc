// SPDX-License-Identifier: Apache-2.0
#include "plan/make_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "base/log.h"
#include "io/mmap.h"
#include "ir/derived_constants.h"
#include "ir/layer_ops.h"
#include "op/prepack.h"
#include "ops/ops.h"
#include "plan/arena.h"
#include "plan/choose.h"
#include "plan/form_chains.h"
#include "plan/promise.h"

namespace tessera {
namespace {

class Planner {
 public:
  Planner(const Graph& graph, const PlanOptions& options, ConstantPool& pool)
      : g_(graph),
        options_(options),
        pool_(pool),
        keeps_states_(pool.has_states() && !options.as_reference),
        producers_(graph.producers()),
        tensor_of_(graph.values.size(), -1) {}

  Result<Plan> run() {
    plan_.name = options_.name;
    plan_.arch = options_.as_reference ? Arch::ref : options_.target;
    plan_.graph = options_.graph;
    plan_.batch = options_.batch;
    plan_.sizes = options_.sizes;
    for (const std::vector<ValueId>* ports : {&g_.inputs, &g_.outputs}) {
      for (ValueId id : *ports) TS_TRY(check_port(g_.at(id)));
    }
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      port(g_.inputs[i], Storage::kInput, static_cast<int64_t>(i), plan_.inputs);
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      port(g_.outputs[i], Storage::kOutput, static_cast<int64_t>(i), plan_.outputs);
    if (keeps_states_) place_states();
    for (const Node& node : g_.nodes) {
      if (node.op != "view") TS_TRY(add_step(node));
    }
    if (!failures_.empty()) {
      std::string text = failure_text();
      return refused(std::move(text), std::move(failures_));
    }
    place();
    if (options_.chains && !options_.as_reference) form_chains(plan_);
    return std::move(plan_);
  }

 private:
  // The caller hands over numbers, not codes with scales.
  static Status check_port(const Value& v) {
    if (!v.type.quant.dynamic) return {};
    return bad_input(
        cat("value '", v.name, "' is ", to_string(v.type.quant),
            " and an input or output of the graph; types whose scales are made while running stay inside"));
  }

  void port(ValueId id, Storage storage, int64_t index, std::vector<Port>& ports) {
    const int t = add_tensor(id, dense_operand(g_.at(id).type.shape, g_.at(id).type.quant), storage);
    plan_.tensors[static_cast<size_t>(t)].index = index;
    tensor_of_[static_cast<size_t>(id)] = t;
    ports.push_back({g_.at(id).name, t});
  }

  // Both ports of a state lie in it: the pass before has seen to it that the last result is written over the first.
  void place_states() {
    for (const StatePair& s : g_.states) {
      PlanTensor& before = plan_.tensors[static_cast<size_t>(plan_.inputs[s.input].tensor)];
      before.storage = Storage::kState;
      before.index = pool_.state(before.name, packed_bytes(before.desc.type.element, elements(before.desc.shape)));
      if (!s.output) continue;
      PlanTensor& after = plan_.tensors[static_cast<size_t>(plan_.outputs[*s.output].tensor)];
      after.storage = Storage::kState;
      after.index = before.index;
    }
  }

  int add_tensor(ValueId id, Operand desc, Storage storage) {
    PlanTensor t;
    t.name = g_.at(id).name;
    t.desc = std::move(desc);
    t.storage = storage;
    plan_.tensors.push_back(std::move(t));
    return static_cast<int>(plan_.tensors.size()) - 1;
  }

  // The tensor of a value as an op reads it; constants in the layout asked for.
  int tensor(ValueId id, OperandLayout layout) {
    const Value& v = g_.at(id);
    if (v.constant) return constant(id, layout);
    if (tensor_of_[static_cast<size_t>(id)] >= 0) return tensor_of_[static_cast<size_t>(id)];
    const Placement p = placement_of(g_, producers_, id);
    int t;
    if (p.base == id) {
      t = add_tensor(id, dense_operand(v.type.shape, v.type.quant), Storage::kArena);
    } else {
      const int base = tensor(p.base, Layout::kRows);
      Operand desc = dense_operand(v.type.shape, v.type.quant);
      desc.strides = p.strides;
      t = add_tensor(id, std::move(desc), Storage::kArena);
      PlanTensor& view = plan_.tensors[static_cast<size_t>(t)];
      view.storage = plan_.tensors[static_cast<size_t>(base)].storage;
      view.index = plan_.tensors[static_cast<size_t>(base)].index;
      view.offset_bytes = p.offset * info(v.type.quant.element).bits / 8;
      base_of_[t] = base;
      view.scale = plan_.tensors[static_cast<size_t>(base)].scale;  // its rows are the base's rows: so are the scales
    }
    tensor_of_[static_cast<size_t>(id)] = t;
    attach_scales(t, v, Layout::kRows, {});
    if (v.type.quant.dynamic && p.base == id) make_scale_tensor(t);
    return t;
  }

  // Scales that the producer of tensor t makes while running lie in the arena beside its codes.
  void make_scale_tensor(int t) {
    PlanTensor scale;
    const PlanTensor& codes = plan_.tensors[static_cast<size_t>(t)];
    const Shape& shape = codes.desc.shape;
    const int64_t cols = shape.empty() ? 1 : shape.back(), rows = cols == 0 ? 0 : elements(shape) / cols;
    const ScaleLevel& level = codes.desc.type.scale;
    scale.name = codes.name + ".scale";
    scale.desc = dense_operand({scale_count(level, rows, cols)}, level.element);
    plan_.tensors.push_back(std::move(scale));
    plan_.tensors[static_cast<size_t>(t)].scale = static_cast<int>(plan_.tensors.size()) - 1;
  }

  void attach_scales(int t, const Value& v, Layout layout, Bytes packed) {
    if (v.scale != kNoValue) {
      const int s =
          layout == Layout::kRows ? tensor(v.scale, layout) : packed_scales(t, v.scale, layout, std::move(packed));
      plan_.tensors[static_cast<size_t>(t)].scale = s;
    }
    if (v.scale2 != kNoValue) {
      const int s = tensor(v.scale2, Layout::kRows);
      plan_.tensors[static_cast<size_t>(t)].scale2 = s;
    }
  }

  // Block scales of constant tensor t as they were prepacked.
  int packed_scales(int t, ValueId scales, Layout layout, Bytes packed) {
    const Value& v = g_.at(scales);
    Operand desc = dense_operand(block_scales_shape(plan_.tensors[static_cast<size_t>(t)].desc), v.type.quant, true);
    desc.layout = layout;
    const int made = add_tensor(scales, std::move(desc), Storage::kConstant);
    plan_.tensors[static_cast<size_t>(made)].index = pool_.add(v.name, std::move(packed));
    return made;
  }

  int constant(ValueId id, OperandLayout layout) {
    const auto key = std::make_pair(id, layout);
    if (auto it = constant_tensor_.find(key); it != constant_tensor_.end()) return it->second;
    const Value& v = g_.at(id);
    Packed packed;
    if (auto it = packed_.find(key); it != packed_.end()) packed = std::move(it->second), packed_.erase(it);
    Bytes data = layout.codes == Layout::kRows ? v.data : std::move(packed.codes);
    const int t = add_tensor(id, constant_operand(v, layout), Storage::kConstant);
    plan_.tensors[static_cast<size_t>(t)].index = pool_.add(v.name, std::move(data));
    constant_tensor_[key] = t;
    attach_scales(t, v, layout.scales, std::move(packed.scales));
    return t;
  }

  static Operand constant_operand(const Value& v, OperandLayout layout) {
    Operand o = dense_operand(v.type.shape, v.type.quant, true);
    o.layout = layout;
    return o;
  }

  // A constant as a kernel wants it, for `constant` to take. A weight is 2:4 sparse because somebody says so: the first
  // that is not ends the build.
  Status prepack_constant(ValueId id, OperandLayout layout) {
    const auto key = std::make_pair(id, layout);
    if (layout == Layout::kRows || constant_tensor_.contains(key)) return {};
    const Value& v = g_.at(id);
    const Bytes from[] = {v.data, v.scale == kNoValue ? Bytes() : g_.at(v.scale).data};
    const std::string recipe = cat("pack ", to_string(v.type.quant), to_string(v.type.shape), " ",
                                   name_of(layout.codes), " ", name_of(layout.scales));
    auto packed = derive(g_, recipe, from, [&]() -> Result<std::vector<Buffer>> {
      TS_ASSIGN(Prepacked made, prepack(constant_operand(v, layout), from[0].data(), from[1].data()));
      std::vector<Buffer> both;
      both.push_back(std::move(made.codes));
      both.push_back(std::move(made.scales));
      return both;
    });
    if (!packed.ok()) return packed.status().at(cat("weight '", v.name, "'"));
    packed_[key] = {(*packed)[0], (*packed)[1]};
    return {};
  }

  // A weight that is no constant of its own but a view of one, or a copy of such a view: no precision could be asked of
  // it. kNoValue: none.
  ValueId viewed_weight(const Node& node) const {
    if (!multiplies_weights(node.op) || node.inputs.size() < 2 || node.inputs[1] == kNoValue) return kNoValue;
    ValueId w = node.inputs[1];
    if (g_.at(w).constant) return kNoValue;
    for (;;) {
      const ValueId base = placement_of(g_, producers_, w).base;
      if (g_.at(base).constant) return base;
      const int maker = producers_[static_cast<size_t>(base)];
      if (maker < 0 || g_.nodes[static_cast<size_t>(maker)].op != "copy") return kNoValue;
      w = g_.nodes[static_cast<size_t>(maker)].inputs[0];
    }
  }

  Status add_step(const Node& node) {
    const Activity planning("layer", node.name);
    const OpInfo* op = find_op(node.op);
    if (op == nullptr) return bad_input(cat("node ", node.name, ": no op is called '", node.op, "'"));
    if (const ValueId w = viewed_weight(node); w != kNoValue) {
      return bad_input(cat("layer ", node.name, ": its weight '", g_.at(w).name,
                           "' is a view of a constant that is too large to be stored again; give it as an input"));
    }
    Problem problem = problem_of(g_, producers_, node);
    Choice choice = choose(*op, problem, options_.target, options_.tuning);
    if (choice.measured && plan_.tuning.empty() && !options_.as_reference) plan_.tuning = tuning_hash(*options_.tuning);
    if (choice.variant == nullptr) {
      failures_.push_back({node.name, node.op, node.asked, choice.refusals});
      return {};
    }
    problem.config = choice.config;
    PlanStep step{.layer = node.name,
                  .op = node.op,
                  .variant = choice.variant->name,
                  .config = choice.config,
                  .in = {},
                  .out = {},
                  .attrs = node.attrs,
                  .then = node.then};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) {
        step.in.push_back(-1);
        continue;
      }
      if (g_.at(node.inputs[i]).constant)
        TS_TRY(prepack_constant(node.inputs[i], choice.layouts[i]).at(cat("layer ", node.name)));
      step.in.push_back(tensor(node.inputs[i], choice.layouts[i]));
    }
    for (ValueId out : node.outputs) step.out.push_back(tensor(out, Layout::kRows));
    if (keeps_states_ && node.attrs.integer(kInPlace, 0) != 0) {
      for (size_t r = 0; r < step.out.size() && op->in_place != nullptr; ++r) {
        const int input = op->in_place(problem, r);
        if (input < 0) continue;
        const PlanTensor& x = plan_.tensors[static_cast<size_t>(step.in[static_cast<size_t>(input)])];
        PlanTensor& y = plan_.tensors[static_cast<size_t>(step.out[r])];
        y.storage = x.storage, y.index = x.index, y.offset_bytes = x.offset_bytes;
      }
    }
    step.role = node.role;
    step.asked = node.asked;
    step.stored = stored_words(*op, problem_of(plan_, step));
    step.refusals = choice.refusals;
    step.slow = choice.slow;
    if (options_.as_reference) {
      step.variant = reference_variant(*op)->name;
      step.config.clear();
      step.computed = arithmetic_name(reference_variant(*op)->arithmetic(problem).computed);
      step.arithmetic = reference_words(choice.variant->name);
    } else {
      step.computed = arithmetic_name(choice.arithmetic.computed);
      step.arithmetic = arithmetic_words(choice.arithmetic);
      if (choice.variant->workspace_bytes != nullptr) step.workspace_bytes = choice.variant->workspace_bytes(problem);
    }
    plan_.steps.push_back(std::move(step));
    return {};
  }

  // Every layer is named; layers that are refused for the same reasons share them.
  std::string failure_text() const {
    std::string text = cat(failures_.size(), failures_.size() == 1 ? " layer cannot" : " layers cannot",
                           " run as asked on ", info(options_.target).name, ":");
    std::vector<bool> told(failures_.size(), false);
    for (size_t i = 0; i < failures_.size(); ++i) {
      if (told[i]) continue;
      const RefusedLayer& f = failures_[i];
      std::string names;
      for (size_t j = i; j < failures_.size(); ++j) {
        if (failures_[j].asked != f.asked || failures_[j].refusals != f.refusals) continue;
        told[j] = true;
        names += cat(names.empty() ? "" : ", ", failures_[j].layer);
      }
      text += cat("\n  ", names, " (", f.op, f.asked.empty() ? "" : cat(", asked ", f.asked), "):");
      if (f.refusals.empty()) text += " no variant of this op runs there";
      for (const Refusal& r : f.refusals) text += cat("\n    ", r.variant, ": ", r.reason);
    }
    return text;
  }

  // Blocks: every arena tensor that owns its storage, its scales where they are made while running, and each step's
  // workspace.
  void place() {
    const int last_step = static_cast<int>(plan_.steps.size()) - 1;
    std::vector<Lifetime> blocks;
    std::vector<int> block_of(plan_.tensors.size(), -1);
    const auto owner = [&](int t) {
      while (base_of_.contains(t)) t = base_of_.at(t);
      return t;
    };
    const auto touch_one = [&](int t, int step) {
      PlanTensor& tensor = plan_.tensors[static_cast<size_t>(t)];
      if (tensor.storage != Storage::kArena) return;
      int& b = block_of[static_cast<size_t>(t)];
      if (b < 0) {
        b = static_cast<int>(blocks.size());
        blocks.push_back({packed_bytes(tensor.desc.type.element, elements(tensor.desc.shape)), step, step});
      }
      blocks[static_cast<size_t>(b)].first = std::min(blocks[static_cast<size_t>(b)].first, step);
      blocks[static_cast<size_t>(b)].last = std::max(blocks[static_cast<size_t>(b)].last, step);
    };
    const auto touch = [&](int t, int step) {
      t = owner(t);
      touch_one(t, step);
      // Scales made while running live as long as their codes.
      if (const int scale = plan_.tensors[static_cast<size_t>(t)].scale; scale >= 0) touch_one(scale, step);
    };
    std::vector<int> workspace_block(plan_.steps.size(), -1);
    for (int s = 0; s <= last_step; ++s) {
      PlanStep& step = plan_.steps[static_cast<size_t>(s)];
      for (int t : step.in) {
        if (t >= 0) touch(t, s);
      }
      for (int t : step.out) touch(t, s);
      if (step.workspace_bytes > 0) {
        workspace_block[static_cast<size_t>(s)] = static_cast<int>(blocks.size());
        blocks.push_back({step.workspace_bytes, s, s});
      }
    }
    const ArenaPlacement placed = place_blocks(blocks);
    plan_.arena_bytes = placed.bytes;
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      PlanTensor& tensor = plan_.tensors[t];
      if (tensor.storage != Storage::kArena) continue;
      const int b = block_of[static_cast<size_t>(owner(static_cast<int>(t)))];
      if (b >= 0) tensor.offset_bytes += placed.offsets[static_cast<size_t>(b)];
    }
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      if (workspace_block[s] >= 0)
        plan_.steps[s].workspace_offset = placed.offsets[static_cast<size_t>(workspace_block[s])];
    }
  }

  struct Packed {
    Bytes codes, scales;  // empty: they stay in rows
  };

  const Graph& g_;
  const PlanOptions& options_;
  ConstantPool& pool_;
  const bool keeps_states_;
  const std::vector<int> producers_;
  Plan plan_;
  std::vector<int> tensor_of_;
  std::map<std::pair<ValueId, OperandLayout>, int> constant_tensor_;
  std::map<std::pair<ValueId, OperandLayout>, Packed> packed_;  // until their tensor is made
  std::map<int, int> base_of_;                                  // view tensor -> tensor that owns the storage
  std::vector<RefusedLayer> failures_;                          // that every variant refuses
};

}  // namespace

int64_t ConstantPool::add(const std::string& name, Bytes bytes) {
  const auto [known, fresh] = by_address_.try_emplace({bytes.data(), bytes.size()}, bytes, -1);
  if (fresh) known->second.second = index_of(name, std::move(bytes));
  return known->second.second;
}

int64_t ConstantPool::index_of(const std::string& name, Bytes bytes) {
  const uint64_t hash = std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Bytes& known = constants_[static_cast<size_t>(it->second)].data;
    if (known.size() == bytes.size() && (bytes.empty() || std::memcmp(known.data(), bytes.data(), bytes.size()) == 0))
      return it->second;
  }
  give_back(bytes.data(), bytes.size());
  constants_.push_back({name, std::move(bytes)});
  const int64_t index = static_cast<int64_t>(constants_.size()) - 1;
  by_hash_.emplace(hash, index);
  return index;
}

int64_t ConstantPool::state(const std::string& name, int64_t bytes) {
  TS_CHECK(states_ != nullptr, "a plan that keeps states needs the engine's; state ", name);
  for (size_t i = 0; i < states_->size(); ++i) {
    EngineState& known = (*states_)[i];
    if (known.name != name) continue;
    known.bytes = std::max(known.bytes, bytes);
    return static_cast<int64_t>(i);
  }
  states_->push_back({name, bytes});
  return static_cast<int64_t>(states_->size()) - 1;
}

bool is_state(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].storage == Storage::kState;
}

bool holds(const std::map<std::string, int64_t>& sizes, const std::map<std::string, int64_t>& others) {
  return std::all_of(others.begin(), others.end(), [&](const auto& other) {
    const auto it = sizes.find(other.first);
    return it == sizes.end() || it->second >= other.second;
  });
}

Result<Plan> make_plan(const Graph& graph, const PlanOptions& options, ConstantPool& pool) {
  return Planner(graph, options, pool).run();
}

std::vector<std::string> layers_of(const PlanStep& step) {
  const size_t most = step.attrs.has(kJoined) ? step.attrs.list(kJoined).size() : step.then.gated() ? 2 : 1;
  std::vector<std::string> names;
  size_t begin = 0;
  for (size_t plus = step.layer.find('+'); names.size() + 1 < most && plus != std::string::npos;
       plus = step.layer.find('+', begin)) {
    names.push_back(step.layer.substr(begin, plus - begin));
    begin = plus + 1;
  }
  names.push_back(step.layer.substr(begin));
  return names;
}

Problem problem_of(const Plan& plan, const PlanStep& step) {
  Problem p{.op = step.op, .in = {}, .out = {}, .attrs = step.attrs, .then = step.then, .config = step.config};
  for (int t : step.in) p.in.push_back(t < 0 ? Operand{} : plan.tensors[static_cast<size_t>(t)].desc);
  for (int t : step.out) p.out.push_back(plan.tensors[static_cast<size_t>(t)].desc);
  return p;
}

}  // namespace tessera
