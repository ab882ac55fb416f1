// SPDX-License-Identifier: Apache-2.0
#include "explain/case.h"

#include <algorithm>

#include "explain/numbers.h"
#include "explain/parts.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

constexpr double kMainShare = 0.1;      // of the products' time: a precision that somebody wanted, not a leftover
constexpr double kUnknownShare = 0.05;  // of the products' time that may stay as it is in at_chip_rate

void add(std::optional<double>& sum, const std::optional<double>& more) {
  if (sum && more) *sum += *more;
  if (!more) sum.reset();
}

void add_product(std::vector<PrecisionSum>& sums, const KernelTime& k, const Ceilings& ceilings) {
  std::string precision = multiplied_in(k.precision);
  if (precision.empty()) precision = kUnknownPrecision;
  auto at = std::find_if(sums.begin(), sums.end(), [&](const PrecisionSum& p) { return p.precision == precision; });
  if (at == sums.end()) at = sums.insert(at, {.precision = precision});
  at->us += k.us;
  add(at->flops, k.flops);
  add(at->bytes, k.bytes);
  // Ceilings in doubt (others were at work while they were measured) bound nothing.
  const bool memory = ceilings.doubt.empty() && achieved(k, ceilings).bound == Bound::kMemory;
  if (memory) at->memory_us += k.us;
  if (!memory && !k.sparsity.empty()) at->sparse_us += k.us;
}

AskedOfB asked_of(const Profile& b, const Sums& sums, const std::string& flag) {
  if (const std::string p = multiplied_in(flag); !p.empty()) return {p, "said by --asked"};
  if (const std::string p = multiplied_in(b.precision); !p.empty()) return {p, "said by the profile"};
  const std::string low = sums.lowest_precision();
  return low.empty() ? AskedOfB{} : AskedOfB{low, "not told: the lowest precision that 10 % of the GEMM time has"};
}

// Where the chip is known and has no arithmetic for what was asked, codes are only stored in it.
std::string lowest_of(const Sums& sums, const AskedOfB& asked, const Rates& rates) {
  const std::string low = sums.lowest_precision();
  if (low.empty()) return asked.precision;
  return is_lower(asked.precision, low) && rates.ratio(low, asked.precision) ? asked.precision : low;
}

}  // namespace

double Sums::in(std::string_view precision) const {
  for (const PrecisionSum& p : precisions) {
    if (p.precision == precision) return p.us;
  }
  return 0;
}

std::string Sums::main_precision() const {
  const PrecisionSum* most = nullptr;
  for (const PrecisionSum& p : precisions) {
    if (p.precision != kUnknownPrecision && (most == nullptr || p.us > most->us)) most = &p;
  }
  return most == nullptr ? "" : most->precision;
}

std::string Sums::lowest_precision() const {
  std::string low;
  for (const PrecisionSum& p : precisions) {  // highest first
    if (p.precision != kUnknownPrecision && p.us > 0 && p.us >= kMainShare * products) low = p.precision;
  }
  return low;
}

Sums sums_of(const Profile& profile) {
  Sums s;
  const Ceilings ceilings = profile.ceilings.value_or(Ceilings{});
  for (const KernelTime& k : profile.kernels) {
    s.kernels += k.us;
    s.by_class[static_cast<size_t>(k.kernel_class)] += k.us;
    if (is_product(k.kernel_class)) {
      s.products += k.us;
      add_product(s.precisions, k, ceilings);
    } else if (k.kernel_class == KernelClass::kAttention) {
      s.attention += k.us;
    } else {
      s.rest += k.us;
    }
  }
  s.conversions = s.by_class[static_cast<size_t>(KernelClass::kConversion)];
  const double gemms = s.by_class[static_cast<size_t>(KernelClass::kGemm)];
  s.covered = gemms > 0 ? gemms : s.products;
  for (const KernelTime& k : profile.kernels) {
    if (k.kernel_class == KernelClass::kGemm || (gemms <= 0 && is_product(k.kernel_class)))
      add_product(s.covered_precisions, k, ceilings);
  }
  for (std::vector<PrecisionSum>* all : {&s.precisions, &s.covered_precisions}) {
    std::stable_sort(all->begin(), all->end(), [](const PrecisionSum& x, const PrecisionSum& y) {
      return bits_of(x.precision) > bits_of(y.precision);
    });
  }
  return s;
}

Case::Case(const Profile& first, const Profile& second, const ExplainOptions& options, bool two)
    : a(first),
      b(second),
      compared(two),
      in_a(sums_of(first)),
      in_b(sums_of(second)),
      asked(asked_of(second, in_b, options.asked)),
      rates(first, second),
      same_work(first.batch == 0 || second.batch == 0 || first.batch == second.batch) {
  low = lowest_of(in_b, asked, rates);
  other_model = why_other_model(*this);
  same_work = same_work && other_model.empty();
  a_coverage = coverage_alone(in_a);
  b_coverage = coverage_of(*this);
}

std::string Case::time(double us) const { return duration(us / 1000, std::max(in_a.kernels, in_b.kernels) / 1000); }

std::string Case::products_word() const {
  const size_t convolution = static_cast<size_t>(KernelClass::kConvolution);
  return in_a.by_class[convolution] + in_b.by_class[convolution] > 0 ? "GEMMs and convolutions" : "GEMMs";
}

std::string Case::products_and_attention() const {
  const std::string products = products_word();
  return products == "GEMMs" ? "GEMMs and attention" : "GEMMs, convolutions and attention";
}

std::string Case::covered_word() const {
  return in_b.by_class[static_cast<size_t>(KernelClass::kGemm)] > 0 || in_b.products <= 0 ? "GEMMs" : "convolutions";
}

std::optional<AtChipRate> at_chip_rate(const Case& c, const std::vector<PrecisionSum>& products, std::string_view to) {
  AtChipRate at;
  double unknown = 0, most = 0, all = 0, by_memory = 0;
  bool faster = false;
  for (const PrecisionSum& p : products) {
    if (p.us <= 0) continue;
    all += p.us;
    const std::optional<Ratio> known = c.rates.ratio(p.precision, to);
    if (!known) unknown += p.us;
    const double ratio = known ? std::max(1.0, known->value) : 1.0;
    const double fewer = known && bits_of(to) > 0 ? std::max(1.0, 1.0 * bits_of(p.precision) / bits_of(to)) : 1.0;
    const auto add_part = [&](double us, double by, const char* why) {
      if (us <= 0) return;
      at.us += us / by;
      at.arithmetic += (at.arithmetic.empty() ? "" : " + ") + c.time(us) + (by > 1 ? " / " + ratio_text(by) + why : "");
      faster = faster || by > 1;
    };
    by_memory += p.memory_us;
    add_part(p.us - p.memory_us, ratio, "");
    add_part(p.memory_us, fewer, " (bytes)");
    if (p.us > most) most = p.us, at.ratio = ratio;
    if (ratio > 1 && p.us > p.memory_us) at.nominal |= known->nominal;
  }
  at.memory_share = all > 0 ? by_memory / all : 0;
  if (!faster || unknown > kUnknownShare * all) return {};
  return at;
}

}  // namespace tessera
