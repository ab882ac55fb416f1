// SPDX-License-Identifier: Apache-2.0
// Runs the f32 model on samples and records how the magnitudes of every value are distributed: the static scales of
// quantized activations come from it. The same samples give the same ranges on any number of threads.
#pragma once

#include <optional>

#include "base/status.h"
#include "inputs/samples.h"
#include "ir/graph.h"
#include "ir/ranges.h"

namespace tessera {

struct CalibrateOptions {
  // An npz, a folder of images, or a file of ranges (ranges_file.h), told apart by content; empty: seeded random
  // inputs, which is said in Ranges::how.
  std::string path;
  int64_t samples = 512;              // at most
  std::optional<RangeMethod> method;  // none: amax, or what the file of ranges says
  std::string preprocess;             // for a folder of images: io/images_prepare.h
  bool quiet = true;
};
// `graph` is canonical and in f32; its batch is the number of samples per run. A sample that only fills a batch up is
// not counted; a value whose first axis is no multiple of the batch is counted whole.
Result<Ranges> calibrate(const Graph& graph, const CalibrateOptions& options);

// The samples that calibration reads, for whoever learns something else from them; of the plan's inputs.
struct CalibrationSamples {
  Samples samples;
  std::string what;        // "512 samples of calib.npz"
  std::string preprocess;  // of images, every part of it
  std::string unread;      // Samples::unread
};
Result<CalibrationSamples> read_calibration_samples(const Plan& plan, const CalibrateOptions& options);
// The same for a graph in f32.
Result<CalibrationSamples> samples_of(const Graph& graph, const CalibrateOptions& options);

// Whether the file holds ranges rather than samples.
Result<bool> is_ranges_file(const std::string& path);

}  // namespace tessera
