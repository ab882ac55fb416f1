// SPDX-License-Identifier: Apache-2.0
// tess_build: all of `tessera build` behind the C ABI.
#include <tessera/tessera_build.h>

#include <algorithm>
#include <filesystem>

#include "assemble/build_engine.h"
#include "base/progress_sink.h"
#include "library/structs.h"
#include "library_build/job.h"
#include "plan/engine_file.h"
#include "precision/read_recipe.h"

namespace tessera {
namespace {

Result<BuildOptions> options_of(const tess_build_options& o, const std::string& model) {
  BuildOptions b;
  b.model_path = model;
  b.precision = word(o.precision), b.attention = word(o.attention);
  b.calib_method = word(o.calib_method);
  b.calib_samples = o.calib_samples, b.golden = o.no_verify == 0;
  if (o.recipe != nullptr) {
    TS_ASSIGN(b.recipe, read_recipe(o.recipe));
  }
  if (o.target != nullptr) {
    const auto target = find_arch(o.target);
    if (!target) return usage_error(cat("target '", o.target, "' is unknown; cpu, cuda, sm90 or ref"));
    b.target = *target;
  }
  if (o.batch_count > 0) TS_TRY(check_argument(o.batches, "batches"));
  for (size_t i = 0; i < o.batch_count; ++i) {
    constexpr int64_t kMost = 1 << 20;
    if (o.batches[i] < 1 || o.batches[i] > kMost)
      return usage_error(cat("batches: ", o.batches[i], "; sizes from 1 to ", kMost));
    if (std::find(b.batches.begin(), b.batches.end(), o.batches[i]) != b.batches.end())
      return usage_error(cat("batches: ", o.batches[i], " stands there twice"));
    b.batches.push_back(o.batches[i]);
  }
  if (o.allow_count > 0) TS_TRY(check_argument(o.allow, "allow"));
  for (size_t i = 0; i < o.allow_count; ++i) {
    if (o.allow[i] == nullptr) return usage_error(cat("allow[", i, "] is NULL"));
    b.allow.push_back(o.allow[i]);
  }
  if (o.calib_samples < 0) return usage_error(cat("calib_samples is ", o.calib_samples, ": 0 or more"));
  return b;
}

Status build(const char* model, const char* output, const tess_build_options* options) {
  TS_TRY(check_argument(model, "model"));
  TS_TRY(check_argument(output, "output"));
  tess_build_options asked;
  TS_TRY(read_struct(options, TS_UP_TO(tess_build_options, user), "tess_build_options", asked));
  const Job job(asked.progress, asked.log, asked.user);
  TS_TRY(job.status());
  TS_ASSIGN(BuildOptions b, options_of(asked, model));
  std::error_code none;
  if (std::filesystem::equivalent(model, output, none))
    return usage_error(cat("the engine would overwrite the model ", model, ": give another output"));
  ArraysFile arrays;
  if (asked.calib_array_count > 0 && asked.calib != nullptr)
    return usage_error("calib and calib_arrays are both given: give one of the two");
  TS_TRY(arrays.write("calib_arrays", asked.calib_arrays, asked.calib_array_count));
  b.calib_path = arrays.path_or(asked.calib);
  const Result<Built> built = build_engine(b);
  TS_TRY(arrays.named(built.status()));
  TS_TRY(check_cancelled());
  return write_engine(built->engine, output);
}

}  // namespace
}  // namespace tessera

extern "C" tess_status* tess_build(const char* model, const char* output, const tess_build_options* options) {
  return tessera::guarded([&] { return tessera::build(model, output, options); });
}
