// SPDX-License-Identifier: Apache-2.0
// Static scales of activations, exactly: what the calibration gives for a value (precision/quantize.h), or what the
// model states of it (Q/DQ), itself or where a layer reads it. How well a scale suits the numbers under it is another
// question (scale_faults.h).
#pragma once

#include <map>
#include <set>
#include <string>

#include "ir/ranges.h"
#include "verify/validate/model_values.h"

namespace tessera {

class ActivationScales {
 public:
  // `ranges`: null where they are not known. Both outlive this.
  ActivationScales(const ModelValues& model, const Ranges* ranges);
  // What is wrong with the scale of a value's codes in a type (the second level of a dynamic one); empty: nothing, or
  // nothing is known. `name`: what its range is called, where these are codes of what a norm's result becomes without
  // gain or deviation (lower/fold_norms.h); empty: as the value.
  std::string misfit(ValueId value, const std::string& name, const QuantType& type, float stored) const;

 private:
  const ModelValues& model_;
  const Ranges* ranges_;
  std::map<ValueId, std::set<float>> stated_;
};

}  // namespace tessera
