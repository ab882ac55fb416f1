// SPDX-License-Identifier: Apache-2.0
// Recommendations that change kernel time, and their order. Each is predicted alone, from B as it is:
//   speedup = kernel time of A / (kernel time of B - what it saves)
#include "explain/recommend.h"

#include <algorithm>
#include <set>

#include "explain/numbers.h"

namespace tessera {
namespace {

constexpr double kLeastGain = 0.01;    // of the time it is about: less than runs differ by
constexpr double kUnnamedShare = 0.2;  // of the growth in kernels of no known kind, from which confidence falls
constexpr double kFarBelow = 0.5;      // of the rate that another GEMM of this precision reaches
constexpr size_t kNamed = 3;

constexpr Recommender kRecommenders[] = {recommend_fusing,    recommend_quantizing, recommend_attention,
                                         recommend_precision, recommend_sparsity,   recommend_tuning,
                                         recommend_batch,     recommend_graph};

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
  r.confidence = unnamed > 1 - kUnnamedShare ? Confidence::kLow
                 : unnamed > kUnnamedShare   ? Confidence::kMedium
                                             : Confidence::kHigh;
  r.because = "A runs the same model with " + c.time(c.in_a.rest) + " of such work";
  if (unnamed > kUnnamedShare)
    r.because += ", but " + percent(unnamed) + " of the growth is in kernels of no known kind";
}

// Without growth against another profile: conversions are the work that fusing surely takes away.
std::optional<Recommendation> recommend_fusing_conversions(const Case& c) {
  if (c.in_b.conversions <= 0) return {};
  Recommendation r{.id = "fuse",
                   .what = "fuse quantization and conversions into the kernels around them",
                   .why = "conversions take " + c.time(c.in_b.conversions) + ", " +
                          percent(c.in_b.conversions / c.in_b.kernels) + " of the time",
                   .part = Part::kRest};
  r.arithmetic = c.time(c.in_b.kernels) + " - " + c.time(c.in_b.conversions);
  r.confidence = Confidence::kLow;
  r.because = "whether each of them can be fused is not in the profile";
  predict_kernel_time(c, r, c.in_b.rest, c.in_b.rest - c.in_b.conversions);
  return r;
}

struct LayerNames {
  std::vector<std::string> all;
  void add(const std::string& name) {
    if (!name.empty() && std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
};

// "blocks.11.attn.qkv" -> "blocks.*.attn.qkv": the pattern that build's flags take. "fc1" stays.
std::string pattern_of(const std::string& layer) {
  const auto is_word = [&](size_t i) { return i < layer.size() && std::isalnum(static_cast<unsigned char>(layer[i])); };
  std::string out;
  for (size_t at = 0; at < layer.size();) {
    const size_t end = std::min(layer.find_first_not_of("0123456789", at), layer.size());
    const bool number = end > at && !(at > 0 && is_word(at - 1)) && !is_word(end);
    const size_t next = std::max(end, at + 1);
    out += number ? "*" : layer.substr(at, next - at);
    at = next;
  }
  return out;
}

// Products at the rate of the chip where the profiles cannot tell the reached one.
std::optional<Recommendation> quantize_at_chip_rate(const Case& c, Recommendation r) {
  const std::optional<AtChipRate> chip = at_chip_rate(c, c.in_b, c.low);
  if (!chip) return {};
  r.arithmetic = chip->arithmetic + " + " + c.time(c.in_b.kernels - c.in_b.products);
  r.confidence = Confidence::kLow;
  r.because = std::string("at the ") + (chip->nominal ? "nominal " : "chip's ") +
              "ratio of rates: which share of the flops they are is not known";
  predict_kernel_time(c, r, c.in_b.products, chip->us);
  return r;
}

}  // namespace

void predict_kernel_time(const Case& c, Recommendation& r, double part_us, double after_us) {
  const double total = c.in_b.kernels - part_us + after_us;
  r.basis = "kernel time";
  r.part_ms = part_us / 1000, r.part_after_ms = after_us / 1000;
  r.gain_ms = (part_us - after_us) / 1000;
  r.predicted = total > 0 ? c.in_a.kernels / total : 0;
  r.arithmetic +=
      " = " + c.time(total) + "; " + c.time(c.in_a.kernels) + " / " + c.time(total) + " = " + times(r.predicted);
}

std::optional<Recommendation> recommend_fusing(const Case& c) {
  if (!c.compared || c.in_b.rest <= c.in_a.rest) return recommend_fusing_conversions(c);
  Recommendation r{.id = "fuse",
                   .what = "fuse " + grown_words(c) + " into the kernels around them",
                   .why = "work outside " + c.products_word() + " and attention grew from " + c.time(c.in_a.rest) +
                          " to " + c.time(c.in_b.rest),
                   .part = Part::kRest};
  r.arithmetic = c.time(c.in_b.kernels) + " - (" + c.time(c.in_b.rest) + " - " + c.time(c.in_a.rest) + ")";
  say_confidence_of_fusing(c, r);
  predict_kernel_time(c, r, c.in_b.rest, c.in_a.rest);
  return r;
}

std::string names_of_higher_products(const Case& c) {
  LayerNames layers, kernels;
  for (const KernelTime& k : c.b.kernels) {
    if (!is_product(k.kernel_class) || k.us <= 0 || !is_lower(c.low, multiplied_in(k.precision))) continue;
    if (k.layer != k.name) layers.add(pattern_of(k.layer));
    kernels.add(k.name);
  }
  const std::vector<std::string>& names = layers.all.empty() ? kernels.all : layers.all;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text + (names.size() > kNamed ? cat(" and ", names.size() - kNamed, " more") : "");
}

std::optional<Recommendation> recommend_quantizing(const Case& c) {
  double higher = 0;
  std::set<std::string> precisions;
  for (const PrecisionSum& p : c.in_b.precisions) {
    if (p.us > 0 && is_lower(c.low, p.precision)) higher += p.us, precisions.insert(p.precision);
  }
  if (higher <= 0) return {};
  std::string words;
  for (const std::string& p : precisions) words += (words.empty() ? "" : " and ") + p;
  Recommendation r{.id = "quantize",
                   .what = "quantize the remaining linear layers to " + c.low + ": " + names_of_higher_products(c),
                   .why = words + " " + c.products_word() + " take " + c.time(higher) + ", " +
                          percent(higher / c.in_b.kernels) + " of the time",
                   .part = Part::kProducts,
                   .precision = c.low};
  const std::optional<AtReachedRate> reached = at_reached_rate(c);
  if (!reached)
    return c.in_b.in(c.low) > 0 && c.b_coverage.flops.of(c.low) ? std::nullopt : quantize_at_chip_rate(c, r);
  r.arithmetic = reached->arithmetic + " + " + c.time(c.in_b.kernels - c.in_b.products);
  const bool from_files = c.b_coverage.flops.origin == Origin::kFromFiles;
  r.confidence = from_files ? Confidence::kHigh : Confidence::kMedium;
  r.because = from_files ? "flops are in the file, and the rate is the one that " + c.low + " reaches here"
                         : "the share of flops is estimated from A's rate";
  predict_kernel_time(c, r, c.in_b.products, reached->us);
  return r;
}

std::optional<Recommendation> recommend_attention(const Case& c) {
  const std::string from = attention_precision(c), to = "fp8";
  const std::optional<Ratio> ratio = c.rates.ratio(from, to);
  if (c.in_b.attention <= 0 || !is_lower(to, from) || !ratio || ratio->value <= 1) return {};
  Recommendation r{.id = "attention", .what = "run attention in fp8", .part = Part::kAttention, .precision = to};
  r.why = "attention takes " + c.time(c.in_b.attention) + ", " + percent(c.in_b.attention / c.in_b.kernels) +
          " of the time";
  if (c.compared && attention_of(c)->unchanged) r.why += ", as in A";
  const double after = c.in_b.attention / ratio->value;
  r.arithmetic =
      c.time(c.in_b.kernels - c.in_b.attention) + " + " + c.time(c.in_b.attention) + " / " + ratio_text(ratio->value);
  r.confidence = Confidence::kLow;
  r.because = std::string("at most: the ") + (ratio->nominal ? "nominal " : "") +
              "ratio of rates is of products, and softmax does not get faster";
  predict_kernel_time(c, r, c.in_b.attention, after);
  return r;
}

// The precision with the highest rate, of those that the chip is known to multiply.
std::optional<Recommendation> recommend_precision(const Case& c) {
  std::optional<AtChipRate> best;
  std::string to;
  for (const std::string& p : c.rates.known()) {
    if (!is_lower(p, c.low)) continue;
    const std::optional<AtChipRate> chip = at_chip_rate(c, c.in_b, p);
    const bool better = chip && (!best || chip->us < best->us || (chip->us == best->us && p.starts_with("fp")));
    if (better) best = chip, to = p;
  }
  if (!best) return {};
  Recommendation r{
      .id = "precision", .what = "run " + c.products_word() + " in " + to, .part = Part::kProducts, .precision = to};
  r.why = "this chip multiplies " + to + " " + ratio_text(best->ratio) + " times as fast as " +
          c.in_b.main_precision() + " (" + c.rates.source() + ")";
  r.arithmetic = best->arithmetic + " + " + c.time(c.in_b.kernels - c.in_b.products);
  r.confidence = Confidence::kLow;
  r.because = "at most: kernels seldom gain the whole ratio of rates, and quantization may add work";
  predict_kernel_time(c, r, c.in_b.products, best->us);
  return r;
}

std::optional<Recommendation> recommend_sparsity(const Case& c) {
  const std::optional<double> ratio = c.rates.sparse_ratio(c.low);
  const double us = c.in_b.in(c.low);
  if (!ratio || *ratio <= 1 || us <= 0) return {};
  Recommendation r{.id = "sparsity", .what = "2:4 sparse weights of the " + c.low + " layers", .part = Part::kProducts};
  r.why = "this chip multiplies them " + ratio_text(*ratio) + " times as fast (" + c.rates.source() + ")";
  r.arithmetic = c.time(us) + " / " + ratio_text(*ratio) + " + " + c.time(c.in_b.kernels - us);
  r.confidence = Confidence::kLow;
  r.because = "at most, and half of the weights become zero: accuracy decides";
  predict_kernel_time(c, r, c.in_b.products, c.in_b.products - us + us / *ratio);
  return r;
}

// GEMMs of less than half the rate that another one of their precision reaches in this profile, and that memory does
// not bound.
std::optional<Recommendation> recommend_tuning(const Case& c) {
  const auto rate_of = [](const KernelTime& k) { return k.flops && k.us > 0 ? *k.flops / k.us : 0; };
  const auto is_candidate = [&](const KernelTime& k) {
    return k.kernel_class == KernelClass::kGemm && multiplied_in(k.precision) == c.low && rate_of(k) > 0;
  };
  double best = 0, slow = 0, after = 0;
  for (const KernelTime& k : c.b.kernels) {
    if (is_candidate(k)) best = std::max(best, rate_of(k));
  }
  LayerNames names;
  for (const KernelTime& k : c.b.kernels) {
    if (!is_candidate(k) || !c.rates.bytes_per_s() || !k.bytes) continue;
    const double least = std::max(*k.flops / best, *k.bytes / *c.rates.bytes_per_s() * 1e6);  // us
    if (least >= kFarBelow * k.us) continue;
    slow += k.us, after += least;
    names.add(k.layer.empty() ? k.name : pattern_of(k.layer));
  }
  if (slow <= 0) return {};
  Recommendation r{.id = "tune", .what = "tune the slow GEMMs: " + names.all[0], .part = Part::kProducts};
  if (names.all.size() > 1) r.what += cat(" and ", names.all.size() - 1, " more");
  r.why = c.time(slow) + " of " + c.low + " GEMMs run below half of the rate that the best one reaches (" +
          fixed(best / 1e6, 1) + " TFLOP/s)";
  r.arithmetic = c.time(c.in_b.kernels - slow) + " + " + c.time(after);
  r.confidence = Confidence::kLow;
  r.because = "at most: small shapes may not reach the rate of large ones";
  predict_kernel_time(c, r, c.in_b.products, c.in_b.products - slow + after);
  return r;
}

std::vector<Recommendation> recommend(const Case& c) {
  std::vector<Recommendation> all;
  if (!c.has_times() || !c.same_work) return all;
  for (const Recommender make : kRecommenders) {
    std::optional<Recommendation> r = make(c);
    if (!r || r->gain_ms * 1000 < kLeastGain * c.in_b.kernels) continue;
    r->flag = flag_of(c, *r);
    all.push_back(std::move(*r));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.gain_ms > y.gain_ms; });
  return all;
}

std::vector<Combination> combine(const Case& c, const std::vector<Recommendation>& recommendations) {
  std::vector<Combination> all;
  Combination so_far;
  std::set<Part> parts;
  std::string arithmetic = c.time(c.in_b.kernels);
  double total = c.in_b.kernels;
  for (size_t i = 0; i < recommendations.size(); ++i) {
    const Recommendation& r = recommendations[i];
    if (r.basis != "kernel time" || !parts.insert(r.part).second) continue;
    total -= r.gain_ms * 1000;
    arithmetic += " - " + c.time(r.gain_ms * 1000);
    so_far.of.push_back(i);
    if (so_far.of.size() < 2 || total <= 0) continue;
    so_far.predicted = c.in_a.kernels / total;
    so_far.arithmetic = arithmetic + " = " + c.time(total);
    all.push_back(so_far);
  }
  return all;
}

}  // namespace tessera
