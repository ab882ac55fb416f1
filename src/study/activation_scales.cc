// SPDX-License-Identifier: Apache-2.0
#include "study/activation_scales.h"

#include "types/quantize_array.h"

namespace tessera {

ActivationScales::ActivationScales(const ModelValues& model, const Ranges* ranges) : model_(model), ranges_(ranges) {
  for (const Node& n : model.graph().nodes) {
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const std::string key = cat("scale.", i);
      if (n.attrs.has(key) && n.inputs[i] != kNoValue) stated_[model.place(n.inputs[i]).base].insert(static_cast<float>(n.attrs.number(key)));
    }
  }
}

std::string ActivationScales::misfit(ValueId value, const QuantType& type, float stored) const {
  if (const auto it = stated_.find(value); it != stated_.end() && it->second.contains(stored)) return "";
  const std::string& name = model_.graph().at(value).name;
  const auto clip = ranges_ == nullptr ? std::nullopt : ranges_->clip(name, type.element);
  if (!clip) return "";
  float want = type.dynamic ? 1 : scale_for_amax(type.element, *clip);
  if (type.dynamic) make_scale2(type, &*clip, 1, 1, &want);
  return stored == want ? "" : cat("the activation scale of '", name, "' is ", stored, ", the calibration gives ", want);
}

}  // namespace tessera
