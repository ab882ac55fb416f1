// SPDX-License-Identifier: Apache-2.0
// Quantization error, layer by layer: the golden plan (f64 on the codes, so that no arithmetic is blamed) beside its
// f32 model (f32_model.h). Errors add up from layer to layer here; what a layer adds to those of its operands is its
// own. How good a precision is, that is; whether a plan is the model at all is asked before (validate_plan.h).
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "golden/closeness.h"
#include "plan/engine.h"
#include "verify/f32_model.h"
#include "verify/scale_faults.h"

namespace tessera {

struct LayerQuality {
  std::string layer, op, role;
  std::string types;           // "e4m3 x e4m3" of a linear layer: input, weight; else the result's element
  Closeness closeness;         // its result beside the f32 model's
  double added = 0;            // relative L2 on top of its operands'
  double weight_error = 0;     // relative L2 of its stored weight
  std::vector<Finding> found;  // what is wrong with its scales
  bool compared = false;       // the f32 model has such a value
};

class QuantizationJudge {
 public:
  // The plan is of arch ref or runs on the host; all outlive the judge. without it only codes are looked at.
  // `dividing`: layers of the plan whose results are divided by factors, where the f32 model's are not. Those results,
  // and what is made of them before a linear layer makes the factors good, are not compared.
  QuantizationJudge(const Engine& engine, const Plan& plan, const F32Model* f32_model,
                    std::set<std::string> dividing = {});
  // Names of the values that the f32 model must record.
  const std::set<std::string>& wanted() const { return wanted_; }
  // The run that the plan's next run is held against.
  void hold_against(const F32Run* run) { run_ = run; }
  // For ExecutorOptions::observe.
  void see(const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out);
  // What `dividing` left out, in a sentence; empty where nothing.
  std::string left_out() const;
  // Per step.
  const std::vector<LayerQuality>& reports() const { return reports_; }

 private:
  void find_gained();
  void find_divided();
  const std::vector<float>* f32_value(int tensor) const;
  void judge_weights(const PlanStep& step, size_t index, std::span<const TensorView> in);

  const Engine& engine_;
  const Plan& plan_;
  const F32Model* f32_model_;
  const F32Run* run_ = nullptr;
  std::map<int, std::string> names_;               // of a tensor's value in the f32 model
  std::map<std::string, const PlanStep*> layers_;  // of the f32 model
  std::set<std::string> wanted_;
  std::set<size_t> gained_;  // steps that read a norm without its gain and shift, which their weights hold
  std::set<std::string> dividing_;
  std::map<int, int> divided_;     // tensors that are not the f32 model's, with the result that each is or lies in
  std::map<int, double> carried_;  // relative L2 that came into such a result
  std::vector<LayerQuality> reports_;
};

// "layer blocks.7.mlp.fc1: activation scale 40x too small, 61 % of codes saturate", worst first; at most `most`.
// `faults`: only what no choice of scales explains.
std::vector<std::string> sentences_of(const std::vector<LayerQuality>& layers, bool faults, size_t most);
// "blocks.3.mlp.fc2 (cosine 0.91, adds 0.12)" of the layers that add most error.
std::string worst_layers(const std::vector<LayerQuality>& layers, size_t most);

}  // namespace tessera
