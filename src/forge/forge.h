// SPDX-License-Identifier: Apache-2.0
// All of `tessera build`: import, calibrate, compile for each batch size, golden values, and the check of them where
// the target is here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

struct BuildOptions {
  std::string model_path;
  std::string family;  // the model is a checkpoint's folder, of this family; empty: an ONNX file
  std::string precision = "fp16";
  std::vector<int64_t> batches;  // one plan each; empty: the model's own, 1 where it is open
  bool exact_batches = true;     // false: a model that fixes its batch keeps it
  std::map<std::string, Shape> shapes;  // whole shapes of inputs whose axes the model leaves open
  Arch target = Arch::cpu;
  std::string calib_path;          // npz; empty: seeded random inputs where scales are needed
  std::vector<std::string> allow;  // "LAYER=PRECISION"
  bool golden = true;
  int64_t golden_samples = 2;
  uint64_t seed = 1;
  bool quiet = false;  // no progress
};

struct BuildTimes {
  double import_s = 0, calibrate_s = 0, compile_s = 0, golden_s = 0;
};

// `ran_on_target`: whether the golden values were reproduced on the target here. It is no part of the engine: the same
// model and options give the same bytes on every machine.
Result<Engine> build_engine(const BuildOptions& options, BuildTimes* times = nullptr, bool* ran_on_target = nullptr);

}  // namespace tessera
