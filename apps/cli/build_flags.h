// SPDX-License-Identifier: Apache-2.0
// Options that say how a model becomes an engine: of `build`, and of commands that take an ONNX model and build it in
// memory.
#pragma once

#include <string>
#include <vector>

#include "assemble/build_engine.h"
#include "base/status.h"
#include "cli/options.h"
#include "compile/model_source.h"

namespace tessera {

// How ranges are taken from --calib; also of `calibrate`.
struct CalibrationFlags {
  std::string method, preprocess;
  int64_t samples = 0;  // 0: 512
};
// Adds to the current group.
void add_calibration_flags(OptionList& options, CalibrationFlags& flags, const std::string& method_flag,
                           const std::string& samples_flag, int64_t default_samples = 512);
// Refuses words that mean nothing, and options that `calib` leaves without effect.
Status check_calibration_flags(const CalibrationFlags& flags, const std::string& calib, const std::string& method_flag,
                               const std::string& samples_flag);

// How a model is read; also of commands that build nothing.
struct ModelFlags {
  std::string family;  // the model is a checkpoint's folder
  std::vector<std::string> shapes, states, io;
  std::vector<std::string> sizes;
  int64_t random = -1;  // seed of a family's weights: the model is its config.json; -1: it has weights
};
// In a group of its own.
void add_model_flags(OptionList& options, ModelFlags& flags);
// Of a build: what has several numbers (BuildOptions).
struct SeveralNumbers {
  std::map<std::string, std::vector<int64_t>> buckets;  // sizes of a family
  std::map<std::string, RangedShape> ranges;            // shapes, all that are given, where an axis has several
};
// `several`: null where nothing may have several numbers.
Result<LoadOptions> load_options(const ModelFlags& flags, SeveralNumbers* several = nullptr);

struct BuildFlags : ModelFlags {
  std::string precision, recipe, attention, accumulate, target = "cpu", calib;
  std::string sparsity, sparsity_by, refine;
  CalibrationFlags calibration;
  std::vector<std::string> allow, graphs;
  std::string schedule;
  std::string golden;  // "all", "smallest"; empty: all
  std::string tuning;  // table of times; empty: the one that comes with the program
  bool tune = false, chains = false, keep_norms = false, no_verify = false;
};
void add_build_flags(OptionList& options, BuildFlags& flags);
Result<BuildOptions> build_options(const BuildFlags& flags, const std::string& model, std::vector<int64_t> batches,
                                   bool quiet);

// "1,8,64": batch sizes of 1 to 1048576, none of them twice.
Result<std::vector<int64_t>> parse_batches(const std::vector<std::string>& words);

// The arch of that name, or an error that lists them all.
Result<Arch> parse_arch(const std::string& name);

// By the file's first bytes; a file that is neither is taken for a model, whose reader says what is wrong, unless it is
// called *.tess: an error.
// Whatever is said to be a checkpoint of a family is none.
Result<bool> is_engine_file(const std::string& path, const std::string& family = "");

// "vit": the families that there are.
std::string family_list();
// What files made from a model are called: its file without the ending, or a checkpoint's folder.
std::string model_stem(const std::string& model, const std::string& family);

}  // namespace tessera
