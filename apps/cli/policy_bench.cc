// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/policy_actions.h"
#include "policy/policy.h"
#include "traces/profile.h"

namespace tessera {
namespace {

// A line of the table.
struct Timed {
  std::string what;
  Latency latency;
};

// Of a seeded observation: 1 to as many as the engine takes.
Status take_size(const char* option, const std::string& word, int64_t most, int64_t& size) {
  if (word.empty()) return {};
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, size);
  if (error == std::errc() && rest == end && size >= 1 && size <= most) return {};
  return usage_error(cat("policy bench ", option, " ", word, ": a number from 1 to ", most,
                         " is wanted, which the engine takes at most"));
}

Result<PackedObservation> observation_of(const PolicyOptions& o, const Policy& policy) {
  PolicySizes seeded = policy.sizes();
  if (!o.inputs.empty() && !(o.views.empty() && o.prompt.empty()))
    return usage_error("policy bench: --views and --prompt are of a seeded observation, --inputs holds one: give one");
  TS_TRY(take_size("--views", o.views, policy.sizes().views, seeded.views));
  TS_TRY(take_size("--prompt", o.prompt, policy.sizes().prompt, seeded.prompt));
  if (o.inputs.empty()) {
    PackedObservation observation = seeded_observation(seeded, /*seed=*/1);
    observation.images.resize(static_cast<size_t>(policy.sizes().views * policy.sizes().view_bytes()));
    observation.tokens.resize(static_cast<size_t>(policy.sizes().prompt));
    return observation;
  }
  TS_ASSIGN(std::vector<Array> arrays, read_npz(o.inputs));
  auto all = Observations::of(std::move(arrays), policy.sizes());
  if (!all.ok()) return all.status().at(o.inputs);
  return all->packed(0);
}

Json latency_json(const Latency& l) {
  return {{"mean_ms", l.mean_ms}, {"median_ms", l.median_ms}, {"p90_ms", l.p90_ms},
          {"p99_ms", l.p99_ms},   {"least_ms", l.least_ms},   {"runs", l.runs}};
}

}  // namespace

Status policy_bench(const PolicyOptions& o, const Common& common) {
  if (o.engine.empty()) return usage_error("policy bench wants an engine: tessera policy bench pi05.tess");
  double load_s = 0;
  TS_ASSIGN(const Engine engine, open_engine(o.engine, &load_s));
  TS_TRY(check_target(engine));
  auto policy = Policy::make(engine);
  if (!policy.ok()) return policy.status().at(o.engine);
  TS_ASSIGN(const PackedObservation observation, observation_of(o, **policy));
  TS_ASSIGN(const PolicyTimes times, (*policy)->time(observation, o.repeats, o.warmup));
  const PolicySizes& s = (*policy)->sizes();
  const bool host = info(engine.target).device == DeviceKind::kHost;
  std::vector<Timed> rows = {
      {host ? "whole, inputs in memory" : "whole, device to device", latency_of(times.resident_ms)},
      {"whole, host to host", latency_of(times.host_ms)}};
  Json graphs = Json::array();
  for (const PolicyTimes::OfGraph& g : times.graphs) {
    rows.push_back({cat(g.graph, g.times > 1 ? cat(", one of ", g.times) : ""), latency_of(g.ms)});
    graphs.push_back(
        {{"graph", g.graph}, {"plan", g.plan}, {"times", g.times}, {"latency", latency_json(rows.back().latency)}});
  }
  if (common.json) {
    print_json({{"engine", o.engine},
                {"model", engine.model},
                {"precision", engine.precision},
                {"machine", times.machine},
                {"views", s.views},
                {"prompt", s.prompt},
                {"plans", (*policy)->plans()},
                {"valid_rows", observation.prefix_rows},
                {"horizon", s.horizon},
                {"repeats", o.repeats},
                {"load_s", load_s},
                {"resident", latency_json(rows[0].latency)},
                {"host_to_host", latency_json(rows[1].latency)},
                {"graphs", graphs},
                {"peak_memory_bytes", peak_memory_bytes()}});
    return {};
  }
  fmt::print("{}\n", wrap(cat(shorten(printable(engine.model.substr(0, engine.model.find(", left out"))), 60), " in ",
                              engine.precision, " on ", times.machine, ": ", plural(s.views, "view"), ", ", s.prompt,
                              " tokens at most (", observation.prefix_rows, " valid rows), horizon ", s.horizon, ", ",
                              plural(o.repeats, "run"), "; ", plans_in_words((*policy)->plans())),
                          0, 2));
  Table table({"what", ">median ms", ">p90 ms", ">p99 ms", ">mean ms", ">least ms"});
  const auto ms = [](double v) { return fmt::format("{:.3f}", v); };
  for (const Timed& t : rows)
    table.add({t.what, ms(t.latency.median_ms), ms(t.latency.p90_ms), ms(t.latency.p99_ms), ms(t.latency.mean_ms),
               ms(t.latency.least_ms)});
  fmt::print("{}loaded in {:.3f} s; at most {} of memory, the mapped file included\n", table.text(), load_s,
             megabytes(peak_memory_bytes()));
  return {};
}

}  // namespace tessera
