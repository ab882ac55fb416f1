// SPDX-License-Identifier: Apache-2.0
// The words that say how a model becomes an engine, as the options of `tessera build` and the fields of
// tess_build_options have them, and the BuildOptions that they stand for. Sentences name the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assemble/build_engine.h"
#include "assemble/model_words.h"
#include "base/status.h"

namespace tessera {

// How ranges are taken from --calib; also of `calibrate`.
struct CalibrationFlags {
  std::string method, preprocess;
  int64_t samples = 0;  // 0: 512
};
inline constexpr int64_t kMostCalibSamples = 1 << 20;
// Refuses words that mean nothing, and options that `calib` leaves without effect.
Status check_calibration_flags(const CalibrationFlags& flags, const std::string& calib, const std::string& method_flag,
                               const std::string& samples_flag);

struct BuildFlags : ModelFlags {
  std::string precision, recipe, attention, accumulate, target = "cpu", calib;
  std::string sparsity, sparsity_by, refine;
  CalibrationFlags calibration;
  std::vector<std::string> allow, graphs;
  std::string schedule;
  std::string golden;  // "all", "smallest"; empty: all
  std::string tuning;  // table of times; empty: the one that comes with the program
  bool tune = false, chains = false, keep_norms = false, no_verify = false;
};
Result<BuildOptions> build_options(const BuildFlags& flags, const std::string& model, std::vector<int64_t> batches,
                                   bool quiet);

// Of golden values; nothing where the option is not given.
struct GoldenFlags {
  std::optional<int64_t> samples;
  std::optional<uint64_t> seed;
  std::string inputs;
  std::optional<double> min_cosine;
};
inline constexpr int64_t kMostGoldenSamples = 64;
// Into `options`; refuses what has no effect.
Status take_golden_flags(const GoldenFlags& flags, BuildOptions& options);

// "1,8,64": batch sizes of 1 to 1048576, none of them twice.
inline constexpr int64_t kMostBatch = 1 << 20;
Result<std::vector<int64_t>> parse_batches(const std::vector<std::string>& words);

std::vector<std::string> arch_names();
// The arch of that name, or an error that lists them all.
Result<Arch> parse_arch(const std::string& name);

}  // namespace tessera
