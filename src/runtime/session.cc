// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "runtime/batches.h"
#include "runtime/bind.h"
#include "runtime/cuda_slots.h"

namespace tessera {
namespace {

// Gives the flag back when it goes.
class Taken {
 public:
  explicit Taken(std::atomic<bool>& flag) : flag_(flag), mine_(!flag.exchange(true, std::memory_order_acquire)) {}
  ~Taken() {
    if (mine_) flag_.store(false, std::memory_order_release);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  bool mine() const { return mine_; }

 private:
  std::atomic<bool>& flag_;
  const bool mine_;
};

Status busy_session() {
  return machine_error(
      "this session is running in another thread; make one session per thread, they share the weights");
}
Status busy_state() {
  return machine_error(
      "the state of this session is in use in another thread; make one session and one state per thread, they share "
      "the weights");
}

}  // namespace

Result<std::unique_ptr<Session>> Session::make(const Engine& engine, const SessionOptions& options) {
  auto session = std::unique_ptr<Session>(new Session(engine, options));
  TS_TRY(session->prepare());
  return session;
}

Session::~Session() {
  const bool recorded =
      std::any_of(routes_.begin(), routes_.end(), [](const auto& r) { return r.second.recording_ != nullptr; });
  if (state_ == nullptr || !recorded) return;
  const Turn turn(*state_);
  if (turn.mine()) (void)state_->order().settle();  // recordings' buffers may be in use on a stream of the caller's
}

Result<const Plan*> Session::pick(const std::string& graph, const std::string* named) const {
  const Plan* best = nullptr;
  for (const Plan* p : runnable_plans(engine_, graph)) {
    if (named != nullptr ? p->name != *named : options_.batch != 0 && p->batch != options_.batch) continue;
    const bool larger = best != nullptr && p->batch == best->batch && p->sizes != best->sizes;
    if (best == nullptr || p->batch < best->batch || (larger && holds(p->sizes, best->sizes))) best = p;
  }
  if (best != nullptr) return best;
  return bad_input(named != nullptr ? cat("graph '", graph, "' has no plan called '", *named, "'")
                                    : cat("graph '", graph, "' has no plan of batch ", options_.batch));
}

Status Session::prepare() {
  const std::vector<const Plan*> plans = runnable_plans(engine_);
  if (plans.empty()) return bad_input("the engine has no plan to run");
  PlanOfGraph first;
  for (const std::string& name : graph_names(engine_)) {
    const auto named = options_.cases.find(name);
    TS_ASSIGN(first[name], pick(name, named == options_.cases.end() ? nullptr : &named->second));
  }
  kind_ = info(plans[0]->arch).device;
  state_ = options_.state;
  if (state_ == nullptr) {
    TS_ASSIGN(state_, State::make(engine_, kind_, options_.device));
  }
  TS_ASSIGN(route_, route_over(first));
  return {};
}

Status Session::use(const std::map<std::string, std::string>& cases) {
  const Taken taken(taken_);
  if (!taken.mine()) return busy_session();
  TS_ASSIGN(route_, route_of(cases));
  return {};
}

Result<Session::Route*> Session::ready(const std::map<std::string, std::string>& cases) {
  const Taken taken(taken_);
  if (!taken.mine()) return busy_session();
  return route_of(cases);
}

Result<Session::Route*> Session::route_of(const std::map<std::string, std::string>& cases) {
  PlanOfGraph plans = *route_->plans_;
  for (const auto& [graph, name] : cases) {
    TS_TRY(plan(graph).status());
    TS_ASSIGN(plans[graph], pick(graph, &name));
  }
  TS_ASSIGN(Route* const route, route_over(plans));
  for (const auto& [graph, name] : cases) TS_TRY(executor_of(*plans.at(graph)).status());
  return route;
}

Result<Session::Route*> Session::route_over(const PlanOfGraph& plans) {
  if (const auto known = routes_.find(plans); known != routes_.end()) return &known->second;
  std::vector<ScheduleItem> schedule = engine_.schedule;
  if (schedule.empty() && plans.size() == 1) schedule = {{plans.begin()->first, 1}};
  TS_TRY(check_together(schedule, plans));
  Route route;
  for (const ScheduleItem& item : schedule) {
    const Plan& p = *plans.at(item.graph);
    Route::Item run{.plan = &p, .times = item.times, .in = {}, .out = {}, .lengths = cache_lengths(p)};
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      TS_ASSIGN(const size_t at, port_of(route.inputs_, p, i, true));
      run.in.push_back(at);
    }
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      TS_ASSIGN(const size_t at, port_of(route.outputs_, p, i, false));
      run.out.push_back(at);
    }
    route.items_.push_back(std::move(run));
  }
  const auto [made, fresh] = routes_.emplace(plans, std::move(route));
  made->second.plans_ = &made->first;
  return &made->second;
}

// Graphs of a schedule hand each other rows in states: those of another size, or of samples that the other does not
// have, would be what an earlier run left there. Graphs without a schedule are run one by one, as the caller sees fit.
Status Session::check_together(const std::vector<ScheduleItem>& schedule, const PlanOfGraph& plans) {
  std::map<std::string, const Plan*> of_size;
  std::map<int64_t, const Plan*> of_state;
  for (const ScheduleItem& item : schedule) {
    const Plan& p = *plans.at(item.graph);
    for (const auto& [name, size] : p.sizes) {
      const Plan& other = *of_size.emplace(name, &p).first->second;
      if (other.sizes.at(name) != size)
        return bad_input(cat("the schedule: plan '", p.name, "' of graph '", p.graph, "' is for '", name, "' = ", size,
                             ", and plan '", other.name, "' of graph '", other.graph, "' for ", other.sizes.at(name),
                             "; plans of one size are wanted: name one of each graph"));
    }
    for (const std::vector<Port>* ports : {&p.inputs, &p.outputs}) {
      for (const Port& port : *ports) {
        if (!is_state(p, port)) continue;
        const Plan& other = *of_state.emplace(p.tensors[static_cast<size_t>(port.tensor)].index, &p).first->second;
        if (other.batch != p.batch)
          return bad_input(cat("the schedule: plan '", p.name, "' of graph '", p.graph, "' is for a batch of ", p.batch,
                               ", and plan '", other.name, "' of graph '", other.graph, "' for ", other.batch,
                               ", and they share a state; plans of one batch are wanted: name one of each graph"));
      }
    }
  }
  return {};
}

Result<size_t> Session::port_of(std::vector<PortOf>& ports, const Plan& plan, size_t port, bool input) {
  const Port& p = (input ? plan.inputs : plan.outputs)[port];
  if (is_state(plan, p)) return kOwn;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name != p.name) continue;
    const Port& known = (input ? ports[i].plan->inputs : ports[i].plan->outputs)[ports[i].port];
    const Operand &a = ports[i].plan->tensors[static_cast<size_t>(known.tensor)].desc,
                  &b = plan.tensors[static_cast<size_t>(p.tensor)].desc;
    if (a.type != b.type || a.shape != b.shape)
      return bad_input(cat("the schedule: ", input ? "input" : "output", " '", p.name, "' is ", to_string(a.type),
                           to_string(a.shape), " of graph '", ports[i].plan->graph, "' and ", to_string(b.type),
                           to_string(b.shape), " of graph '", plan.graph, "'; ports of one name are one port"));
    return i;
  }
  ports.push_back({p.name, &plan, port});
  return ports.size() - 1;
}

Result<const Plan*> Session::plan(const std::string& graph) const {
  const auto it = route_->plans_->find(graph);
  if (it != route_->plans_->end()) return it->second;
  std::string have;
  for (const auto& [name, plan] : *route_->plans_) have += cat(have.empty() ? "'" : ", '", name, "'");
  return bad_input(cat("the engine has no graph '", graph, "'; it has ", have));
}

Result<Executor*> Session::graph(const std::string& name) {
  TS_ASSIGN(const Plan* const p, plan(name));
  return executor_of(*p);
}

Result<Executor*> Session::executor_of(const Plan& plan) {
  std::unique_ptr<Executor>& known = executors_[&plan];
  if (known == nullptr) {
    if (options_.admit) TS_TRY(options_.admit(plan));
    TS_ASSIGN(known,
              bind(engine_, plan,
                   {.state = state_, .threads = options_.threads, .go_on = options_.go_on, .device = options_.device}));
  }
  return known.get();
}

Status Session::check(std::span<const void* const> inputs, std::span<void* const> outputs, Side where) const {
  if (route_->items_.empty())
    return bad_input(cat("the engine has ", route_->plans_->size(),
                         " graphs and no schedule that says in which order they run: run one of them"));
  const auto side = [](const char* what, const std::vector<PortOf>& ports, auto buffers, bool input) -> Status {
    if (buffers.size() != ports.size())
      return bad_input(
          cat("the schedule has ", ports.size(), " ", what, "s, and ", buffers.size(), " buffers were given"));
    for (size_t i = 0; i < ports.size(); ++i) {
      const Port& p = (input ? ports[i].plan->inputs : ports[i].plan->outputs)[ports[i].port];
      if (buffers[i] == nullptr && port_bytes(*ports[i].plan, p) > 0)
        return bad_input(cat(what, " '", ports[i].name, "' of the schedule was given no buffer (null)"));
    }
    return {};
  };
  TS_TRY(side("input", route_->inputs_, inputs, true));
  TS_TRY(side("output", route_->outputs_, outputs, false));
  return where == Side::kHost ? check_lengths(inputs) : Status();
}

// Before anything runs, so that a refused call leaves the state as it was. A recording gets its inputs in device
// memory, where nobody looks at them.
Status Session::check_lengths(std::span<const void* const> inputs) const {
  for (const Route::Item& item : route_->items_) {
    std::vector<const void*> in;
    for (const size_t i : item.in) in.push_back(i == kOwn ? nullptr : inputs[i]);
    TS_TRY(check_cache_lengths(*item.plan, item.lengths, in).at(cat("graph '", item.plan->graph, "'")));
  }
  return {};
}

Status Session::put_runs(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream,
                         bool host) {
  for (const Route::Item& item : route_->items_) {
    const Activity running("graph", item.plan->graph);
    TS_ASSIGN(Executor* const executor, executor_of(*item.plan));
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const size_t i : item.in) in.push_back(i == kOwn ? nullptr : inputs[i]);
    for (const size_t o : item.out) out.push_back(o == kOwn ? nullptr : outputs[o]);
    for (int64_t t = 0; t < item.times; ++t)
      TS_TRY((host ? executor->run(in, out) : executor->enqueue(in, out, stream))
                 .at(cat("graph '", item.plan->graph, "'")));
  }
  return {};
}

Status Session::record() {
  if (route_->recording_ != nullptr) return {};
  size_t slots = 0;
  for (const Route::Item& item : route_->items_) {
    TS_TRY(executor_of(*item.plan).status());  // before a capture
    slots += item.in.size() + item.out.size();
  }
  TS_TRY(route_->table_.allocate(slots * sizeof(void*)));
  auto recording = std::make_unique<Recording>();
  TS_TRY(recording->record([&](Stream stream) -> Status {
    auto* const* table = reinterpret_cast<void* const*>(route_->table_.data());
    for (const Route::Item& item : route_->items_) {
      TS_ASSIGN(Executor* const executor, executor_of(*item.plan));
      for (int64_t t = 0; t < item.times; ++t)
        TS_TRY(executor->enqueue_through(table, stream).at(cat("graph '", item.plan->graph, "'")));
      table += item.in.size() + item.out.size();
    }
    return {};
  }));
  route_->recording_ = std::move(recording);
  return {};
}

// Contract: what the stream does next comes after the run before (StreamOrder).
Status Session::show(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream) {
  Route& r = *route_;
  r.wanted_.clear();
  for (const Route::Item& item : r.items_) {
    for (const size_t i : item.in) r.wanted_.push_back(i == kOwn ? nullptr : const_cast<void*>(inputs[i]));
    for (const size_t o : item.out) r.wanted_.push_back(o == kOwn ? nullptr : outputs[o]);
  }
  if (r.wanted_ == r.in_table_) return {};
  r.in_table_.clear();  // until the write is on its way
  TS_TRY(write_slots(reinterpret_cast<void**>(r.table_.data()), r.wanted_, stream));
  r.in_table_ = r.wanted_;
  return {};
}

Status Session::make_buffers() {
  if (!route_->buffers_.empty()) return {};
  std::vector<DeviceBuffer> made;
  const auto make = [&](const PortOf& p, bool input) {
    const Port& port = (input ? p.plan->inputs : p.plan->outputs)[p.port];
    return made.emplace_back().allocate(static_cast<size_t>(port_bytes(*p.plan, port)));
  };
  for (const PortOf& p : route_->inputs_) TS_TRY(make(p, true));
  for (const PortOf& p : route_->outputs_) TS_TRY(make(p, false));
  route_->buffers_ = std::move(made);
  return {};
}

Status Session::fill_buffers(std::span<const void* const> inputs) {
  TS_TRY(make_buffers());
  for (size_t i = 0; i < inputs.size(); ++i)
    TS_TRY(copy_to_device(route_->buffers_[i].data(), inputs[i],
                          static_cast<size_t>(port_bytes(*route_->inputs_[i].plan,
                                                         route_->inputs_[i].plan->inputs[route_->inputs_[i].port]))));
  std::vector<void*> all;
  for (const DeviceBuffer& b : route_->buffers_) all.push_back(b.data());
  const std::span<void* const> buffers(all);
  const std::vector<const void*> in(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
  return show(in, buffers.subspan(inputs.size()), route_->recording_->stream());
}

Result<std::vector<double>> Session::time_runs(std::span<const void* const> inputs, int repeats, int warmup) {
  std::vector<Buffer> results;
  std::vector<void*> outputs;
  for (const PortOf& p : route_->outputs_) {
    results.emplace_back(static_cast<size_t>(port_bytes(*p.plan, p.plan->outputs[p.port])));
    outputs.push_back(results.back().data());
  }
  const Taken taken(taken_);
  if (!taken.mine()) return busy_session();
  TS_TRY(check(inputs, outputs, Side::kHost));
  const Claim claim(*state_);
  if (!claim.mine()) return busy_state();
  if (kind_ == DeviceKind::kHost) {
    std::vector<double> times;
    for (int i = -(warmup == kOwnWarmup ? 1 : warmup); i < repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      TS_TRY(put_runs(inputs, outputs, {}, /*host=*/true));
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      if (i >= 0) times.push_back(ms);
    }
    return times;
  }
  const OnDevice here(options_.device);
  TS_TRY(here.status());
  TS_TRY(record());
  TS_TRY(state_->order().settle());
  TS_TRY(fill_buffers(inputs));
  return route_->recording_->time_launches(repeats, warmup == kOwnWarmup ? 20 : warmup);
}

Status Session::run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  const Taken taken(taken_);
  if (!taken.mine()) return busy_session();
  TS_TRY(check(inputs, outputs, Side::kHost));
  const Claim claim(*state_);
  if (!claim.mine()) return busy_state();
  if (kind_ == DeviceKind::kHost) return put_runs(inputs, outputs, {}, /*host=*/true);
  const OnDevice here(options_.device);
  TS_TRY(here.status());
  TS_TRY(record());
  TS_TRY(state_->order().settle());
  TS_TRY(fill_buffers(inputs));
  TS_TRY(route_->recording_->launch(route_->recording_->stream()));
  TS_TRY(route_->recording_->wait());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const PortOf& p = route_->outputs_[o];
    TS_TRY(copy_to_host(outputs[o], route_->buffers_[inputs.size() + o].data(),
                        static_cast<size_t>(port_bytes(*p.plan, p.plan->outputs[p.port]))));
  }
  return {};
}

Status Session::enqueue(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream) {
  if (kind_ == DeviceKind::kHost) return run(inputs, outputs);
  const Taken taken(taken_);
  if (!taken.mine()) return busy_session();
  TS_TRY(check(inputs, outputs, Side::kDevice));
  const Claim claim(*state_);
  if (!claim.mine()) return busy_state();
  const OnDevice here(options_.device);
  TS_TRY(here.status());
  TS_ASSIGN(const bool capturing, is_capturing(stream));
  if (capturing) {
    if (route_->recording_ == nullptr)
      return bad_input(
          "a session whose first run is under the caller's capture would bind its kernels there: run it "
          "once before");
    return put_runs(inputs, outputs, stream, /*host=*/false);
  }
  TS_TRY(record());
  TS_TRY(state_->order().wait(stream));
  Status launched = show(inputs, outputs, stream);
  if (launched.ok()) launched = route_->recording_->launch(stream);
  TS_TRY(state_->order().note(stream));  // also after an error: part of it may be on its way
  return launched;
}

}  // namespace tessera
