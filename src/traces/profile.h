// SPDX-License-Identifier: Apache-2.0
// Profile: where the time of one run of a model went, kernel by kernel. Made by `tessera profile` (profile/) or read
// from another tool's file (reader.h). All times are of one run; a number that the source does not tell is absent,
// never 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

// What a kernel does, as far as the question "where does the time go" needs it. kConversion: quantize, dequantize,
// cast, reformat, transpose. kOther: a rule says that it is none of these; kUnknown: no rule knows the name.
enum class KernelClass : uint8_t {
  kGemm,
  kConvolution,
  kAttention,
  kNorm,
  kSoftmax,
  kElementwise,
  kConversion,
  kReduction,
  kCopy,
  kOther,
  kUnknown,
};
const char* name_of(KernelClass c);  // "gemm", "attention" ...
std::optional<KernelClass> class_of_name(std::string_view name);
// GEMMs and convolutions: work that a lower precision makes faster at the chip's rate.
bool is_product(KernelClass c);

struct KernelTime {
  std::string name;        // as the source has it; of Tessera's engines kernel and tile, "matmul/sm90_fp8 128x256"
  std::string layer;       // empty: not told
  std::string graph = {};  // of a schedule, that it is part of; empty: there is one graph
  KernelClass kernel_class = KernelClass::kUnknown;
  std::string
      precision;      // of its products: "fp16", "fp8", "fp4" ...; of other kernels of what they read; empty: not known
  std::string asked;  // precision that the user asked this layer's products to have; empty: not known
  std::string arithmetic;  // instruction and accumulator (Tessera's engines), else empty
  // "2:4": its instructions skip half of the weights, so that `flops`, which count all of them, may come at twice the
  // dense rate; empty: dense, or not told.
  std::string sparsity = {};
  int64_t calls = 1;  // in one run
  double us = 0;      // of all calls together, in one run; Tessera's own: from the end of what ran before (early_us)
  std::optional<double> flops = {}, bytes = {};  // of all calls together; bytes: each operand and result once
  // When it ran, from the begin of the run, if the source has one run of it: per call. For traces and overlap.
  std::vector<double> begin_us = {}, end_us = {};
};

struct Latency {
  double mean_ms = 0, median_ms = 0, p90_ms = 0, p95_ms = 0, p99_ms = 0, least_ms = 0, most_ms = 0;
  int64_t runs = 0;
};
// `ms` is not empty; it need not be sorted. Percentiles are linear between neighbours.
Latency latency_of(std::vector<double> ms);
double percentile(const std::vector<double>& sorted, double share);
double median_of(std::vector<double> values);  // not empty

// What this machine can do, measured (profile/ceilings.h) or from the data of its arch (archs/chip.h).
struct Ceilings {
  std::string machine;
  bool measured = false;
  double bytes_per_s = 0;
  // By precision of products: "fp16" -> 8.1e14; "fp16 2:4": of sparse ones, counted as if they were dense.
  std::vector<std::pair<std::string, double>> flops_per_s = {};
  std::string doubt = {};  // why they may be too low: others used the machine; empty: no reason is known
};

// A graph of a schedule, timed by itself.
struct GraphTime {
  std::string graph, plan;
  int64_t times = 1;              // that one answer runs it
  std::optional<double> ms = {};  // latency of one run, the median
  double kernel_us = 0;           // of one run
};

struct Profile {
  std::string source;                           // "tessera", "trtexec", "nsight systems", "pytorch"
  std::string path;                             // file that it was read from or the engine
  std::string model, precision, machine, plan;  // empty: not told
  // Tessera's own: what tells engines of one precision apart, "2:4, promoted sums"; empty: nothing, not told.
  std::string making = {};
  int64_t capability = 0;                 // of the GPU for CUDA: 10 x major + minor, 89 of 8.9; 0: not told
  int64_t batch = 0;                      // 0: not told
  int64_t runs = 1;                       // that the times were averaged over
  std::vector<KernelTime> kernels;        // in the order in which they first ran
  std::vector<GraphTime> graphs = {};     // of a schedule, whose kernels are all of `kernels`; empty: one graph
  std::optional<Latency> latency = {};    // of whole runs, without profiling
  std::optional<double> enqueue_us = {};  // host time to launch one run
  // Of one run, from its first kernel to its last: time in which no kernel ran, and in which more than one did.
  std::optional<double> gap_us = {}, overlap_us = {};
  // Tessera's own: launches that began before an earlier one had ended, and waited or loaded ahead beside it. In no
  // kernel's time.
  std::optional<double> early_us = {};
  std::optional<double> span_us = {};  // from the begin of its first kernel to the end of its last
  // What a run takes beside its span: launch, what comes before the first and after the last kernel. Less than 0 where
  // profiling has made the span longer than a run without it.
  std::optional<double> residual_us = {};
  std::optional<double> host_to_device_us = {},
                        device_to_host_us = {};  // copies of inputs and outputs, not in `kernels`
  bool copies_in_latency = true;
  std::optional<double> profiled_ms = {};  // a whole run while it was profiled: what profiling costs
  std::optional<int64_t> engine_bytes = {}, weight_bytes = {}, arena_bytes = {};
  std::optional<Ceilings> ceilings = {};
  bool predicted = false;          // times are computed from a chip's data (profile/predict.h), not measured
  std::vector<std::string> notes;  // what the reader of the tables should know, a sentence each

  double kernel_us() const;                  // sum over kernels
  std::optional<double> per_second() const;  // samples, by the median latency
};

// The project's own form: what `profile --json` prints and `explain` reads. `format` and `version` come first in it.
std::string profile_json(const Profile& profile);
Result<Profile> parse_profile(std::string_view text);

}  // namespace tessera
