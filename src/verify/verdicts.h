// SPDX-License-Identifier: Apache-2.0
// What a comparison of an engine found, in a sentence per verdict. Arithmetic error: an engine's plan beside its golden
// plan on the same codes. Quantization error: the golden plan beside the model in f32.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/verify.h"

namespace tessera {

struct VerifyCheck {
  std::string what;  // "golden values", "normal, seed 2", "in.npz"
  VerifyReport report;
};

// "16 of 100" samples of the user's file; "2" of others.
std::string samples_words(int64_t samples, int64_t of);

// The failure that says most: a layer, else golden values that layers do not explain, else an output; empty where there
// is none.
std::string failure_of(const std::vector<VerifyCheck>& checks);

// The output that is farthest from the model's among the reports that are given, beside the gate; and that as a
// sentence.
struct QuantizationVerdict {
  const QuantizationReport* report = nullptr;  // null: nothing was compared
  const OutputQuality* output = nullptr;
  std::optional<double> gate;
  bool gate_of_build = false;  // else it was given to verify

  std::string sentence() const;
};
// `min_cosine`: as given to verify, whose gate goes before that of the build.
QuantizationVerdict judge_quantization(const std::vector<const QuantizationReport*>& reports,
                                       std::optional<double> min_cosine, std::optional<double> of_build);

}  // namespace tessera
