// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranges_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/checksum.h"
#include "compile/weights_checksum.h"
#include "io/json.h"
#include "ir/layer_ops.h"
#include "lower/fold_norms.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "ranges 1";

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

// The fewest digits that read back as the same number, also through a double, as JSON readers do it.
std::string number_text(float x) {
  if (std::isnan(x)) return "\"nan\"";
  if (std::isinf(x)) return "\"inf\"";
  char text[32];
  char* end = std::to_chars(text, text + sizeof(text), x).ptr;
  double again = 0;
  std::from_chars(text, end, again);
  if (static_cast<float>(again) != x) end = std::to_chars(text, text + sizeof(text), static_cast<double>(x)).ptr;
  return {text, end};
}

std::string values_text(const Ranges& ranges) {
  std::string out;
  for (const auto& [name, range] : ranges.values) {
    out += cat(out.empty() ? "" : ",\n", "    ", quoted(name), ": {\"amax\": ", number_text(range.amax));
    const char* before = ", \"percentiles\": {";
    for (const auto& [percent, clip] : range.percentiles) {
      out += cat(before, "\"", percent, "\": ", number_text(clip));
      before = ", ";
    }
    if (!range.percentiles.empty()) out += "}";
    before = ", \"mse\": {";
    for (const auto& [element, clip] : range.mse) {
      out += cat(before, "\"", info(element).name, "\": ", number_text(clip));
      before = ", ";
    }
    if (!range.mse.empty()) out += "}";
    if (range.by_hand) out += cat(", \"clip\": ", number_text(*range.by_hand));
    out += "}";
  }
  return out;
}

// Everything that says where the values come from.
std::string header_text(const Ranges& r) {
  std::string warnings;
  for (const std::string& w : r.warnings) warnings += cat(warnings.empty() ? "" : ", ", quoted(w));
  return cat("  \"model\": ", quoted(r.model), ",\n  \"weights\": ", quoted(r.weights),
             ",\n  \"method\": ", quoted(to_string(r.method)), ",\n  \"how\": ", quoted(r.how),
             ",\n  \"samples\": ", r.samples, ",\n  \"preprocess\": ", quoted(r.preprocess), ",\n  \"warnings\": [",
             warnings, "],\n");
}

// `how` names the method that is in use, whatever it said.
void name_method(Ranges& r) {
  constexpr std::string_view kOver = " over ";
  const size_t over = r.how.find(kOver);
  r.how = cat(to_string(r.method), kOver, over == std::string::npos ? r.how : r.how.substr(over + kOver.size()));
}

std::string hex(uint64_t x) {
  char text[17] = {};
  for (int i = 15; i >= 0; --i, x >>= 4) text[i] = "0123456789abcdef"[x & 15];
  return text;
}

std::string checksum_text(const std::string& text) {
  return hex(checksum64({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

Result<float> magnitude(const Json& j, const std::string& what) {
  if (j.is_number()) {
    const double x = j.get<double>();
    if (x < 0 || std::signbit(x)) return bad_input(cat(what, " is ", j.dump(), "; a magnitude is not negative"));
    if (!(x <= std::numeric_limits<float>::max())) return bad_input(cat(what, " is ", j.dump(), "; that is no f32"));
    return static_cast<float>(x);
  }
  return bad_input(cat(what, " is ", j.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40),
                       "; wanted a finite number from 0 on"));
}

Result<ValueRange> read_value(const Json& j, const std::string& where) {
  if (!j.is_object()) return bad_input(cat(where, " is not an object with \"amax\""));
  ValueRange range;
  if (!j.contains("amax")) return bad_input(cat(where, " has no \"amax\""));
  for (const auto& [key, entry] : j.items()) {
    if (key == "amax") {
      if (entry == "inf" || entry == "nan") {
        range.amax = entry == "inf" ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      TS_ASSIGN(range.amax, magnitude(entry, where + ": amax"));
    } else if (key == "clip") {
      TS_ASSIGN(const float clip, magnitude(entry, where + ": clip"));
      if (clip == 0) return bad_input(cat(where, ": clip is 0; wanted a number above it"));
      range.by_hand = clip;
    } else if ((key == "percentiles" || key == "mse") && entry.is_object()) {
      for (const auto& [which, clip] : entry.items()) {
        TS_ASSIGN(const float x, magnitude(clip, cat(where, ": ", key, " ", which)));
        if (key == "mse") {
          const auto element = find_element(which);
          if (!element || std::find(std::begin(kClippedElements), std::end(kClippedElements), *element) ==
                              std::end(kClippedElements))
            return bad_input(cat(where, ": mse '", which, "' is no element of activations; there are e4m3, i8, e2m1"));
          range.mse[*element] = x;
        } else {
          const auto method = parse_range_method("percentile=" + which);
          if (!method.ok()) return bad_input(cat(where, ": percentile ", method.status().message()));
          range.percentiles[method->percent] = x;
        }
      }
    } else {
      return bad_input(cat(where, ": '", key.substr(0, 60), "' is not one of amax, percentiles, mse, clip",
                           key == "percentiles" || key == "mse" ? " as an object" : ""));
    }
  }
  return range;
}

Result<std::string> text_of(const Json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end()) return bad_input(cat("'", key, "' is missing"));
  if (!it->is_string()) return bad_input(cat("'", key, "' is not text"));
  return it->get<std::string>();
}

// "'a', 'b', 'c' and 4 more"
std::string some_of(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 3; ++i) out += cat(i == 0 ? "" : ", ", "'", names[i], "'");
  return names.size() > 3 ? cat(out, " and ", names.size() - 3, " more") : out;
}

}  // namespace

std::string print_ranges(const Ranges& r) {
  const std::string header = header_text(r), values = values_text(r);
  return cat("{\n  \"tessera\": \"", kFormat, "\",\n", header,
             "  \"checksum\": ", quoted(checksum_text(header + values)), ",\n  \"values\": {\n", values, "\n  }\n}\n");
}

Result<Ranges> parse_ranges(std::string_view text) {
  TS_ASSIGN(const Json j, parse_json(text));
  if (!j.is_object()) return bad_input("is not a JSON object; wanted what tessera calibrate writes");
  TS_ASSIGN(const std::string format, text_of(j, "tessera"));
  if (format != kFormat) return bad_input(cat("'tessera' is '", format.substr(0, 40), "'; wanted '", kFormat, "'"));
  for (const auto& [key, unused] : j.items()) {
    constexpr std::string_view kKeys[] = {"tessera", "model",      "weights",  "method",   "how",
                                          "samples", "preprocess", "warnings", "checksum", "values"};
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      return bad_input(cat("'", key.substr(0, 60), "' is no entry of a file of ranges"));
  }
  Ranges r;
  TS_ASSIGN(r.model, text_of(j, "model"));
  TS_ASSIGN(r.weights, text_of(j, "weights"));
  TS_ASSIGN(const std::string method, text_of(j, "method"));
  const auto parsed = parse_range_method(method);
  if (!parsed.ok()) return bad_input(cat("method: ", parsed.status().message()));
  r.method = *parsed;
  TS_ASSIGN(r.how, text_of(j, "how"));
  TS_ASSIGN(r.preprocess, text_of(j, "preprocess"));
  TS_ASSIGN(const std::string checksum, text_of(j, "checksum"));
  const auto samples = j.find("samples");
  if (samples == j.end() || !samples->is_number_unsigned() || *samples > (uint64_t{1} << 40))
    return bad_input("'samples' is not a count");
  r.samples = samples->get<int64_t>();
  const auto warnings = j.find("warnings");
  if (warnings == j.end() || !warnings->is_array()) return bad_input("'warnings' is not a list");
  for (const Json& w : *warnings) {
    if (!w.is_string()) return bad_input("'warnings' holds something else than text");
    r.warnings.push_back(w.get<std::string>());
  }
  const auto values = j.find("values");
  if (values == j.end() || !values->is_object() || values->empty())
    return bad_input("'values' is not an object with a range per value");
  for (const auto& [name, value] : values->items()) {
    TS_ASSIGN(r.values[name], read_value(value, cat("value '", name.substr(0, 200), "'")));
  }
  const bool edited = checksum != checksum_text(header_text(r) + values_text(r));
  name_method(r);
  if (constexpr std::string_view kEdited = ", edited by hand"; edited && !r.how.ends_with(kEdited)) r.how += kEdited;
  return r;
}

bool is_ranges_text(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

std::vector<std::string> ranged_values(const Graph& graph) {
  std::set<std::string> names;
  const auto add = [&](ValueId id) {
    if (id != kNoValue && !graph.at(id).constant && info(graph.at(id).type.quant.element).kind == ElementKind::kFloat)
      names.insert(graph.at(id).name);
  };
  for (const ValueId id : graph.inputs) add(id);
  for (const Node& n : graph.nodes) {
    if (n.op != "view") std::for_each(n.outputs.begin(), n.outputs.end(), add);
  }
  return {names.begin(), names.end()};
}

Status check_ranges(const Ranges& ranges, const Graph& graph) {
  const std::vector<std::string> wanted = ranged_values(graph);
  std::set<std::string> plain;
  for (const std::string& norm : norms_between_layers(graph)) plain.insert(plain_value(norm));
  for (const std::string& norm : modulated_norms(graph)) plain.insert(gained_value(norm));
  std::vector<std::string> unknown, missing, incomplete;
  for (const auto& [name, range] : ranges.values) {
    if (!std::binary_search(wanted.begin(), wanted.end(), name) && !plain.contains(name)) unknown.push_back(name);
    for (const Element e : kClippedElements) {
      if (ranges.clip(name, e)) continue;
      incomplete.push_back(name);
      break;
    }
  }
  for (const std::string& name : wanted) {
    if (!ranges.values.contains(name)) missing.push_back(name);
  }
  const std::string again = "; calibrate again";
  if (!unknown.empty()) return bad_input(cat("is not of this model, which has no value ", some_of(unknown), again));
  if (!missing.empty()) return bad_input(cat("has no range for ", some_of(missing), again));
  if (const std::string sum = weights_checksum(graph); ranges.weights != sum) {
    return bad_input(cat("is of a model with other weights: their checksum is '", ranges.weights.substr(0, 40),
                         "', this model's '", sum, "'", again,
                         ", or write this one there if the ranges are meant for both"));
  }
  if (!incomplete.empty()) {
    return bad_input(cat("has no ", to_string(ranges.method), " for ", some_of(incomplete),
                         "; calibrate again with that method, or choose another"));
  }
  return {};
}

void use_method(Ranges& ranges, const RangeMethod& method) {
  ranges.method = method;
  name_method(ranges);
}

}  // namespace tessera
