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
  // nothing is known. `plain`: the value is a norm's result, and these are codes of it before gain and shift.
  std::string misfit(ValueId value, bool plain, const QuantType& type, float stored) const;

 private:
  const ModelValues& model_;
  const Ranges* ranges_;
  std::map<ValueId, std::set<float>> stated_;
};

}  // namespace tessera
