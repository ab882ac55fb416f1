// SPDX-License-Identifier: Apache-2.0
// tess_build: all of `tessera build` behind the C ABI.
#include <tessera/tessera_build.h>

#include <algorithm>
#include <filesystem>

#include "assemble/build_words.h"
#include "base/progress_sink.h"
#include "library/structs.h"
#include "library_build/job.h"
#include "library_build/words.h"
#include "plan/engine_file.h"

namespace tessera {
namespace {

Result<std::vector<int64_t>> batches_of(const tess_build_options& o) {
  if (o.batch_count > 0) TS_TRY(check_argument(o.batches, "batches"));
  std::vector<int64_t> batches;
  for (size_t i = 0; i < o.batch_count; ++i) {
    if (o.batches[i] < 1 || o.batches[i] > kMostBatch)
      return usage_error(cat("batches: ", o.batches[i], "; sizes from 1 to ", kMostBatch));
    if (std::find(batches.begin(), batches.end(), o.batches[i]) != batches.end())
      return usage_error(cat("batches: ", o.batches[i], " stands there twice"));
    batches.push_back(o.batches[i]);
  }
  return batches;
}

// What the command's line checks before anybody reads its words.
Status check_numbers(const tess_build_options& o) {
  TS_TRY(check_number("calib_samples", o.calib_samples, kMostCalibSamples));
  TS_TRY(check_number("golden_samples", o.golden_samples, kMostGoldenSamples));
  if (o.seed != nullptr) TS_TRY(check_number("seed", *o.seed, INT64_MAX));
  if (o.min_cosine != nullptr && !(*o.min_cosine >= -1 && *o.min_cosine <= 1))
    return usage_error(cat("min_cosine is ", *o.min_cosine, ": from -1 to 1"));
  return {};
}

// `calib`: the file of the arrays, or of the caller.
Result<BuildFlags> flags_of(const tess_build_options& o, const std::string& calib) {
  BuildFlags f;
  f.precision = word(o.precision), f.attention = word(o.attention);
  f.recipe = word(o.recipe), f.accumulate = word(o.accumulate), f.calib = calib;
  if (o.target != nullptr) f.target = o.target;
  f.sparsity = word(o.sparsity), f.sparsity_by = word(o.sparsity_by), f.refine = word(o.refine);
  f.calibration = {.method = word(o.calib_method), .preprocess = word(o.preprocess), .samples = o.calib_samples};
  TS_TRY(take_model_words(o, f));
  TS_ASSIGN(f.graphs, words_of("graphs", o.graphs, o.graph_count));
  TS_ASSIGN(f.allow, words_of("allow", o.allow, o.allow_count));
  f.schedule = word(o.schedule), f.golden = word(o.golden), f.tuning = word(o.tuning);
  f.tune = o.tune != 0, f.chains = o.chains != 0, f.keep_norms = o.keep_norms != 0, f.no_verify = o.no_verify != 0;
  return f;
}

// By the code that reads the command's options.
Result<BuildOptions> options_of(const tess_build_options& o, const std::string& model, const std::string& calib) {
  TS_TRY(check_numbers(o));
  TS_ASSIGN(std::vector<int64_t> batches, batches_of(o));
  TS_ASSIGN(const BuildFlags flags, flags_of(o, calib));
  TS_ASSIGN(BuildOptions options, build_options(flags, model, std::move(batches), /*quiet=*/false));
  GoldenFlags golden;
  if (o.golden_samples > 0) golden.samples = o.golden_samples;
  if (o.seed != nullptr) golden.seed = static_cast<uint64_t>(*o.seed);
  if (o.min_cosine != nullptr) golden.min_cosine = *o.min_cosine;
  golden.inputs = word(o.golden_inputs);
  TS_TRY(take_golden_flags(golden, options));
  return options;
}

Status build(const char* model, const char* output, const tess_build_options* options) {
  TS_TRY(check_argument(model, "model"));
  TS_TRY(check_argument(output, "output"));
  tess_build_options asked;
  TS_TRY(read_struct(options, TS_UP_TO(tess_build_options, user), "tess_build_options", asked));
  const Job job(asked.progress, asked.log, asked.user);
  TS_TRY(job.status());
  std::error_code none;
  if (std::filesystem::equivalent(model, output, none))
    return usage_error(cat("the engine would overwrite the model ", model, ": give another output"));
  ArraysFile arrays;
  if (asked.calib_array_count > 0 && asked.calib != nullptr)
    return usage_error("calib and calib_arrays are both given: give one of the two");
  TS_TRY(arrays.write("calib_arrays", asked.calib_arrays, asked.calib_array_count));
  const Result<BuildOptions> b = options_of(asked, model, arrays.path_or(asked.calib));
  TS_TRY(arrays.named(b.status()));
  const Result<Built> built = build_engine(*b);
  TS_TRY(arrays.named(built.status()));
  TS_TRY(check_cancelled());
  return write_engine(built->engine, output);
}

}  // namespace
}  // namespace tessera

extern "C" tess_status* tess_build(const char* model, const char* output, const tess_build_options* options) {
  return tessera::guarded([&] { return tessera::build(model, output, options); });
}
