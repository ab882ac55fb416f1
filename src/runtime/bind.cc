// SPDX-License-Identifier: Apache-2.0
#include "runtime/bind.h"

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

}  // namespace tessera
