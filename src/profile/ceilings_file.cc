// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "profile/ceilings.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFormat = "tessera ceilings";

bool is_rate(const nlohmann::json& v) { return v.is_number() && std::isfinite(v.get<double>()) && v.get<double>() > 0; }

Status keep(const std::string& path, const Ceilings& ceilings) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  return write_file(path, ceilings_text(ceilings));
}

}  // namespace

std::string ceilings_file(const std::string& machine) {
  const auto set = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v == nullptr ? "" : v);
  };
  fs::path folder = set("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {  // the standard ignores others
    if (!fs::path(set("HOME")).is_absolute()) return "";
    folder = fs::path(set("HOME")) / ".cache";
  }
  std::string name;
  for (const char c : machine) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  return folder / "tessera" / cat("ceilings-", name.substr(0, 100), ".json");
}

std::string ceilings_text(const Ceilings& c) {
  nlohmann::ordered_json rates = nlohmann::ordered_json::object();
  for (const auto& [precision, rate] : c.flops_per_s) rates[precision] = rate;
  const nlohmann::ordered_json j = {{"format", kFormat},
                                    {"program", TS_VERSION},
                                    {"machine", c.machine},
                                    {"bytes_per_s", c.bytes_per_s},
                                    {"flops_per_s", rates}};
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Ceilings> read_ceilings_text(std::string_view text, const std::string& machine) {
  const Result<nlohmann::json> parsed = parse_json(text);
  if (!parsed.ok() || !parsed->is_object()) return {};
  const nlohmann::json& j = *parsed;
  const auto says = [&](const char* key, const std::string& word) {
    return j.contains(key) && j[key].is_string() && j[key].get<std::string>() == word;
  };
  if (!says("format", kFormat) || !says("program", TS_VERSION) || !says("machine", machine)) return {};
  if (!j.contains("bytes_per_s") || !is_rate(j["bytes_per_s"])) return {};
  if (!j.contains("flops_per_s") || !j["flops_per_s"].is_object()) return {};
  Ceilings c{.machine = machine, .measured = true, .bytes_per_s = j["bytes_per_s"].get<double>(), .flops_per_s = {}};
  for (const auto& [precision, rate] : j["flops_per_s"].items()) {
    if (!is_rate(rate)) return {};
    c.flops_per_s.push_back({precision, rate.get<double>()});
  }
  return c;
}

Result<Ceilings> machine_ceilings(Arch arch, const std::string& machine, bool again, std::vector<std::string>& notes) {
  const std::string path = ceilings_file(machine);
  if (!again && !path.empty()) {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (const auto kept = read_ceilings_text(text, machine)) return *kept;
  }
  note(cat("measuring what this machine can do (bandwidth, products by precision)",
           path.empty() ? "" : cat("; kept in ", path)));
  TS_ASSIGN(Ceilings measured, measure_ceilings(arch, machine));
  if (path.empty()) return measured;
  if (const Status kept = keep(path, measured); !kept.ok())
    notes.push_back(cat("the machine's ceilings are not kept and will be measured again: ", kept.message()));
  return measured;
}

}  // namespace tessera
