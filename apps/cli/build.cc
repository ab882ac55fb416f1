// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "cli/build_file.h"
#include "cli/build_flags.h"
#include "cli/build_report.h"
#include "cli/command.h"

namespace tessera {
namespace {

struct Options {
  std::string model, output;
  std::vector<std::string> batches;
  int64_t golden_samples = 2;
  uint64_t seed = 1;
  std::string golden_inputs;
  std::optional<double> min_cosine;
  BuildFlags flags;
  const OptionList* options = nullptr;
};

Result<BuildOptions> options_of(const Options& o, std::vector<int64_t> batches, bool quiet) {
  TS_ASSIGN(BuildOptions options, build_options(o.flags, o.model, std::move(batches), quiet));
  GoldenFlags golden{.samples = {}, .seed = {}, .inputs = o.golden_inputs, .min_cosine = o.min_cosine};
  if (o.options->given("--golden-samples")) golden.samples = o.golden_samples;
  if (o.options->given("--seed")) golden.seed = o.seed;
  TS_TRY(take_golden_flags(golden, options));
  return options;
}

Status build(const Options& o, const Common& common) {
  TS_ASSIGN(std::vector<int64_t> batches, parse_batches(o.batches));
  const std::string path = o.output.empty() ? model_stem(o.model, o.flags.family) + ".tess" : o.output;
  TS_TRY(check_model(o.model, o.flags.family));
  TS_TRY(check_output(path, o.model));
  TS_ASSIGN(const BuildOptions options, options_of(o, std::move(batches), common.quiet || common.json));
  TS_ASSIGN(const BuiltFile file, build_file(options, path));
  const WrittenEngine written{
      .built = file.built, .options = options, .path = path, .bytes = file.bytes, .write_s = file.write_s};
  if (common.json) {
    print_build_json(written);
  } else {
    print_build_report(written);
  }
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("model", o->model, "MODEL", "an ONNX model, or with --family a folder").required = true;
  options.group("Engine");
  options.add("-o,--output", o->output, "FILE", "the engine file to write (default: MODEL.tess in the working folder)");
  options.add("--batch", o->batches, "N,...",
              "batch sizes, one plan each, up to 1048576: 1,8,64 (default: the model's, or 1; not with several numbers "
              "for the first axis of --shape)");
  add_build_flags(options, o->flags);
  options.group("Golden values");
  options
      .add("--golden-samples", o->golden_samples, "N",
           "samples that golden values are stored for, 1 to 64, at most the largest batch (default: 2)")
      .check = within(1, kMostGoldenSamples);
  options.add("--seed", o->seed, "N", "of the golden inputs (default: 1)").check = not_negative();
  options.add("--golden-inputs", o->golden_inputs, "FILE",
              "npz or folder of images that golden inputs are taken from (default: --calib, else random numbers)");
  options
      .add("--min-cosine", o->min_cosine, "C",
           "what --precision auto reaches over samples (default: 0.999); else "
           "fail where the quantized model has a lower mean cosine, on the golden inputs with the model as written or "
           "on up to 32 samples of --calib with the model in fp32 (default: by type: "
           "f32 0.9999, f16 0.999, bf16 0.99, fp8 and int8 0.95, fp4 0.8, 2:4 0.5)")
      .check = is_cosine();
  o->options = &options;
  return [o, &common] { return build(*o, common); };
}

}  // namespace

const Command build_command{
    "build",
    "compile an ONNX model into an engine file",
    "Imports the model, recognises its layers, gives every value its type, chooses a kernel per layer, packs the "
    "weights for it and plans the memory. Requested "
    "precision is realised precision: a layer that cannot run as asked fails the build, by name and with each kernel's "
    "reason, unless --allow accepts another "
    "precision for it. The engine is then run on its golden values where its target is here, and a model with an "
    "attention mask "
    "once more with other numbers at what the mask hides, which must not show. The same model and "
    "options give the same bytes.",
    "  tessera build vit.onnx -o vit.tess --precision fp16 --batch 1,8\n"
    "  tessera build vit.onnx --precision fp8 --calib images.npz --target sm90\n"
    "  tessera build vit.onnx --precision fp8 --calib images.npz --allow 'blocks.*.mlp.fc2=fp16'\n"
    "  tessera build --family vit vit-nvfp4/ -o vit.tess\n"
    "  tessera build bert.onnx --shape input_ids=1:8,16:512 --shape attention_mask=1:8,16:512\n"
    "  tessera build vit.onnx --precision fp8 --target sm90 --batch 64 --tune\n",
    "Files:\n"
    "  MODEL.onnx  weights inside or in files beside it; the batch may be open, other axes with --shape,\n"
    "              in which a range or a list makes a plan for each length (docs/engines.md)\n"
    "  FOLDER      with --family: config.json and *.safetensors; plain, ModelOpt or compressed-tensors\n"
    "  --calib     an npz, a folder of JPEG and PNG images (with --preprocess), or the ranges.json that\n"
    "              tessera calibrate wrote, told apart by content\n"
    "  --tuning    JSON of tessera build --tune: times per problem on one GPU (docs/tuning.md)\n"
    "  *.npz       numpy arrays, one per input of the model, named like it: [samples, ...]\n"
    "  *.tess      the engine; written whole or not at all\n",
    true,
    add};

}  // namespace tessera
