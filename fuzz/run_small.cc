// SPDX-License-Identifier: Apache-2.0
#include "fuzz/run_small.h"

#include "op/op.h"
#include "ops/ops.h"
#include "plan/engine_file.h"
#include "runtime/batches.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "runtime/fit_lengths.h"
#include "runtime/session.h"
#include "verify/verify.h"

namespace tessera::fuzz {
namespace {

constexpr int64_t kElements = 1 << 16;  // of any tensor
constexpr double kWork = 0x1p22;        // multiplications of all steps, and elements touched

constexpr int64_t kRuns = 16;   // of a schedule
constexpr size_t kUsed = 8;     // plans that a session is told to use
constexpr int64_t kBatch = 64;  // runs of one sample that another plan takes at once

bool small(const Plan& plan) {
  double work = 0;
  if (plan.batch > kBatch) return false;
  for (const PlanStep& s : plan.steps) {
    const OpInfo* op = find_op(s.op);
    const Problem problem = problem_of(plan, s);
    if (op != nullptr && op->flops != nullptr) work += op->flops(problem);
    for (const std::vector<Operand>* side : {&problem.in, &problem.out}) {
      for (const Operand& o : *side) {
        if (o.present && elements(o.shape) > kElements) return false;
        if (o.present) work += static_cast<double>(elements(o.shape));
      }
    }
  }
  for (const PlanTensor& t : plan.tensors) {
    if (elements(t.desc.shape) > kElements) return false;
  }
  return work <= kWork;
}

// Numbers that an input may have which says how much of a cache is valid: others are refused.
void put_lengths(const Plan& plan, std::span<const void* const> inputs) {
  const std::vector<CacheLength> lengths = cache_lengths(plan);
  for (const CacheLength& n : lengths) {
    if (inputs[n.input] == nullptr) continue;
    auto* numbers = static_cast<uint8_t*>(const_cast<void*>(inputs[n.input])) + n.offset_bytes;
    for (int64_t i = 0; i < n.count; ++i) {
      const double number =
          static_cast<double>((i * 37 + 3) % (std::max<int64_t>(0, longest_cache(lengths, n.input)) + 1));
      info(n.element).encode_f64(&number, 1, numbers, i * n.stride);
    }
  }
}

void run_session(Session& session) {
  std::vector<Buffer> buffers;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const Session::PortOf& p : session.inputs()) {
    buffers.emplace_back(static_cast<size_t>(port_bytes(*p.plan, p.plan->inputs[p.port])));
    inputs.push_back(buffers.back().data());
  }
  for (const Session::PortOf& p : session.outputs()) {
    buffers.emplace_back(static_cast<size_t>(port_bytes(*p.plan, p.plan->outputs[p.port])));
    outputs.push_back(buffers.back().data());
  }
  (void)session.run(inputs, outputs);
}

// One graph by itself, over what the session keeps.
void run_part(Session& session, const Plan& plan) {
  auto executor = session.graph(plan.graph);
  if (!executor.ok()) return;
  std::vector<Buffer> buffers;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  const auto pointer = [&](const Port& p) -> void* {
    if (is_state(plan, p)) return nullptr;
    return buffers.emplace_back(static_cast<size_t>(port_bytes(plan, p))).data();
  };
  for (const Port& p : plan.inputs) inputs.push_back(pointer(p));
  for (const Port& p : plan.outputs) outputs.push_back(pointer(p));
  put_lengths(plan, inputs);
  (void)(*executor)->run(inputs, outputs);
}

// All graphs over one state, in the order of the schedule, by two sessions in turn: what one run left is there in the
// next. Then through each other plan (bucket of lengths) of a graph, as a whole and that graph alone.
void run_sessions(const Engine& engine) {
  int64_t runs = 0;
  for (const ScheduleItem& item : engine.schedule) runs += item.times;
  if (runs > kRuns) return;
  auto first = Session::make(engine);
  if (!first.ok()) return;
  auto second = Session::make(engine, {.state = (*first)->state()});
  TS_CHECK(second.ok(), "a second session over the same state: ", second.status().message());
  Session* const sessions[] = {first->get(), second->get()};
  for (Session* const s : sessions) run_session(*s);
  size_t turn = 0;
  for (const Plan* plan : runnable_plans(engine)) {
    if (turn == kUsed) break;
    Session& session = *sessions[turn++ % 2];
    if (!session.use({{plan->graph, plan->name}}).ok()) continue;
    run_part(session, *plan);
    run_session(session);
  }
  (void)(*first)->clear();
}

// Arrays of every bucket's lengths, and of one less, as a program with lengths of its own would hand them over.
void run_lengths(const Engine& engine) {
  if (engine.lengths.none()) return;
  constexpr int64_t kSamples = 2;
  BatchRunner runner(engine);
  for (const Plan* plan : runnable_plans(engine)) {
    for (const int64_t fewer : {0, 1}) {
      std::vector<Shape> shapes;
      for (const Port& p : plan->inputs) {
        shapes.push_back(plan->tensors[static_cast<size_t>(p.tensor)].desc.shape);
        shapes.back()[0] = kSamples;
        for (size_t axis = 1; axis < shapes.back().size(); ++axis) {
          if (find_axis(engine.lengths.inputs, p.name, axis) != nullptr) shapes.back()[axis] -= fewer;
        }
      }
      const auto fit = fit_lengths(engine, plan->graph, shapes);
      if (!fit.ok()) continue;
      std::vector<Buffer> buffers;
      const auto make = [&](const std::vector<Port>& ports, std::vector<Shape> forms) {
        std::vector<void*> pointers;
        for (size_t i = 0; i < ports.size(); ++i) {
          forms[i][0] = kSamples;
          const Element element = plan->tensors[static_cast<size_t>(ports[i].tensor)].desc.type.element;
          pointers.push_back(
              buffers.emplace_back(static_cast<size_t>(packed_bytes(element, elements(forms[i])))).data());
        }
        return pointers;
      };
      const std::vector<void*> in = make(plan->inputs, fit->inputs), out = make(plan->outputs, fit->outputs);
      (void)runner.run(*fit, kSamples, {in.data(), in.size()}, out);
    }
  }
}

}  // namespace

void run_small(const Engine& engine) {
  if (!check_engine(engine).ok()) return;
  bool all = true;  // are small, and run on the host
  for (const Plan& plan : engine.plans) {
    if (info(plan.arch).device != DeviceKind::kHost || !small(plan)) {
      all = false;
      continue;
    }
    auto executor = bind(engine, plan);
    if (!executor.ok()) continue;
    std::vector<Buffer> buffers;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Port& p : plan.inputs) {
      Buffer b(static_cast<size_t>(port_bytes(plan, p)));
      for (size_t i = 0; i < b.size(); ++i) b.data()[i] = static_cast<uint8_t>(i * 37);
      inputs.push_back(b.data());
      buffers.push_back(std::move(b));
    }
    for (const Port& p : plan.outputs) {
      buffers.emplace_back(static_cast<size_t>(port_bytes(plan, p)));
      outputs.push_back(buffers.back().data());
    }
    put_lengths(plan, inputs);
    (void)(*executor)->run(inputs, outputs);
  }
  if (!all) return;
  (void)verify_plans(engine);
  run_sessions(engine);
  run_lengths(engine);
}

}  // namespace tessera::fuzz
