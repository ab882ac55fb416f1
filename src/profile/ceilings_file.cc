// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/checksum.h"
#include "base/log.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "profile/ceilings.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFormat = "tessera ceilings";
constexpr uintmax_t kMostBytes = 1 << 20;  // of the file: it has a few lines
constexpr double kBeyond = 1.1;            // of a ceiling: a kernel may gain as much by what ran before it

bool is_rate(const nlohmann::json& v) { return v.is_number() && std::isfinite(v.get<double>()) && v.get<double>() > 0; }

Status keep(const std::string& path, const Ceilings& ceilings) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  return write_file(path, ceilings_text(ceilings));
}

// Of everything else in the file, in one order of keys.
std::string checksum_of(nlohmann::json j) {
  j.erase("checksum");
  const std::string text = j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return cat(checksum64({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

void keep_or_note(const std::string& path, const Ceilings& ceilings, std::vector<std::string>& notes) {
  if (path.empty()) return;
  if (const Status kept = keep(path, ceilings); !kept.ok())
    notes.push_back(cat("the machine's ceilings are not kept and will be measured again: ", kept.message()));
}

// The file's text; empty: there is no file. One that is too long is no text of ours.
std::string read_whole(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  if (fs::file_size(path, error) > kMostBytes) return "too long";
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  return text.empty() ? "nothing" : text;
}

Result<Ceilings> measure_and_say(Arch arch, const std::string& machine, const std::string& path) {
  note(cat("measuring what this machine can do (bandwidth, products by precision)",
           path.empty() ? "" : cat("; kept in ", path)));
  return measure_ceilings(arch, machine);
}

// The first kernel that beats the ceiling of its precision.
const KernelTime* beyond(const Ceilings& c, const std::vector<KernelTime>& kernels) {
  for (const KernelTime& k : kernels) {
    if (achieved(k, c).of_products.value_or(0) > kBeyond) return &k;
  }
  return nullptr;
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
  nlohmann::ordered_json j = {{"format", kFormat},
                              {"program", TS_VERSION},
                              {"machine", c.machine},
                              {"bytes_per_s", c.bytes_per_s},
                              {"flops_per_s", rates}};
  if (!c.doubt.empty()) j["doubt"] = c.doubt;
  j["checksum"] = checksum_of(nlohmann::json::parse(j.dump(), nullptr, /*allow_exceptions=*/false));
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Ceilings> read_ceilings_text(std::string_view text, const std::string& machine, bool* damaged) {
  if (damaged != nullptr) *damaged = true;
  const Result<nlohmann::json> parsed = parse_json(text);
  if (!parsed.ok() || !parsed->is_object()) return {};
  const nlohmann::json& j = *parsed;
  const auto says = [&](const char* key, const std::string& word) {
    return j.contains(key) && j[key].is_string() && j[key].get<std::string>() == word;
  };
  if (j.contains("checksum") && !says("checksum", checksum_of(j))) return {};
  if (damaged != nullptr) *damaged = false;
  if (!j.contains("checksum") || !says("format", kFormat) || !says("program", TS_VERSION) || !says("machine", machine))
    return {};
  if (!j.contains("bytes_per_s") || !is_rate(j["bytes_per_s"])) return {};
  if (!j.contains("flops_per_s") || !j["flops_per_s"].is_object()) return {};
  Ceilings c{.machine = machine, .measured = true, .bytes_per_s = j["bytes_per_s"].get<double>(), .flops_per_s = {}};
  if (j.contains("doubt") && j["doubt"].is_string()) c.doubt = j["doubt"].get<std::string>();
  for (const auto& [precision, rate] : j["flops_per_s"].items()) {
    if (!is_rate(rate)) return {};
    c.flops_per_s.push_back({precision, rate.get<double>()});
  }
  return c;
}

Result<Ceilings> machine_ceilings(Arch arch, const std::string& machine, bool again, std::vector<std::string>& notes) {
  const std::string path = ceilings_file(machine);
  std::optional<Ceilings> kept;
  if (const std::string text = again || path.empty() ? "" : read_whole(path); !text.empty()) {
    bool damaged = false;
    kept = read_ceilings_text(text, machine, &damaged);
    if (damaged) notes.push_back(cat("the ceilings kept in ", path, " were damaged and have been measured again"));
  }
  const bool measures = !kept || (!kept->doubt.empty() && share_of_cores() >= kAlone);
  Ceilings result = kept.value_or(Ceilings{});
  if (measures) {
    TS_ASSIGN(const Ceilings measured, measure_and_say(arch, machine, path));
    result = higher_of(measured, result);
    keep_or_note(path, result, notes);
  }
  if (!result.doubt.empty())
    notes.push_back(cat("the machine's ceilings may be too low, and shares of them too high: ", result.doubt,
                        " when they were measured; --ceilings again measures them anew"));
  return result;
}

Result<Ceilings> correct_ceilings(Arch arch, Ceilings known, const std::vector<KernelTime>& kernels,
                                  std::vector<std::string>& notes) {
  const KernelTime* faster = beyond(known, kernels);
  if (faster == nullptr) return known;
  const std::string path = ceilings_file(known.machine);
  const std::string which = cat("layer ", faster->layer, " was faster than the ceiling for ", rate_name(*faster));
  const bool free = info(arch).device != DeviceKind::kHost || share_of_cores() >= kAlone;
  Ceilings result = known;
  if (free) {
    TS_ASSIGN(const Ceilings measured, measure_and_say(arch, known.machine, path));
    result = higher_of(measured, known);
  }
  if (beyond(result, kernels) == nullptr) {
    notes.push_back(cat(which, ", which something else must have disturbed: the ceilings have been measured again"));
  } else {
    for (const KernelTime& k : kernels) {
      const Achieved a = achieved(k, result);
      Ceilings reached;
      if (a.of_products.value_or(0) > 1) reached.flops_per_s = {{rate_name(k), *a.flops_per_s}};
      result = higher_of(result, reached);
    }
    notes.push_back(cat(which, free ? ", measured again too" : ", and other programs use the cores now",
                        ": what the fastest layer reaches is the ceiling"));
  }
  keep_or_note(path, result, notes);
  return result;
}

}  // namespace tessera
