// SPDX-License-Identifier: Apache-2.0
#include "cli/policy_calib.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

#include "base/progress.h"
#include "io/npz.h"
#include "policy/policy.h"

namespace tessera {
namespace {

constexpr int64_t kMostSamples = 64;              // of each graph
constexpr int64_t kMostBytes = int64_t{3} << 30;  // of each graph's file

// Samples of one graph, one after the other.
class Gathered {
 public:
  void add(std::vector<Array> inputs) {
    int64_t bytes = 0;
    for (const Array& a : inputs) bytes += static_cast<int64_t>(a.data.size());
    if (count_ == kMostSamples || (count_ + 1) * bytes > kMostBytes) return;
    ++count_;
    for (Array& a : inputs) {
      if (arrays_.size() < inputs.size())
        arrays_.push_back({.name = a.name, .shape = a.shape, .dtype = a.dtype, .data = {}});
      parts_.push_back(std::move(a.data));
    }
  }
  Status write(const std::string& path) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const size_t bytes = parts_[i].size();
      Buffer all(bytes * static_cast<size_t>(count_));
      for (size_t s = 0; s < static_cast<size_t>(count_); ++s)
        std::copy_n(parts_[s * arrays_.size() + i].data(), bytes, all.data() + s * bytes);
      arrays_[i].shape[0] = count_;
      arrays_[i].data = Bytes::own(std::move(all));
    }
    return write_npz(path, arrays_);
  }

 private:
  int64_t count_ = 0;
  std::vector<Array> arrays_;
  std::vector<Bytes> parts_;  // of sample 0, of sample 1, ...
};

Result<Engine> engine_in_fp32(const BuildOptions& options) {
  BuildOptions plain;
  plain.model_path = options.model_path;
  plain.family = options.family;
  plain.random = options.random;
  plain.sizes = options.sizes;
  plain.batches = options.batches;
  plain.precision = "fp32";
  plain.golden = false;
  plain.quiet = options.quiet;
  TS_ASSIGN(Built built, build_engine(plain));
  return std::move(built.engine);
}

}  // namespace

Result<std::map<std::string, std::string>> trace_observations(const BuildOptions& options, const std::string& path,
                                                              const std::string& folder) {
  TS_ASSIGN(std::vector<Array> arrays, read_npz(path));
  TS_ASSIGN(const Engine engine, engine_in_fp32(options));
  TS_ASSIGN(const std::unique_ptr<Policy> policy, Policy::make(engine));
  auto all = Observations::of(std::move(arrays), policy->sizes());
  if (!all.ok()) return all.status().at(path);
  const int64_t most = options.calib_samples > 0 ? options.calib_samples : kMostSamples;
  const int64_t count = std::min(all->count(), most);
  const int64_t steps = std::accumulate(engine.schedule.begin(), engine.schedule.end(), int64_t{1},
                                        [](int64_t n, const ScheduleItem& i) { return std::max(n, i.times); });
  // Of a graph that runs several times, so many runs of each observation that the samples of all are enough.
  const int64_t each = std::clamp<int64_t>(divide_up(2 * steps, count), 1, steps);
  std::map<std::string, Gathered> gathered;
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("observations", count);
  for (int64_t i = 0; i < count; ++i) {
    TS_ASSIGN(const PackedObservation observation, all->packed(i));
    TS_TRY(policy->trace(observation, [&](const std::string& graph, int64_t run, std::vector<Array> inputs) -> Status {
      if (run == 0 || (run + i) % divide_up(steps, each) == 0) gathered[graph].add(std::move(inputs));
      return {};
    }));
    if (progress) progress->advance();
  }
  progress.reset();
  std::map<std::string, std::string> files;
  for (auto& [graph, samples] : gathered) {
    const std::filesystem::path of = std::filesystem::path(folder) / graph;
    std::error_code error;
    std::filesystem::create_directory(of, error);
    if (error) return machine_error(cat(of.string(), ": cannot be made: ", error.message()));
    files[graph] = (of / std::filesystem::path(path).filename()).string();
    TS_TRY(samples.write(files[graph]));
  }
  return files;
}

}  // namespace tessera
