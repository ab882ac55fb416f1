// SPDX-License-Identifier: Apache-2.0
#include "runtime/batches.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "base/memory.h"
#include "base/progress_sink.h"
#include "plan/golden_plans.h"
#include "runtime/bind.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One sample of a port, as a plan has it and as an array has it.
struct SampleForm {
  Shape in_plan, in_array;
  int64_t element_bytes;
  size_t plan_bytes() const { return static_cast<size_t>(elements(in_plan) * element_bytes); }
  size_t array_bytes() const { return static_cast<size_t>(elements(in_array) * element_bytes); }
};
SampleForm form_of(const Plan& plan, const Port& port, const Shape& array) {
  const Operand& desc = plan.tensors[static_cast<size_t>(port.tensor)].desc;
  const auto one = [](const Shape& shape) { return Shape(shape.begin() + !shape.empty(), shape.end()); };
  return {one(desc.shape), one(array), info(desc.type.element).bits / 8};
}

}  // namespace

std::vector<std::string> graph_names(const Engine& engine) {
  std::vector<std::string> names;
  for (const Plan* p : runnable_plans(engine)) {
    if (std::find(names.begin(), names.end(), p->graph) == names.end()) names.push_back(p->graph);
  }
  return names;
}

Result<std::string> pick_graph(const Engine& engine, const std::string& asked) {
  const std::vector<std::string> names = graph_names(engine);
  if (names.empty()) return bad_input("the engine has no plan to run");
  if (asked.empty() && names.size() == 1) return names[0];
  if (std::find(names.begin(), names.end(), asked) != names.end()) return asked;
  std::string have;
  for (const std::string& n : names) have += cat(have.empty() ? "'" : ", '", n, "'");
  return bad_input(asked.empty() ? cat("the engine has the graphs ", have, ": say which one runs")
                                 : cat("the engine has no graph '", asked, "'; it has ", have));
}

std::vector<const Plan*> runnable_plans(const Engine& engine, const std::string& graph) {
  std::vector<const Plan*> plans;
  for (const Plan& p : engine.plans) {
    if (!is_golden(p) && (graph.empty() || p.graph == graph)) plans.push_back(&p);
  }
  return plans;
}

std::vector<const Plan*> largest_plans(const Engine& engine, const std::string& graph) {
  std::vector<const Plan*> plans = runnable_plans(engine, graph);
  std::erase_if(plans, [all = plans](const Plan* p) {
    return std::any_of(all.begin(), all.end(), [&](const Plan* other) {
      return other->graph == p->graph && other->sizes != p->sizes && holds(other->sizes, p->sizes);
    });
  });
  return plans;
}

std::vector<Chunk> split_into_chunks(const std::vector<const Plan*>& plans, int64_t samples) {
  std::vector<Chunk> chunks;
  for (int64_t first = 0; first < samples;) {
    const int64_t left = samples - first;
    const Plan* best = nullptr;
    for (const Plan* p : plans) {
      const bool filled = p->batch <= left, best_filled = best != nullptr && best->batch <= left;
      if (best == nullptr || (filled && !best_filled) ||
          (filled == best_filled && (filled ? p->batch > best->batch : p->batch < best->batch)))
        best = p;
    }
    const int64_t count = std::min(left, best->batch);
    chunks.push_back({best, first, count});
    first += count;
  }
  return chunks;
}

// A plan's executor, and buffers of its batch.
struct BatchRunner::Bound {
  std::unique_ptr<Executor> executor;
  std::vector<Buffer> buffers;
  std::vector<void*> in, out;

  Status make_buffers(const Plan& plan) {
    for (const auto& [ports, pointers] : {std::pair{&plan.inputs, &in}, std::pair{&plan.outputs, &out}}) {
      for (const Port& p : *ports) {
        TS_ASSIGN(Buffer b, allocate(port_bytes(plan, p), cat("'", p.name, "' of plan '", plan.name, "'")));
        pointers->push_back(b.data());
        buffers.push_back(std::move(b));
      }
    }
    return {};
  }
};

BatchRunner::BatchRunner(const Engine& engine, BatchOptions options) : engine_(engine), options_(std::move(options)) {}
BatchRunner::~BatchRunner() = default;

Result<BatchRunner::Bound*> BatchRunner::bound(const Plan& plan) {
  std::unique_ptr<Bound>& known = bound_[&plan];
  if (known != nullptr) return known.get();
  auto start = std::chrono::steady_clock::now();
  if (weights_ == nullptr) {
    TS_ASSIGN(weights_, Weights::of(engine_, info(plan.arch).device, options_.device));
  }
  double seconds = seconds_since(start);
  if (options_.admit) {
    start = std::chrono::steady_clock::now();
    TS_TRY(options_.admit(plan));
    times_.admit_seconds += seconds_since(start);
  }
  const Activity binding("plan", plan.name);
  start = std::chrono::steady_clock::now();
  auto made = std::make_unique<Bound>();
  TS_ASSIGN(made->executor,
            bind(engine_, plan, {.threads = options_.threads, .go_on = options_.go_on, .device = options_.device}));
  TS_TRY(made->make_buffers(plan));
  seconds += seconds_since(start);
  times_.bind_seconds += seconds;
  used_.push_back(&plan);
  machine_ = made->executor->machine();
  known = std::move(made);
  return known.get();
}

Status BatchRunner::run_chunk(const Chunk& chunk, const Fit& fit, int64_t samples, std::span<const void* const> inputs,
                              std::span<void* const> outputs) {
  const Plan& plan = *chunk.plan;
  TS_ASSIGN(Bound* const on, bound(plan));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SampleForm form = form_of(plan, plan.inputs[i], fit.inputs[i]);
    for (int64_t s = 0; s < plan.batch && form.plan_bytes() > 0; ++s)
      copy_front(form.in_array,
                 static_cast<const uint8_t*>(inputs[i]) +
                     static_cast<size_t>((chunk.first + s) % samples) * form.array_bytes(),
                 form.in_plan, static_cast<uint8_t*>(on->in[i]) + static_cast<size_t>(s) * form.plan_bytes(),
                 form.element_bytes);
  }
  const auto start = std::chrono::steady_clock::now();
  TS_TRY(on->executor->run({on->in.data(), on->in.size()}, on->out));
  times_.run_seconds += seconds_since(start);
  ++times_.runs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const SampleForm form = form_of(plan, plan.outputs[i], fit.outputs[i]);
    for (int64_t s = 0; s < chunk.count && form.array_bytes() > 0; ++s)
      copy_front(form.in_plan, static_cast<const uint8_t*>(on->out[i]) + static_cast<size_t>(s) * form.plan_bytes(),
                 form.in_array,
                 static_cast<uint8_t*>(outputs[i]) + static_cast<size_t>(chunk.first + s) * form.array_bytes(),
                 form.element_bytes);
  }
  return {};
}

Status BatchRunner::run(int64_t samples, std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (largest_.plans.empty()) {
    TS_ASSIGN(const std::string graph, pick_graph(engine_, options_.graph));
    TS_ASSIGN(largest_, largest_fit(engine_, graph));
  }
  return run(largest_, samples, inputs, outputs);
}

Status BatchRunner::run(const Fit& fit, int64_t samples, std::span<const void* const> inputs,
                        std::span<void* const> outputs) {
  const Plan& first = *fit.plans[0];
  TS_TRY(check_buffers(first, inputs, outputs));
  const auto is_null_state = [&](const std::vector<Port>& ports, auto buffers) {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (buffers[i] == nullptr && is_state(first, ports[i])) return true;
    }
    return false;
  };
  if (is_null_state(first.inputs, inputs) || is_null_state(first.outputs, outputs))
    return bad_input("samples that run in batches bring their states with them: give a buffer for each port");
  for (const Chunk& c : split_into_chunks(fit.plans, samples)) {
    if (options_.go_on && !options_.go_on()) return Status(kCancelled, "the run was cancelled");
    TS_TRY(run_chunk(c, fit, samples, inputs, outputs));
    if (options_.progress) TS_TRY(options_.progress(c.count));
  }
  return {};
}

}  // namespace tessera
