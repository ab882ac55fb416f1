// SPDX-License-Identifier: Apache-2.0
// Contexts: one plan with its working memory, or whatever plans a number of samples takes.
#include <algorithm>
#include <functional>
#include <utility>

#include "library/handles.h"
#include "library/ports.h"
#include "library/structs.h"
#include "runtime/batches.h"
#include "runtime/executor.h"
#include "runtime/fit_lengths.h"
#include "runtime/weights.h"

using namespace tessera;

struct tess_context {
  std::shared_ptr<OpenEngine> engine;
  std::shared_ptr<SharedState> state;
  std::vector<CPort> inputs, outputs;
  Place place;  // of tensors that are enqueued
  // One of the two.
  std::unique_ptr<Executor> executor;
  std::unique_ptr<BatchRunner> runner;
  // What a call hands on: made once, so that calls allocate nothing.
  std::vector<void*> in, out;
  Watch watch;

  // Picks plans by the arrays' lengths, too (plan/engine.h, Lengths).
  bool has_lengths() const { return runner != nullptr && !engine->engine().lengths.none(); }

  Status take(const tess_tensor* const* ins, size_t in_count, tess_tensor* const* outs, size_t out_count,
              const Place& where, int64_t& samples) {
    TS_TRY(take_tensors(inputs, false, ins, in_count, where, in, samples));
    TS_TRY(take_tensors(outputs, true, outs, out_count, where, out, samples));
    return check_apart(inputs, in, outputs, out, samples);
  }
};

namespace {

Status read_context_options(const tess_context_options* options, tess_context_options& out) {
  TS_TRY(read_struct(options, TS_UP_TO(tess_context_options, state), "tess_context_options", out));
  return check_machine_options("tess_context_options", out.threads, out.device);
}

Result<const Plan*> find_plan(const OpenEngine& engine, const tess_context_options& options) {
  std::string have;
  for (const Plan* p : engine.plans()) {
    if (p->name == options.plan && (options.graph == nullptr || p->graph == options.graph)) return p;
    have += cat(have.empty() ? "'" : ", '", p->name, "'");
  }
  return bad_input(cat("the engine has no plan '", options.plan, "'",
                       options.graph == nullptr ? "" : cat(" of a graph '", options.graph, "'"), "; it has ", have));
}

// The plans that a context of these options may run: the named one, or all of a graph.
Result<std::vector<const Plan*>> plans_for(const OpenEngine& engine, const tess_context_options& options) {
  if (options.plan != nullptr) {
    TS_ASSIGN(const Plan* const plan, find_plan(engine, options));
    return std::vector<const Plan*>{plan};
  }
  TS_ASSIGN(const std::string graph, pick_graph(engine.engine(), options.graph == nullptr ? "" : options.graph));
  if (!engine.engine().lengths.none()) return runnable_plans(engine.engine(), graph);
  return largest_plans(engine.engine(), graph);
}

Status make_for_plan(tess_context& c, const Plan& plan, const tess_context_options& options) {
  if (options.no_verify == 0) TS_TRY(c.engine->admit(plan, options.device, options.threads));
  const auto in_state = [&](const Port& p) { return is_state(plan, p); };
  std::function<bool()> go_on;  // a run that ends halfway would leave half a state
  if (std::none_of(plan.inputs.begin(), plan.inputs.end(), in_state)) go_on = [&c] { return c.watch.goes_on(); };
  TS_ASSIGN(c.executor, bind(c.engine->engine(), plan,
                             {.state = c.state->state,
                              .threads = options.threads,
                              .arena = static_cast<uint8_t*>(options.arena),
                              .arena_bytes = static_cast<int64_t>(std::min<size_t>(options.arena_bytes, INT64_MAX)),
                              .go_on = std::move(go_on),
                              .device = options.device}));
  c.place = {.device = info(plan.arch).device == DeviceKind::kCuda, .id = options.device};
  return {};
}

Status make_for_samples(tess_context& c, const std::vector<const Plan*>& plans, const tess_context_options& options) {
  if (options.arena != nullptr || options.state != nullptr)
    return usage_error("an arena or a state is for one plan: name it in tess_context_options.plan");
  for (const Plan* plan : plans) {
    for (const bool output : {false, true}) {
      for (const CPort& p : ports_of(*plan, output, true)) {
        if (p.desc->shape.empty() || p.desc->shape[0] != plan->batch)
          return bad_input(cat(output ? "output '" : "input '", p.name, "' of plan '", plan->name,
                               "' does not count samples in its first dimension: name a plan"));
      }
    }
  }
  BatchOptions batches;
  batches.graph = plans[0]->graph;
  batches.threads = options.threads, batches.device = options.device;
  if (options.no_verify == 0)
    batches.admit = [&c, device = options.device, threads = options.threads](const Plan& p) {
      return c.engine->admit(p, device, threads);
    };
  batches.go_on = [&c] { return c.watch.goes_on(); };
  c.runner = std::make_unique<BatchRunner>(c.engine->engine(), std::move(batches));
  return {};
}

// What these inputs run through. Where one is missing or has another number of dimensions, its port's own shape stands
// for it: take_tensors says what is wrong.
Result<Fit> fit_of(const tess_context& c, const tess_tensor* const* inputs, size_t count) {
  std::vector<Shape> shapes;
  bool sound = inputs != nullptr && count == c.inputs.size();
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Shape& own = c.inputs[i].desc->shape;
    const tess_tensor* const t = sound ? inputs[i] : nullptr;
    sound = t != nullptr && t->shape != nullptr && t->ndim == static_cast<int32_t>(own.size());
    shapes.push_back(sound ? Shape(t->shape, t->shape + t->ndim) : own);
  }
  const Engine& engine = c.engine->engine();
  const std::string& graph = engine.plans[0].graph;
  return sound ? fit_lengths(engine, graph, shapes) : largest_fit(engine, graph);
}

// Ports as these arrays have them. `descs` keeps what they point to.
std::vector<CPort> fitted(const std::vector<CPort>& ports, const std::vector<Shape>& shapes,
                          std::vector<Operand>& descs) {
  descs.reserve(ports.size());
  std::vector<CPort> out;
  for (size_t i = 0; i < ports.size(); ++i) {
    Shape shape = shapes[i];
    shape[0] = ports[i].desc->shape[0];
    descs.push_back(dense_operand(shape, ports[i].desc->type));
    out.push_back(ports[i]);
    out.back().desc = &descs.back();
    out.back().bytes = packed_bytes(ports[i].desc->type.element, elements(shape));
  }
  return out;
}

// Any number of samples of any length.
Status run_lengths(tess_context& c, const tess_tensor* const* inputs, size_t input_count, tess_tensor* const* outputs,
                   size_t output_count) {
  TS_ASSIGN(const Fit fit, fit_of(c, inputs, input_count));
  std::vector<Operand> in_descs, out_descs;
  const std::vector<CPort> ins = fitted(c.inputs, fit.inputs, in_descs),
                           outs = fitted(c.outputs, fit.outputs, out_descs);
  int64_t samples = 0;
  TS_TRY(take_tensors(ins, false, inputs, input_count, {}, c.in, samples));
  TS_TRY(take_tensors(outs, true, outputs, output_count, {}, c.out, samples));
  TS_TRY(check_apart(ins, c.in, outs, c.out, samples));
  return c.runner->run(fit, samples, {c.in.data(), c.in.size()}, c.out);
}

}  // namespace

extern "C" {

tess_status* tess_memory_needed(const tess_engine* engine, const tess_context_options* options, tess_memory* out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    tess_context_options asked;
    TS_TRY(read_context_options(options, asked));
    TS_ASSIGN(const std::vector<const Plan*> plans, plans_for(*engine->open, asked));
    tess_memory need{};
    if (!plans.empty()) need.weights_bytes = Weights::bytes_of(engine->open->engine(), info(plans[0]->arch).device);
    for (const EngineState& s : engine->open->engine().states) need.state_bytes += s.bytes;
    for (const Plan* p : plans) need.arena_bytes += p->arena_bytes;
    return write_struct(need, TS_UP_TO(tess_memory, state_bytes), "tess_memory", out);
  });
}

tess_status* tess_context_make(const tess_engine* engine, const tess_context_options* options, tess_context** out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    TS_TRY(check_argument(out, "out"));
    *out = nullptr;
    tess_context_options asked;
    TS_TRY(read_context_options(options, asked));
    TS_TRY(check_runs_here(engine->open->engine(), asked.device));
    TS_ASSIGN(const std::vector<const Plan*> plans, plans_for(*engine->open, asked));
    auto c = std::make_unique<tess_context>();
    c->engine = engine->open;
    TS_ASSIGN(c->state, state_to_use(engine->open, asked.state));
    const bool any = asked.plan == nullptr;
    TS_TRY(any ? make_for_samples(*c, plans, asked) : make_for_plan(*c, *plans[0], asked));
    const Plan& largest =
        **std::max_element(plans.begin(), plans.end(), [](auto a, auto b) { return a->batch < b->batch; });
    c->inputs = ports_of(largest, false, any), c->outputs = ports_of(largest, true, any);
    c->in.resize(c->inputs.size()), c->out.resize(c->outputs.size());
    *out = c.release();
    return {};
  });
}

void tess_context_free(tess_context* context) { delete context; }

tess_status* tess_context_port(const tess_context* context, int32_t is_output, size_t port, tess_port_info* out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(context, "context"));
    return describe_port(is_output != 0 ? context->outputs : context->inputs, is_output != 0, port, out);
  });
}

tess_status* tess_output_shape(const tess_context* context, const tess_tensor* const* inputs, size_t input_count,
                               size_t output, int64_t* shape, size_t ndim) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(context, "context"));
    TS_TRY(check_argument(inputs, "inputs"));
    TS_TRY(check_argument(shape, "shape"));
    if (output >= context->outputs.size())
      return usage_error(cat("output ", output, ": there are ", context->outputs.size()));
    const CPort& port = context->outputs[output];
    Shape found = port.desc->shape;
    if (ndim != found.size())
      return usage_error(cat("output '", port.name, "' has ", found.size(), " dimensions, not ", ndim));
    if (context->has_lengths()) {
      TS_ASSIGN(const Fit fit, fit_of(*context, inputs, input_count));
      found = fit.outputs[output];
    }
    const tess_tensor* const first = input_count > 0 ? inputs[0] : nullptr;
    if (port.any_samples && first != nullptr && first->ndim > 0 && first->shape != nullptr) found[0] = first->shape[0];
    std::copy(found.begin(), found.end(), shape);
    return {};
  });
}

tess_status* tess_run(tess_context* context, const tess_tensor* const* inputs, size_t input_count,
                      tess_tensor* const* outputs, size_t output_count) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(context, "context"));
    const Use use(*context->state);
    TS_TRY(use.status("context"));
    context->watch.cancelled = false;
    if (context->has_lengths()) return run_lengths(*context, inputs, input_count, outputs, output_count);
    int64_t samples = 0;
    TS_TRY(context->take(inputs, input_count, outputs, output_count, {}, samples));
    const std::span<const void* const> in(context->in.data(), context->in.size());
    if (context->executor != nullptr) return context->executor->run(in, context->out);
    return context->runner->run(samples, in, context->out);
  });
}

tess_status* tess_enqueue(tess_context* context, const tess_tensor* const* inputs, size_t input_count,
                          tess_tensor* const* outputs, size_t output_count, void* stream) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(context, "context"));
    const Use use(*context->state);
    TS_TRY(use.status("context"));
    if (context->executor == nullptr)
      return usage_error("a context of any number of samples copies them: name a plan to enqueue");
    context->watch.cancelled = false;
    int64_t samples = 0;
    TS_TRY(context->take(inputs, input_count, outputs, output_count, context->place, samples));
    return context->executor->enqueue({context->in.data(), context->in.size()}, context->out, {stream});
  });
}

tess_status* tess_context_watch(tess_context* context, tess_go_on_function go_on, void* user) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(context, "context"));
    const Use use(*context->state);
    TS_TRY(use.status("context"));
    context->watch.asked = go_on, context->watch.user = user;
    return {};
  });
}

tess_status* tess_cancel(tess_context* context) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(context, "context"));
    context->watch.cancelled = true;
    return {};
  });
}
}
