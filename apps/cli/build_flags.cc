// SPDX-License-Identifier: Apache-2.0
#include "cli/build_flags.h"

#include <cstring>
#include <filesystem>

#include "cli/open_engine.h"
#include "io/mmap.h"
#include "models/family.h"
#include "precision/quantize.h"
#include "precision/read_recipe.h"

namespace tessera {
namespace {

template <class List>
std::string join(const List& words) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : ", ") + std::string(w);
  return out;
}

}  // namespace

void add_build_flags(OptionList& options, BuildFlags& flags) {
  options.group("Precision and target");
  options.add("--precision", flags.precision, "NAME",
              "of the linear layers: " + join(precision_names()) +
                  ", or auto: per layer, as measured on the samples of --calib (default: types as the model states "
                  "them, else fp16)");
  options.add("--recipe", flags.recipe, "FILE|NAME",
              "precisions by layer and role: a JSON file (docs/precisions.md), or one that is shipped: " +
                  shipped_recipe_names());
  options.add("--attention", flags.attention, "NAME",
              "of q, k, v and the softmax output: " + join(attention_precision_names()) +
                  "; --precision is about linear layers alone. One without scales must be what the layers around it "
                  "are in (default: as recipe or model say, else fp16; with --precision bf16 or fp32 that)");
  options.add(
      "--accumulate", flags.accumulate, "NAME",
      "how FP8 products are summed on a GPU: fast, as its tensor cores do (Hopper: about 13 bits), or promoted: "
      "added to fp32 sums every 128 products; inspect shows it (default: fast)");
  options.add("--keep-norms", flags.keep_norms,
              "norms stay kernels of their own; in Hopper engines those of at most 256 rows (batch times tokens) "
              "between linear layers become a factor per row of the next layer");
  options.add("--chains", flags.chains,
              "neighbouring layers of at most 64 rows run as phases of one persistent kernel where they can (sm90; "
              "not faster so far)");
  options.add("--sparsity", flags.sparsity, "PATTERN",
              "half of the weights of the blocks' layers: 2:4, or 4:8 in pairs, which satisfies 2:4 as well");
  options.add("--sparsity-by", flags.sparsity_by, "METHOD",
              "which weights stay: magnitude, or hessian: those that the calibration data would miss, the others "
              "making up for them (default: hessian where --calib gives samples)");
  options.add("--refine", flags.refine, "NAMES",
              "what calibration data may do for quantized weights, with commas between: smooth, awq, clip, "
              "compensate (docs/precisions.md)");
  options.add("--target", flags.target, "ARCH", "arch to build for: " + join(arch_names()) + " (default: cpu)");
  options.add("--calib", flags.calib, "FILE|DIR",
              "npz with inputs that the scales of activations are taken from, a folder of images, or a ranges.json "
              "of tessera calibrate; golden inputs and accuracy, too, are of its samples (default: seeded random "
              "inputs, which is said)");
  add_calibration_flags(options, flags.calibration, "--calib-method", "--calib-samples");
  options.add("--allow", flags.allow, "LAYER=NAME",
              "accept another precision for layers; * and ? match; repeatable: 'blocks.*.mlp.fc2=fp16'");
  add_model_flags(options, flags);
  options.add("--graph", flags.graphs, "NAME:SIZES",
              "one of several graphs of the model in one engine, over the same weights and states; SIZES as --shape "
              "or --size has them, with ; between; repeatable: 'prefill:input_ids=1,16'. run: "
              "the name of the graph that runs");
  options.add("--schedule", flags.schedule, "NAMES",
              "the order in which graphs run for one answer, with commas between, and *N for several times: "
              "'prefix,step*10'");
  options.group("Tuning");
  options.add(
      "--tune", flags.tune,
      "time every kernel and tile shape that may run a layer on the GPU here, keep the times in --tuning's file, "
      "and take the fastest; what the file holds is not timed again");
  options.add(
      "--tuning", flags.tuning, "FILE",
      cat("table of times that kernels are chosen by, made by --tune; none: by their order (default: the one that "
          "comes with the program; with --tune: ",
          kDefaultTuning, ")"));
  options.group("Golden values");
  options.add("--golden", flags.golden, "all|smallest",
              "of a model with buckets: make golden values for every plan, or for those of each graph's smallest sizes "
              "alone, which takes much less time (default: all; of a policy: smallest)");
  options.add("--no-verify", flags.no_verify, "make and check no golden values");
}

void add_model_flags(OptionList& options, ModelFlags& flags) {
  options.group("Model");
  options.add(
      "--shape", flags.shapes, "INPUT=N,...",
      "the whole shape of an input whose axes the model leaves open; repeatable: input_ids=1,128. build: an axis "
      "may be a range LO:HI (both, and the powers of two between) or a list 16/64/512, with a plan for each: "
      "input_ids=1:8,16:512; run takes the smallest that holds its arrays");
  options.add("--state", flags.states, "INPUT=OUTPUT",
              "an input that a session keeps: the next run finds this run's output there; * matches; repeatable: "
              "'past_key_values.*=present.*' makes a KV cache, and an input past_length");
  options.add("--io", flags.io, "NAME=TYPE",
              "an input or output whose arrays are fp16 or bf16 (default: floats are fp32 outside); * matches; "
              "repeatable: '*=fp16'. u8: an image as bytes [batch,height,width,channels], of which the engine makes "
              "(byte / 255 - mean) / std: image=u8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225 (default: 0 and 1)");
  options.add("--family", flags.family, "NAME",
              "the model is a folder with a checkpoint (config.json, *.safetensors) of this family: " + family_list());
  options.add("--size", flags.sizes, "NAME=N",
              "a size that the family leaves open; repeatable: tokens=1; of some a plan for each: views=1,2,3. Of " +
                  family_sizes());
  options
      .add("--random", flags.random, "SEED",
           "seeded random weights of the family: MODEL is a config.json with its sizes, and holds no weights")
      .check = within(0, INT64_MAX);
}

void add_calibration_flags(OptionList& options, CalibrationFlags& flags, const std::string& method_flag,
                           const std::string& samples_flag, int64_t default_samples) {
  options.add(method_flag, flags.method, "NAME",
              "how scales follow from what was seen: amax, percentile[=99.99], mse (default: amax, or what the "
              "ranges.json says)");
  options.add(samples_flag, flags.samples, "N", cat("how many samples at most (default: ", default_samples, ")"))
      .check = within(1, kMostCalibSamples);
  options.add(
      "--preprocess", flags.preprocess, "WORDS",
      "how images become inputs: size=224x224,mean=0.5:0.5:0.5,std=0.5:0.5:0.5,layout=nchw; also "
      "fit=crop|stretch, resize=256, filter=bilinear|bicubic. Of an input in bytes (--io NAME=u8) without mean, "
      "std and layout, which are the engine's");
}

std::string family_list() { return join(family_names()); }

std::string model_stem(const std::string& model, const std::string& family) {
  if (family.empty()) return std::filesystem::path(model).stem().string();
  std::error_code none;
  std::filesystem::path folder = std::filesystem::weakly_canonical(model, none);
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.filename().string();
}

Result<bool> is_engine_file(const std::string& path, const std::string& family) {
  if (!family.empty()) return false;
  const auto mapped = map_file(path);
  if (!mapped.ok()) return Status(mapped.status().code(), mapped.status().message() + hint_for_missing(path));
  const Bytes& file = *mapped;
  const bool engine = file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0;
  if (!engine && std::filesystem::path(path).extension() == ".tess")
    return bad_input(
        cat(path, ": is no engine, whatever its name: it does not begin as one; build it again with tessera build"));
  return engine;
}

}  // namespace tessera
