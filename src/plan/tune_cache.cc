// SPDX-License-Identifier: Apache-2.0
#include "plan/tune_cache.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#include "base/checksum.h"
#include "base/embedded_text.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/mmap.h"
#include "ir/padding.h"
#include "op/extra_results.h"
#include "plan/plan.h"

namespace tessera {

// Generated from assets/tuning: one file per GPU, sorted by name.
std::span<const EmbeddedText> committed_tunings();

namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "tuning 1";
constexpr double kMostUs = 1e9;  // a quarter of an hour: no kernel

bool faster(const TunedTime& a, const TunedTime& b) {
  const bool a_alone = a.in_plan_us == 0, b_alone = b.in_plan_us == 0;
  return std::tie(a_alone, a.in_plan_us, a.us, a.variant, a.config) <
         std::tie(b_alone, b.in_plan_us, b.us, b.variant, b.config);
}

double rounded_us(double us) { return std::max(0.01, std::round(us * 100) / 100); }

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string number_text(double x) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof(text), x).ptr};
}

std::string text_of(const Attr& attr) {
  if (const auto* i = std::get_if<int64_t>(&attr)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&attr)) return number_text(*d);
  if (const auto* w = std::get_if<std::string>(&attr)) return *w;
  return to_string(std::get<std::vector<int64_t>>(attr));
}

std::string text_of(const Operand& o) {
  if (!o.present) return "-";
  return cat(to_string(o.type), to_string(o.shape), o.dense() ? "" : "/" + to_string(o.strides), o.constant ? "c" : "");
}

Result<std::string> text_at(const Json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end()) return bad_input(cat("'", key, "' is missing"));
  if (!it->is_string()) return bad_input(cat("'", key, "' is not text"));
  return it->get<std::string>();
}

// Fields of an object that are none of `known`: a misspelt one would be ignored in silence.
Status check_keys(const Json& j, std::initializer_list<std::string_view> known) {
  for (const auto& [key, unused] : j.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      return bad_input(cat("'", key.substr(0, 60), "' is no entry of a tuning table"));
  }
  return {};
}

Result<TunedTime> read_time(const Json& j) {
  if (!j.is_object()) return bad_input("holds something else than an object with variant, config and us");
  TS_TRY(check_keys(j, {"variant", "config", "us", "in_plan_us"}));
  TunedTime t;
  TS_ASSIGN(t.variant, text_at(j, "variant"));
  TS_ASSIGN(t.config, text_at(j, "config"));
  for (const auto& [name, to] : {std::pair{"us", &t.us}, std::pair{"in_plan_us", &t.in_plan_us}}) {
    const auto us = j.find(name);
    if (us == j.end() && to == &t.in_plan_us) continue;
    if (us == j.end() || !us->is_number()) return bad_input(cat("'", name, "' is not a number"));
    *to = us->get<double>();
    if (!(*to > 0) || !(*to <= kMostUs))
      return bad_input(cat("'", name, "' is ", *to, "; a time is above 0 and at most ", kMostUs));
  }
  return t;
}

}  // namespace

const std::vector<TunedTime>* TuningTable::find(const std::string& key) const {
  const auto it = entries.find(key);
  return it == entries.end() ? nullptr : &it->second;
}

const TunedTime* TuningTable::find(const std::string& key, std::string_view variant, std::string_view config) const {
  const std::vector<TunedTime>* times = find(key);
  if (times == nullptr) return nullptr;
  for (const TunedTime& t : *times) {
    if (t.variant == variant && t.config == config) return &t;
  }
  return nullptr;
}

void TuningTable::record(const std::string& key, TunedTime time) {
  time.us = rounded_us(time.us);
  if (time.in_plan_us != 0) time.in_plan_us = rounded_us(time.in_plan_us);
  std::vector<TunedTime>& times = entries[key];
  std::erase_if(times, [&](const TunedTime& t) { return t.variant == time.variant && t.config == time.config; });
  times.insert(std::upper_bound(times.begin(), times.end(), time, faster), std::move(time));
}

std::string problem_key(const Problem& p, Arch target) {
  std::string key = cat(info(target).name, " ", p.op);
  for (const Operand& o : p.in) key += " " + text_of(o);
  key += " ->";
  for (const Operand& o : p.out) key += " " + text_of(o);
  for (const Step& s : p.then.steps) {
    key += cat(" ", name_of(s.kind));
    if (names_function(s.kind)) key += cat("=", name_of(s.fn));
    for (size_t i = 0; i < form_of(s.kind).numbers; ++i) key += cat("=", number_text(s.numbers[i]));
    if (s.operand >= 0) key += cat("(", s.operand, ")");
  }
  for (const auto& [name, value] : p.attrs.all()) {
    // Which norm or layers it is, and which numbers are zeros, takes no time.
    if (name != kFoldedKind && name != kFoldedEps && name != kPaddedRows && name != kPaddedCols &&
        name != kMergedGroups && name != kJoined)
      key += cat(" ", name, "=", text_of(value));
  }
  return key;
}

std::string print_tuning(const TuningTable& table) {
  std::string entries;
  for (const auto& [key, times] : table.entries) {
    entries += cat(entries.empty() ? "" : ",\n", "    ", quoted(key), ": [");
    for (size_t i = 0; i < times.size(); ++i) {
      entries += cat(i == 0 ? "" : ",", "\n      {\"variant\": ", quoted(times[i].variant),
                     ", \"config\": ", quoted(times[i].config), ", \"us\": ", number_text(times[i].us),
                     times[i].in_plan_us > 0 ? cat(", \"in_plan_us\": ", number_text(times[i].in_plan_us)) : "", "}");
    }
    entries += "]";
  }
  return cat("{\n  \"tessera\": \"", kFormat, "\",\n  \"gpu\": ", quoted(table.gpu),
             ",\n  \"arch\": ", quoted(info(table.arch).name), ",\n  \"entries\": {", entries.empty() ? "" : "\n",
             entries, entries.empty() ? "" : "\n  ", "}\n}\n");
}

Result<TuningTable> parse_tuning(std::string_view text) {
  TS_ASSIGN(const Json j, parse_json(text));
  if (!j.is_object()) return bad_input("is not a JSON object; wanted what tessera build --tune writes");
  TS_ASSIGN(const std::string format, text_at(j, "tessera"));
  if (format != kFormat) return bad_input(cat("'tessera' is '", format.substr(0, 40), "'; wanted '", kFormat, "'"));
  TS_TRY(check_keys(j, {"tessera", "gpu", "arch", "entries"}));
  TuningTable table;
  TS_ASSIGN(table.gpu, text_at(j, "gpu"));
  TS_ASSIGN(const std::string arch, text_at(j, "arch"));
  const auto found = find_arch(arch);
  if (!found || info(*found).device != DeviceKind::kCuda)
    return bad_input(cat("'arch' is '", arch.substr(0, 40), "', which is no GPU that this program knows"));
  table.arch = *found;
  const auto entries = j.find("entries");
  if (entries == j.end() || !entries->is_object())
    return bad_input("'entries' is not an object with a list per problem");
  for (const auto& [key, times] : entries->items()) {
    const std::string where = cat("entry '", key.substr(0, 200), "'");
    if (!times.is_array() || times.empty()) return bad_input("is not a list of times").at(where);
    for (const Json& time : times) {
      auto t = read_time(time);
      if (!t.ok()) return t.status().at(where);
      if (table.find(key, t->variant, t->config) != nullptr)
        return bad_input(cat("names '", t->variant, "' ", t->config.empty() ? "" : "'" + t->config + "' ", "twice"))
            .at(where);
      table.record(key, std::move(t).value());
    }
  }
  return table;
}

Result<TuningTable> read_tuning(const std::string& path) {
  TS_ASSIGN(const Bytes file, map_file(path));
  auto table = parse_tuning({reinterpret_cast<const char*>(file.data()), file.size()});
  return table.ok() ? std::move(table) : table.status().at(path);
}

Status write_tuning(const TuningTable& table, const std::string& path) { return write_file(path, print_tuning(table)); }

std::string tuning_hash(const TuningTable& table) {
  const std::string text = print_tuning(table);
  uint64_t x = checksum64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  std::string hex(16, '0');
  for (size_t i = 16; i-- > 0; x >>= 4) hex[i] = "0123456789abcdef"[x & 15];
  return hex;
}

const TuningTable* default_tuning(Arch target) {
  static const std::vector<TuningTable> kTables = [] {
    std::vector<TuningTable> tables;
    for (const EmbeddedText& file : committed_tunings()) {
      auto table = parse_tuning(file.text());
      TS_CHECK(table.ok(), "assets/tuning: ", table.status().message());
      tables.push_back(std::move(table).value());
    }
    return tables;
  }();
  for (const TuningTable& t : kTables) {
    if (t.arch == target) return &t;
  }
  return nullptr;
}

}  // namespace tessera
