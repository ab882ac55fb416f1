// SPDX-License-Identifier: Apache-2.0
// What does a recommendation: flags of tessera build, and for profiles of other tools what users of that tool do.
#include <algorithm>

#include "archs/chip.h"
#include "explain/recommend.h"

namespace tessera {
namespace {

struct Step {
  const char *id, *tool, *step;
};
// The steps of other tools; %P is the precision.
constexpr Step kSteps[] = {
    {"fuse", "trtexec",
     "TensorRT: put each quantize node directly after the activation or norm that makes its input, so that the builder "
     "can fuse it, or write a plugin"},
    {"fuse", "pytorch", "PyTorch: torch.compile, and where that is done, kernels of your own"},
    {"quantize", "trtexec",
     "TensorRT: %P quantize and dequantize nodes around these layers, and a strongly typed network (--stronglyTyped)"},
    {"quantize", "pytorch", "PyTorch: quantize these modules too"},
    {"convolution", "trtexec", "TensorRT: %P quantize and dequantize nodes around them (--stronglyTyped)"},
    {"precision", "trtexec", "TensorRT: %P quantize and dequantize nodes around the linear layers (--stronglyTyped)"},
    {"precision", "pytorch", "PyTorch: quantize the linear layers to %P"},
    {"attention", "trtexec", "TensorRT: %P quantize and dequantize nodes at q, k, v and the softmax output"},
    {"attention", "pytorch", "PyTorch: an attention kernel with %P inputs"},
    {"graph", "trtexec", "trtexec --useCudaGraph"},
    {"graph", "pytorch", "PyTorch: torch.compile(mode=\"reduce-overhead\"), or torch.cuda.graph"},
    {"tune", "trtexec", "trtexec --builderOptimizationLevel=5"},
    {"tune", "pytorch", "PyTorch: torch.compile(mode=\"max-autotune\")"},
    {"sparsity", "trtexec", "trtexec --sparsity=enable, with weights that are 2:4 already"},
};

std::string with_precision(std::string text, const std::string& precision) {
  if (const size_t at = text.find("%P"); at != text.npos) text.replace(at, 2, precision);
  return text;
}

std::string step_of(const std::string& source, const Recommendation& r) {
  for (const Step& s : kSteps) {
    if (r.id == s.id && source == s.tool) return with_precision(s.step, r.precision);
  }
  return "";
}

// The name that B was built with where it means the same arithmetic ("mxfp8"), else the usual one.
std::string named_precision(const Case& c, const std::string& precision) {
  return multiplied_in(c.b.precision) == precision && precision_flag(c.b.precision) != "" && c.b.source == "tessera"
             ? c.b.precision
             : precision_flag(precision);
}

std::string build_flags_of(const Case& c, const Recommendation& r) {
  if (r.id == "quantize" || r.id == "convolution" || r.id == "precision")
    return " --precision " + named_precision(c, r.precision);
  if (r.id == "attention") return " --attention " + r.precision;
  if (r.id == "batch") return c.b.batch > 0 ? cat(" --batch ", 2 * c.b.batch) : " --batch N";
  if (r.id == "sparsity") return " --sparsity 2:4";
  if (r.id == "tune") return " --tune";
  // Epilogues are fused without a flag; the precision is what makes the quantize steps.
  if (r.id == "fuse" && c.low != "") return " --precision " + named_precision(c, c.low);
  return "";
}

// Whether any GPU arch that Tessera builds for multiplies it.
bool runs_on_a_gpu(const std::string& precision) {
  constexpr std::pair<const char*, Element> kElements[] = {{"fp32", Element::f32},  {"fp16", Element::f16},
                                                           {"bf16", Element::bf16}, {"fp8", Element::e4m3},
                                                           {"int8", Element::i8},   {"fp4", Element::e2m1}};
  constexpr Arch kArchs[] = {
#define TS_ARCH(name, parent, device, nvcc, elements, what) Arch::name,
#include "archs/archs.inc"
#undef TS_ARCH
  };
  for (const auto& [name, element] : kElements) {
    for (const Arch arch : kArchs) {
      if (precision == name && info(arch).device == DeviceKind::kCuda && multiplies(arch, element)) return true;
    }
  }
  return false;
}

// Layers that the user, a recipe or their role keeps in the precision that they have.
bool kept_by_choice(const Case& c) {
  return std::any_of(c.b.kernels.begin(), c.b.kernels.end(), [&](const KernelTime& k) {
    return is_product(k.kernel_class) && is_lower(c.low, multiplied_in(k.precision)) && !k.asked.empty() &&
           multiplied_in(k.asked) == multiplied_in(k.precision);
  });
}

std::string own_flag(const Case& c, const Recommendation& r) {
  if (r.id == "fuse") return "tessera inspect ENGINE --verbose says why each of these kernels runs alone";
  const std::string flags = build_flags_of(c, r).substr(1);
  if (r.id == "convolution") return "a recipe that names the layer (docs/precisions.md)";
  if (r.id == "quantize" && kept_by_choice(c))
    return flags + ", without --allow for these layers; embeddings and heads: a recipe (docs/precisions.md)";
  return flags;
}

}  // namespace

std::string flag_of(const Case& c, const Recommendation& r) {
  if (c.b.source == "tessera") return own_flag(c, r);
  std::string text = step_of(c.b.source, r);
  const std::string precision = r.id == "fuse" ? c.low : r.precision;
  text += (text.empty() ? "" : "; ") + std::string("Tessera: tessera build MODEL.onnx") + build_flags_of(c, r);
  const Chip* chip = find_chip(c.b.machine);
  if (chip != nullptr) text += std::string(" --target ") + info(chip->arch).name;
  if (r.id == "fuse") text += ", which fuses them into epilogues";
  if (r.id == "graph") text += ": GPU engines are one CUDA graph";
  if (r.id == "convolution") text += ", with a rule for the layer (docs/precisions.md)";
  if (!precision.empty() && !runs_on_a_gpu(precision))
    text += " (for CPUs: it has no GPU kernels for " + precision + " yet)";
  return text;
}

}  // namespace tessera
