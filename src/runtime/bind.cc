// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <set>

#include "op/op.h"
#include "ops/ops.h"

namespace tessera {
namespace {

// Contract: the variant accepts the problem. The chain itself is checked where it is made.
Status check_chain(const Variant& variant, const Problem& problem, const PlanStep& step) {
  if (step.chain < 0) {
    if (!variant.only_in_chains) return {};
    return bad_input(cat("'", step.variant, "' is a phase of a chain, and the step is in none"));
  }
  if (variant.chain == nullptr)
    return bad_input(cat("'", step.variant, "' is a kernel of its own, and the step is in chain ", step.chain));
  const ChainForm form = variant.chain(problem);
  if (!form.refusal.empty())
    return bad_input(cat("'", step.variant, "' refuses to be in chain ", step.chain, ": ", form.refusal));
  if (form.config != problem.config)
    return bad_input(
        cat("in a chain '", step.variant, "' has the config '", form.config, "', not '", problem.config, "'"));
  return {};
}

// Operands of attention (ops/attention/attention.h) and write (ops/write/write.h).
constexpr size_t kKeys = 1, kLengths = 4, kAt = 2;

// Rows before the new ones that a step has memory for, where operand `i` of it says how many are valid; -1: it does
// not.
int64_t rows_before(const Plan& plan, const PlanStep& step, size_t i) {
  const auto shape = [&](size_t operand) -> const Shape& {
    return plan.tensors[static_cast<size_t>(step.in[operand])].desc.shape;
  };
  if (step.op == "attention" && i == kLengths) return shape(kKeys)[1] - step.attrs.integer("fresh", 0);
  if (step.op != "write" || i != kAt) return -1;
  const size_t axis = static_cast<size_t>(step.attrs.integer("axis"));
  return shape(0)[axis] - shape(1)[axis];
}

// The numbers that a tensor has of an input; none where it lies in no input, or not in even steps.
std::vector<CacheLength> numbers_in(const Plan& plan, const PlanTensor& t) {
  const auto port = std::find_if(plan.inputs.begin(), plan.inputs.end(), [&](const Port& p) {
    const PlanTensor& whole = plan.tensors[static_cast<size_t>(p.tensor)];
    return whole.storage == t.storage && whole.index == t.index;
  });
  const bool given = t.storage == Storage::kInput || t.storage == Storage::kState;
  if (!given || port == plan.inputs.end() || info(t.desc.type.element).bits < 8) return {};
  CacheLength n{.input = static_cast<size_t>(port - plan.inputs.begin())};
  n.offset_bytes = t.offset_bytes - plan.tensors[static_cast<size_t>(port->tensor)].offset_bytes;
  n.count = elements(t.desc.shape);
  n.element = t.desc.type.element;
  if (!t.desc.dense()) {
    if (t.desc.shape.size() != 1) return {};
    n.stride = t.desc.strides[0];
  }
  return {n};
}

}  // namespace

Result<std::vector<BoundStep>> bind_steps(const Plan& plan) {
  std::vector<BoundStep> bound;
  for (const PlanStep& step : plan.steps) {
    const Variant* variant = find_variant(step.variant);
    if (variant == nullptr)
      return bad_input(cat("layer ", step.layer, ": this program has no kernel '", step.variant, "'"));
    // A kernel for another machine would take this one's addresses for its own.
    if (!runs(plan.arch, variant->arch)) {
      return bad_input(cat("layer ", step.layer, ": '", step.variant, "' is for ", info(variant->arch).name,
                           ", and plan '", plan.name, "' is for ", info(plan.arch).name));
    }
    if (variant->bind == nullptr) {
      return machine_error(cat("layer ", step.layer, ": '", step.variant,
                               "' was compiled without its kernels (no CUDA toolkit at build time)"));
    }
    BoundStep b;
    b.step = &step;
    b.problem = problem_of(plan, step);
    if (const Verdict v = variant->accepts(b.problem); !v) {
      return bad_input(
          cat("layer ", step.layer, ": '", step.variant, "' refuses the problem in the engine file: ", v.refusal));
    }
    auto config = checked_config(*variant, b.problem);
    if (!config.ok()) return config.status().at(cat("layer ", step.layer));
    b.problem.config = std::move(config).value();
    if (const Status s = check_chain(*variant, b.problem, step); !s.ok()) return s.at(cat("layer ", step.layer));
    b.problem.backward =
        bound.size() % 2 ==
        1;  // every second kernel begins where the one before ended (docs/design/0013); no result depends on it
    if (const Status s = check_storage(*variant, b.problem, step.workspace_bytes); !s.ok())
      return s.at(cat("layer ", step.layer));
    auto kernel = variant->bind(b.problem);
    if (!kernel.ok()) return kernel.status().at(cat("layer ", step.layer, ", ", step.variant));
    b.kernel = std::move(kernel).value();
    b.in.reserve(step.in.size());  // running allocates nothing
    b.out.reserve(step.out.size());
    bound.push_back(std::move(b));
  }
  return bound;
}

void place_views(const Plan& plan, const Memory& memory, std::vector<BoundStep>& steps) {
  const auto address = [&](const PlanTensor& t, TensorView& view) {
    const size_t index = static_cast<size_t>(t.index);
    switch (t.storage) {
      case Storage::kArena:
        view.data = memory.arena + t.offset_bytes;
        break;
      case Storage::kConstant:
        view.data = const_cast<uint8_t*>(memory.constants[index]) + t.offset_bytes;
        break;
      case Storage::kState:
        view.data = memory.states[index] + t.offset_bytes;
        break;
      case Storage::kInput:
        if (memory.input_slots != nullptr) {
          view.slot = memory.input_slots + index;
          view.slot_offset_bytes = t.offset_bytes;
        } else {
          view.data = static_cast<uint8_t*>(const_cast<void*>(memory.inputs[index])) + t.offset_bytes;
        }
        break;
      case Storage::kOutput:
        if (memory.output_slots != nullptr) {
          view.slot = memory.output_slots + index;
          view.slot_offset_bytes = t.offset_bytes;
        } else {
          view.data = static_cast<uint8_t*>(memory.outputs[index]) + t.offset_bytes;
        }
        break;
    }
  };
  const auto view_of = [&](int tensor, const Operand& desc) {
    TensorView view;
    if (tensor < 0) return view;
    const PlanTensor& t = plan.tensors[static_cast<size_t>(tensor)];
    view.desc = &desc;
    address(t, view);
    TensorView scale;
    if (t.scale >= 0) {
      address(plan.tensors[static_cast<size_t>(t.scale)], scale);
      view.scale = scale.data;
    }
    if (t.scale2 >= 0) {
      address(plan.tensors[static_cast<size_t>(t.scale2)], scale);
      view.scale2 = scale.data;
    }
    return view;
  };
  for (BoundStep& b : steps) {
    b.in.clear();
    b.out.clear();
    for (size_t i = 0; i < b.step->in.size(); ++i) b.in.push_back(view_of(b.step->in[i], b.problem.in[i]));
    for (size_t i = 0; i < b.step->out.size(); ++i) b.out.push_back(view_of(b.step->out[i], b.problem.out[i]));
  }
}

int64_t port_bytes(const Plan& plan, const Port& port) {
  const Operand& desc = plan.tensors[static_cast<size_t>(port.tensor)].desc;
  return packed_bytes(desc.type.element, elements(desc.shape));
}

Status check_buffers(const Plan& plan, std::span<const void* const> inputs, std::span<void* const> outputs) {
  const auto side = [&](const char* word, const std::vector<Port>& ports, auto buffers) -> Status {
    if (buffers.size() != ports.size()) {
      return bad_input(cat("plan '", plan.name, "' has ", ports.size(), " ", word, ports.size() == 1 ? "" : "s",
                           ", and ", buffers.size(), buffers.size() == 1 ? " buffer was" : " buffers were", " given"));
    }
    for (size_t i = 0; i < ports.size(); ++i) {
      if (buffers[i] == nullptr && port_bytes(plan, ports[i]) > 0 && !is_state(plan, ports[i]))
        return bad_input(cat(word, " '", ports[i].name, "' of plan '", plan.name, "' was given no buffer (null)"));
    }
    return {};
  };
  TS_TRY(side("input", plan.inputs, inputs));
  return side("output", plan.outputs, outputs);
}

std::vector<CacheLength> cache_lengths(const Plan& plan) {
  std::vector<CacheLength> found;
  std::map<int, std::vector<CacheLength>> copies;  // tensors that hold the numbers of an input
  std::set<int64_t> written;                       // states that no longer hold what the run began with
  for (const PlanStep& step : plan.steps) {
    for (size_t i = 0; i < step.in.size(); ++i) {
      if (step.in[i] < 0) continue;
      const bool copied = step.op == "copy" && i == 0;
      const int64_t longest = rows_before(plan, step, i);
      if (!copied && longest < 0) continue;
      const PlanTensor& t = plan.tensors[static_cast<size_t>(step.in[i])];
      if (t.storage == Storage::kState && written.contains(t.index)) continue;
      std::vector<CacheLength> numbers = numbers_in(plan, t);
      if (const auto held = copies.find(step.in[i]); held != copies.end()) numbers = held->second;
      if (copied) copies[step.out[0]] = numbers;
      for (CacheLength n : numbers) {
        n.longest = longest;
        if (!copied) found.push_back(n);
      }
    }
    for (const int out : step.out) {
      if (out >= 0 && plan.tensors[static_cast<size_t>(out)].storage == Storage::kState)
        written.insert(plan.tensors[static_cast<size_t>(out)].index);
    }
  }
  return found;
}

int64_t longest_cache(const std::vector<CacheLength>& lengths, size_t input) {
  int64_t longest = -1;
  for (const CacheLength& n : lengths) {
    if (n.input == input) longest = longest < 0 ? n.longest : std::min(longest, n.longest);
  }
  return longest;
}

Status check_cache_lengths(const Plan& plan, const std::vector<CacheLength>& lengths,
                           std::span<const void* const> inputs) {
  for (const CacheLength& n : lengths) {
    if (inputs[n.input] == nullptr) continue;  // what lies in the state
    const auto* numbers = static_cast<const uint8_t*>(inputs[n.input]) + n.offset_bytes;
    for (int64_t i = 0; i < n.count; ++i) {
      double number = 0;
      info(n.element).decode_f64(numbers, i * n.stride, 1, &number);
      if (number >= 0 && number <= static_cast<double>(n.longest)) continue;
      return bad_input(cat("input '", plan.inputs[n.input].name, "' of plan '", plan.name, "' is ",
                           std::setprecision(17), number, n.count > 1 ? cat(" for batch item ", i) : std::string(),
                           "; the cache has room for 0 to ", longest_cache(lengths, n.input),
                           " rows before the new ones"));
    }
  }
  return {};
}

}  // namespace tessera
