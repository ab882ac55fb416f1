// SPDX-License-Identifier: Apache-2.0
// What comparing a plan with the golden run found: its values, outputs and layers, and the sentence that follows.
#pragma once

#include <string>
#include <vector>

#include "golden/closeness.h"
#include "golden/golden_values.h"
#include "golden/layer_judge.h"

namespace tessera {

struct OutputReport {
  std::string name;
  double cosine_mean = 1, cosine_worst = 1, relative_l2 = 0, bound = 0;
  bool ok = false;
  Closeness closeness;
};
struct VerifyReport {
  std::string plan;
  int64_t samples = 0, of = 0;      // compared; those of the user's file, 0: they are not from a file
  std::vector<ValueReport> values;  // inside the model (golden_values.h)
  std::vector<OutputReport> outputs;
  std::vector<LayerReport> layers;  // per step; empty where they were not compared
  std::string layers_note;          // why they were not, in a sentence
  int first_stray = -1;             // the first step that is not ok
  std::string sentence;             // what is wrong, or that nothing is
  std::string machine;
  bool graph_differs = false;  // all numbers are right, but the CUDA graph gives others
  bool ok = false;
};

// An output of one plan beside the golden one, over so many samples.
OutputReport judge_output(const std::string& name, const std::vector<double>& got, const std::vector<double>& want,
                          int64_t samples, double bound);
// Sets ok, first_stray and sentence from the rest.
void conclude(VerifyReport& report);
// Of an output of which a sample is another in other company.
std::string depends_sentence(const std::string& output);

}  // namespace tessera
