// SPDX-License-Identifier: Apache-2.0
// The layout of compressed-tensors. config.json's quantization_config has groups of modules, each with a format and the
// schemes of weights and inputs:
//   nvfp4-pack-quantized   weight_packed: two e2m1 in a byte [N,K/2], weight_scale e4m3 [N,K/16],
//                          weight_global_scale f32 [1], DIVIDED by: scale2 = 1 / it; input_global_scale the same
//   mxfp4-pack-quantized   weight_packed, weight_scale e8m0 as bytes [N,K/32]
//   mxfp8-quantized        weight e4m3 [N,K], weight_scale e8m0 as bytes [N,K/32]
//   float-quantized        weight e4m3, weight_scale [N,1] or [1]; input_scale [1] where inputs have a static scale
//   int-quantized          weight i8, the same scales; zero points must be zero
#include <algorithm>
#include <cmath>
#include <optional>

#include "import/checkpoints/layout.h"
#include "import/checkpoints/name_pattern.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormats =
    "nvfp4-pack-quantized, mxfp4-pack-quantized, mxfp8-quantized, float-quantized, int-quantized and naive-quantized";

// Which modules: by name, by "re:" and an expression, or by class, of which linear layers have one.
struct Targets {
  std::vector<std::string> names;
  std::vector<NameExpression> expressions;
  bool linear = false;

  Status read(const Json& object, const char* key) {
    TS_ASSIGN(const std::vector<std::string> words, json_words(object, key));
    for (const std::string& word : words) {
      if (word == "Linear") {
        linear = true;
      } else if (word.starts_with("re:")) {
        TS_ASSIGN(NameExpression e, NameExpression::parse(word.substr(3)));
        expressions.push_back(std::move(e));
      } else {
        names.push_back(word);
      }
    }
    return {};
  }
  // How exactly the module is meant: 3 by name, 2 by expression, 1 by class, 0 not at all.
  int rank(const std::string& module) const {
    if (std::find(names.begin(), names.end(), module) != names.end()) return 3;
    for (const NameExpression& e : expressions) {
      if (e.matches(module)) return 2;
    }
    return linear ? 1 : 0;
  }
};

// What the file calls a scheme: bits, kind, granularity, whether scales are made while running.
struct Scheme {
  int64_t bits = 0, group = 0;
  std::string kind, strategy;
  bool dynamic = false;

  std::string words() const { return cat(bits, "-bit ", kind, " by ", strategy, group > 0 ? cat(" of ", group) : ""); }

  static Result<Scheme> read(const Json& j) {
    Scheme s;
    if (!j.is_object()) return bad_input("is not an object with num_bits, type and strategy");
    TS_ASSIGN(s.bits, json_integer(j, "num_bits", 8));
    TS_ASSIGN(s.kind, json_word(j, "type", "int"));
    TS_ASSIGN(s.group, json_integer(j, "group_size", 0));
    TS_ASSIGN(s.strategy, json_word(j, "strategy", s.group > 0 ? "group" : "tensor"));
    if (j.contains("symmetric") && j["symmetric"] != true)
      return bad_input("is not symmetric: zero points are not read");
    if (j.contains("actorder") && !j["actorder"].is_null() && j["actorder"] != "weight" && j["actorder"] != "static")
      return bad_input("has groups of reordered columns (actorder), which are not read");
    const Json dynamic = j.value("dynamic", Json(false));
    if (!dynamic.is_boolean() && dynamic != "local") return bad_input("'dynamic' is not true, false or \"local\"");
    s.dynamic = dynamic == true || dynamic == "local";
    return s;
  }

  // The type; none where no type of ours is this scheme.
  std::optional<QuantType> type(bool of_weight) const {
    const bool real = kind == "float";
    if (real && bits == 4 && strategy == "tensor_group" && group == 16) return kNvfp4;
    // Inputs are rounded as this library does it: powers of two by the rule `even`.
    const ScaleLevel powers{Granularity::kBlock, Element::e8m0, 32, of_weight ? PowerRule::kRceil : PowerRule::kEven};
    if (real && bits == 4 && strategy == "group" && group == 32) return QuantType(Element::e2m1, powers);
    if (real && bits == 8 && strategy == "group" && group == 32) return QuantType(Element::e4m3, powers);
    if (bits != 8 || (!real && kind != "int")) return std::nullopt;
    const Element element = real ? Element::e4m3 : Element::i8;
    if (strategy == "tensor") return QuantType(element, {Granularity::kTensor, Element::f32});
    if (of_weight && strategy == "channel") return QuantType(element, {Granularity::kChannel, Element::f32});
    if (!of_weight && strategy == "token") return QuantType(element, {Granularity::kToken, Element::f32});
    return std::nullopt;
  }
};

struct Group {
  Targets targets;
  std::string format;
  QuantType weight;
  std::optional<QuantType> input;

  bool packed() const { return info(weight.element).bits == 4; }
};

// Each format stores one kind of weight.
bool fits(const std::string& format, const QuantType& weight) {
  const bool rows =
      weight.scale.granularity == Granularity::kTensor || weight.scale.granularity == Granularity::kChannel;
  if (format == "nvfp4-pack-quantized") return weight == kNvfp4;
  if (format == "mxfp4-pack-quantized") return weight.element == Element::e2m1 && is_power(weight.scale.element);
  if (format == "mxfp8-quantized") return weight == kMxfp8;
  if (format == "float-quantized") return (rows || weight == kMxfp8) && weight.element == Element::e4m3;
  if (format == "int-quantized") return rows && weight.element == Element::i8;
  return format == "naive-quantized" && rows;
}

Result<Group> read_group(const Json& j, const std::string& format) {
  if (!j.is_object()) return bad_input("is not an object with targets and weights");
  Group g;
  TS_TRY(g.targets.read(j, "targets"));
  TS_ASSIGN(g.format, json_word(j, "format", format));
  if (j.contains("output_activations") && !j["output_activations"].is_null())
    return bad_input("quantizes outputs (output_activations), which is not read; inputs and weights are");
  auto weights = Scheme::read(j.value("weights", Json()));
  if (!weights.ok()) return weights.status().at("weights");
  const auto type = weights->type(true);
  if (!type || weights->dynamic || !fits(g.format, *type))
    return bad_input(cat("format '", shown_name(g.format), "' with weights of ", shown_name(weights->words()),
                         " is not read; formats are ", kFormats));
  g.weight = *type;
  if (!j.contains("input_activations") || j["input_activations"].is_null()) return g;
  auto inputs = Scheme::read(j["input_activations"]);
  if (!inputs.ok()) return inputs.status().at("input_activations");
  g.input = inputs->type(false);
  // Blocks and tokens have scales of the moment; the second level of nvfp4 is static whatever the first is.
  const bool fine = g.input && g.input->scale.granularity != Granularity::kTensor;
  if (!g.input || (fine && !inputs->dynamic))
    return bad_input(
        cat("input_activations of ", shown_name(inputs->words()), inputs->dynamic ? "" : ", static,", " are not read"));
  g.input->dynamic = inputs->dynamic;
  return g;
}

class CompressedTensors final : public CheckpointLayout {
 public:
  Status read(const Json& config) {
    TS_ASSIGN(const std::string format, json_word(config, "format", ""));
    TS_ASSIGN(const std::string status, json_word(config, "quantization_status", "compressed"));
    if (status != "compressed")
      return bad_input(cat("quantization_status '", shown_name(status), "': only 'compressed' weights are read"));
    if (config.contains("kv_cache_scheme") && !config["kv_cache_scheme"].is_null())
      return bad_input("kv_cache_scheme: types of keys and values are not taken from checkpoints; export without them");
    for (const char* key : {"sparsity_config", "transform_config"}) {
      if (!config.contains(key) || config[key].is_null() || config[key].empty()) continue;
      if (config[key].is_object() && config[key].value("format", Json()) == "dense") continue;
      return bad_input(cat(key, ": is not read; export without it"));
    }
    TS_TRY(ignored_.read(config, "ignore"));
    const auto groups = config.find("config_groups");
    if (groups == config.end() || !groups->is_object() || groups->empty())
      return bad_input("config_groups is missing or empty");
    for (const auto& [name, j] : groups->items()) {
      auto group = read_group(j, format);
      if (!group.ok()) return group.status().at(cat("config_groups, '", shown_name(name), "'"));
      if (const std::string& f = group->format; what_.find(f) == std::string::npos)
        what_ += cat(what_.empty() ? "" : " and ", f);
      groups_.push_back(std::move(*group));
    }
    return {};
  }

  std::string describe() const override { return "compressed-tensors " + what_; }

  Result<LinearWeight> linear(CheckpointTensors& tensors, const std::string& module, int64_t outputs,
                              int64_t inputs) const override {
    const Group* g = group_of(module);
    if (g == nullptr) return plain_linear(tensors, module, outputs, inputs);
    LinearWeight w;
    w.type = g->weight;
    w.input = g->input;
    if (g->packed()) {
      TS_ASSIGN(w.codes, take_e2m1(tensors, module + ".weight_packed", outputs, inputs));
    } else if (w.type.element == Element::i8) {
      TS_ASSIGN(w.codes, tensors.take(module + ".weight", {{outputs, inputs}}, {SafetensorsType::I8}));
    } else {
      TS_ASSIGN(w.codes, take_e4m3(tensors, module + ".weight", outputs, inputs));
    }
    const std::string scale = module + ".weight_scale";
    if (w.type.scale.granularity == Granularity::kBlock) {
      TS_ASSIGN(w.scale, tensors.take_scale_codes(scale, {outputs, divide_up(inputs, w.type.scale.block)},
                                                  w.type.scale.element));
    } else {
      TS_ASSIGN(w.scale, take_row_scales(tensors, scale, w.type.scale.granularity, outputs));
    }
    if (w.type.scale2.granularity != Granularity::kNone) {
      TS_ASSIGN(const float scale2, reciprocal(tensors, module + ".weight_global_scale"));
      w.scale2 = as_bytes({scale2});
    }
    TS_TRY(check_zero_point(tensors, module + ".weight_zero_point"));
    TS_TRY(check_zero_point(tensors, module + ".input_zero_point"));
    if (w.input && w.input->scale2.granularity != Granularity::kNone) {
      TS_ASSIGN(w.input_scale, reciprocal(tensors, module + ".input_global_scale"));
    } else if (w.input && !w.input->dynamic) {
      TS_ASSIGN(w.input_scale, tensors.take_scale(module + ".input_scale"));
    }
    return w;
  }

 private:
  // Null: plain.
  const Group* group_of(const std::string& module) const {
    if (ignored_.rank(module) > 0) return nullptr;
    const Group* best = nullptr;
    int rank = 0;
    for (const Group& g : groups_) {
      if (const int r = g.targets.rank(module); r > rank) best = &g, rank = r;
    }
    return best;
  }

  // Stored the other way round: codes are made as x * global.
  static Result<float> reciprocal(CheckpointTensors& tensors, const std::string& name) {
    TS_ASSIGN(const float divisor, tensors.take_scale(name));
    const float scale = 1 / divisor;
    if (std::isfinite(scale) && scale > 0) return scale;
    return bad_input(cat("tensor '", name, "' is ", divisor, ", whose reciprocal is no f32"));
  }

  static Status check_zero_point(CheckpointTensors& tensors, const std::string& name) {
    const SafetensorsEntry* t = tensors.find(name);
    if (t == nullptr) return {};
    TS_ASSIGN(const Bytes bytes, tensors.take(name, {t->shape}, {t->type}));
    for (const uint8_t b : bytes.span()) {
      if (b != 0) return bad_input(cat("tensor '", name, "' holds zero points other than 0, which are not read"));
    }
    return {};
  }

  std::string what_;
  Targets ignored_;
  std::vector<Group> groups_;
};

}  // namespace

OpenedLayout compressed_tensors_layout(const LayoutConfig& config) {
  const Json& q = config.quantization;
  if (!q.is_object() || q.value("quant_method", Json()) != "compressed-tensors")
    return std::unique_ptr<CheckpointLayout>();
  auto layout = std::make_unique<CompressedTensors>();
  TS_TRY(layout->read(q).at("config.json, quantization_config"));
  return std::unique_ptr<CheckpointLayout>(std::move(layout));
}

}  // namespace tessera
