// SPDX-License-Identifier: Apache-2.0
#include "cli/receipts.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/embedded_text.h"
#include "op/op.h"
#include "ops/ops.h"
#include "ops/receipts.h"

namespace tessera {

namespace fs = std::filesystem;

// Generated from bench/receipts: one file per GPU, sorted by name.
std::span<const EmbeddedText> committed_receipts();

void Receipts::add(const std::string& gpu, const std::string& text) {
  const auto file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) return;
  for (const auto& [variant, entry] : file.items()) {
    if (!entry.is_object() || !entry.contains("hash") || !entry["hash"].is_string()) continue;
    const int64_t tests =
        entry.contains("tests") && entry["tests"].is_number_integer() ? entry["tests"].get<int64_t>() : 0;
    const std::string compiler =
        entry.contains("compiler") && entry["compiler"].is_string() ? entry["compiler"].get<std::string>() : "";
    by_variant_.insert({variant, {gpu, entry["hash"].get<std::string>(), compiler, tests}});
  }
}

Receipts Receipts::load() {
  Receipts out;
  const char* folder = std::getenv("TESSERA_RECEIPTS_DIR");
  if (folder == nullptr) {
    for (const EmbeddedText& file : committed_receipts()) out.add(file.name, file.text());
    return out;
  }
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    std::ifstream in(it->path());
    out.add(it->path().stem().string(), std::string(std::istreambuf_iterator<char>(in), {}));
  }
  return out;
}

std::map<std::string, int64_t> Receipts::count() const {
  std::map<std::string, int64_t> by_gpu;
  for (const auto& [variant, receipt] : by_variant_) ++by_gpu[receipt.gpu];
  return by_gpu;
}

Receipts::State Receipts::state_of(const Variant& variant) const {
  if (info(variant.arch).device == DeviceKind::kHost) return {"host", true, ""};
  const auto [begin, end] = by_variant_.equal_range(variant.name);
  const Receipt* other = nullptr;  // of the same sources, as another compiler compiled them
  for (auto it = begin; it != end; ++it) {
    const Receipt& r = it->second;
    if (r.hash != source_hash(variant.name)) continue;
    if (device_compiler().empty() || r.compiler == device_compiler())
      return {cat("ran on ", r.gpu, ", ", r.tests, " tests"), true, ""};
    other = &r;
  }
  if (other != nullptr) {
    return {"compiled, not run", false,
            cat("ran on ", other->gpu, " by ", other->compiler.empty() ? "an unnamed compiler" : other->compiler,
                ", here by ", device_compiler())};
  }
  if (variant.bind == nullptr) return {"contract only, not run", false, ""};
  return {"compiled, not run", false, ""};
}

Receipts::State Receipts::state_of(const std::string& variant) const {
  const Variant* v = find_variant(variant);
  return v == nullptr ? State{"unknown to this program", false, ""} : state_of(*v);
}

}  // namespace tessera
