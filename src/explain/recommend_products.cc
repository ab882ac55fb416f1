// SPDX-License-Identifier: Apache-2.0
// Products and attention: in a lower precision, sparse, with better kernels.
#include <algorithm>
#include <map>
#include <set>

#include "explain/numbers.h"
#include "explain/recommend.h"

namespace tessera {
namespace {

constexpr double kFarBelow = 0.5;  // of the rate that another GEMM of this precision reaches
constexpr size_t kNamed = 3;
constexpr double kMostly = 0.5;  // of the products' time: what bounds so much of it is the reason

struct LayerNames {
  std::vector<std::string> all;  // in their order
  std::set<std::string> seen = {};
  void add(const std::string& name) {
    if (!name.empty() && seen.insert(name).second) all.push_back(name);
  }
};

constexpr const char* kAtMostBytes =
    "at most: the bytes of weights and activations alike are taken to shrink as the codes do";

// Of the time in a higher precision than the lowest: what memory bounds.
double memory_share_of_higher(const Case& c, const std::vector<PrecisionSum>& products) {
  double all = 0, memory = 0;
  for (const PrecisionSum& p : products) {
    if (is_lower(c.low, p.precision)) all += p.us, memory += p.memory_us;
  }
  return all > 0 ? memory / all : 0;
}

// "1.45 ms / 4 + 1.37 ms": products at the chip's rate of the lowest precision, where the profiles cannot tell the
// reached one.
std::optional<Recommendation> quantize_at_chip_rate(const Case& c, Recommendation r,
                                                    const std::vector<PrecisionSum>& products) {
  const std::optional<AtChipRate> chip = at_chip_rate(c, products, c.low);
  if (!chip) return {};
  double us = 0;
  for (const PrecisionSum& p : products) us += p.us;
  r.arithmetic = chip->arithmetic + " + " + c.time(c.in_b.kernels - us);
  r.confidence = Confidence::kLow;
  r.because = std::string("at the ") + (chip->nominal ? "nominal " : "chip's ") +
              "ratio of rates: which share of the flops they are is not known";
  if (memory_share_of_higher(c, products) > kMostly) {
    r.why += "; memory bounds most of it, so that fewer bytes count there, not a higher rate";
    r.because = kAtMostBytes;
  }
  predict_kernel_time(c, r, c.in_b.products, c.in_b.products - us + chip->us);
  return r;
}

// Products of `kind` in a higher precision than the lowest, as a recommendation without prediction; none: there are
// none.
std::optional<Recommendation> higher_products(const Case& c, const char* id, const std::string& layers,
                                              const std::vector<PrecisionSum>& products, KernelClass kind) {
  double higher = 0;
  std::string words;
  for (const PrecisionSum& p : products) {
    if (p.us <= 0 || !is_lower(c.low, p.precision)) continue;
    higher += p.us;
    words += (words.empty() ? "" : " and ") + p.precision;
  }
  if (higher <= 0) return {};
  const bool quantizes = bits_of(c.low) < 16;
  return Recommendation{.id = id,
                        .what = (quantizes ? "quantize " : "run ") + layers + (quantizes ? " to " : " in ") + c.low +
                                ": " + names_of_higher_products(c, kind),
                        .why = words + " " + (kind == KernelClass::kGemm ? "GEMMs" : "convolutions") + " take " +
                               c.time(higher) + ", " + percent(higher / c.in_b.kernels) + " of the time",
                        .part = Part::kProducts,
                        .precision = c.low};
}

}  // namespace

std::string names_of_higher_products(const Case& c, KernelClass kind) {
  LayerNames layers, patterns, kernels;
  for (const KernelTime& k : c.b.kernels) {
    if (k.kernel_class != kind || k.us <= 0 || !is_lower(c.low, multiplied_in(k.precision))) continue;
    if (k.layer != k.name) layers.add(k.layer), patterns.add(layer_pattern(k.layer));
    kernels.add(short_kernel(k.name));
  }
  const std::vector<std::string>& names = layers.all.empty()            ? kernels.all
                                          : layers.all.size() <= kNamed ? layers.all
                                                                        : patterns.all;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text + (names.size() > kNamed ? cat(" and ", names.size() - kNamed, " more") : "");
}

std::optional<Recommendation> recommend_quantizing(const Case& c) {
  const bool gemms = c.covered_word() == "GEMMs";
  std::optional<Recommendation> r =
      higher_products(c, "quantize", gemms ? "the remaining linear layers" : "the remaining convolutions",
                      c.in_b.covered_precisions, gemms ? KernelClass::kGemm : KernelClass::kConvolution);
  if (!r) return {};
  // A rate that others reach says nothing where memory is the limit.
  if (memory_share_of_higher(c, c.in_b.covered_precisions) > kMostly)
    return quantize_at_chip_rate(c, *r, c.in_b.covered_precisions);
  const std::optional<AtReachedRate> reached = at_reached_rate(c);
  // Where the rate is known and brings nothing, the chip's would promise what these kernels do not keep.
  if (!reached && c.in_b.in(c.low) > 0 && c.b_coverage.flops.of(c.low)) return {};
  if (!reached) return quantize_at_chip_rate(c, *r, c.in_b.covered_precisions);
  r->arithmetic = reached->arithmetic + " + " + c.time(c.in_b.kernels - c.in_b.products);
  const bool from_files = c.b_coverage.flops.origin == Origin::kFromFiles;
  r->confidence = from_files ? Confidence::kHigh : Confidence::kMedium;
  r->because = from_files ? "flops are in the file, and the rate is the one that " + c.low + " reaches here"
                          : "the share of flops is estimated from A's rate";
  predict_kernel_time(c, *r, c.in_b.products, reached->us);
  return r;
}

std::optional<Recommendation> recommend_convolutions(const Case& c) {
  if (c.covered_word() != "GEMMs") return {};
  std::vector<PrecisionSum> convolutions = c.in_b.precisions;
  for (PrecisionSum& p : convolutions) {
    for (const PrecisionSum& gemms : c.in_b.covered_precisions) {
      if (gemms.precision == p.precision) p.us -= gemms.us;
    }
  }
  const std::optional<Recommendation> r =
      higher_products(c, "convolution", "the convolutions", convolutions, KernelClass::kConvolution);
  return r ? quantize_at_chip_rate(c, *r, convolutions) : std::nullopt;
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
    const std::optional<AtChipRate> chip = at_chip_rate(c, c.in_b.precisions, p);
    const bool better = chip && (!best || chip->us < best->us || (chip->us == best->us && p.starts_with("fp")));
    if (better) best = chip, to = p;
  }
  if (!best) return {};
  Recommendation r{
      .id = "precision", .what = "run " + c.products_word() + " in " + to, .part = Part::kProducts, .precision = to};
  r.why = "this machine multiplies " + to + " " + ratio_text(best->ratio) + " times as fast as " +
          c.in_b.main_precision() + " (" + c.rates.source() + ")";
  r.arithmetic = best->arithmetic + " + " + c.time(c.in_b.kernels - c.in_b.products);
  r.confidence = Confidence::kLow;
  r.because = "at most: kernels seldom gain the whole ratio of rates, and quantization may add work";
  if (best->memory_share > kMostly) {
    r.what += ": fewer bytes to read";
    r.why = "memory bounds " + percent(best->memory_share) + " of the time of " + c.products_word() +
            ", so that their bytes count, not their rate";
    r.because = kAtMostBytes;
  }
  predict_kernel_time(c, r, c.in_b.products, best->us);
  return r;
}

std::optional<Recommendation> recommend_sparsity(const Case& c) {
  const std::optional<Ratio> known = c.rates.sparse_ratio(c.low);
  double us = 0;  // GEMMs, without what is sparse and what memory bounds: rates do not count there
  for (const PrecisionSum& p : c.in_b.covered_precisions) {
    if (p.precision == c.low && c.covered_word() == "GEMMs") us = p.us - p.memory_us - p.sparse_us;
  }
  if (!known || known->value <= 1 || us <= 0) return {};
  const double ratio = known->value;
  Recommendation r{.id = "sparsity", .what = "2:4 sparse weights of the " + c.low + " layers", .part = Part::kProducts};
  r.why = "this machine multiplies them " + ratio_text(ratio) + " times as fast (" +
          (known->nominal ? "by its data sheet" : c.rates.source()) + ")";
  r.arithmetic = c.time(us) + " / " + ratio_text(ratio) + " + " + c.time(c.in_b.kernels - us);
  r.confidence = Confidence::kLow;
  r.because = "at most, and half of the weights become zero: accuracy decides";
  predict_kernel_time(c, r, c.in_b.products, c.in_b.products - us + us / ratio);
  return r;
}

// GEMMs of less than half the rate that another one of their precision reaches in this profile, and that memory does
// not bound.
std::optional<Recommendation> recommend_tuning(const Case& c) {
  if (runs_on_cpu(c.b)) return {};  // tuning times kernels of a GPU
  const auto rate_of = [](const KernelTime& k) { return k.flops && k.us > 0 ? *k.flops / k.us : 0; };
  const auto is_candidate = [&](const KernelTime& k) {
    return k.kernel_class == KernelClass::kGemm && multiplied_in(k.precision) == c.low && rate_of(k) > 0;
  };
  double slow = 0, after = 0;
  std::map<std::string, double> best;  // sparse and dense ones apart: flops count all weights
  for (const KernelTime& k : c.b.kernels) {
    if (is_candidate(k)) best[k.sparsity] = std::max(best[k.sparsity], rate_of(k));
  }
  LayerNames names;
  double best_of_slow = 0;
  for (const KernelTime& k : c.b.kernels) {
    if (!is_candidate(k) || !c.rates.bytes_per_s() || !k.bytes) continue;
    const double least = std::max(*k.flops / best[k.sparsity], *k.bytes / *c.rates.bytes_per_s() * 1e6);  // us
    if (least >= kFarBelow * k.us) continue;
    slow += k.us, after += least;
    best_of_slow = std::max(best_of_slow, best[k.sparsity]);
    names.add(k.layer.empty() ? short_kernel(k.name) : k.layer);
  }
  if (slow <= 0) return {};
  Recommendation r{.id = "tune", .what = "tune the slow GEMMs: " + names.all[0], .part = Part::kProducts};
  if (names.all.size() > 1) r.what += cat(" and ", names.all.size() - 1, " more");
  r.why = c.time(slow) + " of " + c.low + " GEMMs run below half of the rate that the best one reaches (" +
          fixed(best_of_slow / 1e6, 1) + " TFLOP/s)";
  r.arithmetic = c.time(c.in_b.kernels - slow) + " + " + c.time(after);
  r.confidence = Confidence::kLow;
  r.because = "at most: small shapes may not reach the rate of large ones";
  predict_kernel_time(c, r, c.in_b.products, c.in_b.products - slow + after);
  return r;
}

}  // namespace tessera
