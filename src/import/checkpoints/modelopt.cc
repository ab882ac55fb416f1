// SPDX-License-Identifier: Apache-2.0
// ModelOpt's layout of Hugging Face checkpoints. hf_quant_config.json (or config.json's quantization_config) names one
// algorithm for every linear layer that is not excluded, or, MIXED_PRECISION, one per layer:
//   weight          e4m3 [N,K], or two e2m1 in a byte [N,K/2]
//   weight_scale    f32 [] or [N]; e4m3 [N,K/16]; e8m0 as bytes [N,K/32]
//   weight_scale_2  f32 [], multiplied
//   input_scale     f32 [], multiplied: the static scale, for nvfp4 that of the second level
//   pre_quant_scale [K], of AWQ: multiplies the input before it is quantized
#include <algorithm>
#include <map>

#include "import/checkpoints/layout.h"
#include "import/checkpoints/name_pattern.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct Algorithm {
  const char* name;
  QuantType weight;
  std::optional<QuantType> input;
  bool input_scale = false;  // a static one is stored
  bool factors = false;      // pre_quant_scale may be stored
};

const Algorithm kAlgorithms[] = {
    {"FP8", kE4m3PerTensor, kE4m3PerTensor, true},
    {"FP8_PER_CHANNEL_PER_TOKEN", kE4m3PerChannel, kE4m3PerToken},
    {"MXFP8", kMxfp8, made_while_running(kMxfp8)},
    {"NVFP4", kNvfp4, made_while_running(kNvfp4), true},
    {"NVFP4_AWQ", kNvfp4, made_while_running(kNvfp4), true, true},
    {"W4A16_NVFP4", kNvfp4, std::nullopt},
    {"W4A8_NVFP4_FP8", kNvfp4AsE4m3, kE4m3PerTensor, true},
};
constexpr const char* kMixed = "MIXED_PRECISION";

Result<const Algorithm*> find_algorithm(const std::string& name) {
  std::string known;
  for (const Algorithm& a : kAlgorithms) {
    if (name == a.name) return &a;
    known += cat(known.empty() ? "" : ", ", a.name);
  }
  return bad_input(cat("quant_algo '", shown_name(name), "' is not read; ", known, " and ", kMixed, " are"));
}

Status check_group_size(const Json& object, const Algorithm& a) {
  TS_ASSIGN(const int64_t group, json_integer(object, "group_size", a.weight.scale.block));
  if (a.weight.scale.granularity != Granularity::kBlock || group == a.weight.scale.block) return {};
  return bad_input(cat("group_size ", group, ": ", a.name, " has blocks of ", a.weight.scale.block));
}

class ModelOpt final : public CheckpointLayout {
 public:
  Status read(const Json& config) {
    for (const char* key : {"exclude_modules", "ignore"}) {
      TS_ASSIGN(const std::vector<std::string> names, json_words(config, key));
      excluded_.insert(excluded_.end(), names.begin(), names.end());
    }
    for (const char* key : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
      if (config.contains(key) && !config[key].is_null())
        return bad_input(cat(key, ": types of keys and values are not taken from checkpoints; export without them"));
    }
    TS_ASSIGN(algorithm_, json_word(config, "quant_algo", ""));
    if (algorithm_ != kMixed) {
      TS_ASSIGN(all_, find_algorithm(algorithm_));
      return check_group_size(config, *all_);
    }
    const auto layers = config.find("quantized_layers");
    if (layers == config.end() || !layers->is_object() || layers->empty())
      return bad_input(cat(kMixed, " needs quantized_layers, an object with a quant_algo for each layer"));
    for (const auto& [layer, how] : layers->items()) {
      const std::string place = cat("quantized_layers, '", shown_name(layer), "'");
      if (!how.is_object()) return bad_input(cat(place, " is not an object with quant_algo"));
      auto name = json_word(how, "quant_algo", "");
      if (!name.ok()) return name.status().at(place);
      auto algorithm = find_algorithm(*name);
      if (!algorithm.ok()) return algorithm.status().at(place);
      TS_TRY(check_group_size(how, **algorithm).at(place));
      layers_[layer] = *algorithm;
    }
    return {};
  }

  std::string describe() const override { return "ModelOpt " + algorithm_; }

  Result<LinearWeight> linear(CheckpointTensors& tensors, const std::string& module, int64_t outputs,
                              int64_t inputs) const override {
    const Algorithm* a = algorithm_of(module);
    if (a == nullptr) return plain_linear(tensors, module, outputs, inputs);
    const SafetensorsEntry* stored = tensors.find(module + ".weight");
    const bool plain = stored != nullptr && !tensors.has(module + ".weight_scale") &&
                       (stored->type == SafetensorsType::F32 || stored->type == SafetensorsType::F16 ||
                        stored->type == SafetensorsType::BF16);
    if (plain) {
      return bad_input(cat("layer ", module, " is to be ", a->name, ", but its weight is plain ", name_of(stored->type),
                           "; a layer that is not quantized stands in exclude_modules"));
    }
    LinearWeight w;
    w.type = a->weight;
    w.input = a->input;
    const auto take_codes = info(w.type.element).bits == 4 ? take_e2m1 : take_e4m3;
    TS_ASSIGN(w.codes, take_codes(tensors, module + ".weight", outputs, inputs));
    const std::string scale = module + ".weight_scale";
    if (w.type.scale.granularity == Granularity::kBlock) {
      TS_ASSIGN(w.scale, tensors.take_scale_codes(scale, {outputs, divide_up(inputs, w.type.scale.block)},
                                                  w.type.scale.element));
    } else {
      TS_ASSIGN(w.scale, take_row_scales(tensors, scale, w.type.scale.granularity, outputs));
    }
    if (w.type.scale2.granularity != Granularity::kNone) {
      TS_ASSIGN(const float scale2, tensors.take_scale(scale + "_2"));
      w.scale2 = as_bytes({scale2});
    }
    if (a->input_scale) {
      TS_ASSIGN(w.input_scale, tensors.take_scale(module + ".input_scale"));
    }
    if (const std::string factors = module + ".pre_quant_scale"; a->factors && tensors.has(factors)) {
      TS_ASSIGN(w.input_factors, tensors.take_scales(factors, {{inputs}}));
    }
    return w;
  }

 private:
  // Null: plain.
  const Algorithm* algorithm_of(const std::string& module) const {
    for (const std::string& pattern : excluded_) {
      if (names_module(pattern, module)) return nullptr;
    }
    if (all_ != nullptr) return all_;
    const auto it = layers_.find(module);
    return it == layers_.end() ? nullptr : it->second;
  }

  std::string algorithm_;
  const Algorithm* all_ = nullptr;  // null: by layer
  std::map<std::string, const Algorithm*> layers_;
  std::vector<std::string> excluded_;
};

bool is_modelopt(const Json& config) {
  if (!config.is_object()) return false;
  const auto method = config.find("quant_method");
  if (method != config.end() && method->is_string()) return method->get<std::string>().starts_with("modelopt");
  return config.contains("quant_algo");
}

}  // namespace

OpenedLayout modelopt_layout(const LayoutConfig& config) {
  const Json* found = nullptr;
  std::string place;
  if (!config.hf_quant.is_null()) {
    place = "hf_quant_config.json";
    const auto inner = config.hf_quant.is_object() ? config.hf_quant.find("quantization") : config.hf_quant.end();
    if (!config.hf_quant.is_object() || inner == config.hf_quant.end() || !inner->is_object())
      return bad_input(cat(place, " has no object 'quantization'"));
    found = &*inner;
    // Both files speak of the same weights.
    if (is_modelopt(config.quantization) && config.quantization.contains("quant_algo") &&
        found->contains("quant_algo") && config.quantization["quant_algo"] != (*found)["quant_algo"]) {
      return bad_input("hf_quant_config.json and config.json name different quant_algo");
    }
  } else if (is_modelopt(config.quantization)) {
    place = "config.json, quantization_config";
    found = &config.quantization;
  } else {
    return std::unique_ptr<CheckpointLayout>();
  }
  auto layout = std::make_unique<ModelOpt>();
  TS_TRY(layout->read(*found).at(place));
  return std::unique_ptr<CheckpointLayout>(std::move(layout));
}

}  // namespace tessera
