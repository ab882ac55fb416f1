// SPDX-License-Identifier: Apache-2.0
// Fusing: work outside products and attention that A shows to be needless, or without growth against A what an
// epilogue can take in.
#include <algorithm>

#include "explain/numbers.h"
#include "explain/recommend.h"

namespace tessera {
namespace {

constexpr double kUnnamedShare = 0.2;  // of the growth in kernels of no known kind, from which confidence falls

double growth_in(const Case& c, KernelClass kind) {
  const size_t i = static_cast<size_t>(kind);
  return std::max(0.0, c.in_b.by_class[i] - c.in_a.by_class[i]);
}

bool has_gelu(const Profile& p) {
  return std::any_of(p.kernels.begin(), p.kernels.end(), [](const KernelTime& k) {
    std::string name = k.name;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char x) { return std::tolower(x); });
    return !is_product(k.kernel_class) && (name.find("gelu") != name.npos || name.find("erf") != name.npos);
  });
}

// "GELU, quantization and conversions": what grew, in the field's words.
std::string grown_words(const Case& c) {
  std::vector<std::string> words;
  const bool gelu = has_gelu(c.b);
  const double elementwise = growth_in(c, KernelClass::kElementwise),
               conversions = growth_in(c, KernelClass::kConversion);
  if (elementwise > 0 || (gelu && conversions > 0)) words.push_back(gelu ? "GELU" : "elementwise work");
  if (conversions > 0 || (gelu && c.lowered())) words.push_back("quantization");
  if (conversions > 0) words.push_back("conversions");
  if (growth_in(c, KernelClass::kNorm) > 0.2 * (c.in_b.rest - c.in_a.rest)) words.push_back("norms");
  if (words.empty()) words.push_back("the work outside GEMMs and attention that B has and A has not");
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

void say_confidence_of_fusing(const Case& c, Recommendation& r) {
  double grown = 0;
  for (size_t i = 0; i < kClassCount; ++i) {
    const auto kind = static_cast<KernelClass>(i);
    if (!is_product(kind) && kind != KernelClass::kAttention) grown += growth_in(c, kind);
  }
  const double unnamed = (growth_in(c, KernelClass::kOther) + growth_in(c, KernelClass::kUnknown)) / grown;
  const double fusable = (growth_in(c, KernelClass::kElementwise) + growth_in(c, KernelClass::kConversion)) / grown;
  r.because = "A runs the same model with " + c.time(c.in_a.rest) + " of such work";
  if (unnamed + fusable < 0.5) {
    r.confidence = Confidence::kLow;
    r.because += ", but less than half of the growth is elementwise work or conversions";
  } else if (unnamed > kUnnamedShare) {
    r.confidence = fusable > kUnnamedShare ? Confidence::kMedium : Confidence::kLow;
    r.because += ", but " + percent(unnamed) + " of the growth is in kernels of no known kind";
  } else {
    r.confidence = Confidence::kHigh;
  }
}

// Without growth against another profile: elementwise work and conversions are what epilogues can take in.
std::optional<Recommendation> recommend_fusing_all(const Case& c) {
  const double elementwise = c.in_b.by_class[static_cast<size_t>(KernelClass::kElementwise)];
  const double us = elementwise + c.in_b.conversions;
  if (us <= 0) return {};
  const bool quantized = bits_of(c.low) > 0 && bits_of(c.low) < 16 && c.in_b.conversions > 0;
  std::string words = elementwise > 0 ? "elementwise work" : "";
  if (c.in_b.conversions > 0)
    words += (words.empty() ? ""
              : quantized   ? ", "
                            : " and ") +
             std::string(quantized ? "quantization and " : "") + "conversions";
  Recommendation r{.id = "fuse",
                   .what = "fuse " + words + " into the kernels around them",
                   .why = "these kernels take " + c.time(us) + ", " + percent(us / c.in_b.kernels) + " of the time",
                   .part = Part::kRest};
  r.arithmetic = c.time(c.in_b.kernels) + " - " + c.time(us);
  r.confidence = Confidence::kLow;
  r.because = "at most: whether each of them can be part of an epilogue is not in the profile";
  predict_kernel_time(c, r, c.in_b.rest, c.in_b.rest - us);
  return r;
}

}  // namespace

std::optional<Recommendation> recommend_fusing(const Case& c) {
  if (!c.compared || c.in_b.rest <= c.in_a.rest) return recommend_fusing_all(c);
  Recommendation r{.id = "fuse",
                   .what = "fuse " + grown_words(c) + " into the kernels around them",
                   .why = "work outside " + c.products_and_attention() + " grew from " + c.time(c.in_a.rest) + " to " +
                          c.time(c.in_b.rest),
                   .part = Part::kRest};
  r.arithmetic = c.time(c.in_b.kernels) + " - (" + c.time(c.in_b.rest) + " - " + c.time(c.in_a.rest) + ")";
  say_confidence_of_fusing(c, r);
  predict_kernel_time(c, r, c.in_b.rest, c.in_a.rest);
  return r;
}

}  // namespace tessera
