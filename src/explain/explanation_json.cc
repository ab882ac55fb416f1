// SPDX-License-Identifier: Apache-2.0
#include "explain/explain.h"
#include "io/json.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json facts_json(const ProfileFacts& f) {
  Json j = {{"name", f.name}, {"path", f.path}, {"source", f.source}};
  if (!f.model.empty()) j["model"] = f.model;
  if (!f.machine.empty()) j["machine"] = f.machine;
  if (!f.precision.empty()) j["precision"] = f.precision;
  if (f.batch > 0) j["batch"] = f.batch;
  j["kernel_ms"] = f.kernel_ms;
  j["latency_ms"] = or_null(f.latency_ms);
  j["products_ms"] = f.products_ms;
  j["attention_ms"] = f.attention_ms;
  j["rest_ms"] = f.rest_ms;
  j["unclassified_share"] = f.unclassified_share;
  return j;
}

Json class_json(const ClassTime& t, bool compared) {
  Json j = {{"name", t.name}, {"a_ms", t.a_ms}, {"a_share", t.a_share}};
  j["b_ms"] = compared ? Json(t.b_ms) : Json();
  j["b_share"] = compared ? Json(t.b_share) : Json();
  if (t.precisions.empty()) return j;
  j["precisions"] = Json::array();
  for (const PrecisionTime& p : t.precisions) {
    Json one = {{"precision", p.precision}, {"a_ms", p.a_ms}};
    if (compared) one["b_ms"] = p.b_ms;
    j["precisions"].push_back(one);
  }
  return j;
}

Json classes_json(const std::vector<ClassTime>& classes, bool compared) {
  Json all = Json::array();
  for (const ClassTime& t : classes) all.push_back(class_json(t, compared));
  return all;
}

Json shares_json(const ShareTable& table) {
  if (table.origin == Origin::kNotKnown) return Json();
  Json j = Json::object();
  for (const PrecisionShare& s : table.shares) j[s.precision] = s.share;
  return j;
}

Json coverage_json(const Coverage& c) {
  const auto how = [](const ShareTable& t) {
    return std::string(name_of(t.origin)) + (t.why.empty() ? "" : ": " + t.why);
  };
  return {{"time", shares_json(c.time)},
          {"flops", shares_json(c.flops)},
          {"bytes", shares_json(c.bytes)},
          {"how", {{"time", how(c.time)}, {"flops", how(c.flops)}, {"bytes", how(c.bytes)}}}};
}

Json changes_json(const Changes& changes) {
  Json all = Json::array();
  for (const LayerChange& l : changes.all) {
    all.push_back({{"name", l.name},
                   {"a_ms", l.in_a ? Json(l.a_ms) : Json()},
                   {"b_ms", l.in_b ? Json(l.b_ms) : Json()},
                   {"a_precision", l.a_precision},
                   {"b_precision", l.b_precision}});
  }
  return {{"by", changes.by}, {"all", all}};
}

Json outside_json(const std::optional<Outside>& o) {
  if (!o) return Json();
  return {{"latency_ms", o->latency_ms},          {"busy_ms", o->busy_ms},
          {"outside_ms", o->outside_ms},          {"gap_ms", or_null(o->gap_ms)},
          {"overlap_ms", or_null(o->overlap_ms)}, {"copies_ms", or_null(o->copies_ms)},
          {"enqueue_ms", or_null(o->enqueue_ms)}, {"unexplained_ms", o->unexplained_ms}};
}

Json sizes_json(const Sizes& s) {
  return {{"engine_bytes", or_null(s.engine_bytes)},
          {"weight_bytes", or_null(s.weight_bytes)},
          {"arena_bytes", or_null(s.arena_bytes)}};
}

Json fallbacks_json(const Explanation& e) {
  Json all = Json::array();
  for (const Fallback& f : e.fallbacks) {
    Json j = {{"kernel", f.kernel}, {"precision", f.precision}, {"share", f.share},
              {"asked", f.asked},   {"calls", f.calls},         {"ms", f.ms}};
    if (!f.layer.empty()) j["layer"] = f.layer;
    all.push_back(j);
  }
  return all;
}

Json ladder_json(const Explanation& e) {
  Json all = Json::array();
  for (const Rung& r : e.ladder) {
    all.push_back({{"name", r.name},
                   {"base", std::string(1, r.base)},
                   {"speedup", r.speedup},
                   {"ms", r.ms},
                   {"arithmetic", r.arithmetic},
                   {"nominal", r.nominal}});
  }
  return all;
}

Json recommendations_json(const Explanation& e) {
  Json all = Json::array();
  for (const Recommendation& r : e.recommendations) {
    all.push_back({{"id", r.id},
                   {"what", r.what},
                   {"why", r.why},
                   {"predicted", r.predicted},
                   {"basis", r.basis},
                   {"gain_ms", r.gain_ms},
                   {"arithmetic", r.arithmetic},
                   {"confidence", name_of(r.confidence)},
                   {"because", r.because},
                   {"flag", r.flag}});
  }
  return all;
}

Json combinations_json(const Explanation& e) {
  Json all = Json::array();
  for (const Combination& c : e.combinations) {
    Json ids = Json::array();
    for (const size_t i : c.of) ids.push_back(e.recommendations[i].id);
    all.push_back({{"of", ids}, {"predicted", c.predicted}, {"arithmetic", c.arithmetic}});
  }
  return all;
}

Json applied_json(const Applied& a) {
  Json checks = Json::array();
  for (const AppliedCheck& c : a.checks) {
    checks.push_back({{"id", c.id},
                      {"what", c.what},
                      {"seen", c.seen},
                      {"predicted_gain_ms", c.predicted_gain_ms},
                      {"measured_gain_ms", c.measured_gain_ms}});
  }
  return {{"c", facts_json(a.c)},
          {"checks", checks},
          {"not_seen", a.not_seen},
          {"predicted", or_null(a.predicted)},
          {"measured", or_null(a.measured)}};
}

Json attention_json(const AttentionChange& t, bool compared) {
  if (!compared) return {{"a_us", t.a_us}, {"a_precision", t.a_precision}};
  return {{"a_us", t.a_us},
          {"b_us", t.b_us},
          {"a_precision", t.a_precision},
          {"b_precision", t.b_precision},
          {"unchanged", t.unchanged}};
}

// What is said of B and of the two together.
void add_comparison(Json& j, const Explanation& e) {
  j["b"] = facts_json(e.b);
  j["latency_speedup"] = or_null(e.latency_speedup);
  j["per_sample"] = e.per_sample;
  j["changes"] = changes_json(e.changes);
  j["growth"] = {{"a_ms", e.growth.a_ms},
                 {"b_ms", e.growth.b_ms},
                 {"a_rest_ms", e.growth.a_rest_ms},
                 {"b_rest_ms", e.growth.b_rest_ms},
                 {"grown", classes_json(e.growth.grown, true)}};
}

}  // namespace

std::string explanation_json(const Explanation& e) {
  Json j;
  j["answer"] = e.answer;
  j["a"] = facts_json(e.a);
  j["speedup"] = or_null(e.speedup);
  if (!e.no_speedup.empty()) j["no_speedup"] = e.no_speedup;
  if (e.compared) add_comparison(j, e);
  const bool two = e.compared;
  for (const GraphChange& g : e.graphs)
    j["graphs"].push_back({{"graph", g.graph},
                           {"a_times", g.a_times},
                           {"a_ms", g.a_ms},
                           {"b_times", two ? Json(g.b_times) : Json()},
                           {"b_ms", two ? Json(g.b_ms) : Json()}});
  j["classes"] = classes_json(e.classes, two);
  j["coverage"] = coverage_json(two ? e.b_coverage : e.a_coverage);
  if (two) j["coverage_a"] = coverage_json(e.a_coverage);
  j["unclassified_share"] = two ? e.b.unclassified_share : e.a.unclassified_share;
  if (two) j["unclassified_share_a"] = e.a.unclassified_share;
  j["attention"] = e.attention ? attention_json(*e.attention, two) : Json();
  j["outside"] = {{"a", outside_json(e.a_outside)}, {"b", outside_json(e.b_outside)}};
  j["sizes"] = {{"a", sizes_json(e.a_sizes)}, {"b", sizes_json(e.b_sizes)}};
  j["asked"] = {{"precision", e.asked}, {"how", e.asked_how}};
  j["fallbacks"] = fallbacks_json(e);
  j["fallbacks_unknown_share"] = or_null(e.fallbacks_unknown_share);
  j["ladder"] = ladder_json(e);
  j["recommendations"] = recommendations_json(e);
  j["combinations"] = combinations_json(e);
  if (e.applied) j["applied"] = applied_json(*e.applied);
  j["notes"] = e.notes;
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
