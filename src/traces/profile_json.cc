// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "io/json.h"
#include "traces/names.h"
#include "traces/profile.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

constexpr double kSameSum = 1e-3;
constexpr double kLongest = 1e12, kShortest = 1e-9, kMost = 1e24;  // times in us or ms; anything else

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "tessera profile";
constexpr int kVersion = 1;

// Fields that are empty are left out, so that what is not known is not a number.
void put(Json& j, const char* key, const std::string& value) {
  if (!value.empty()) j[key] = value;
}
template <class T>
void put(Json& j, const char* key, const std::optional<T>& value) {
  if (value) j[key] = *value;
}

Json latency_json(const Latency& l) {
  return {{"mean_ms", l.mean_ms}, {"median_ms", l.median_ms}, {"p90_ms", l.p90_ms},   {"p95_ms", l.p95_ms},
          {"p99_ms", l.p99_ms},   {"least_ms", l.least_ms},   {"most_ms", l.most_ms}, {"runs", l.runs}};
}

Json ceilings_json(const Ceilings& c) {
  Json rates = Json::object();
  for (const auto& [precision, rate] : c.flops_per_s) rates[precision] = rate;
  Json j = {{"machine", c.machine}, {"measured", c.measured}, {"bytes_per_s", c.bytes_per_s}, {"flops_per_s", rates}};
  put(j, "doubt", c.doubt);
  return j;
}

// What is made of other fields stands there for people and scripts; parse_profile makes it again.
Json kernel_json(const KernelTime& k, const std::optional<Ceilings>& ceilings) {
  Json j;
  j["name"] = k.name;
  put(j, "layer", k.layer);
  put(j, "graph", k.graph);
  j["class"] = name_of(k.kernel_class);
  put(j, "precision", k.precision);
  put(j, "asked", k.asked);
  put(j, "arithmetic", k.arithmetic);
  put(j, "sparsity", k.sparsity);
  j["calls"] = k.calls;
  j["us"] = k.us;
  put(j, "flops", k.flops);
  put(j, "bytes", k.bytes);
  const Achieved a = achieved(k, ceilings.value_or(Ceilings{}));
  put(j, "bytes_per_s", a.bytes_per_s);
  put(j, "flops_per_s", a.flops_per_s);
  if (a.bound) j["bound"] = name_of(*a.bound);
  if (!k.begin_us.empty()) j["begin_us"] = k.begin_us;
  if (!k.end_us.empty()) j["end_us"] = k.end_us;
  return j;
}

// Reads fields of one object; the first that does not fit is kept as the error.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail(cat(where_, " is not an object"));
  }
  void text(const char* key, std::string& to) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_string()) return fail(cat(where_, ": \"", key, "\" is not a string"));
    to = v->get<std::string>();
  }
  void count(const char* key, int64_t& to, int64_t least) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_number_integer() || v->get<double>() < static_cast<double>(least) || v->get<double>() > 9e15)
      return fail(cat(where_, ": \"", key, "\" is not a whole number from ", least, " on"));
    to = v->get<int64_t>();
  }
  void count(const char* key, std::optional<int64_t>& to) {
    int64_t value = -1;
    count(key, value, 0);
    if (value >= 0) to = value;
  }
  void number(const char* key, double& to) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return;
    if (!is_measure(*v)) return fail(cat(where_, ": \"", key, "\" is not a number from 0 on"));
    to = v->get<double>();
    // What is added up and divided must stay a number; no time is longer than eleven days or shorter than light takes
    // for a micrometre.
    const std::string_view name = key;
    const bool time = name.ends_with("us") || name.ends_with("_ms");
    if (to > (time ? kLongest : kMost) || (time && to > 0 && to < kShortest))
      fail(cat(where_, ": \"", key, "\" is ", to, ", which nothing takes or reaches"));
  }
  void number(const char* key, std::optional<double>& to) {
    double value = -1;
    number(key, value);
    if (value >= 0) to = value;
  }
  void difference(const char* key, std::optional<double>& to) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_number() || !std::isfinite(v->get<double>()))
      return fail(cat(where_, ": \"", key, "\" is not a number"));
    to = v->get<double>();
  }
  void numbers(const char* key, std::vector<double>& to) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_array()) return fail(cat(where_, ": \"", key, "\" is not a list"));
    for (const auto& each : *v) {
      if (!is_measure(each)) return fail(cat(where_, ": \"", key, "\" holds something that is not a number from 0 on"));
      to.push_back(each.get<double>());
    }
  }
  void texts(const char* key, std::vector<std::string>& to) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return;
    if (!v->is_array()) return fail(cat(where_, ": \"", key, "\" is not a list"));
    for (const auto& each : *v) {
      if (!each.is_string()) return fail(cat(where_, ": \"", key, "\" holds something that is not a string"));
      to.push_back(each.get<std::string>());
    }
  }
  const nlohmann::json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }
  Status status() const { return error_.empty() ? Status{} : bad_input(error_); }

 private:
  static bool is_measure(const nlohmann::json& v) {
    return v.is_number() && std::isfinite(v.get<double>()) && v.get<double>() >= 0;
  }
  const nlohmann::json& object_;
  std::string where_, error_;
};

Result<KernelTime> parse_kernel(const nlohmann::json& j, size_t index) {
  KernelTime k;
  Fields f(j, cat("kernel ", index));
  std::string kernel_class = name_of(KernelClass::kUnknown);
  f.text("name", k.name);
  f.text("layer", k.layer);
  f.text("graph", k.graph);
  f.text("class", kernel_class);
  f.text("precision", k.precision);
  f.text("asked", k.asked);
  f.text("arithmetic", k.arithmetic);
  f.text("sparsity", k.sparsity);
  f.count("calls", k.calls, 0);
  if (f.find("us") == nullptr) f.fail(cat("kernel ", index, " has no time: \"us\" is wanted, a number from 0 on"));
  f.number("us", k.us);
  f.number("flops", k.flops);
  f.number("bytes", k.bytes);
  f.numbers("begin_us", k.begin_us);
  f.numbers("end_us", k.end_us);
  TS_TRY(f.status());
  const auto c = class_of_name(kernel_class);
  if (!c) return bad_input(cat("kernel ", index, ": there is no class of kernels '", kernel_class, "'"));
  k.kernel_class = *c;
  if (k.begin_us.size() != k.end_us.size())
    return bad_input(cat("kernel ", index, " has ", k.begin_us.size(), " begins and ", k.end_us.size(), " ends"));
  return k;
}

Json graph_json(const GraphTime& g) {
  Json j = {{"graph", g.graph}, {"plan", g.plan}, {"times", g.times}};
  put(j, "ms", g.ms);
  j["kernel_us"] = g.kernel_us;
  return j;
}

Result<GraphTime> parse_graph(const nlohmann::json& j, size_t index) {
  GraphTime g;
  Fields f(j, cat("graph ", index));
  f.text("graph", g.graph);
  f.text("plan", g.plan);
  f.count("times", g.times, 1);
  f.number("ms", g.ms);
  f.number("kernel_us", g.kernel_us);
  TS_TRY(f.status());
  return g;
}

Result<Latency> parse_latency(const nlohmann::json& j) {
  Latency l;
  Fields f(j, "latency");
  f.number("mean_ms", l.mean_ms);
  f.number("median_ms", l.median_ms);
  f.number("p90_ms", l.p90_ms);
  f.number("p95_ms", l.p95_ms);
  f.number("p99_ms", l.p99_ms);
  f.number("least_ms", l.least_ms);
  f.number("most_ms", l.most_ms);
  f.count("runs", l.runs, 0);
  TS_TRY(f.status());
  return l;
}

Result<Ceilings> parse_ceilings(const nlohmann::json& j) {
  Ceilings c;
  Fields f(j, "ceilings");
  f.text("machine", c.machine);
  f.number("bytes_per_s", c.bytes_per_s);
  f.text("doubt", c.doubt);
  if (const auto* v = f.find("measured"); v != nullptr && v->is_boolean()) c.measured = v->get<bool>();
  if (const auto* v = f.find("flops_per_s"); v != nullptr) {
    Fields rates(*v, "ceilings: flops_per_s");
    if (v->is_object()) {
      for (const auto& [precision, rate] : v->items()) {
        c.flops_per_s.push_back({precision, 0});
        rates.number(precision.c_str(), c.flops_per_s.back().second);
      }
    }
    TS_TRY(rates.status());
  }
  TS_TRY(f.status());
  // Times are divided by them: what is slower than one a second is no machine.
  const auto is_rate = [](double rate) { return rate == 0 || rate >= 1; };
  const bool rates =
      std::all_of(c.flops_per_s.begin(), c.flops_per_s.end(), [&](const auto& rate) { return is_rate(rate.second); });
  if (!rates || !is_rate(c.bytes_per_s)) return bad_input("ceilings: a rate is below one a second");
  return c;
}

}  // namespace

std::string profile_json(const Profile& p) {
  Json j;
  j["format"] = kFormat;
  j["version"] = kVersion;
  j["source"] = p.source;
  put(j, "path", p.path);
  put(j, "model", p.model);
  put(j, "precision", p.precision);
  put(j, "machine", p.machine);
  put(j, "plan", p.plan);
  put(j, "making", p.making);
  if (p.capability > 0) j["capability"] = p.capability;
  if (p.predicted) j["predicted"] = true;
  if (p.batch > 0) j["batch"] = p.batch;
  j["runs"] = p.runs;
  if (p.latency) j["latency"] = latency_json(*p.latency);
  put(j, "per_second", p.per_second());
  j["kernel_us"] = p.kernel_us();
  put(j, "enqueue_us", p.enqueue_us);
  put(j, "gap_us", p.gap_us);
  put(j, "overlap_us", p.overlap_us);
  put(j, "early_us", p.early_us);
  put(j, "span_us", p.span_us);
  put(j, "residual_us", p.residual_us);
  put(j, "host_to_device_us", p.host_to_device_us);
  put(j, "device_to_host_us", p.device_to_host_us);
  if (!p.copies_in_latency) j["copies_in_latency"] = false;
  put(j, "profiled_ms", p.profiled_ms);
  put(j, "engine_bytes", p.engine_bytes);
  put(j, "weight_bytes", p.weight_bytes);
  put(j, "arena_bytes", p.arena_bytes);
  if (p.ceilings) j["ceilings"] = ceilings_json(*p.ceilings);
  for (const GraphTime& g : p.graphs) j["graphs"].push_back(graph_json(g));
  j["kernels"] = Json::array();
  for (const KernelTime& k : p.kernels) j["kernels"].push_back(kernel_json(k, p.ceilings));
  j["notes"] = p.notes;
  return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

Result<Profile> parse_profile(std::string_view text) {
  TS_ASSIGN(const nlohmann::json j, parse_json(text));
  Profile p;
  Fields f(j, "the profile");
  std::string format;
  int64_t version = 0;
  f.text("format", format);
  f.count("version", version, 0);
  TS_TRY(f.status());
  if (format != kFormat) return bad_input(cat("is no profile of tessera: \"format\" is not \"", kFormat, "\""));
  if (version != kVersion)
    return bad_input(cat("is a profile of version ", version, "; this program reads version ", kVersion));
  f.text("source", p.source);
  f.text("path", p.path);
  f.text("model", p.model);
  f.text("precision", p.precision);
  f.text("machine", p.machine);
  f.text("plan", p.plan);
  f.text("making", p.making);
  f.count("capability", p.capability, 0);
  f.count("batch", p.batch, 0);
  f.count("runs", p.runs, 1);
  f.number("enqueue_us", p.enqueue_us);
  f.number("gap_us", p.gap_us);
  f.number("overlap_us", p.overlap_us);
  f.number("early_us", p.early_us);
  f.number("span_us", p.span_us);
  f.difference("residual_us", p.residual_us);
  f.number("host_to_device_us", p.host_to_device_us);
  f.number("device_to_host_us", p.device_to_host_us);
  f.number("profiled_ms", p.profiled_ms);
  f.count("engine_bytes", p.engine_bytes);
  f.count("weight_bytes", p.weight_bytes);
  f.count("arena_bytes", p.arena_bytes);
  f.texts("notes", p.notes);
  TS_TRY(f.status());
  if (const auto* v = f.find("graphs"); v != nullptr) {
    if (!v->is_array()) return bad_input("\"graphs\" is not a list");
    for (size_t i = 0; i < v->size(); ++i) {
      TS_ASSIGN(GraphTime g, parse_graph((*v)[i], i));
      p.graphs.push_back(std::move(g));
    }
  }
  if (const auto* v = f.find("predicted"); v != nullptr && v->is_boolean()) p.predicted = v->get<bool>();
  if (const auto* v = f.find("copies_in_latency"); v != nullptr && v->is_boolean())
    p.copies_in_latency = v->get<bool>();
  if (const auto* v = f.find("latency")) {
    TS_ASSIGN(p.latency, parse_latency(*v));
  }
  if (const auto* v = f.find("ceilings")) {
    TS_ASSIGN(p.ceilings, parse_ceilings(*v));
  }
  const auto* kernels = f.find("kernels");
  if (kernels == nullptr || !kernels->is_array()) return bad_input("\"kernels\" is not a list");
  p.kernels.reserve(kernels->size());  // names are looked at where they lie
  DifferentNames names;
  for (const GraphTime& g : p.graphs) TS_TRY(names.add(g.graph));
  for (size_t i = 0; i < kernels->size(); ++i) {
    TS_ASSIGN(KernelTime k, parse_kernel((*kernels)[i], i));
    p.kernels.push_back(std::move(k));
    for (const std::string* name : {&p.kernels.back().name, &p.kernels.back().layer, &p.kernels.back().graph})
      TS_TRY(names.add(*name));
  }
  std::optional<double> said;
  f.number("kernel_us", said);
  TS_TRY(f.status());
  if (said && std::fabs(*said - p.kernel_us()) > kSameSum * std::max(*said, p.kernel_us()))
    return bad_input(cat("\"kernel_us\" is ", *said, ", but its kernels take ", p.kernel_us(),
                         " us: a time was changed, or kernels are missing"));
  return p;
}

}  // namespace tessera
