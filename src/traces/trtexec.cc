// SPDX-License-Identifier: Apache-2.0
// Files of TensorRT's trtexec, in any order, the first of them needed:
//   --exportProfile    [{"count": runs}, {"name", "timeMs": of all runs, "averageMs", ...}, ...]
//   --exportLayerInfo  {"Layers": [{"Name", "LayerType", "Inputs": [...], "Outputs", "TacticName", ...} or "name",
//   ...]}
//   --exportTimes      [{"computeMs", "latencyMs", "h2dMs", "d2hMs", "startEnqMs", "endEnqMs", ...}, ...]
// Layers are joined by their name; then the kernel is the tactic, and shapes and data types tell flops, bytes and
// precision.
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "io/json.h"
#include "traces/format.h"
#include "traces/names.h"
#include "traces/timeline.h"
#include "traces/trtexec_layers.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

enum class Part : uint8_t { kProfile, kLayers, kTimes };
constexpr const char* kOptions[] = {"--exportProfile", "--exportLayerInfo", "--exportTimes"};

std::optional<Part> part_of(const Opening& o) {
  if (o.is_object && o.has("Layers")) return Part::kLayers;
  if (o.is_list && o.has("latencyMs")) return Part::kTimes;
  if (o.is_list && (o.has("count") || (o.has("name") && (o.has("timeMs") || o.has("averageMs")))))
    return Part::kProfile;
  return {};
}

// A time in ms that is there and can be one.
Result<double> time_ms(const Json& entry, const char* key, const std::string& where) {
  const auto at = entry.find(key);
  if (at == entry.end()) return bad_input(cat(where, " has no \"", key, "\""));
  if (!at->is_number() || !std::isfinite(at->get<double>()) || at->get<double>() < 0 || at->get<double>() > 1e12)
    return bad_input(cat(where, ": \"", key, "\" is not a time from 0 ms on"));
  return at->get<double>();
}
std::optional<double> time_of(const Json& entry, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto found = time_ms(entry, key, ""); found.ok()) return *found;
  }
  return {};
}

struct LayerTime {
  std::string name;
  double ms = 0;  // of all runs
};
struct Times {
  int64_t runs = 0;  // 0: not told
  std::vector<LayerTime> layers;
};

Result<Times> parse_times_of_layers(const Json& j) {
  if (!j.is_array()) return bad_input("is not a list of layers");
  Times times;
  for (size_t i = 0; i < j.size(); ++i) {
    const Json& entry = j[i];
    const std::string where = cat("entry ", i);
    if (!entry.is_object()) return bad_input(cat(where, " is not an object"));
    if (const auto count = entry.find("count"); count != entry.end() && !entry.contains("name")) {
      if (!count->is_number_integer() || count->get<double>() < 1 || count->get<double>() > 1e12)
        return bad_input(cat(where, ": \"count\" is not a whole number of runs from 1 on"));
      times.runs = count->get<int64_t>();
      continue;
    }
    const auto name = entry.find("name");
    if (name == entry.end() || !name->is_string()) return bad_input(cat(where, " has no \"name\" of a layer"));
    // The average alone is what some tools keep; it is of one run.
    const bool total = entry.contains("timeMs");
    TS_ASSIGN(double ms, time_ms(entry, total ? "timeMs" : "averageMs", where));
    if (!total) ms *= static_cast<double>(std::max<int64_t>(1, times.runs));
    times.layers.push_back({name->get<std::string>(), ms});
  }
  if (times.layers.empty()) return bad_input("holds no layer: was the engine run at least once?");
  return times;
}

// Latency and copies of whole runs.
Status put_runs(const Json& j, Profile& profile) {
  if (!j.is_array() || j.empty()) return bad_input("is not a list of runs");
  std::vector<double> latency, in, out, enqueue;
  for (size_t i = 0; i < j.size(); ++i) {
    if (!j[i].is_object()) return bad_input(cat("entry ", i, " is not an object"));
    TS_ASSIGN(const double ms, time_ms(j[i], "latencyMs", cat("entry ", i)));
    latency.push_back(ms);
    if (const auto t = time_of(j[i], {"h2dMs", "inMs"})) in.push_back(*t);
    if (const auto t = time_of(j[i], {"d2hMs", "outMs"})) out.push_back(*t);
    const auto begin = time_of(j[i], {"startEnqMs"}), end = time_of(j[i], {"endEnqMs"});
    if (const auto t = time_of(j[i], {"enqueueMs", "enqMs"})) {
      enqueue.push_back(*t);
    } else if (begin && end && *end >= *begin) {
      enqueue.push_back(*end - *begin);
    }
  }
  // A number that some runs lack is not one of the profile.
  const auto mean_us = [&](const std::vector<double>& ms) -> std::optional<double> {
    if (ms.size() != j.size()) return {};
    return latency_of(ms).mean_ms * 1000;
  };
  profile.latency = latency_of(latency);
  profile.host_to_device_us = mean_us(in);
  profile.device_to_host_us = mean_us(out);
  profile.enqueue_us = mean_us(enqueue);
  return {};
}

// The kernels of the profile: entries of one name together, each name looked up and classified once.
Status put_layers(const Times& times, const EngineLayers& layers, const Rules& rules, Profile& profile) {
  std::unordered_map<std::string_view, size_t> places;
  std::vector<KernelTime> once;  // as one entry of it is
  DifferentNames names;
  const double runs = static_cast<double>(profile.runs);
  for (const LayerTime& t : times.layers) {
    const auto [at, is_new] = places.emplace(t.name, once.size());
    if (is_new) {
      TS_TRY(names.add(t.name));
      KernelTime& kernel = once.emplace_back(KernelTime{.name = t.name, .layer = t.name});
      if (const auto layer = layers.find(t.name); layer != layers.end()) {
        describe(layer->second, rules, kernel);
        TS_TRY(names.add(layer->second.tactic));
      } else {
        const Classified c = classify(t.name, rules);
        kernel.kernel_class = c.kernel_class;
        kernel.precision = c.precision;
      }
      profile.kernels.push_back(kernel);
      profile.kernels.back().us = t.ms * 1000 / runs;
      continue;
    }
    KernelTime& same = profile.kernels[at->second];
    same.us += t.ms * 1000 / runs;
    ++same.calls;
    if (same.flops) *same.flops += once[at->second].flops.value_or(0);
    if (same.bytes) *same.bytes += once[at->second].bytes.value_or(0);
  }
  return {};
}

Status note_layers(const Times& times, const EngineLayers& layers, Profile& profile) {
  size_t found = 0, detailed = 0;
  for (const LayerTime& t : times.layers) {
    const auto at = layers.find(t.name);
    found += at != layers.end();
    detailed += at != layers.end() && at->second.detailed;
  }
  if (found == 0) return bad_input("describes another engine: none of its layers is in the profile");
  if (found < times.layers.size())
    profile.notes.push_back(cat(times.layers.size() - found, " of ", times.layers.size(),
                                " layers of the profile are not in the layer information; their names are all that is ",
                                "known of them."));
  if (detailed == 0)
    profile.notes.push_back(
        "The layer information holds names only: build the engine with "
        "--profilingVerbosity=detailed to have tactics and data types.");
  return {};
}

}  // namespace

bool is_companion_of_trtexec(const Opening& o) {
  const std::optional<Part> part = part_of(o);
  return part && *part != Part::kProfile;
}

bool looks_like_trtexec(const Opening& o) { return part_of(o).has_value(); }

Result<Profile> read_trtexec(const Input& input) {
  const Source* parts[3] = {};
  const auto place = [&](const Source& source) -> Status {
    const auto part = part_of(source.opening);
    if (!part) return bad_input("is none of trtexec's exported files").at(source.path);
    const Source*& to = parts[static_cast<size_t>(*part)];
    if (to != nullptr)
      return bad_input(cat("is a second file of ", kOptions[static_cast<size_t>(*part)])).at(source.path);
    to = &source;
    return {};
  };
  TS_TRY(place(input.main));
  for (const Source& each : input.beside) TS_TRY(place(each));
  if (parts[0] == nullptr)
    return bad_input(cat("is trtexec's ", parts[1] != nullptr ? kOptions[1] : kOptions[2],
                         ", which has no times of layers: give the file of ", kOptions[0], " too"));
  Json json[3];
  for (size_t i = 0; i < 3; ++i) {
    if (parts[i] == nullptr) continue;
    auto text = parts[i]->text();
    if (!text.ok()) return text.status().at(cat("the file of ", kOptions[i]));
    auto parsed = parse_json(*text);
    if (!parsed.ok()) return parsed.status().at(cat("the file of ", kOptions[i]));
    json[i] = std::move(parsed).value();
  }
  Profile profile;
  profile.source = "trtexec";
  TS_ASSIGN(const Times times, parse_times_of_layers(json[0]));
  profile.runs = settle_runs(input.options.runs, times.runs, profile);
  EngineLayers layers;
  if (parts[1] != nullptr) {
    auto parsed = parse_engine_layers(json[1]);
    if (!parsed.ok()) return parsed.status().at(cat("the file of ", kOptions[1]));
    layers = std::move(parsed).value();
    TS_TRY(note_layers(times, layers, profile).at(cat("the file of ", kOptions[1])));
  }
  TS_TRY(put_layers(times, layers, input.rules, profile));
  if (parts[2] != nullptr) TS_TRY(put_runs(json[2], profile).at(cat("the file of ", kOptions[2])));
  return profile;
}

}  // namespace tessera
