// SPDX-License-Identifier: Apache-2.0
#include "explain/rates.h"

#include <algorithm>

#include "archs/chip.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

struct Arithmetic {
  const char* name;
  int bits;
  double nominal;     // against fp16; 0: differs from chip to chip
  const char* flag;   // of tessera build
  const char* words;  // other names of it, a blank on both sides of each
};
constexpr Arithmetic kArithmetics[] = {
    {"fp64", 64, 0, "", " f64 double "},
    {"fp32", 32, 0, "fp32", " f32 float float32 "},
    {"tf32", 19, 0, "", " tf32x3 "},
    {"fp16", 16, 1, "fp16", " f16 half float16 w4a16 "},
    {"bf16", 16, 1, "bf16", " bfloat16 "},
    {"fp8", 8, 2, "fp8", " e4m3 e5m2 fp8_bf16 fp8_tensor fp8_token mxfp8 f8 w4a8 "},
    {"int8", 8, 2, "int8", " i8 s8 "},
    {"fp6", 6, 0, "", " e3m2 e2m3 mxfp6 "},
    {"fp4", 4, 4, "nvfp4", " nvfp4 mxfp4 e2m1 f4 "},
    {"int4", 4, 0, "", " i4 s4 "},
};

struct Capability {
  int64_t from;
  const char* precisions;  // a blank on both sides of each
};
constexpr Capability kCapabilities[] = {
#define TS_CAPABILITY(from, precisions) {from, precisions},
#include "explain/capabilities.inc"
#undef TS_CAPABILITY
};

// Whether a GPU multiplies it; true where its capability is not told.
bool has_units(int64_t capability, const std::string& precision) {
  const char* precisions = kCapabilities[0].precisions;
  for (const Capability& c : kCapabilities) {
    if (capability >= c.from) precisions = c.precisions;
  }
  return capability <= 0 || std::string_view(precisions).find(" " + precision + " ") != std::string_view::npos;
}

const Arithmetic* find(std::string_view precision) {
  if (precision.empty() || precision.find(' ') != precision.npos) return nullptr;
  const std::string word = " " + std::string(precision) + " ";
  for (const Arithmetic& a : kArithmetics) {
    if (precision == a.name || std::string_view(a.words).find(word) != std::string_view::npos) return &a;
  }
  return nullptr;
}

}  // namespace

std::string multiplied_in(std::string_view precision) {
  const Arithmetic* a = find(precision);
  return a == nullptr ? "" : a->name;
}

int bits_of(std::string_view precision) {
  const Arithmetic* a = find(precision);
  return a == nullptr ? 0 : a->bits;
}

bool is_lower(std::string_view precision, std::string_view than) {
  const int bits = bits_of(precision), other = bits_of(than);
  return bits > 0 && other > 0 && bits < other;
}

std::string precision_flag(std::string_view precision) {
  const Arithmetic* a = find(precision);
  return a == nullptr ? std::string(precision) : a->flag;
}

bool runs_on_cpu(const Profile& profile) {
  if (profile.source != "tessera") return false;
  return std::any_of(profile.kernels.begin(), profile.kernels.end(), [](const KernelTime& k) {
    return k.name.find("/cpu") != std::string::npos || k.name.find("/ref") != std::string::npos;
  });
}

Rates::Rates(const Profile& a, const Profile& b) : on_cpu_(runs_on_cpu(a) || runs_on_cpu(b)) {
  const bool one_machine = b.machine.empty() || a.machine.empty() || a.machine == b.machine;
  for (const Profile* p : {&b, &a}) {
    if (p == &a && !one_machine) break;
    for (const KernelTime& k : p->kernels) {
      if (is_product(k.kernel_class) && k.us > 0) seen_.insert(multiplied_in(k.precision));
    }
    if (p->ceilings) take(*p->ceilings);
    if (capability_ == 0) capability_ = p->capability;
  }
  for (const Profile* p : {&b, &a}) {
    if (p == &b || one_machine) take_chip(p->machine);
  }
}

void Rates::take(const Ceilings& ceilings) {
  if (rates_.empty()) {
    for (const auto& [precision, rate] : ceilings.flops_per_s) {
      if (rate > 0) rates_.push_back({precision, rate});
    }
    if (!rates_.empty()) source_ = (ceilings.measured ? "measured on " : "data of ") + ceilings.machine;
  }
  if (!bytes_per_s_ && ceilings.bytes_per_s > 0) bytes_per_s_ = ceilings.bytes_per_s;
}

void Rates::take_chip(const std::string& machine) {
  const Chip* chip = find_chip(machine);
  if (chip == nullptr) return;
  chip_ = true;
  if (!bytes_per_s_) bytes_per_s_ = chip->bytes_per_s;
  if (!rates_.empty()) return;
  rates_ = {{"fp16", chip->f16_per_s}, {"bf16", chip->f16_per_s}, {"fp8", chip->f8_per_s}, {"int8", chip->i8_per_s}};
  source_ = std::string("data of ") + chip->name;
}

std::optional<double> Rates::flops_per_s(std::string_view precision) const {
  const std::string name = multiplied_in(precision);
  if (name.empty()) return {};
  for (const auto& [known, rate] : rates_) {
    if (multiplied_in(known) == name) return rate;
  }
  // Tensor cores multiply both 16-bit types at one rate.
  if (name == "bf16" || name == "fp16") {
    for (const auto& [known, rate] : rates_) {
      if (!on_cpu_ && bits_of(known) == 16) return rate;
    }
  }
  return {};
}

std::optional<Ratio> Rates::ratio(std::string_view from, std::string_view to) const {
  const Arithmetic *f = find(from), *t = find(to);
  if (f == nullptr || t == nullptr) return {};
  if (f == t) return Ratio{1, false};
  const auto slow = flops_per_s(from), fast = flops_per_s(to);
  if (slow && fast) return Ratio{*fast / *slow, false};
  const bool may_run = (rates_.empty() && !on_cpu_) || (seen_.contains(f->name) && seen_.contains(t->name));
  if (on_cpu_ || !may_run || f->nominal <= 0 || t->nominal <= 0) return {};
  if (!has_units(capability_, f->name) || !has_units(capability_, t->name)) return {};
  return Ratio{t->nominal / f->nominal, true};
}

std::vector<std::string> Rates::known() const {
  std::vector<std::string> names;
  for (const auto& [precision, rate] : rates_) {
    const std::string name = multiplied_in(precision);
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::optional<Ratio> Rates::sparse_ratio(std::string_view precision) const {
  const auto dense = flops_per_s(precision);
  if (!dense || on_cpu_) return {};
  const std::string wanted = std::string(precision) + " 2:4";
  for (const auto& [known, rate] : rates_) {
    if (known == wanted) return Ratio{rate / *dense, false};
  }
  if (!chip_ || bits_of(precision) > 16) return {};
  return Ratio{kSparseRatio, true};
}

}  // namespace tessera
