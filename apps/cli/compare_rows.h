// SPDX-License-Identifier: Apache-2.0
// The rows of `tessera compare`: combinations of precision, attention and sparsity that are built, or files that are
// there. One that cannot be built, read or run is a row with its reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/build_flags.h"
#include "report/report.h"
#include "traces/classify.h"

namespace tessera {

// "fp8+attention=fp8+sparsity=2:4": what a model is built as.
struct BuildCombination {
  std::string name;
  BuildFlags flags;
};
// Words with commas between; each begins with a precision. `sparse`: each also with 2:4 sparsity.
Result<std::vector<BuildCombination>> parse_combinations(const std::string& text, const BuildFlags& common,
                                                         bool sparse);

struct ComparedRow {
  ComparedEngine facts;
  std::optional<ReportEntry> entry;  // of a row that was measured
  std::string path, command;         // command: that built it; empty: it was there
  bool measured_here = false;        // an engine that this program ran
};

struct RowOptions {
  int runs = 20;
  bool verify = true;
};

// Builds the combination into the folder and measures each of its plans.
Result<std::vector<ComparedRow>> build_rows(const BuildCombination& combination, const std::string& model,
                                            const std::vector<int64_t>& batches, const std::string& folder,
                                            const RowOptions& options);
// An engine or a profile.
std::vector<ComparedRow> file_rows(const std::string& path, const Rules& rules, const RowOptions& options);

// A refusal of many layers and kernels in a few words: its first line, and what would be accepted.
std::string short_reason(const std::string& reason);

// Engines and profiles of a folder by their endings, sorted by name; without files that only stand beside a profile.
Result<std::vector<std::string>> list_comparable(const std::string& folder);

// Rows of one model, precision, attention, sparsity, refinement, accumulation and batch are versions of one engine:
// each is held against the one before it.
std::vector<VersionPair> versions_among(const std::vector<ComparedRow>& rows);

}  // namespace tessera
