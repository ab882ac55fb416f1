// SPDX-License-Identifier: Apache-2.0
// Why a model is not as much faster as its precision promises: two profiles (A before, B after; profile.h) or one alone
// become an Explanation, plain data that tables, JSON and reports are made from.
//   speedup = kernel time of A / kernel time of B
//   a rung of the ladder = kernel time of A / kernel time that there would be, both printed in its arithmetic
// Products are GEMMs and convolutions; the rest is everything but products and attention. A number that the profiles do
// not tell is absent. docs/explain.md has every formula on one example.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "traces/profile.h"

namespace tessera {

// How a number was found.
enum class Origin : uint8_t { kFromFiles, kEstimated, kNotKnown };
const char* name_of(Origin origin);  // "from the files", "estimated from A's rate", "not known"

// The profile, named as the tables name it, and what it holds in all.
struct ProfileFacts {
  std::string name;  // of the file, without folder
  std::string path, source, model, machine;
  std::string precision;  // asked for: of the file, or --asked; empty: not told
  int64_t batch = 0;      // 0: not told
  double kernel_ms = 0;
  std::optional<double> latency_ms;  // median
  double products_ms = 0, attention_ms = 0, rest_ms = 0;
  double unclassified_share = 0;  // of the kernel time; class unknown
};

struct PrecisionTime {
  std::string precision;  // "unknown" where the profile does not tell
  double a_ms = 0, b_ms = 0;
};
struct ClassTime {
  std::string name;  // name_of(KernelClass)
  double a_ms = 0, b_ms = 0;
  double a_share = 0, b_share = 0;        // of the kernel time
  std::vector<PrecisionTime> precisions;  // of products only, highest first
};

// Which share of the products has which precision. The three say different things; none stands for another.
struct PrecisionShare {
  std::string precision;  // "unknown" where not told; "fp8 and fp4" where the two cannot be told apart
  double share = 0;       // 0 to 1
};
struct ShareTable {
  Origin origin = Origin::kNotKnown;
  std::string why;                     // how it was estimated, or why it is not known
  std::vector<PrecisionShare> shares;  // highest precision first; empty where not known
  std::optional<double> of(const std::string& precision) const;
};
struct Coverage {
  ShareTable time, flops, bytes;
};

struct LayerChange {
  std::string name;
  double a_ms = 0, b_ms = 0;  // 0: not there
  bool in_a = false, in_b = false;
  std::string a_precision, b_precision;  // of its largest kernel
};
struct Changes {
  std::string by;                // "layer", or "kernel group" where layers are not in both
  std::vector<LayerChange> all;  // what changed most first
};

// A graph of a schedule: its kernels, all of its runs together.
struct GraphChange {
  std::string graph;
  int64_t a_times = 0, b_times = 0;  // 0: not there
  double a_ms = 0, b_ms = 0;
};

struct AttentionChange {
  double a_us = 0, b_us = 0;
  std::string a_precision, b_precision;  // empty: not told
  bool unchanged = false;                // within 3 %
};

// Work that a lower precision should not change.
struct GrownWork {
  double a_ms = 0, b_ms = 0;            // all but products
  double a_rest_ms = 0, b_rest_ms = 0;  // without attention too
  std::vector<ClassTime> grown;         // classes of the rest that grew, most first
};

// Latency less the time in which kernels ran, and what of it the profile explains.
struct Outside {
  double latency_ms = 0;
  double busy_ms = 0;     // kernel time less overlap
  double outside_ms = 0;  // latency - busy
  std::optional<double> gap_ms, overlap_ms, copies_ms, enqueue_ms;
  double unexplained_ms = 0;  // outside less gaps and copies
};

struct Sizes {
  std::optional<int64_t> engine_bytes, weight_bytes, arena_bytes;
};

// A product kernel in a higher precision than was asked for.
struct Fallback {
  std::string kernel, layer;  // layer: empty where not told; the first of several
  std::string kind;           // "GEMM", "convolution"
  std::string asked, precision;
  int64_t calls = 0;
  double ms = 0, share = 0;  // of the whole kernel time
};

struct Rung {
  std::string name;
  char base = 'B';  // whose times it starts from
  double ms = 0;    // kernel time that there would be
  double speedup = 0;
  std::string arithmetic;  // "6.36 ms / 4 + 1.24 ms = 2.83 ms"
  bool nominal = false;    // with the ratio of precisions as data sheets have it, not of this chip
};

enum class Confidence : uint8_t { kLow, kMedium, kHigh };
const char* name_of(Confidence confidence);

// What a recommendation changes: two that change the same part do not add up.
enum class Part : uint8_t { kProducts, kAttention, kRest, kOutside };

struct Recommendation {
  // "fuse", "quantize", "convolution", "attention", "batch", "graph", "sparsity", "precision", "tune"
  std::string id;
  std::string what;  // "fuse GELU, quantization and conversions into the GEMMs"
  std::string why;
  Part part = Part::kProducts;
  std::string basis;                      // what `predicted` speeds up: "kernel time", "latency", "latency per sample"
  double predicted = 0;                   // speedup over A with it (over the profile itself where there is one alone)
  double gain_ms = 0;                     // that one run saves
  double part_ms = 0, part_after_ms = 0;  // the part now, and as predicted
  std::string arithmetic;
  Confidence confidence = Confidence::kLow;
  std::string because;    // reason for the confidence
  std::string flag;       // what does it
  std::string precision;  // that it asks for: of "quantize", "attention", "precision"
};

// Several at once; at most one of each part.
struct Combination {
  std::vector<size_t> of;  // places in `recommendations`
  double predicted = 0;    // on kernel time
  std::string arithmetic;
};

// A recommendation of A and B that profile C shows as applied.
struct AppliedCheck {
  std::string id, what, seen;  // seen: how C shows it
  Part part = Part::kProducts;
  double predicted_gain_ms = 0, measured_gain_ms = 0;  // of the recommendation's part, B to C
};
struct Applied {
  ProfileFacts c;
  std::vector<AppliedCheck> checks;
  std::vector<std::string> not_seen;  // recommendations that C does not show
  // Speedup on kernel time, A to C; predicted: of all that was applied.
  std::optional<double> predicted, measured;
};

struct Explanation {
  bool compared = false;  // false: A alone, and everything that is said of B is empty
  ProfileFacts a, b;
  std::string answer;  // one sentence
  std::optional<double> speedup, latency_speedup;
  std::string no_speedup;           // why there is none, a sentence without its end; empty: there is one
  bool per_sample = false;          // batch sizes differ: both speedups are per sample, and there is no ladder
  bool other_model = false;         // B does other work than A: neither speedup nor ladder
  std::vector<ClassTime> classes;   // in the order of KernelClass, without empty ones
  std::vector<GraphChange> graphs;  // in the order in which they run; empty: neither is a schedule
  Coverage a_coverage, b_coverage;
  Changes changes;
  std::optional<AttentionChange> attention;  // where one of both has any
  GrownWork growth;
  std::optional<Outside> a_outside, b_outside;  // where the latency is known
  Sizes a_sizes, b_sizes;
  // Precision that fallbacks are held against, and who says so; of B, or of A alone.
  std::string asked, asked_how;
  std::vector<Fallback> fallbacks;
  // Of the products' time: where the precision is not known, so that a fallback would not show. Nothing: there are no
  // products, or fallbacks are not looked for, which `fallbacks_not_sought` then says in a sentence without its end.
  std::optional<double> fallbacks_unknown_share;
  std::string fallbacks_not_sought;
  std::vector<Rung> ladder;
  std::vector<Recommendation> recommendations;  // most gained first
  std::vector<Combination> combinations;
  std::optional<Applied> applied;
  std::vector<std::string> notes;  // what the numbers do not tell, a sentence each
};

struct ExplainOptions {
  std::string asked;  // precision that B was asked to have; empty: as the profile says
};

Explanation explain(const Profile& a, const ExplainOptions& options = {});
Explanation explain(const Profile& a, const Profile& b, const ExplainOptions& options = {});
// `c` was made after something that the explanation of A and B recommends was applied.
Explanation explain(const Profile& a, const Profile& b, const Profile& c, const ExplainOptions& options = {});

// "blocks.11.attn.fc1" -> "blocks.*.attn.fc1", the pattern that flags of build take: layers of the same place.
std::string layer_pattern(const std::string& layer);
// The name of a kernel without its parameters and at most 64 characters long, for sentences.
std::string short_kernel(const std::string& name);
// A time, in the unit that suits `scale_ms`, the largest of its table: "6.36 ms", "47.5 us".
std::string duration(double ms, double scale_ms);

// What is to be said of fallbacks beside their list, a sentence without its end: that there are none, as far as
// precisions are known, or that nothing can be said. Empty: there are some, and every precision is known.
std::string fallback_words(const Explanation& explanation);

std::string explanation_json(const Explanation& explanation);

}  // namespace tessera
