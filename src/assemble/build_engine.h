// SPDX-License-Identifier: Apache-2.0
// All of `tessera build`: import, refine weights, calibrate, tune, compile for each batch size, golden values, and the
// check of them where the target is here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "import/onnx/size_ranges.h"
#include "plan/engine.h"
#include "precision/recipe.h"
#include "precision/refine.h"
#include "rewrite/keep_caches.h"
#include "rewrite/port_types.h"
#include "sensitivity/auto_precision.h"
#include "verify/golden.h"

namespace tessera {

// One graph of an engine that has several: the model with these sizes.
struct GraphOptions {
  std::string name;
  std::map<std::string, Shape> shapes;   // beside BuildOptions::shapes
  std::map<std::string, int64_t> sizes;  // of a family, in the place of BuildOptions' or beside them
  std::vector<std::string> buckets;      // sizes that it has plans for several of (BuildOptions::buckets)
};

struct BuildOptions {
  std::string model_path;
  std::string family;              // the model is a checkpoint's folder, of this family; empty: an ONNX file
  std::optional<uint64_t> random;  // seed of a family's weights: see LoadOptions
  std::string precision;           // empty: the recipe's; without one, types as the model states them, else fp16
  std::optional<Recipe> recipe;
  std::string attention;  // fp16, fp8; empty: as recipe or model say
  bool promoted = false;  // sums of FP8 products: see QuantizeOptions
  Refinements refine;     // of weights, and 2:4 sparsity (precision/refine.h); which layers: precision and recipe
  std::vector<int64_t> batches;          // one plan each; empty: the model's own, 1 where it is open
  bool exact_batches = true;             // false: a model that fixes its batch keeps it
  std::map<std::string, Shape> shapes;   // of inputs whose axes the model leaves open: see LoadOptions
  std::vector<StatePattern> states;      // inputs that a session keeps: see LoadOptions
  std::vector<PortType> ports = {};      // inputs and outputs that are not f32: see LoadOptions
  std::map<std::string, int64_t> sizes;  // of a family: see LoadOptions
  // Of a family whose graphs take them (FamilySchedule::buckets): a plan for each number, and `sizes` has the largest.
  std::map<std::string, std::vector<int64_t>> buckets;
  // Of an ONNX model, in the place of `shapes`: all shapes that are given, where an axis of some has several numbers: a
  // plan for each (assemble/lengths.h). build_engine makes batches, buckets and lengths of them.
  std::map<std::string, RangedShape> ranges = {};
  std::vector<RangedSize> lengths = {};
  std::string graph = "main";          // what the model is called in the engine
  std::vector<GraphOptions> graphs;    // several graphs of the model, over the same weights and states; none: one
  std::vector<ScheduleItem> schedule;  // of these
  bool part = false;                   // the model is one of these: see QuantizeOptions
  Arch target = Arch::cpu;
  // Npz, folder of images or file of ranges; empty: seeded random inputs where scales are needed.
  std::string calib_path;
  // The same by graph, where each has samples of its own: in the place of calib_path. Each is run by itself.
  std::map<std::string, std::string> calib_of;
  std::string calib_method;        // "amax", "percentile=99.99", "mse"; empty: amax, or what the file of ranges says
  int64_t calib_samples = 0;       // at most; 0: 512 for scales, 128 for refinements
  std::string preprocess;          // of images: io/images_prepare.h
  std::vector<std::string> allow;  // "LAYER=PRECISION"
  std::string tuning;  // file of a tuning table (plan/tune_cache.h) that kernels are chosen by; empty: the committed
                       // one; "none": no table
  // Time what is missing in it on the GPU here first, and keep the times there; empty: kDefaultTuning.
  bool tune = false;
  bool chains = false;      // neighbouring steps of few rows become one launch (plan/form_chains.h)
  bool keep_norms = false;  // none becomes a factor per row of the next layers (lower/fold_norms.h)
  bool golden = true;
  // Of a model with buckets: which plans golden values are made for.
  enum class GoldenOf { kAll, kSmallest } golden_of = GoldenOf::kAll;
  int64_t golden_samples = 2;
  uint64_t seed = 1;
  std::string golden_inputs;  // npz or folder of images; empty: the calibration data, else seeded random inputs
  // The gate between the quantized model and the model as written; nothing: by type. Of --precision auto: what the
  // choice reaches; nothing: 0.999.
  std::optional<double> min_cosine;
  bool quiet = false;  // no progress
};

inline constexpr const char* kDefaultTuning = "tuning.json";  // in the working folder

// Which weights 2:4 keeps where nobody says: hessian where the path gives samples, else magnitude.
Result<SparsityMethod> default_sparsity_method(const std::string& calib_path);

struct BuildTimes {
  double import_s = 0, refine_s = 0, calibrate_s = 0, tune_s = 0, compile_s = 0, golden_s = 0;
  void operator+=(const BuildTimes& t) {
    import_s += t.import_s, refine_s += t.refine_s, calibrate_s += t.calibrate_s;
    tune_s += t.tune_s, compile_s += t.compile_s, golden_s += t.golden_s;
  }
};

struct Built {
  Engine engine;
  BuildTimes times;
  // How far the quantized model is from the model as written, one for each golden plan, where golden values are made.
  std::vector<ModelReport> reports;
  // Whether the golden values were reproduced on the target here. It is no part of the engine: the same model and
  // options give the same bytes on every machine.
  bool ran_on_target = false;
  // Of --precision auto: what each layer got, and what that cost and saved. Empty for every other precision.
  AutoChoice chosen;
};
Result<Built> build_engine(const BuildOptions& options);

}  // namespace tessera
