// SPDX-License-Identifier: Apache-2.0
// tess_verify and tess_sensitivity: the reports of the commands behind the C ABI.
#include <tessera/tessera_build.h>

#include "base/log.h"
#include "calibrate/ranges_file.h"
#include "library/structs.h"
#include "library_build/job.h"
#include "library_build/words.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"
#include "sensitivity/rank_layers.h"
#include "verify/compare_engine.h"

namespace tessera {
namespace {

constexpr int64_t kMostSamples = 1 << 20;  // as --samples

Result<ComparisonOptions> options_of(const tess_verify_options& o) {
  TS_TRY(check_number("samples", o.samples, kMostSamples));
  if (o.seed < 0) return usage_error(cat("seed is ", o.seed, ": 0 or more"));
  if (!(o.min_cosine >= 0 && o.min_cosine <= 1))
    return usage_error(cat("min_cosine is ", o.min_cosine, ": from 0, none, to 1"));
  ComparisonOptions c{.inputs = word(o.inputs),
                      .kinds = word(o.kinds),
                      .model = word(o.model),
                      .family = word(o.family),
                      .plan = word(o.plan),
                      .min_cosine = {},
                      .outputs_only = o.outputs_only != 0,
                      .samples = o.samples,
                      .quiet = false};
  if (o.min_cosine > 0) c.min_cosine = o.min_cosine;
  if (o.seed > 0) c.seed = static_cast<uint64_t>(o.seed);
  return c;
}

Status verify(const char* path, const tess_verify_options* options, tess_report** out) {
  TS_TRY(check_argument(out, "out"));
  *out = nullptr;
  TS_TRY(check_argument(path, "engine"));
  tess_verify_options asked;
  TS_TRY(read_struct(options, TS_UP_TO(tess_verify_options, user), "tess_verify_options", asked));
  const Job job(asked.progress, asked.log, asked.user);
  TS_TRY(job.status());
  TS_ASSIGN(ComparisonOptions how, options_of(asked));
  if (asked.input_array_count > 0 && asked.inputs != nullptr)
    return usage_error("inputs and input_arrays are both given: give one of the two");
  ArraysFile arrays;
  TS_TRY(arrays.write("input_arrays", asked.input_arrays, asked.input_array_count));
  how.inputs = arrays.path_or(asked.inputs);
  TS_TRY(check_contradictions(how));
  TS_ASSIGN(const Engine engine, read_engine(path));
  TS_TRY(check_constants(engine).at(path));
  TS_TRY(check_runs_here(engine));
  const Result<std::string> clamped = clamped_of_file(engine, how);
  TS_TRY(arrays.named(clamped.status()));
  if (!clamped->empty()) warn(*clamped);
  const Result<Findings> found = compare_engine(engine, how);
  TS_TRY(arrays.named(found.status()));
  const Verdicts verdicts = judge(engine, *found, how.min_cosine);
  *out = make_report(comparison_json(path, engine, *found, verdicts));
  const std::string failure = verdicts.failure();
  return failure.empty() ? Status() : Status(Code::kVerifyFailed, failure);
}

Status sensitivity(const char* model, const tess_sensitivity_options* options, tess_report** out) {
  TS_TRY(check_argument(out, "out"));
  *out = nullptr;
  TS_TRY(check_argument(model, "model"));
  tess_sensitivity_options asked;
  TS_TRY(read_struct(options, TS_UP_TO(tess_sensitivity_options, user), "tess_sensitivity_options", asked));
  const Job job(asked.progress, asked.log, asked.user);
  TS_TRY(job.status());
  TS_TRY(check_number("calib_samples", asked.calib_samples, kMostSamples));
  if (asked.precision == nullptr) return usage_error("precision is NULL: the one that layers are tried in");
  if ((asked.calib != nullptr) == (asked.calib_array_count > 0))
    return usage_error("the ranking is made on samples: give calib or calib_arrays, one of the two");
  ArraysFile arrays;
  TS_TRY(arrays.write("calib_arrays", asked.calib_arrays, asked.calib_array_count));
  RankOptions how{.model = model,
                  .precision = asked.precision,
                  .attention = word(asked.attention),
                  .load = {},
                  .calibration = {.path = arrays.path_or(asked.calib),
                                  .samples = asked.calib_samples > 0 ? asked.calib_samples : kRankSamples,
                                  .method = {},
                                  .preprocess = word(asked.preprocess),
                                  .quiet = false}};
  ModelFlags read;
  TS_TRY(take_model_words(asked, read));
  TS_ASSIGN(how.load, load_options(read));
  if (asked.calib_method != nullptr) {
    TS_ASSIGN(how.calibration.method, parse_range_method(asked.calib_method));
  }
  const Result<Ranking> ranking = rank_layers(how);
  TS_TRY(arrays.named(ranking.status()));
  for (const std::string& fault : all_warnings(ranking->ranges)) warn(cat("calibration: ", fault));
  *out = make_report(ranking_json(how, *ranking));
  return {};
}

}  // namespace
}  // namespace tessera

extern "C" {

tess_status* tess_verify(const char* engine, const tess_verify_options* options, tess_report** out) {
  return tessera::guarded([&] { return tessera::verify(engine, options, out); });
}

tess_status* tess_sensitivity(const char* model, const tess_sensitivity_options* options, tess_report** out) {
  return tessera::guarded([&] { return tessera::sensitivity(model, options, out); });
}
}
