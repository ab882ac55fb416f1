// SPDX-License-Identifier: Apache-2.0
#include "cli/open_engine.h"

#include <sys/resource.h>

#include <chrono>
#include <filesystem>

#include "base/words/nearest_word.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"

namespace tessera {

namespace fs = std::filesystem;

std::string hint_for_missing(const std::string& path) {
  std::error_code error;
  const fs::path wanted(path);
  if (fs::exists(wanted, error)) return "";
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::vector<std::string> names;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename());
  const std::string near = nearest(wanted.filename(), names);
  return near.empty() ? "" : "; did you mean " + (wanted.has_parent_path() ? (folder / near).string() : near) + "?";
}

Result<Engine> open_engine(const std::string& path, double* seconds) {
  const auto start = std::chrono::steady_clock::now();
  Result<Engine> engine = read_engine(path);
  if (seconds != nullptr) *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (engine.ok()) return engine;
  std::error_code error;
  std::string hint = hint_for_missing(path);
  const bool told = engine.status().message().find("build the engine again") != std::string::npos;
  if (hint.empty() && !told && fs::is_regular_file(path, error)) {
    hint = fs::path(path).extension() == ".onnx" ? cat("; build it first: tessera build ", path)
                                                 : "; build it again with tessera build";
  }
  return Status(engine.status().code(), engine.status().message() + hint);
}

Status check_target(const Engine& engine) {
  const Status here = check_runs_here(engine);
  if (here.ok()) return here;
  return Status(here.code(), here.message() + "; tessera build --target cpu makes one that can");
}

int64_t peak_memory_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts kilobytes
}

}  // namespace tessera
