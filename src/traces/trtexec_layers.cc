// SPDX-License-Identifier: Apache-2.0
#include "traces/trtexec_layers.h"

#include <algorithm>
#include <cmath>

#include "io/json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Words of data types, the longer before those that they contain. "Thirty-two wide channel vectorized row major Int8
// format", "Half", "FP8": the word may stand anywhere.
struct DataType {
  const char* word;
  const char* precision;
  double bits;
};
constexpr DataType kDataTypes[] = {
    {"fp4", "fp4", 4},    {"e2m1", "fp4", 4},   {"int4", "int4", 4},  {"fp8", "fp8", 8},     {"float8", "fp8", 8},
    {"e4m3", "fp8", 8},   {"e5m2", "fp8", 8},   {"e8m0", "", 8},      {"bf16", "bf16", 16},  {"bfloat16", "bf16", 16},
    {"fp16", "fp16", 16}, {"half", "fp16", 16}, {"fp32", "fp32", 32}, {"int8", "int8", 8},   {"uint8", "", 8},
    {"int32", "", 32},    {"int64", "", 64},    {"bool", "", 8},      {"float", "fp32", 32},
};
// From the narrow to the wide: a product of two types runs in the wider one.
constexpr const char* kByWidth[] = {"fp4", "int4", "int8", "fp8", "fp16", "bf16", "fp32"};

std::string text_of(const Json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_string() ? at->get<std::string>() : "";
}

EngineTensor parse_tensor(const Json& j) {
  EngineTensor t;
  if (!j.is_object()) return t;
  std::string words = text_of(j, "Format/Datatype");
  if (words.empty()) words = text_of(j, "Datatype");
  std::transform(words.begin(), words.end(), words.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const DataType& d : kDataTypes) {
    if (words.find(d.word) == std::string::npos) continue;
    t.precision = d.precision;
    t.bits = d.bits;
    break;
  }
  const auto dims = j.find("Dimensions");
  if (dims == j.end() || !dims->is_array()) return t;
  double numbers = 1;
  for (const Json& d : *dims) {
    if (!d.is_number_integer() || d.get<double>() < 1 || d.get<double>() > 1e12) return t;  // -1: dynamic
    numbers *= d.get<double>();
  }
  if (numbers > 1e15) return t;
  for (const Json& d : *dims) t.dims.push_back(d.get<int64_t>());
  t.numbers = numbers;
  return t;
}

std::vector<EngineTensor> parse_tensors(const Json& layer, const char* key) {
  std::vector<EngineTensor> all;
  const auto list = layer.find(key);
  if (list == layer.end() || !list->is_array()) return all;
  for (const Json& each : *list) all.push_back(parse_tensor(each));
  return all;
}

// The wider type of the two operands of a product: the first inputs that are no single number.
std::string operand_precision(const EngineLayer& layer, size_t operands) {
  std::string widest;
  for (const EngineTensor& t : layer.inputs) {
    if (t.precision.empty() || t.numbers.value_or(2) < 2) continue;
    const auto width = [](const std::string& p) {
      return std::find(std::begin(kByWidth), std::end(kByWidth), p) - std::begin(kByWidth);
    };
    if (widest.empty() || width(t.precision) > width(widest)) widest = t.precision;
    if (--operands == 0) break;
  }
  return widest;
}

// Matrices that x, w and y are stacks of: 1 where w is a single one. Nothing where the stacks differ.
std::optional<double> stacked(const EngineTensor& x, const EngineTensor& w, const EngineTensor& y) {
  double of_w = 1, of_x = 1, of_y = 1;
  for (size_t i = 0; i + 2 < w.dims.size(); ++i) of_w *= static_cast<double>(w.dims[i]);
  if (of_w == 1) return 1;
  for (size_t i = 0; i + 2 < x.dims.size(); ++i) of_x *= static_cast<double>(x.dims[i]);
  for (size_t i = 0; i + 2 < y.dims.size(); ++i) of_y *= static_cast<double>(y.dims[i]);
  if (of_x != of_w || of_y != of_w) return {};
  return of_w;
}

// Whether k is a dimension of t, or its last ones together (heads that were not merged).
bool has_depth(const EngineTensor& t, double k) {
  double last = 1;
  for (size_t i = t.dims.size(); i-- > 0 && last < k;) last *= static_cast<double>(t.dims[i]);
  return last == k || std::find(t.dims.begin(), t.dims.end(), static_cast<int64_t>(k)) != t.dims.end();
}

// 2 M N K of one product of the first two inputs, where their shapes leave no doubt: of one matrix each, in whatever
// order their dimensions are, |x| |w| / |y| = MK KN / MN = K^2, and both must have this K.
std::optional<double> product_flops(const EngineLayer& layer) {
  std::vector<const EngineTensor*> operands;
  for (const EngineTensor& t : layer.inputs) {
    if (t.numbers && *t.numbers > 1 && operands.size() < 2) operands.push_back(&t);
  }
  if (operands.size() != 2 || layer.outputs.size() != 1 || !layer.outputs[0].numbers) return {};
  const EngineTensor &x = *operands[0], &w = *operands[1], &y = layer.outputs[0];
  const auto count = stacked(x, w, y);
  if (!count) return {};
  const double xs = *x.numbers / *count, ws = *w.numbers / *count, ys = *y.numbers / *count;
  const double k = std::round(std::sqrt(xs * ws / ys));
  if (k < 1 || !has_depth(x, k) || !has_depth(w, k) || (xs / k) * (ws / k) != ys) return {};
  return 2 * *y.numbers * k;
}

std::optional<double> bytes_of(const EngineLayer& layer) {
  double bytes = 0;
  for (const auto* list : {&layer.inputs, &layer.outputs}) {
    for (const EngineTensor& t : *list) {
      if (!t.numbers || t.bits == 0) return {};
      bytes += *t.numbers * t.bits / 8;
    }
  }
  if (bytes == 0) return {};
  return bytes;
}

}  // namespace

Result<EngineLayers> parse_engine_layers(const Json& j) {
  const auto list = j.find("Layers");
  if (list == j.end() || !list->is_array()) return bad_input("\"Layers\" is not a list");
  EngineLayers layers;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& each = (*list)[i];
    EngineLayer layer;
    if (each.is_string()) {
      layer.name = each.get<std::string>();
    } else if (each.is_object() && !text_of(each, "Name").empty()) {
      layer = {.name = text_of(each, "Name"),
               .type = text_of(each, "LayerType"),
               .tactic = text_of(each, "TacticName"),
               .inputs = parse_tensors(each, "Inputs"),
               .outputs = parse_tensors(each, "Outputs"),
               .detailed = true};
    } else {
      return bad_input(cat("layer ", i, " is neither a name nor an object with a \"Name\""));
    }
    const std::string name = layer.name;
    layers.emplace(name, std::move(layer));
  }
  return layers;
}

void describe(const EngineLayer& layer, const Rules& rules, KernelTime& kernel) {
  kernel.layer = layer.name;
  kernel.name = layer.tactic.empty() ? layer.name : layer.tactic;
  // The tactic is the kernel; where its name says nothing, that of the layer, then its type.
  for (const std::string* name : {&layer.tactic, &layer.name, &layer.type}) {
    if (name->empty()) continue;
    const Classified c = classify(*name, rules);
    if (kernel.kernel_class == KernelClass::kUnknown) kernel.kernel_class = c.kernel_class;
    if (kernel.precision.empty() && *name == kernel.name) kernel.precision = c.precision;
  }
  const bool product = is_product(kernel.kernel_class) || kernel.kernel_class == KernelClass::kAttention;
  if (kernel.precision.empty()) kernel.precision = operand_precision(layer, product ? 2 : 1);
  if (kernel.kernel_class == KernelClass::kGemm) kernel.flops = product_flops(layer);
  kernel.bytes = bytes_of(layer);
}

}  // namespace tessera
