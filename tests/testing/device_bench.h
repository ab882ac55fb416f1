// SPDX-License-Identifier: Apache-2.0
// Timing of GPU variants, beside variant_bench.h for the host's. Each form is a problem of real size; every variant
// that accepts it, with each of its tile shapes, is first judged on some of its rows as its test does (op/judge.h),
// then timed by runtime/time_kernel.h. A bench program runs them where it is called with
// --gpu[=FILE.json] and, if wanted, --gpu_filter=TEXT (--gpu_list only lists who would run):
//   {"gpu": ..., "peaks": ..., "rows": [{"op", "form", "variant", "config", "us", "fastest_us", "bytes", "flops",
//   "tflops", "gb_per_s", "roofline",
//    "worst_error", "check": {"kind", "relative_l2", "relative_l2_allowed", "results", "mutations_caught"}, "calls",
//    "sets"}, ...]}        roofline: the least time that the chip's data sheet allows, as a
//    share of the median
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "testing/variant_harness.h"

namespace tessera {

struct DeviceForm {
  std::string label;  // "fp8/12608x768x3072 bias,gelu_erf"
  Problem problem;
  double result_amax = 4;  // magnitude that a result's static scale is made for
};

// The arguments that a bench program was given for the GPU; they are taken out of argv.
struct DeviceBench {
  bool wanted = false, list = false;
  std::string file, filter;
};
DeviceBench device_bench_arguments(int& argc, char** argv);

// Times all forms whose "op/label" contains the filter, prints a table, writes the file where one is named. The exit
// code: 1 where a result was wrong or something could not run.
int bench_on_device(const DeviceBench& bench, const std::vector<DeviceForm>& forms);

// Seconds below which no kernel of this chip can be: products at the data sheet's dense rate for the type, bytes at
// that of its memory. Zero where the chip is not known.
double roofline_seconds(const std::string& gpu, Element computed, double flops, double bytes);

// A few rows of a problem as a problem of its own, with operands taken from `bytes` and the exact results; and the same
// rows of a result's codes. Matmul and map: rows of the first axis; attention: queries of the last batch entry.
Case sampled_case(const Problem& problem, const struct ProblemBytes& bytes);
HostTensor sampled_result(const Problem& problem, const struct ProblemBytes& bytes, const Buffer& codes);

}  // namespace tessera
