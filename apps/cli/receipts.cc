// SPDX-License-Identifier: Apache-2.0
#include "cli/receipts.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "op/op.h"
#include "op/receipts.h"
#include "ops/ops.h"

namespace tessera {

namespace fs = std::filesystem;

std::string find_bundled(const std::string& relative) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int up = 0; up < 5 && !error && !folder.empty(); ++up) {  // build/release/bin is three below the repository
    if (fs::is_directory(folder / relative, error)) return (folder / relative).string();
    error.clear();
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return fs::is_directory(relative, error) ? relative : "";
}

Receipts Receipts::load() {
  Receipts out;
  const char* given = std::getenv("TESSERA_RECEIPTS_DIR");
  const std::string folder = given != nullptr ? given : find_bundled("bench/receipts");
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    std::ifstream in(it->path());
    const auto file = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (!file.is_object()) continue;
    for (const auto& [variant, entry] : file.items()) {
      if (!entry.is_object() || !entry.contains("hash") || !entry["hash"].is_string()) continue;
      const int64_t tests =
          entry.contains("tests") && entry["tests"].is_number_integer() ? entry["tests"].get<int64_t>() : 0;
      const std::string compiler =
          entry.contains("compiler") && entry["compiler"].is_string() ? entry["compiler"].get<std::string>() : "";
      out.by_variant_.insert(
          {variant, {it->path().stem().string(), entry["hash"].get<std::string>(), compiler, tests}});
    }
  }
  return out;
}

Receipts::State Receipts::state_of(const Variant& variant) const {
  if (info(variant.arch).device == DeviceKind::kHost) return {"host", true};
  const auto [begin, end] = by_variant_.equal_range(variant.name);
  const Receipt* other = nullptr;  // of the same sources, as another compiler compiled them
  for (auto it = begin; it != end; ++it) {
    const Receipt& r = it->second;
    if (r.hash != source_hash(variant.name)) continue;
    if (device_compiler().empty() || r.compiler == device_compiler())
      return {cat("ran on ", r.gpu, ", ", r.tests, " tests"), true};
    other = &r;
  }
  if (other != nullptr) {
    return {cat("compiled, not run: ran on ", other->gpu, " by ",
                other->compiler.empty() ? "an unnamed compiler" : other->compiler, ", here by ", device_compiler()),
            false};
  }
  if (variant.bind == nullptr) return {"contract only, not run", false};
  return {"compiled, not run", false};
}

Receipts::State Receipts::state_of(const std::string& variant) const {
  const Variant* v = find_variant(variant);
  return v == nullptr ? State{"unknown to this program", false} : state_of(*v);
}

}  // namespace tessera
