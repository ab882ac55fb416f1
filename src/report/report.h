// SPDX-License-Identifier: Apache-2.0
// Reports: profiles, what explains them, accuracy and how all of it was made, as one HTML file that needs nothing else
// (no network, no fonts, no scripts but its own) or as Markdown with the same sections. Same input, same bytes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explain/explain.h"
#include "report/document.h"
#include "traces/profile.h"

namespace tessera {

// What a layer of an engine was asked to be, and what it is (docs/glossary.md).
struct LayerPrecision {
  std::string layer, op;
  std::string asked, stored, computed;  // asked: empty where no precision was asked for
};

// An output of an engine beside the model's, in the words of `tessera verify`.
struct OutputAccuracy {
  std::string output, inputs;  // inputs: what was run
  int64_t samples = 0;
  double cosine_mean = 1, cosine_worst = 1, relative_l2 = 0;
  // Of an output of whole numbers, which are counted instead: so many of them are the model's.
  std::optional<std::pair<int64_t, int64_t>> same_of = {};
};
struct AccuracyFacts {
  std::vector<OutputAccuracy> outputs;   // quantization error; empty: the engine holds no outputs of its model
  std::string arithmetic, quantization;  // the two verdicts, a sentence each
  bool ok = true;
  // The lowest mean cosine of an output; nothing where none has one.
  std::optional<double> cosine() const;
};

struct ReportEntry {
  std::string name;  // short, unlike the others': "fp8", "vit_fp8"
  Profile profile;
  std::optional<AccuracyFacts> accuracy = {};
  std::string no_accuracy = {};                                         // why there is none
  std::vector<LayerPrecision> layers = {};                              // empty: what the kernels of the profile tell
  std::vector<std::pair<std::string, std::string>> configuration = {};  // beside what the profile holds
};

// A row of `tessera compare`: one engine, or a combination that could not be built.
struct ComparedEngine {
  std::string name, graph = {}, precision = {}, attention = {}, sparsity = {};  // graph: of an engine with several
  int64_t batch = 0;
  std::optional<double> latency_ms, kernel_ms = {}, cosine = {}, per_second = {};  // latency_ms: of whole runs only
  std::optional<int64_t> bytes = {};
  bool on_front = false;
  std::string refused = {};  // why it was not built or not measured; empty: it was
};

// A step of two versions of one engine; nothing: that version has no such step.
struct StepChange {
  std::string layer, kernel_before, kernel_after;
  std::optional<double> us_before, us_after;
  double change_us() const { return us_after.value_or(0) - us_before.value_or(0); }
};
struct VersionPair {
  std::string before, after;      // names of their entries
  double ms_before, ms_after;     // latency, or kernel time where one has none
  bool latency = true;            // which of the two
  std::vector<StepChange> steps;  // the largest change first
  bool same_program = false;      // both were run by this program: kernels of one name are the same code
};

struct ReportInput {
  std::string title, date, program;    // program: "tessera 0.1.0"
  std::vector<ReportEntry> entries;    // the first is what the others are compared with
  std::vector<Explanation> explained;  // of the first entry and each further one, in their order; or of the first alone
  std::vector<ComparedEngine> compared = {};
  std::vector<VersionPair> versions = {};
  std::vector<std::string> commands = {};  // that make the same report
};

Document make_report(const ReportInput& input);

std::string write_html(const Document& document);
std::string write_markdown(const Document& document);

inline std::string report_html(const ReportInput& input) { return write_html(make_report(input)); }
inline std::string report_markdown(const ReportInput& input) { return write_markdown(make_report(input)); }

}  // namespace tessera
