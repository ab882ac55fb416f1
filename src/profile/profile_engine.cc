// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_engine.h"

#include <algorithm>
#include <map>
#include <memory>

#include "profile/ceilings.h"
#include "profile/describe.h"
#include "profile/predict.h"
#include "runtime/batches.h"
#include "runtime/session.h"

namespace tessera {
namespace {

bool is_schedule(const PlansOfAnswer& plans) { return plans.size() > 1 || plans.at(0).times > 1; }

// Of a graph: the plan that a session takes which is told nothing.
const Plan* plan_of_graph(const Engine& engine, const std::string& graph) {
  const Plan* best = nullptr;
  for (const Plan* p : largest_plans(engine, graph)) {
    if (best == nullptr || p->batch < best->batch) best = p;
  }
  return best;
}

// Of each run of one graph, one after the other: when its kernels ran, from the begin of the schedule.
void add_launches(const KernelTime& once, int64_t times, double begin_us, double every_us, KernelTime& kernel) {
  kernel.begin_us.clear(), kernel.end_us.clear();
  for (int64_t t = 0; t < times; ++t) {
    const double at = begin_us + static_cast<double>(t) * every_us;
    for (size_t i = 0; i < once.begin_us.size(); ++i) {
      kernel.begin_us.push_back(at + once.begin_us[i]);
      kernel.end_us.push_back(at + once.end_us[i]);
    }
  }
}

// The end of what the profile has of its run, on its own clock.
double length_of(const Profile& p) {
  double end = p.span_us.value_or(0);
  for (const KernelTime& k : p.kernels) {
    for (const double e : k.end_us) end = std::max(end, e);
  }
  return end;
}

using Measured = std::optional<double> Profile::*;

// `times` runs of a graph, put behind those that `all` holds already.
void add_graph(const ScheduledPlan& item, const Profile& once, double begin_us, Profile& all) {
  const double times = static_cast<double>(item.times);
  all.graphs.push_back({.graph = item.plan->graph,
                        .plan = item.plan->name,
                        .times = item.times,
                        .ms = once.latency ? std::optional(once.latency->median_ms) : std::nullopt,
                        .kernel_us = once.kernel_us()});
  const double every_us = length_of(once);
  for (const KernelTime& k : once.kernels) {
    KernelTime& kernel = all.kernels.emplace_back(k);
    kernel.graph = item.plan->graph;
    kernel.calls *= item.times;
    kernel.us *= times;
    if (kernel.flops) *kernel.flops *= times;
    if (kernel.bytes) *kernel.bytes *= times;
    add_launches(k, item.times, begin_us, every_us, kernel);
  }
  for (const Measured field : {&Profile::gap_us, &Profile::overlap_us, &Profile::early_us, &Profile::span_us}) {
    const bool known = all.*field && once.*field;
    all.*field = known ? std::optional(*(all.*field) + times * *(once.*field)) : std::nullopt;
  }
}

// What every graph says is said once, and the rest with the graph's name.
std::vector<std::string> notes_of(const std::vector<Profile>& each, const PlansOfAnswer& plans) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < each.size(); ++i) {
    for (const std::string& note : each[i].notes) {
      const bool of_all = std::all_of(each.begin(), each.end(), [&](const Profile& p) {
        return std::find(p.notes.begin(), p.notes.end(), note) != p.notes.end();
      });
      const std::string text = of_all ? note : cat("graph '", plans[i].plan->graph, "': ", note);
      if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
    }
  }
  return notes;
}

// What the graphs have together; no latency.
Profile joined(const Engine& engine, const PlansOfAnswer& plans, const std::vector<Profile>& each) {
  Profile all = each.at(0);
  all.plan = name_of(plans);
  all.kernels.clear();
  all.notes = notes_of(each, plans);
  all.latency = {}, all.enqueue_us = {}, all.residual_us = {}, all.profiled_ms = {};
  all.host_to_device_us = {}, all.device_to_host_us = {};
  for (const Measured field : {&Profile::gap_us, &Profile::overlap_us, &Profile::early_us, &Profile::span_us})
    all.*field = 0;
  std::vector<const Plan*> of_answer;
  double begin_us = 0;
  all.arena_bytes = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    add_graph(plans[i], each[i], begin_us, all);
    begin_us += static_cast<double>(plans[i].times) * length_of(each[i]);
    of_answer.push_back(plans[i].plan);
    *all.arena_bytes += each[i].arena_bytes.value_or(0);
  }
  all.weight_bytes = weight_bytes_of(engine, of_answer);
  return all;
}

// Milliseconds of whole schedules, each input of a name as the first graph that reads it fills it.
Result<std::vector<double>> time_schedule(const Engine& engine, const PlansOfAnswer& plans,
                                          const ProfileOptions& options) {
  SessionOptions session_options{.threads = options.threads, .device = options.device};
  for (const ScheduledPlan& item : plans) session_options.cases[item.plan->graph] = item.plan->name;
  TS_ASSIGN(const std::unique_ptr<Session> session, Session::make(engine, session_options));
  std::map<const Plan*, Filled> filled;
  std::vector<const void*> inputs;
  for (const Session::PortOf& p : session->inputs()) {
    const auto [at, fresh] = filled.try_emplace(p.plan);
    if (fresh) at->second = resident_inputs(*p.plan);
    inputs.push_back(at->second.pointers.at(p.port));
  }
  return session->time_runs(inputs, options.runs, options.warmup);
}

// What profiling costs is measured per graph; of the whole schedule it is the same share.
double profiled_ms(const PlansOfAnswer& plans, const std::vector<Profile>& each, double latency_ms) {
  double plain = 0, profiled = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!each[i].latency || !each[i].profiled_ms) continue;
    plain += static_cast<double>(plans[i].times) * each[i].latency->median_ms;
    profiled += static_cast<double>(plans[i].times) * *each[i].profiled_ms;
  }
  return plain > 0 ? latency_ms * profiled / plain : latency_ms;
}

}  // namespace

Result<PlansOfAnswer> plans_of_answer(const Engine& engine, const std::string& name) {
  if (name.empty() && !engine.schedule.empty()) {
    PlansOfAnswer plans;
    for (const ScheduleItem& item : engine.schedule) {
      const Plan* const plan = plan_of_graph(engine, item.graph);
      if (plan == nullptr) return bad_input(cat("the schedule runs graph '", item.graph, "', which has no plan"));
      plans.push_back({plan, item.times});
    }
    return plans;
  }
  TS_ASSIGN(const Plan* const plan, pick_plan(engine, name));
  return PlansOfAnswer{{plan, 1}};
}

std::vector<PlansOfAnswer> answers_of(const Engine& engine) {
  std::vector<PlansOfAnswer> answers;
  if (auto schedule = plans_of_answer(engine, ""); !engine.schedule.empty() && schedule.ok())
    return {std::move(schedule).value()};
  for (const Plan* p : runnable_plans(engine)) answers.push_back({{p, 1}});
  return answers;
}

std::string name_of(const PlansOfAnswer& plans) {
  std::string text;
  for (const ScheduledPlan& item : plans)
    text += cat(text.empty() ? "" : ", ", item.times > 1 ? cat(item.times, " x ") : "", item.plan->name);
  return text;
}

Result<Profile> profile_engine(const Engine& engine, const PlansOfAnswer& plans, const ProfileOptions& options) {
  if (!is_schedule(plans)) return profile_plan(engine, *plans.at(0).plan, options);
  ProfileOptions of_graph = options;
  std::vector<Profile> each;
  for (const ScheduledPlan& item : plans) {
    TS_ASSIGN(Profile p, profile_plan(engine, *item.plan, of_graph));
    each.push_back(std::move(p));
    if (of_graph.ceilings == CeilingsUse::kAgain) of_graph.ceilings = CeilingsUse::kCached;
  }
  Profile all = joined(engine, plans, each);
  for (const Profile& p : each) {
    if (p.ceilings && all.ceilings) all.ceilings = higher_of(*p.ceilings, *all.ceilings);
  }
  TS_ASSIGN(std::vector<double> ms, options.time_schedule ? options.time_schedule(options.runs, options.warmup)
                                                          : time_schedule(engine, plans, options));
  if (ms.empty()) return machine_error("the schedule's runs were not timed");
  all.latency = latency_of(std::move(ms));
  all.profiled_ms = profiled_ms(plans, each, all.latency->median_ms);
  if (all.span_us) all.residual_us = all.latency->median_ms * 1e3 - *all.span_us;
  all.notes.push_back(
      "each graph of the schedule was timed by itself, over states of zeros, and counts as often as it runs; "
      "--plan NAME profiles one alone");
  return all;
}

Result<Profile> predict_engine(const Engine& engine, const PlansOfAnswer& plans, const Chip& chip,
                               const std::string& path) {
  std::vector<Profile> each;
  for (const ScheduledPlan& item : plans) {
    TS_ASSIGN(Profile p, predict_plan(engine, *item.plan, chip, path));
    each.push_back(std::move(p));
  }
  return is_schedule(plans) ? joined(engine, plans, each) : each.at(0);
}

}  // namespace tessera
