// SPDX-License-Identifier: Apache-2.0
#include "profile/predict.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "profile/describe.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

Result<const Chip*> pick_chip(const std::string& name) {
  std::vector<const Chip*> found;
  std::string known;
  for (const Chip& c : kChips) {
    if (lower(c.name) == lower(name)) return &c;
    if (!name.empty() && lower(c.name).find(lower(name)) != std::string::npos) found.push_back(&c);
    known += cat(known.empty() ? "'" : ", '", c.name, "'");
  }
  if (found.size() == 1) return found[0];
  return usage_error(
      cat(found.empty() ? "no chip is called '" : "more than one chip is called '", name, "'; there are ", known));
}

Ceilings ceilings_of(const Chip& chip) {
  return {.machine = chip.name,
          .measured = false,
          .bytes_per_s = chip.bytes_per_s,
          .flops_per_s = {{"fp16", chip.f16_per_s},
                          {"bf16", chip.f16_per_s},
                          {"fp8", chip.f8_per_s},
                          {"int8", chip.i8_per_s},
                          {"fp16 2:4", kSparseRatio * chip.f16_per_s},
                          {"bf16 2:4", kSparseRatio * chip.f16_per_s},
                          {"fp8 2:4", kSparseRatio * chip.f8_per_s},
                          {"int8 2:4", kSparseRatio * chip.i8_per_s}}};
}

Result<Profile> predict_plan(const Engine& engine, const Plan& plan, const Chip& chip, const std::string& path) {
  if (!runs(chip.arch, plan.arch)) {
    return bad_input(cat("the plan is for ", info(plan.arch).name, ", and the chip '", chip.name, "' runs ",
                         info(chip.arch).name, ": tessera build --target ", info(chip.arch).name,
                         " makes an engine for it, on any machine"));
  }
  Profile p = describe_plan(engine, plan, path);
  p.machine = chip.name;
  p.predicted = true;
  p.ceilings = ceilings_of(chip);
  std::set<std::string> unknown;
  for (KernelTime& k : p.kernels) {
    const bool multiplies = is_product(k.kernel_class) || k.kernel_class == KernelClass::kAttention;
    const std::optional<double> rate = multiplies ? rate_of(*p.ceilings, k) : std::nullopt;
    if (multiplies && !rate) unknown.insert(k.precision);
    k.us = std::max(rate ? k.flops.value_or(0) / *rate : 0, k.bytes.value_or(0) / chip.bytes_per_s) * 1e6;
  }
  p.notes.push_back(cat(
      "times are predicted from the data of ", chip.name,
      ", not measured: each is the larger of flops / rate and bytes / bandwidth, the least that a kernel can take"));
  for (const std::string& precision : unknown)
    p.notes.push_back(cat("the data of ", chip.name, " has no rate for products in ", precision,
                          ": such layers are predicted by their bytes alone"));
  return p;
}

}  // namespace tessera
