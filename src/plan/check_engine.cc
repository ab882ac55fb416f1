// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "ir/layer_ops.h"
#include "op/op.h"
#include "op/prepack.h"
#include "ops/ops.h"
#include "plan/check_scales.h"
#include "plan/golden_plans.h"
#include "plan/manifest.h"
#include "plan/promise.h"
#include "plan/storage_names.h"

namespace tessera {
namespace {

// No tensor, arena or state is larger: sums of a few of these stay far from overflow.
constexpr int64_t kMostBytes = int64_t{1} << 48;
// What kernels may expect of their workspace, and what the arena itself has: on the host a cache line, on a GPU what
// cudaMalloc gives and cuBLASLt asks for.
int64_t workspace_align(Arch arch) { return info(arch).device == DeviceKind::kCuda ? 256 : 64; }
// Packed weights begin where their constant does, or as far from there as SIMD loads and TMA may need.
constexpr int64_t kPackedAlign = 64;

// Elements of a shape, or nothing where a size is negative or the product too large.
std::optional<int64_t> checked_elements(const Shape& shape) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t d : shape) {
    if (d < 0 || (d > 0 && n > kMostBytes / d)) return std::nullopt;
    empty = empty || d == 0;
    if (d > 0) n *= d;
  }
  return empty ? 0 : n;
}

bool dense_rows(const Operand& o) { return o.layout == Layout::kRows && o.dense(); }

class PlanCheck {
 public:
  PlanCheck(const Engine& engine, const Plan& plan) : e_(engine), p_(plan) {}

  Status run() {
    if (p_.batch < 1 || p_.batch > kMostBytes) return bad_input(cat("batch ", p_.batch, " is below 1 or too large"));
    for (const auto& [name, size] : p_.sizes) {
      if (size < 1 || size > kMostBytes) return bad_input(cat("size '", name, "' is ", size));
    }
    if (p_.arena_bytes < 0 || p_.arena_bytes > kMostBytes) return bad_input(cat("arena of ", p_.arena_bytes, " bytes"));
    extents_.resize(p_.tensors.size());
    for (size_t i = 0; i < p_.tensors.size(); ++i) TS_TRY(check_desc(i).at(place(i)));
    TS_TRY(check_ports(p_.inputs, Storage::kInput, "input"));
    TS_TRY(check_ports(p_.outputs, Storage::kOutput, "output"));
    for (size_t i = 0; i < p_.tensors.size(); ++i) {
      TS_TRY(check_storage(p_.tensors[i], extents_[i]).at(place(i)));
      TS_TRY(check_scales(p_.tensors[i]).at(place(i)));
    }
    for (size_t i = 0; i < p_.steps.size(); ++i)
      TS_TRY(check_step(p_.steps[i]).at(cat("step ", i, " ('", p_.steps[i].layer, "')")));
    return {};
  }

 private:
  std::string place(size_t tensor) const { return cat("tensor ", tensor, " ('", p_.tensors[tensor].name, "')"); }
  bool is_tensor(int i) const { return i >= 0 && static_cast<size_t>(i) < p_.tensors.size(); }
  const PlanTensor& at(int i) const { return p_.tensors[static_cast<size_t>(i)]; }

  // Shape, strides and layout; the bytes that they reach from the first element on.
  Status check_desc(size_t i) {
    const Operand& o = p_.tensors[i].desc;
    const auto count = checked_elements(o.shape);
    if (!count) return bad_input(cat("shape ", to_string(o.shape), " is impossible"));
    if (o.strides.size() != o.shape.size())
      return bad_input(cat("shape ", to_string(o.shape), " has strides ", to_string(o.strides)));
    int64_t reach = *count;
    if (o.layout.codes != Layout::kRows) {
      if (o.shape.empty() || o.shape[0] > kMostBytes - 128)
        return bad_input(cat("layout ", name_of(o.layout.codes), " wants rows and columns"));
      if (!o.dense())
        return bad_input(cat("layout ", name_of(o.layout.codes), " wants dense strides, not ", to_string(o.strides)));
      const int64_t cols = o.shape.back(), rows = cols > 0 ? *count / cols : 0;
      if (!takes_bits(o.layout.codes, info(o.type.element).bits))
        return bad_input(cat("layout ", name_of(o.layout.codes), " holds no ", info(o.type.element).name));
      if (cols > 0 && rows + 128 > kMostBytes / 2 / (cols + 64)) return bad_input("is too large");  // whole tiles
      extents_[i] = stored_bytes(o.layout.codes, o.type.element, rows, cols);
      return {};
    } else if (*count > 0) {
      reach = 1;
      for (size_t a = 0; a < o.shape.size(); ++a) {
        const int64_t steps = o.shape[a] - 1, stride = o.strides[a];
        if (stride < 0 || (steps > 0 && stride > (kMostBytes - reach) / steps))
          return bad_input(cat("strides ", to_string(o.strides), " are impossible"));
        reach += steps * stride;
      }
    }
    extents_[i] = packed_bytes(o.type.element, reach);
    return {};
  }

  Status check_ports(const std::vector<Port>& ports, Storage storage, const char* what) const {
    for (size_t i = 0; i < ports.size(); ++i) {
      const std::string port = cat(what, " '", ports[i].name, "'");
      if (!is_tensor(ports[i].tensor)) return bad_input(cat("there is no tensor ", ports[i].tensor)).at(port);
      const PlanTensor& t = at(ports[i].tensor);
      const bool own = t.storage == storage && t.index == static_cast<int64_t>(i);
      if ((!own && t.storage != Storage::kState) || t.offset_bytes != 0 || !dense_rows(t.desc)) {
        return bad_input(cat(place(static_cast<size_t>(ports[i].tensor)), " is not the whole of this port")).at(port);
      }
      if (info(t.desc.type.element).bits % 8 != 0)  // samples are copied in and out byte by byte
        return bad_input(cat("its elements, ", to_string(t.desc.type), ", are no whole bytes")).at(port);
      if (t.desc.shape.empty() || t.desc.shape[0] != p_.batch) {
        return bad_input(cat("its shape ", to_string(t.desc.shape), " does not begin with the batch, ", p_.batch))
            .at(port);
      }
    }
    return {};
  }

  Status check_storage(const PlanTensor& t, int64_t extent) const {
    // A kernel may read what is said to be constant before the one before it has ended: nothing may write it. Views of
    // a constant are not said to be one, and no layer has them for a weight (check_step).
    if (t.desc.constant && t.storage != Storage::kConstant)
      return bad_input(
          cat("it is said to be constant, and lies in the ", kStorageNames[static_cast<size_t>(t.storage)]));
    if (t.desc.layout.codes != Layout::kRows && t.offset_bytes % kPackedAlign != 0)
      return bad_input(cat("its layout ", name_of(t.desc.layout.codes), " begins at a multiple of ", kPackedAlign,
                           " bytes, not at ", t.offset_bytes));
    const auto in_list = [&](size_t size, const char* what) -> Status {
      if (t.index >= 0 && static_cast<size_t>(t.index) < size) return {};
      return bad_input(cat("there is no ", what, " ", t.index));
    };
    if (const int64_t align = std::max(1, info(t.desc.type.element).bits / 8); t.offset_bytes % align != 0)
      return bad_input(cat("its offset ", t.offset_bytes, " is no multiple of its elements' ", align, " bytes"));
    int64_t room = 0;
    switch (t.storage) {
      case Storage::kArena:
        room = p_.arena_bytes;
        break;
      case Storage::kConstant:
        TS_TRY(in_list(e_.constants.size(), "constant"));
        room = static_cast<int64_t>(e_.constants[static_cast<size_t>(t.index)].data.size());
        break;
      case Storage::kState:
        TS_TRY(in_list(e_.states.size(), "state"));
        room = e_.states[static_cast<size_t>(t.index)].bytes;
        break;
      case Storage::kInput:
        TS_TRY(in_list(p_.inputs.size(), "input"));
        if (is_state(p_, p_.inputs[static_cast<size_t>(t.index)]))
          return bad_input(cat("input ", t.index, " is a state"));
        room = extents_[static_cast<size_t>(p_.inputs[static_cast<size_t>(t.index)].tensor)];
        break;
      case Storage::kOutput:
        TS_TRY(in_list(p_.outputs.size(), "output"));
        if (is_state(p_, p_.outputs[static_cast<size_t>(t.index)]))
          return bad_input(cat("output ", t.index, " is a state"));
        room = extents_[static_cast<size_t>(p_.outputs[static_cast<size_t>(t.index)].tensor)];
        break;
    }
    if (t.offset_bytes < 0 || t.offset_bytes > kMostBytes || extent > room || t.offset_bytes > room - extent) {
      return bad_input(
          cat("its ", extent, " bytes at offset ", t.offset_bytes, " do not fit the ", room, " bytes it lies in"));
    }
    return {};
  }

  Status check_scales(const PlanTensor& t) const {
    const Shape& shape = t.desc.shape;
    const int64_t cols = shape.empty() ? 1 : shape.back(), all = *checked_elements(shape),
                  rows = cols > 0 ? all / cols : 0;
    const auto check = [&](int scale, const ScaleLevel& level, Layout layout) -> Status {
      if (level.granularity == Granularity::kNone) {
        if (layout != Layout::kRows)
          return bad_input(cat("has no scales, and yet a layout for them, ", name_of(layout)));
        return scale == -1 ? Status() : bad_input("has scales that its type does not know");
      }
      if (!is_tensor(scale)) return bad_input(cat("its scales are missing: there is no tensor ", scale));
      if (const Storage storage = at(scale).storage; storage == Storage::kInput || storage == Storage::kOutput)
        return bad_input(cat("its scales, ", place(static_cast<size_t>(scale)), ", lie in a buffer of the caller"));
      const Operand& s = at(scale).desc;
      const int64_t want = scale_count(level, rows, cols);
      if (layout != Layout::kRows) {
        if (level.granularity != Granularity::kBlock)
          return bad_input(cat("its scales cannot lie in ", name_of(layout), ": only block scales have a layout"));
        if (!is_order(layout))
          return bad_input(cat("its scales cannot lie in ", name_of(layout), ": it does not hold each of them"));
        if (s.type != QuantType(level.element) || s.layout != layout || !s.constant ||
            s.shape != block_scales_shape(t.desc))
          return bad_input(cat("its scales, ", place(static_cast<size_t>(scale)), ", are not constants ",
                               to_string(block_scales_shape(t.desc)), " of ", info(level.element).name, " in ",
                               name_of(layout)));
        return {};
      }
      if (s.type != QuantType(level.element) || !dense_rows(s) || *checked_elements(s.shape) != want) {
        return bad_input(cat("its scales, ", place(static_cast<size_t>(scale)), ", are not ", want,
                             " dense numbers of ", info(level.element).name));
      }
      return {};
    };
    if (t.desc.type.dynamic && !t.desc.type.scaled())
      return bad_input(cat("its type ", to_string(t.desc.type), " has no scales that could be made while running"));
    TS_TRY(check(t.scale, t.desc.type.scale, t.desc.layout.scales));
    return check(t.scale2, t.desc.type.scale2, Layout::kRows);
  }

  Status check_step(const PlanStep& s) const {
    for (int t : s.in) {
      if (t != -1 && !is_tensor(t)) return bad_input(cat("there is no tensor ", t));
      if (t != -1 && at(t).desc.type.scaled() && at(t).scale == -1)
        return bad_input(cat("it reads ", place(static_cast<size_t>(t)), ", whose scales are missing"));
    }
    if (multiplies_weights(s.op) && s.in.size() > 1 && s.in[1] >= 0 && at(s.in[1]).storage == Storage::kConstant &&
        !at(s.in[1]).desc.constant)
      return bad_input(cat("its weight, ", place(static_cast<size_t>(s.in[1])),
                           ": it is not said to be constant, and lies in the constant"));
    if (s.out.empty()) return bad_input("it has no result");
    for (int t : s.out) {
      if (!is_tensor(t)) return bad_input(cat("there is no tensor ", t));
      const Storage storage = at(t).storage;
      if (storage == Storage::kConstant || storage == Storage::kInput)
        return bad_input(cat("it writes to ", place(static_cast<size_t>(t)), ", which may only be read"));
      if (const int scale = at(t).scale; at(t).desc.type.dynamic && at(scale).storage != Storage::kArena)
        return bad_input(cat("it makes the scales of ", place(static_cast<size_t>(t)), ", and ",
                             place(static_cast<size_t>(scale)), " is not in the arena"));
    }
    for (const Step& p : s.then.steps) {
      const bool reads = operand_of(p.kind) != StepOperand::kNone;
      if (reads ? p.operand < 0 || static_cast<size_t>(p.operand) >= s.in.size() : p.operand != -1) {
        return bad_input(cat("program step ", name_of(p.kind), " has operand ", p.operand));
      }
    }
    if (s.workspace_bytes < 0 || s.workspace_offset < 0 || s.workspace_bytes > p_.arena_bytes ||
        s.workspace_offset > p_.arena_bytes - s.workspace_bytes) {
      return bad_input(
          cat("its workspace of ", s.workspace_bytes, " bytes at ", s.workspace_offset, " is not in the arena"));
    }
    if (const int64_t align = workspace_align(p_.arch); s.workspace_offset % align != 0)
      return bad_input(cat("its workspace at ", s.workspace_offset, " is not aligned to ", align, " bytes"));
    if (!s.variant.starts_with(s.op + "/")) return bad_input(cat("'", s.variant, "' is no variant of '", s.op, "'"));
    // What this program does not know is refused when the plan is bound; `inspect` may still show it, but not what the
    // file says of it.
    const OpInfo* op = find_op(s.op);
    if (op == nullptr) return {};
    TS_TRY(check_problem(*op, problem_of(p_, s)));
    TS_TRY(check_slots(*op, s));
    const Variant* variant = find_variant(s.variant);
    if (variant == nullptr) return {};
    TS_TRY(check_addresses(*variant, s));
    return check_promise(e_, p_, s);
  }

  // On a GPU the caller's buffers are reached through slots, which other ops do not look into.
  Status check_slots(const OpInfo& op, const PlanStep& s) const {
    if (info(p_.arch).device != DeviceKind::kCuda || op.boundary) return {};
    for (const std::vector<int>* list : {&s.in, &s.out}) {
      for (int t : *list) {
        if (t == -1 || (at(t).storage != Storage::kInput && at(t).storage != Storage::kOutput)) continue;
        return bad_input(cat(place(static_cast<size_t>(t)),
                             " is a buffer of the caller, which only a copy or concat reaches on a GPU"));
      }
    }
    return {};
  }

  // Arena, states and constants begin at multiples of 256 bytes on a GPU.
  Status check_addresses(const Variant& variant, const PlanStep& s) const {
    for (const std::vector<int>* list : {&s.in, &s.out}) {
      for (int t : *list) {
        if (t == -1 || at(t).offset_bytes % variant.operand_align == 0) continue;
        return bad_input(cat(place(static_cast<size_t>(t)), " at offset ", at(t).offset_bytes,
                             " does not begin at a multiple of ", variant.operand_align, " bytes, which '", s.variant,
                             "' asks for"));
      }
    }
    return {};
  }

  const Engine& e_;
  const Plan& p_;
  std::vector<int64_t> extents_;  // bytes from each tensor's first element to its end
};

// Whether two ports differ at most in their first axes, the batch and, of another bucket, the rows.
bool same_but_for(size_t axes, const Operand& a, const Operand& b) {
  const auto from = static_cast<std::ptrdiff_t>(std::min(axes, a.shape.size()));
  return a.type == b.type && a.shape.size() == b.shape.size() &&
         std::equal(a.shape.begin() + from, a.shape.end(), b.shape.begin() + from);
}

// Samples of the golden plan are given to every other plan, and results compared one by one. Plans of other buckets
// take other numbers of rows (the second axis). `any_axes`: what differs is what the engine's lengths say
// (check_lengths).
Status check_same_ports(const Plan& plan, const std::vector<Port>& ports, const Plan& other,
                        const std::vector<Port>& wanted, bool any_axes = false) {
  const bool bucket = plan.sizes != other.sizes;
  const size_t free_axes = !bucket ? 1 : any_axes ? std::numeric_limits<uint32_t>::max() : 2;
  const std::string there = cat(is_golden(other) ? "the golden plan" : "the other one");
  if (ports.size() != wanted.size())
    return bad_input(cat("there are ", ports.size(), " of them, ", wanted.size(), " in ", there));
  for (size_t i = 0; i < ports.size(); ++i) {
    const Operand &a = plan.tensors[static_cast<size_t>(ports[i].tensor)].desc,
                  &b = other.tensors[static_cast<size_t>(wanted[i].tensor)].desc;
    if (ports[i].name != wanted[i].name || !same_but_for(free_axes, a, b)) {
      return bad_input(cat("'", ports[i].name, "' ", to_string(a.type), to_string(a.shape), " is '", wanted[i].name,
                           "' ", to_string(b.type), to_string(b.shape), " in ", there, ": more than the batch ",
                           bucket ? "and the rows differ" : "differs"));
    }
  }
  return {};
}

// Golden values repeat along the batch axis to fill a plan's ports.
Status check_golden_side(const std::vector<GoldenTensor>& golden, const Plan& plan, const std::vector<Port>& ports) {
  // Inputs of f32 are stored in f16 where that holds them.
  const auto narrow = [&](const GoldenTensor& g, const Operand& port) {
    return &ports == &plan.inputs && port.type == QuantType(Element::f32) && g.type == QuantType(Element::f16);
  };
  if (golden.size() != ports.size())
    return bad_input(cat("there are ", golden.size(), " of them for ", ports.size(), " ports"));
  for (size_t i = 0; i < golden.size(); ++i) {
    const GoldenTensor& g = golden[i];
    const Operand& port = plan.tensors[static_cast<size_t>(ports[i].tensor)].desc;
    const auto count = checked_elements(g.shape);
    const bool fits = count && !g.shape.empty() && g.shape[0] > 0 && g.shape[0] == golden[0].shape[0] &&
                      g.shape.size() == port.shape.size() &&
                      std::equal(g.shape.begin() + 1, g.shape.end(), port.shape.begin() + 1) &&
                      (g.type == port.type || narrow(g, port)) && g.name == ports[i].name;
    if (!fits)
      return bad_input(cat("'", g.name, "' ", to_string(g.shape), " does not fit port '", ports[i].name, "' ",
                           to_string(port.shape)));
    if (packed_bytes(g.type.element, *count) != static_cast<int64_t>(g.data.size()))
      return bad_input(cat("'", g.name, "' has ", g.data.size(), " bytes"));
  }
  return {};
}

// Whether a bound is one: nothing accepts results that are all zero.
bool binds(double bound) { return bound >= 0 && bound < kMostGoldenBound; }

// An input in a state has its name and, in all plans, its type: sessions hand states from plan to plan.
Status check_states(const Engine& engine) {
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const EngineState& s : engine.states) {
    if (s.bytes < 0 || s.bytes > kMostBytes || (bytes += s.bytes) > kMostBytes)
      return bad_input(cat("state '", s.name, "' of ", s.bytes, " bytes"));
    if (!names.insert(s.name).second) return bad_input(cat("two states are called '", s.name, "'"));
  }
  return {};
}

// What plans read in a state and what they leave there is of one form: the next run takes the one for the other.
// Contract: PlanCheck found nothing wrong with the plans.
Status check_states_of_plans(const Engine& engine) {
  std::map<int64_t, const Operand*> first;
  const auto check = [&](const Plan& p, const Port& port, const char* what) -> Status {
    const PlanTensor& t = p.tensors[static_cast<size_t>(port.tensor)];
    const std::string& name = engine.states[static_cast<size_t>(t.index)].name;
    const Operand& known = *first.emplace(t.index, &t.desc).first->second;
    // Rows of one sample begin where the state does: fewer of them are its front.
    const bool one = p.batch == 1 && !known.shape.empty() && known.shape[0] == 1;
    if (same_but_for(one ? 2 : 1, known, t.desc)) return {};
    return bad_input(cat("state '", name, "' is ", to_string(known.type), to_string(known.shape), " and, as ", what,
                         " of plan '", p.name, "', ", to_string(t.desc.type), to_string(t.desc.shape),
                         "; plans share a state of one form, but for the batch, or the rows at batch 1"));
  };
  for (const Plan& p : engine.plans) {
    for (const Port& port : p.inputs) {
      if (!is_state(p, port)) continue;
      const int64_t index = p.tensors[static_cast<size_t>(port.tensor)].index;
      const std::string& name = engine.states[static_cast<size_t>(index)].name;
      if (port.name != name)
        return bad_input(cat("plan '", p.name, "': input '", port.name, "' lies in state '", name, "'"));
      TS_TRY(check(p, port, "an input"));
    }
    for (const Port& port : p.outputs) {
      if (is_state(p, port)) TS_TRY(check(p, port, cat("output '", port.name, "'").c_str()));
    }
  }
  return {};
}

std::vector<std::string> names_of(const std::map<std::string, int64_t>& sizes) {
  std::vector<std::string> names;
  for (const auto& [name, size] : sizes) names.push_back(name);
  return names;
}

// Products and sums of these stay far from overflow (check_engine bounds sizes by 2^48).
constexpr int64_t kMostPer = 1 << 12, kMostPlus = int64_t{1} << 48;
constexpr size_t kMostSizes = 4;

class LengthsCheck {
 public:
  explicit LengthsCheck(const Engine& engine) : e_(engine), l_(engine.lengths) {}

  Status run() const {
    const Plan& first = e_.plans[0];
    if (!e_.states.empty() || !e_.schedule.empty())
      return bad_input("lengths are for engines without states and schedules, and this one has some");
    for (const Plan& p : e_.plans) {
      if (p.graph != first.graph)
        return bad_input(
            cat("lengths are for engines of one graph, and there are '", first.graph, "' and '", p.graph, "'"));
      if (p.sizes.size() != l_.why_exact.size() || !knows_all(p.sizes))
        return bad_input(cat("plan '", p.name, "' has other sizes than those of the lengths"));
    }
    TS_TRY(check_side(l_.inputs, first.inputs, "input"));
    TS_TRY(check_side(l_.outputs, first.outputs, "output"));
    for (const auto& [size, why] : l_.why_exact) {
      const bool found = std::any_of(l_.inputs.begin(), l_.inputs.end(),
                                     [&, name = &size](const LengthAxis& a) { return a.per.contains(*name); });
      if (!found) return bad_input(cat("size '", size, "' is the length of no input"));
    }
    for (const Plan& p : e_.plans) {
      TS_TRY(check_plan(p, p.inputs, first.inputs, l_.inputs, true).at(cat("plan '", p.name, "', inputs")));
      TS_TRY(check_plan(p, p.outputs, first.outputs, l_.outputs, cuts()).at(cat("plan '", p.name, "', outputs")));
    }
    return {};
  }

 private:
  bool knows_all(const std::map<std::string, int64_t>& sizes) const {
    return std::all_of(sizes.begin(), sizes.end(), [&](const auto& s) { return l_.why_exact.contains(s.first); });
  }
  // Whether some results are cut: then every axis of an output that depends on a size is known.
  bool cuts() const {
    return std::any_of(l_.why_exact.begin(), l_.why_exact.end(), [](const auto& s) { return s.second.empty(); });
  }

  static const Shape& shape_of(const Plan& plan, const Port& port) {
    return plan.tensors[static_cast<size_t>(port.tensor)].desc.shape;
  }

  Status check_side(const std::vector<LengthAxis>& axes, const std::vector<Port>& ports, const char* what) const {
    const bool inputs = &axes == &l_.inputs;
    std::set<std::pair<std::string, int64_t>> seen;
    for (const LengthAxis& a : axes) {
      const std::string where = cat("axis ", a.axis, " of ", what, " '", a.port, "'");
      const auto port = std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == a.port; });
      if (port == ports.end()) return bad_input(cat(where, ": there is no such ", what));
      if (a.axis < 1 || a.axis >= static_cast<int64_t>(shape_of(e_.plans[0], *port).size()))
        return bad_input(cat(where, ": there is no such axis, or it counts samples"));
      if (!seen.insert({a.port, a.axis}).second) return bad_input(cat(where, ": it stands there twice"));
      if (a.per.empty() || a.per.size() > kMostSizes || !knows_all(a.per))
        return bad_input(cat(where, ": it goes with no size of the plans, or with more than ", kMostSizes));
      if (inputs && (a.per.size() != 1 || a.per.begin()->second != 1 || a.plus != 0))
        return bad_input(cat(where, ": the length of an input is a size as it is"));
      if (a.plus < -kMostPlus || a.plus > kMostPlus) return bad_input(cat(where, ": ", a.plus, " more than its sizes"));
      for (const auto& [size, times] : a.per) {
        if (times < 1 || times > kMostPer)
          return bad_input(cat(where, ": ", times, " times '", size, "'; 1 to ", kMostPer, " times are accepted"));
      }
    }
    return {};
  }

  // The axes of a plan's ports are what the sizes make them, and all others those of the first plan.
  Status check_plan(const Plan& plan, const std::vector<Port>& ports, const std::vector<Port>& firsts,
                    const std::vector<LengthAxis>& axes, bool all_known) const {
    for (size_t i = 0; i < ports.size() && i < firsts.size(); ++i) {
      const Shape &shape = shape_of(plan, ports[i]), &first = shape_of(e_.plans[0], firsts[i]);
      for (size_t axis = 1; axis < shape.size() && axis < first.size(); ++axis) {
        const LengthAxis* known = find_axis(axes, ports[i].name, axis);
        if (known == nullptr && !all_known) continue;
        const int64_t want = known != nullptr ? known->extent(plan.sizes) : first[axis];
        if (shape[axis] != want)
          return bad_input(cat("'", ports[i].name, "' ", to_string(shape), ": axis ", axis, " is not ", want,
                               known != nullptr ? ", which the lengths say" : ", as in the first plan"));
      }
    }
    return {};
  }

  const Engine& e_;
  const Lengths& l_;
};

// What an engine says of its lengths, held against its plans: arrays are padded and results cut by it. Contract: plans
// and their ports were checked, each by itself, and ports of plans have the same names, types and numbers of axes.
Status check_lengths(const Engine& engine) {
  if (engine.lengths.none()) {
    if (engine.lengths.inputs.empty() && engine.lengths.outputs.empty()) return {};
    return bad_input("lengths: axes are named, and no size that they go with");
  }
  return LengthsCheck(engine).run().at("lengths");
}

// Plans of one graph and one bucket take and give the same, but for the batch: samples are handed to any of them. Those
// of other buckets differ in the rows as well.
Status check_graphs(const Engine& engine) {
  std::map<std::string, const Plan*> first_of_graph;
  std::map<std::pair<std::string, std::map<std::string, int64_t>>, const Plan*> first_of_bucket;
  for (const Plan& p : engine.plans) {
    if (is_golden(p)) continue;
    for (const Plan* other : {first_of_graph.emplace(p.graph, &p).first->second,
                              first_of_bucket.emplace(std::pair(p.graph, p.sizes), &p).first->second}) {
      const std::string where = cat("plan '", p.name, "' beside '", other->name, "'");
      if (names_of(p.sizes) != names_of(other->sizes))
        return bad_input(cat(where, ": buckets of one graph are told apart by the same sizes"));
      const bool any = !engine.lengths.none();
      TS_TRY(check_same_ports(p, p.inputs, *other, other->inputs, any).at(where + ": inputs"));
      TS_TRY(check_same_ports(p, p.outputs, *other, other->outputs, any).at(where + ": outputs"));
    }
  }
  return check_lengths(engine);
}

// Ports of one name are one port of the schedule: plans of the same batch have them in one form. Plans of other buckets
// have other rows; which of them go together is the session's to see (runtime/session.cc, check_together).
Status check_schedule_ports(const Engine& engine, std::vector<Port> Plan::*side, const char* what) {
  std::map<std::pair<std::string, int64_t>, std::pair<const Plan*, const Operand*>> first;
  for (const ScheduleItem& item : engine.schedule) {
    for (const Plan& p : engine.plans) {
      if (is_golden(p) || p.graph != item.graph) continue;
      for (const Port& port : p.*side) {
        if (is_state(p, port)) continue;
        const Operand& desc = p.tensors[static_cast<size_t>(port.tensor)].desc;
        const auto& [other, known] = first.emplace(std::pair(port.name, p.batch), std::pair(&p, &desc)).first->second;
        if (!same_but_for(other->sizes == p.sizes ? 0 : 2, *known, desc))
          return bad_input(cat("the schedule: ", what, " '", port.name, "' is ", to_string(known->type),
                               to_string(known->shape), " and, of graph '", p.graph, "', ", to_string(desc.type),
                               to_string(desc.shape), "; ports of one name are one port"));
      }
    }
  }
  return {};
}

// A schedule names graphs of the engine, and ends.
Status check_schedule(const Engine& engine) {
  constexpr int64_t kMostRuns = 1 << 20;
  int64_t runs = 0;
  TS_TRY(check_schedule_ports(engine, &Plan::inputs, "input"));
  TS_TRY(check_schedule_ports(engine, &Plan::outputs, "output"));
  for (const ScheduleItem& item : engine.schedule) {
    const bool known = std::any_of(engine.plans.begin(), engine.plans.end(),
                                   [&](const Plan& p) { return !is_golden(p) && p.graph == item.graph; });
    if (!known) return bad_input(cat("the schedule runs graph '", item.graph, "', of which there is no plan"));
    if (item.times < 1 || item.times > kMostRuns || (runs += item.times) > kMostRuns)
      return bad_input(cat("the schedule runs graph '", item.graph, "' ", item.times, " times; 1 to ", kMostRuns,
                           " runs in all are accepted"));
  }
  return {};
}

// A value inside the model, of as many samples as the golden plan's outputs.
Status check_golden_value(const GoldenValue& value, int64_t samples) {
  const GoldenTensor& t = value.tensor;
  const auto refuse = [&](const auto&... why) {
    return bad_input(cat("golden value '", t.name, "' ", to_string(t.type), to_string(t.shape), ": ", why...));
  };
  const auto count = checked_elements(t.shape);
  if (!count || t.shape.empty() || samples < 1 || *count < 1 || *count % samples != 0)
    return refuse("its first axis does not hold ", samples, " samples");
  if (info(t.type.element).bits < 8 || packed_bytes(t.type.element, *count) != static_cast<int64_t>(t.data.size()))
    return refuse("it has ", t.data.size(), " bytes");
  if (!binds(value.bound))
    return refuse("its bound ", value.bound, " is none; bounds are relative, from 0 to below ", kMostGoldenBound);
  return {};
}

// What one golden plan gave, by itself.
Status check_golden_form(const GoldenForm& form, const Golden& golden) {
  if (form.bounds.size() != form.outputs.size())
    return bad_input(cat("golden values: ", form.bounds.size(), " bounds for ", form.outputs.size(), " outputs"));
  for (const double bound : form.bounds) {
    if (!binds(bound)) {
      return bad_input(cat("golden values: a bound of ", bound, "; a relative error is not negative and below ",
                           kMostGoldenBound, ", which results of nothing but zeros have"));
    }
  }
  const std::vector<GoldenTensor>&inputs = inputs_of(golden, form), &original = original_of(golden, form);
  const int64_t samples = inputs.empty() || inputs[0].shape.empty() ? 0 : inputs[0].shape[0];
  if (!original.empty() && (original[0].shape.empty() || original[0].shape[0] != samples))
    return bad_input(cat("outputs of the model as written: ", to_string(original[0].shape), ", and inputs of ", samples,
                         " samples"));
  if (form.samples() < 1 || form.samples() > samples)
    return bad_input(cat("golden values: outputs of ", form.samples(), " samples, and inputs of ", samples));
  for (const GoldenValue& v : form.values) TS_TRY(check_golden_value(v, form.samples()));
  return {};
}

bool other_bucket_has_golden_values(const Engine& engine, const Plan& plan) {
  return std::any_of(engine.plans.begin(), engine.plans.end(), [&](const Plan& p) {
    return p.graph == plan.graph && p.sizes != plan.sizes && has_golden_values(engine, p);
  });
}

// Golden values fit every plan's ports: the inputs, and the outputs of the golden plan that it is held against.
Status check_golden_values(const Engine& engine) {
  const Golden& g = engine.golden;
  if (g.min_cosine && !(*g.min_cosine >= -1 && *g.min_cosine <= 1))
    return bad_input(cat("golden values: a gate of ", *g.min_cosine, "; a cosine is from -1 to 1"));
  for (const GoldenForm& form : g.forms) TS_TRY(check_golden_form(form, g));
  if (g.forms.empty() && g.inputs.empty()) return {};
  for (const Plan& p : engine.plans) {
    const Plan* golden = golden_plan(engine, p);
    const GoldenForm* form = golden == nullptr ? nullptr : golden_form(engine, *golden);
    if (form == nullptr && other_bucket_has_golden_values(engine, p)) continue;
    if (form == nullptr) return bad_input(cat("plan '", p.name, "' has no golden values"));
    TS_TRY(check_golden_side(inputs_of(g, *form), p, p.inputs).at("golden inputs"));
    TS_TRY(check_golden_side(form->outputs, p, p.outputs).at("golden outputs"));
    if (const auto& original = original_of(g, *form); !original.empty())
      TS_TRY(check_golden_side(original, p, p.outputs).at("outputs of the model as written"));
  }
  return {};
}

// Golden plans come last, each once; a plan is held against one that has its steps and ports.
Status check_golden_plans(const Engine& engine) {
  const std::vector<const Plan*> goldens = golden_plans(engine);
  const Plan* first_golden = goldens.empty() ? nullptr : goldens[0];
  for (const Plan& p : engine.plans) {
    const std::string where = cat("plan '", p.name, "'");
    if (is_golden(p)) {
      if (std::count_if(goldens.begin(), goldens.end(), [&](const Plan* g) { return g->name == p.name; }) > 1)
        return bad_input(where + ": there are two of this name");
      if (!p.golden.empty()) return bad_input(where + ": it is a golden plan, and names another");
    } else if (first_golden != nullptr && &p > first_golden) {
      return bad_input("the golden plan is not the last one");
    }
    const Plan* golden = golden_plan(engine, p);
    if (golden == nullptr && (!p.golden.empty() || first_golden != nullptr))
      return bad_input(cat(where, ": it is held against '", p.golden.empty() ? kGoldenPlan : p.golden,
                           "', which is no golden plan of the engine"));
    if (golden == nullptr) continue;
    if (golden->graph != p.graph)
      return bad_input(cat(where, " is of graph '", p.graph, "', and held against '", golden->name, "' of graph '",
                           golden->graph, "'"));
    if (golden->sizes != p.sizes)
      return bad_input(cat(where, ": it is held against '", golden->name, "', which is of another bucket"));
    TS_TRY(check_same_ports(p, p.inputs, *golden, golden->inputs).at(where + ": inputs"));
    TS_TRY(check_same_ports(p, p.outputs, *golden, golden->outputs).at(where + ": outputs"));
    if (goldens.size() > 1 && !same_form(p, *golden))
      return bad_input(cat(where, ": it is held against '", golden->name, "', which has other steps"));
  }
  return {};
}

}  // namespace

std::vector<int64_t> numbers_of_size(const std::vector<Plan>& plans, const std::string& size) {
  std::set<int64_t> numbers;
  for (const Plan& p : plans) {
    if (const auto it = p.sizes.find(size); it != p.sizes.end()) numbers.insert(it->second);
  }
  return {numbers.begin(), numbers.end()};
}

const LengthAxis* find_axis(const std::vector<LengthAxis>& axes, const std::string& port, size_t axis) {
  const auto it = std::find_if(axes.begin(), axes.end(), [&](const LengthAxis& a) {
    return a.axis == static_cast<int64_t>(axis) && a.port == port;
  });
  return it == axes.end() ? nullptr : &*it;
}

Status check_engine(const Engine& engine) {
  if (engine.plans.empty()) return bad_input("it holds no plan");
  TS_TRY(check_states(engine));
  for (const Plan& p : engine.plans) {
    const Arch arch = is_golden(p) ? Arch::ref : engine.target;
    if (p.arch != arch)
      return bad_input(
          cat("plan '", p.name, "' is for ", info(p.arch).name, ", and the engine wants it for ", info(arch).name));
    TS_TRY(PlanCheck(engine, p).run().at(cat("plan '", p.name, "'")));
  }
  TS_TRY(check_golden_values(engine));
  TS_TRY(check_precision(engine));
  TS_TRY(check_scale_numbers(engine));
  TS_TRY(check_golden_plans(engine));
  TS_TRY(check_graphs(engine));
  TS_TRY(check_states_of_plans(engine));
  return check_schedule(engine);
}

}  // namespace tessera
