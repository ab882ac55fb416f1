// SPDX-License-Identifier: Apache-2.0
// Golden values: inputs, what the golden plan makes of them and how far an engine may be from it; made at build,
// reproduced at load. Where the model is at hand, three more questions are asked, each with a sentence of its own:
//   the passes     the canonical graph in f32 computes what the model as written does, within the response to noise of
//                  f32's size (so a tanh GELU does not pass for an erf one)
//   the plan       the golden plan has the model's constants and computes what it does, layer by layer
//                  (validate_plan.h)
//   the precision  the golden plan's outputs have at least this cosine with the model's (the gate), and so have those
//                  of the quantized model on the calibration samples, in the mean; and no scale is one that its numbers
//                  cannot have been made for
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "golden/closeness.h"
#include "golden/golden_run.h"
#include "inputs/samples.h"
#include "ir/graph.h"
#include "ir/ranges.h"
#include "plan/engine.h"
#include "verify/quantization.h"

namespace tessera {

// The model on its way to the golden plan, with the golden plan's batch. All in f32, but for its own roundings.
struct ModelGraphs {
  const Graph* written = nullptr;    // as imported, before any pass
  const Graph* canonical = nullptr;  // what rewrite/canonicalise made of it
  const Graph* prepared = nullptr;   // what quantize was given: weights may be pruned, scales migrated
  const Ranges* ranges = nullptr;    // what activation scales were made from; null: they are not compared
};

struct GoldenOptions {
  uint64_t seed = 1;
  std::string inputs;                // npz or folder of images to take samples from; empty: random numbers
  std::string preprocess;            // of images
  std::optional<double> min_cosine;  // the gate; nothing: default_min_cosine
  bool random_scales = false;        // calibrated on random numbers, for want of data
  ArrayShapes shapes = {};           // how arrays may differ from a plan's (samples.h)
  bool quiet = true;
};

struct OutputQuality {
  std::string name;
  Closeness closeness;                  // to the model as written
  std::optional<Agreement> whole = {};  // of an output of whole numbers, which are counted in place of it
};
// Numbers of an output of the golden plan beside the model's, which hold `samples` rows each.
OutputQuality output_quality(const Plan& golden, size_t output, std::span<const double> got,
                             std::span<const double> want, int64_t samples);
// What was measured while golden values of one golden plan were made.
struct ModelReport {
  std::string plans;  // that are held against it: "batch8, batch64"
  double min_cosine = 0;
  std::vector<OutputQuality> outputs, passes;  // golden plan, canonical f32: both beside the model as written
  std::vector<double> pass_bounds;             // relative L2 allowed of `passes`
  std::vector<LayerQuality> layers;
  Closeness on_samples;  // to the model in fp32, over `samples` of the calibration data, set before make_golden; 0: not
                         // measured
  int64_t samples = 0;
  std::string padding;  // the input whose hidden tokens were shown not to matter (padding.h); empty: there is none
  std::vector<std::string> validated;  // which plans were held against the model, and how, a sentence each
  std::vector<std::string> warnings;   // scales that are off, results that saturate; the build goes on
};

// The gate where none is given, by the coarsest type that a layer multiplies in: far below what a sound quantization
// gives (docs/accuracy.md), far above what a wrong scale does.
//   f32 0.9999   f16 0.999   bf16 0.99   e4m3, i8 0.95   e2m1 0.8   with 2:4 sparsity no more than 0.5
double default_min_cosine(const Plan& golden);

// The samples that golden plans run on, `count` of them: as many as the largest batch of a golden plan.
struct GoldenInputs {
  Samples samples;
  std::string from;  // Golden::from
};
Result<GoldenInputs> golden_inputs(const Plan& golden, int64_t count, const GoldenOptions& options);
// The build's questions, asked of one golden plan over the first of the samples; of the engine only constants are read:
// no other plan has to be made. Returns the outputs of the model as written, none where `model` is null. kVerifyFailed
// where an answer is no.
Result<Outputs64> judge_golden(const Engine& engine, const Plan& golden, const GoldenInputs& inputs,
                               const GoldenOptions& options, const ModelGraphs* model, ModelReport& report);
// What is stored of the inputs and of `written`; forms are added to it. `golden` has the inputs' batch.
Golden begin_golden(const Plan& golden, const GoldenInputs& inputs, const Outputs64& written);
// Golden outputs, values and bounds of one golden plan, in the arithmetic of the plans that are held against it.
Result<GoldenForm> make_form(const Engine& engine, const Plan& golden, const GoldenInputs& inputs, bool quiet);

// All of that for an engine with one golden plan, whose plans are made.
Result<Golden> make_golden(const Engine& engine, const GoldenOptions& options, const ModelGraphs* model = nullptr,
                           ModelReport* report = nullptr);

// Golden outputs of a form beside the stored outputs of the model as written; nothing where they are not stored.
std::vector<OutputQuality> stored_quality(const Golden& golden, const GoldenForm& form);
// The gate's sentence where an output is below it; empty where none is.
std::string gate_sentence(const std::vector<OutputQuality>& outputs, double min_cosine);
// The same of the mean cosine over calibration samples; empty too where none were measured.
std::string samples_gate_sentence(const ModelReport& report);

}  // namespace tessera
