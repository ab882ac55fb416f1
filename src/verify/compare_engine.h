// SPDX-License-Identifier: Apache-2.0
// All of `tessera verify` but its tables: an engine beside its golden values, its golden plan and its model, on golden
// inputs, random ones or the user's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"
#include "verify/verdicts.h"

namespace tessera {

struct ComparisonOptions {
  std::string inputs;         // npz with samples; empty: seeded random ones, of these
  std::string kinds;          // "normal,small"; empty: all
  std::string model, family;  // what the engine was built from: quantization error on any inputs, and of every layer
  std::string plan;           // only this one; empty: all
  std::optional<double> min_cosine;
  bool outputs_only = false;
  int64_t samples = 0;
  uint64_t seed = 2;  // golden values have 1: these inputs are fresh
  bool quiet = true;  // no progress
};

// A report, and whether --min-cosine applies to it: golden inputs, the user's own and the kinds that are asked for by
// name. Of the kinds that run where none is named only normal: nobody said that the model is for large or small ones.
struct Measured {
  QuantizationReport report;
  bool gated;
};

inline constexpr const char* kOneKind = "integer inputs: one kind";
struct Findings {
  std::vector<VerifyCheck> checks;     // arithmetic
  std::vector<Measured> quantization;  // precision
  bool one_kind = false;               // integer inputs have one
};

// The error of options that leave each other without effect.
Status check_contradictions(const ComparisonOptions& options);
// The error of a file of inputs that cannot be used, numbers that are not finite among it; else what is said of numbers
// that are clamped, empty where none are.
Result<std::string> clamped_of_file(const Engine& engine, const ComparisonOptions& options);
Result<Findings> compare_engine(const Engine& engine, const ComparisonOptions& options);

// The two verdicts: what failed, as a sentence each, empty where nothing did.
struct Verdicts {
  std::string arithmetic, precision;
  QuantizationVerdict quantization;

  std::string failure() const;
};

Verdicts judge(const Engine& engine, const Findings& found, std::optional<double> min_cosine);

// `verify --json`: of the engine file that is called so.
std::string comparison_json(const std::string& path, const Engine& engine, const Findings& found,
                            const Verdicts& verdicts);

}  // namespace tessera
