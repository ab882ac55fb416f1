// SPDX-License-Identifier: Apache-2.0
// Options that say how a model becomes an engine: of `build`, and of commands that take an ONNX model and build it in
// memory. What their words mean: assemble/build_words.h.
#pragma once

#include <string>
#include <vector>

#include "assemble/build_words.h"
#include "base/status.h"
#include "cli/options.h"

namespace tessera {

// Adds to the current group.
void add_calibration_flags(OptionList& options, CalibrationFlags& flags, const std::string& method_flag,
                           const std::string& samples_flag, int64_t default_samples = 512);
// How a model is read; also of commands that build nothing. In a group of its own.
void add_model_flags(OptionList& options, ModelFlags& flags);
void add_build_flags(OptionList& options, BuildFlags& flags);

// By the file's first bytes; a file that is neither is taken for a model, whose reader says what is wrong, unless it is
// called *.tess: an error.
// Whatever is said to be a checkpoint of a family is none.
Result<bool> is_engine_file(const std::string& path, const std::string& family = "");

// "vit": the families that there are.
std::string family_list();
// What files made from a model are called: its file without the ending, or a checkpoint's folder.
std::string model_stem(const std::string& model, const std::string& family);

}  // namespace tessera
