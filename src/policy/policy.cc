// SPDX-License-Identifier: Apache-2.0
#include "policy/policy.h"

#include <algorithm>
#include <chrono>

#include "inputs/samples.h"
#include "runtime/batches.h"
#include "runtime/bind.h"

namespace tessera {
namespace {

constexpr const char *kViews = "views", *kPrompt = "prompt";  // sizes that buckets are told apart by

const PlanTensor* port_tensor(const Plan& plan, const std::vector<Port>& ports, const std::string& name) {
  for (const Port& p : ports) {
    if (p.name == name) return &plan.tensors[static_cast<size_t>(p.tensor)];
  }
  return nullptr;
}

// Rows of the only table that a prefix reads.
int64_t vocabulary_of(const Plan& prefix) {
  for (const PlanStep& s : prefix.steps) {
    if (s.op == "gather") return prefix.tensors[static_cast<size_t>(s.in[0])].desc.shape[0];
  }
  return 1;
}

// Rows of `from`, in order, become rows `to` of zeros.
std::vector<float> spread(const std::vector<float>& from, const std::vector<int64_t>& to, size_t first, size_t count,
                          int64_t rows, size_t cols) {
  std::vector<float> all(static_cast<size_t>(rows) * cols, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    const auto at = from.begin() + static_cast<std::ptrdiff_t>((first + i) * cols);
    std::copy(at, at + static_cast<std::ptrdiff_t>(cols), all.begin() + to[i] * static_cast<int64_t>(cols));
  }
  return all;
}

// How many rows a bucket computes; a size that it does not have is no reason to prefer it.
int64_t rows_of(const Plan& plan, int64_t patches) {
  int64_t rows = 0;
  for (const auto& [name, size] : plan.sizes) rows += name == kViews ? size * patches : size;
  return rows;
}

}  // namespace

Result<std::unique_ptr<Policy>> Policy::make(const Engine& engine, const SessionOptions& options) {
  std::unique_ptr<Policy> policy(new Policy(engine));
  TS_ASSIGN(policy->session_, Session::make(engine, options));
  TS_TRY(policy->read_sizes());
  return policy;
}

Status Policy::read_sizes() {
  for (const auto& [name, plan] : {std::pair{"vision", &vision_}, {"prefix", &prefix_}, {"step", &step_}}) {
    const auto found = session_->plan(name);
    if (!found.ok())
      return bad_input(cat("is no policy: it has no graph '", name, "' (a policy has vision, prefix and step)"));
    *plan = *found;
  }
  const PlanTensor *images = port_tensor(*vision_, vision_->inputs, "images"),
                   *seen = port_tensor(*prefix_, prefix_->inputs, "image_tokens"),
                   *tokens = port_tensor(*prefix_, prefix_->inputs, "tokens"),
                   *noise = port_tensor(*prefix_, prefix_->inputs, "noise");
  const bool right = images != nullptr && seen != nullptr && tokens != nullptr && noise != nullptr &&
                     images->desc.shape.size() == 5 && seen->desc.shape.size() == 3 && tokens->desc.shape.size() == 2 &&
                     noise->desc.shape.size() == 3 && vision_->batch == 1;
  if (!right) return bad_input("is no policy of batch 1: its graphs have other inputs");
  sizes_ = {.views = images->desc.shape[1],
            .image = images->desc.shape[3],
            .patches = seen->desc.shape[1] / std::max<int64_t>(1, images->desc.shape[1]),
            .prompt = tokens->desc.shape[1],
            .horizon = noise->desc.shape[1],
            .actions = noise->desc.shape[2],
            .vocabulary = vocabulary_of(*prefix_),
            .state = port_tensor(*prefix_, prefix_->inputs, "state") != nullptr,
            .bytes = images->desc.type.element == Element::u8,
            .rtc = port_tensor(*prefix_, prefix_->inputs, "prev_actions") != nullptr};
  if (engine_.schedule.empty()) return bad_input("is no policy: nothing says how often its graphs run");
  for (const ScheduleItem& item : engine_.schedule) steps_ += item.graph == "step" ? item.times : 0;
  while (port_tensor(*prefix_, prefix_->outputs, cat("keys.", layers_, ".after")) != nullptr) ++layers_;
  return {};
}

Status Policy::use_plans_for(const PackedObservation& o) {
  const std::map<std::string, int64_t> wanted = {{kViews, o.image_rows / std::max<int64_t>(1, sizes_.patches)},
                                                 {kPrompt, o.prefix_rows - o.image_rows}};
  std::map<std::string, std::string> cases;
  for (const ScheduleItem& item : engine_.schedule) {
    const Plan* best = nullptr;
    for (const Plan* p : runnable_plans(engine_, item.graph)) {
      if (p->batch != 1 || !holds(p->sizes, wanted)) continue;
      if (best == nullptr || rows_of(*p, sizes_.patches) < rows_of(*best, sizes_.patches)) best = p;
    }
    if (best == nullptr)
      return bad_input(cat("no plan of graph '", item.graph, "' holds ", wanted.at(kViews), " views and ",
                           wanted.at(kPrompt), " tokens"));
    cases[item.graph] = best->name;
  }
  TS_TRY(session_->use(cases));
  used_.clear();
  for (const ScheduleItem& item : engine_.schedule) used_.push_back(cases.at(item.graph));
  return {};
}

Shape Policy::cache_shape() const {
  const Shape& s = port_tensor(*prefix_, prefix_->outputs, "keys.0.after")->desc.shape;
  return {s.begin() + 1, s.end()};
}

int64_t Policy::width() const { return port_tensor(*prefix_, prefix_->inputs, "image_tokens")->desc.shape[2]; }

const void* Policy::input(const std::string& name, const PackedObservation& o) const {
  if (name == "images") return o.images.data();
  if (name == "tokens") return o.tokens.data();
  if (name == "noise") return o.noise.data();
  if (name == "state") return o.state.data();
  if (name == "prev_actions") return o.prev.data();
  if (name == "prev_weights") return o.weights.data();
  if (name == "image_rows") return &o.image_rows;
  if (name == "prefix_rows") return &o.prefix_rows;
  return nullptr;  // a state
}

Result<std::vector<const void*>> Policy::inputs_of_schedule(const PackedObservation& o) const {
  std::vector<const void*> inputs;
  for (const Session::PortOf& p : session_->inputs()) {
    inputs.push_back(input(p.name, o));
    if (inputs.back() == nullptr) return bad_input(cat("has an input '", p.name, "' that no policy has"));
  }
  return inputs;
}

Result<std::vector<float>> Policy::act(const PackedObservation& o) {
  TS_TRY(use_plans_for(o));
  TS_ASSIGN(const std::vector<const void*> inputs, inputs_of_schedule(o));
  std::vector<float> actions(static_cast<size_t>(sizes_.horizon * sizes_.actions));
  std::vector<Buffer> others;
  std::vector<void*> outputs;
  for (const Session::PortOf& p : session_->outputs()) {
    if (p.name == "actions") {
      outputs.push_back(actions.data());
      continue;
    }
    others.emplace_back(static_cast<size_t>(port_bytes(*p.plan, p.plan->outputs[p.port])));
    outputs.push_back(others.back().data());
  }
  TS_TRY(session_->run(inputs, outputs));
  return actions;
}

Status Policy::run_graph(const std::string& graph, const PackedObservation& o,
                         const std::vector<std::pair<std::string, std::vector<float>*>>& wanted) {
  TS_ASSIGN(const Plan* plan, session_->plan(graph));
  TS_ASSIGN(Executor * executor, session_->graph(graph));
  std::vector<const void*> inputs;
  for (const Port& p : plan->inputs) inputs.push_back(is_state(*plan, p) ? nullptr : input(p.name, o));
  std::vector<Buffer> buffers;
  std::vector<void*> outputs;
  for (const Port& p : plan->outputs) {
    const bool asked = std::any_of(wanted.begin(), wanted.end(), [&](const auto& w) { return w.first == p.name; });
    if (!asked && is_state(*plan, p)) {
      outputs.push_back(nullptr);
      continue;
    }
    buffers.emplace_back(static_cast<size_t>(port_bytes(*plan, p)));
    outputs.push_back(buffers.back().data());
  }
  TS_TRY(executor->run(inputs, outputs));
  for (size_t i = 0; i < plan->outputs.size(); ++i) {
    for (const auto& [name, into] : wanted) {
      if (plan->outputs[i].name != name) continue;
      const Operand& d = plan->tensors[static_cast<size_t>(plan->outputs[i].tensor)].desc;
      Buffer copy(static_cast<size_t>(port_bytes(*plan, plan->outputs[i])));
      std::copy_n(static_cast<const uint8_t*>(outputs[i]), copy.size(), copy.data());
      const Bytes f32 = converted(Bytes::own(std::move(copy)), d.type.element, Element::f32);
      into->resize(f32.size() / sizeof(float));
      std::copy_n(f32.data(), f32.size(), reinterpret_cast<uint8_t*>(into->data()));
    }
  }
  return {};
}

Result<std::vector<float>> Policy::act(const PackedObservation& o, int64_t given_views, int64_t given_rows,
                                       PolicyStages& stages) {
  TS_TRY(use_plans_for(o));
  std::vector<float> image_tokens, actions, velocity;
  TS_TRY(run_graph("vision", o, {{"image_tokens.after", &image_tokens}}));
  std::vector<std::vector<float>> caches(static_cast<size_t>(2 * layers_));
  std::vector<std::pair<std::string, std::vector<float>*>> wanted;
  for (int64_t i = 0; i < layers_; ++i) {
    wanted.push_back({cat("keys.", i, ".after"), &caches[static_cast<size_t>(2 * i)]});
    wanted.push_back({cat("values.", i, ".after"), &caches[static_cast<size_t>(2 * i + 1)]});
  }
  TS_TRY(run_graph("prefix", o, wanted));
  for (int64_t i = 0; i < steps_; ++i) {
    TS_TRY(run_graph("step", o, {{"velocity", &velocity}, {"actions", &actions}}));
    if (i == 0) stages.velocity = velocity;
  }
  const size_t seen = static_cast<size_t>(o.image_rows), valid = static_cast<size_t>(o.prefix_rows);
  stages.image_tokens =
      spread(image_tokens, o.rows, 0, seen, given_views * sizes_.patches, static_cast<size_t>(width()));
  const Shape cache = cache_shape();
  const size_t cols = static_cast<size_t>(cache[1] * cache[2]);
  for (size_t i = 0; i < caches.size(); ++i)
    (i % 2 == 0 ? stages.k : stages.v).push_back(spread(caches[i], o.rows, 0, valid, given_rows, cols));
  return actions;
}

Status Policy::time_graphs(const PackedObservation& o, int repeats, int warmup, PolicyTimes& times) {
  for (size_t i = 0; i < engine_.schedule.size(); ++i)
    times.graphs.push_back({engine_.schedule[i].graph, used_[i], engine_.schedule[i].times, {}});
  for (int i = -warmup; i < repeats; ++i) {
    for (PolicyTimes::OfGraph& g : times.graphs) {
      TS_ASSIGN(const Plan* const plan, session_->plan(g.graph));
      TS_ASSIGN(Executor* const executor, session_->graph(g.graph));
      std::vector<const void*> inputs;
      for (const Port& p : plan->inputs) inputs.push_back(is_state(*plan, p) ? nullptr : input(p.name, o));
      TS_ASSIGN(const std::vector<double> ms, executor->time_runs(inputs, static_cast<int>(g.times), /*warmup=*/0));
      if (i >= 0) g.ms.insert(g.ms.end(), ms.begin(), ms.end());
    }
  }
  return {};
}

Result<PolicyTimes> Policy::time(const PackedObservation& o, int repeats, int warmup) {
  PolicyTimes times;
  TS_TRY(use_plans_for(o));
  TS_ASSIGN(const std::vector<const void*> inputs, inputs_of_schedule(o));
  TS_ASSIGN(times.resident_ms, session_->time_runs(inputs, repeats, warmup));
  constexpr int kFew = 3;  // the clock is up already
  for (int i = -std::min(kFew, repeats); i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    TS_TRY(act(o).status());
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (i >= 0) times.host_ms.push_back(ms);
  }
  TS_TRY(time_graphs(o, repeats, std::min(kFew, repeats), times));
  TS_ASSIGN(const Executor* const first, session_->graph(engine_.schedule[0].graph));
  times.machine = first->machine();
  return times;
}

// What a port would read now: of a state what the session holds, else the observation's.
Array Policy::array_of(const Plan& plan, const Port& port, const PackedObservation& o) const {
  const PlanTensor& t = plan.tensors[static_cast<size_t>(port.tensor)];
  Buffer bytes(static_cast<size_t>(port_bytes(plan, port)));
  const void* from = is_state(plan, port)
                         ? static_cast<const void*>(session_->state()->blocks()[static_cast<size_t>(t.index)])
                         : input(port.name, o);
  std::copy_n(static_cast<const uint8_t*>(from), bytes.size(), bytes.data());
  Array a{.name = port.name, .shape = t.desc.shape, .dtype = numpy_dtype(t.desc.type.element), .data = {}};
  a.data = Bytes::own(std::move(bytes));
  if (!a.dtype.empty()) return a;
  a.data = converted(a.data, t.desc.type.element, Element::f32);
  a.dtype = numpy_dtype(Element::f32);
  return a;
}

Status Policy::trace(const PackedObservation& o, const SeeInputs& see) {
  for (const ScheduleItem& item : engine_.schedule) {
    TS_ASSIGN(const Plan* const plan, session_->plan(item.graph));
    TS_CHECK(info(plan->arch).device == DeviceKind::kHost, "states are read where they lie");
    for (int64_t run = 0; run < item.times; ++run) {
      std::vector<Array> inputs;
      for (const Port& p : plan->inputs) inputs.push_back(array_of(*plan, p, o));
      TS_TRY(see(item.graph, run, std::move(inputs)));
      TS_TRY(run_graph(item.graph, o, {}));
    }
  }
  return {};
}

}  // namespace tessera
