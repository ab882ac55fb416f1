// SPDX-License-Identifier: Apache-2.0
#include "cli/build_file.h"

#include <chrono>
#include <filesystem>

#include "cli/build_flags.h"
#include "plan/engine_file.h"

namespace tessera {

Status check_model(const std::string& model, const std::string& family) {
  std::error_code none;
  if (!family.empty()) return {};
  if (std::filesystem::is_directory(model, none))
    return usage_error(cat(model, " is a folder; one with a checkpoint is built with --family NAME"));
  TS_ASSIGN(const bool engine_file, is_engine_file(model));
  return engine_file ? usage_error(cat(model, " is an engine, already built; build takes an ONNX model")) : Status();
}

Status check_output(const std::string& path, const std::string& model) {
  std::error_code none;
  if (std::filesystem::equivalent(model, path, none))
    return usage_error(cat("the engine would overwrite the model ", path, ": give another -o"));
  if (std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0) {
    const auto was_engine = is_engine_file(path);
    if (!was_engine.ok() && was_engine.status().code() != Code::kBadInput) return was_engine.status();
    if (!was_engine.ok() || !*was_engine)
      return usage_error(cat("-o ", path, ": is no engine and would be overwritten; give another name"));
  }
  if (const auto folder = std::filesystem::path(path).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder, none)) {
    return usage_error(cat("-o ", path, ": there is no folder ", folder.string(), "; make it first"));
  }
  return {};
}

Result<BuiltFile> build_file(const BuildOptions& options, const std::string& path) {
  TS_ASSIGN(Built built, build_engine(options));
  BuiltFile file{.built = std::move(built)};
  const auto start = std::chrono::steady_clock::now();
  TS_TRY(write_engine(file.built.engine, path));
  file.write_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  file.bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  return file;
}

}  // namespace tessera
