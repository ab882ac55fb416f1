// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/activation_scales.h"

#include "types/quantize_array.h"

namespace tessera {

ActivationScales::ActivationScales(const ModelValues& model, const Ranges* ranges) : model_(model), ranges_(ranges) {
  const Graph& g = model.graph();
  for (size_t v = 0; v < g.values.size(); ++v) {
    const Value& value = g.values[v];
    const ValueId scale = value.type.quant.dynamic ? value.scale2 : value.scale;
    if (!value.constant && scale != kNoValue)
      stated_[static_cast<ValueId>(v)].insert(static_cast<float>(g.numbers(scale)[0]));
  }
  for (const Node& n : model.graph().nodes) {
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const std::string key = cat("scale.", i);
      if (n.attrs.has(key) && n.inputs[i] != kNoValue)
        stated_[model.place(n.inputs[i]).base].insert(static_cast<float>(n.attrs.number(key)));
    }
  }
}

std::string ActivationScales::misfit(ValueId value, const std::string& range, const QuantType& type,
                                     float stored) const {
  const auto stated = stated_.find(value);
  if (stated != stated_.end() && stated->second.contains(stored)) return "";
  const std::string name = range.empty() ? model_.graph().at(value).name : range;
  const std::string text = cat("the activation scale of '", name, "' is ", stored, ", ");
  const auto clip = ranges_ == nullptr ? std::nullopt : ranges_->clip(name, type.element);
  if (clip) {
    float want = type.dynamic ? 1 : scale_for_amax(type.element, *clip);
    if (type.dynamic) make_scale2(type, &*clip, 1, 1, &want);
    if (stored == want) return "";
    if (stated == stated_.end()) return cat(text, "the calibration gives ", want);
  }
  return stated == stated_.end() ? "" : cat(text, "the model states ", *stated->second.begin());
}

}  // namespace tessera
