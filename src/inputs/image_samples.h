// SPDX-License-Identifier: Apache-2.0
// Samples of a model with one image input from a folder of images.
#pragma once

#include <string>

#include "inputs/samples.h"

namespace tessera {

struct ImageSamples {
  Samples samples;
  int64_t found = 0;       // images in the folder
  std::string preprocess;  // as it was applied, every part of it
};
// At most `most` images, evenly spaced in the order of their names, so that a folder per class gives some of each.
Result<ImageSamples> read_image_samples(const Plan& plan, const std::string& folder, const std::string& preprocess,
                                        int64_t most, bool quiet);

}  // namespace tessera
