// SPDX-License-Identifier: Apache-2.0
#include "verify/compare_engine.h"

#include <fmt/format.h>

#include <memory>

#include "base/log.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/verify_tables.h"
#include "plan/engine_file.h"

namespace tessera {
namespace {

struct Options {
  std::string engine;
  ComparisonOptions how;
  bool all = false;
  const OptionList* options = nullptr;
};

Status refuse_ignored(const Options& o, const Common& common) {
  if (!o.how.inputs.empty() && o.options->given("--seed"))
    return usage_error("--seed draws inputs, --inputs brings them: give one of the two");
  if (o.all && o.how.outputs_only)
    return usage_error("--all shows layers, --outputs-only compares none: give one of the two");
  if (o.all && common.json) return usage_error("--json holds every layer: leave --all out");
  return check_contradictions(o.how);
}

// What failed is said by the error.
void print_verify(const Options& o, const Findings& found, const Verdicts& verdicts) {
  print_checks(found.checks, o.all);
  if (found.one_kind) fmt::print("{}\n", kOneKind);
  std::vector<QuantizationReport> reports;
  for (const Measured& m : found.quantization) reports.push_back(m.report);
  print_quantization(reports, o.all);
  const VerifyReport& last = found.checks.back().report;
  fmt::print("\n{}\n", wrap(verdicts.arithmetic.empty() ? cat("arithmetic: ", last.sentence, ", on ", last.machine)
                                                        : "arithmetic: FAILED",
                            0, 2));
  fmt::print("{}\n", wrap(printable(cat("quantization: ", verdicts.precision.empty() ? "" : "FAILED: ",
                                        verdicts.quantization.sentence())),
                          0, 2));
}

Status verify(const Options& o, const Common& common) {
  TS_TRY(refuse_ignored(o, common));
  TS_ASSIGN(const Engine engine, open_engine(o.engine));
  TS_TRY(check_constants(engine).at(o.engine));
  TS_TRY(check_target(engine));
  TS_ASSIGN(const std::string clamped, clamped_of_file(engine, o.how));
  constexpr size_t kColumn = 18;  // "tessera: warning: " stands before it
  if (!clamped.empty()) warn(wrap(printable(clamped), kColumn, 2).substr(kColumn));
  ComparisonOptions how = o.how;
  how.quiet = common.quiet || common.json;
  TS_ASSIGN(const Findings found, compare_engine(engine, how));
  const Verdicts verdicts = judge(engine, found, how.min_cosine);
  const std::string failure = verdicts.failure();
  if (common.json) {
    fmt::print("{}\n", comparison_json(o.engine, engine, found, verdicts));
    return failure.empty() ? Status() : verification_failed();
  }
  print_verify(o, found, verdicts);
  return failure.empty() ? Status() : Status(Code::kVerifyFailed, failure);
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("engine", o->engine, "FILE", "an engine file").required = true;
  options.group("Inputs");
  options.add("-i,--inputs", o->how.inputs, "FILE",
              "npz with an array per input, named like it, [samples, ...]: verify on your own data (default: seeded "
              "random inputs)");
  options
      .add("--samples", o->how.samples, "N",
           "how many samples (default: of --inputs all, up to 16; of random inputs as many as the engine has "
           "golden values "
           "for, 1 or 2); each costs an f64 run or two")
      .check = within(1, 1 << 20);
  options.add("--seed", o->how.seed, "N", "of the random inputs (default: 2; golden values have 1)").check =
      not_negative();
  options.add("--kinds", o->how.kinds, "NAME,...",
              "kinds of random inputs: normal, uniform (-1 to 1), small (2^-10), large (2^5); one kind where all "
              "inputs are integers "
              "(default: all)");
  options.group("What is compared");
  options.add("--model", o->how.model, "FILE",
              "the ONNX model that the engine was built from: quantization error of every layer beside it in f32");
  options.add("--family", o->how.family, "NAME",
              "--model is a folder with a checkpoint of this family: " + family_list());
  options
      .add("--min-cosine", o->how.min_cosine, "C",
           "fail where an output has less with the model, on golden inputs, --inputs, each of --kinds, else "
           "normal (default: reported only; build has its own gate)")
      .check = is_cosine();
  options.add("--plan", o->how.plan, "NAME", "only this plan (default: all)");
  options.add("--outputs-only", o->how.outputs_only, "not layer by layer: faster, but a failure names no layer");
  options.add("--all", o->all, "show every layer (default: the five nearest to their bound)");
  o->options = &options;
  return [o, &common] { return verify(*o, common); };
}

}  // namespace

const Command verify_command{
    "verify",
    "compare an engine with its golden plan and its model, layer by layer",
    "Two errors, with a verdict each. Arithmetic error is what the kernels' roundings do: is the engine right? It is "
    "measured in three "
    "comparisons. Golden values: the engine reproduces the outputs and the values inside the model that were stored at "
    "build. Outputs: the "
    "same for fresh inputs. Values inside the model are compared one after the other, each in a run that starts from "
    "the golden value "
    "before it, so errors do not add up. Layers: each layer is compared with what its kernel must give for the inputs "
    "that the layer "
    "read, and the first layer that differs by more is named. 'emulated': the tensor core's sums bit for bit, then the "
    "kernel's own "
    "epilogue. 'bounded': f64, and what the kernel's roundings can do. Quantization error is what the low precision "
    "costs: the same "
    "codes and scales in exact arithmetic, beside the model in f32. It is measured on the outputs that were stored at "
    "build, or, with "
    "--model, on any inputs and for every layer; scales that do not fit their numbers are named. On a GPU the "
    "comparison of layers "
    "runs step by step, without the CUDA graph.",
    "  tessera verify vit.tess\n"
    "  tessera verify vit.tess --inputs images.npz --samples 4\n"
    "  tessera verify vit.tess --model vit.onnx --inputs images.npz --all\n"
    "  tessera verify vit.tess --kinds normal --seed 42\n"
    "  tessera verify vit.tess --json | jq '.checks[].first_stray'\n",
    "Columns:\n"
    "  samples   how many were compared; of --inputs also how many the file holds\n"
    "  cosine    with the right result, the mean over the samples\n"
    "  worst     the lowest cosine of any sample\n"
    "  sample    which sample has the lowest cosine, counted from 0\n"
    "  centred   the mean cosine after each side's mean is subtracted: no common offset hides errors\n"
    "  rel. L2   relative L2 error: the length of the difference, divided by that of the right result\n"
    "  dB        the same as a signal-to-noise ratio, -20 log10 of it\n"
    "  adds      relative L2 error of a layer's result, less that of the inputs that it read\n"
    "  bound     the relative L2 error that the arithmetic allows\n"
    "  differ    results that are not the likeliest code / results near a tie, which may differ\n",
    true,
    add};

}  // namespace tessera
