// SPDX-License-Identifier: Apache-2.0
#include "types/precisions/precision.h"

#include "base/status.h"

namespace tessera {
namespace {

constexpr std::nullopt_t kNoAttention = std::nullopt;

const Precision kPrecisions[] = {
#define TS_PRECISION(name, weight, activation, carrier, attention) {#name, weight, activation, carrier, attention},
#include "types/precisions/precisions.inc"
#undef TS_PRECISION
};

}  // namespace

const Precision* find_precision(std::string_view name) {
  for (const Precision& p : kPrecisions) {
    if (name == p.name) return &p;
  }
  return nullptr;
}

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Precision& p : kPrecisions) names.emplace_back(p.name);
  return names;
}

std::string precision_list() {
  std::string names;
  for (const Precision& p : kPrecisions) names += cat(names.empty() ? "" : ", ", p.name);
  return names;
}

std::vector<std::string> attention_precision_names() {
  std::vector<std::string> names;
  for (const Precision& p : kPrecisions) {
    if (p.attention) names.emplace_back(p.name);
  }
  return names;
}

Result<const Precision*> find_attention_precision(std::string_view name) {
  const Precision* p = find_precision(name);
  if (p != nullptr && p->attention) return p;
  std::string names;
  for (const std::string& n : attention_precision_names()) names += cat(names.empty() ? "" : ", ", n);
  return bad_input(cat("attention in '", name, "' is not known; accepted: ", names));
}

const Precision& plain_precision(Element carrier) {
  for (const Precision& p : kPrecisions) {
    if (p.weight == QuantType(carrier)) return p;
  }
  return kPrecisions[0];
}

std::string Asked::words() const { return sparse ? precision + std::string(kSparseWords) : precision; }

Asked read_asked(std::string_view words) {
  Asked asked{.sparse = words.ends_with(kSparseWords)};
  if (asked.sparse) words.remove_suffix(kSparseWords.size());
  asked.precision = words;
  return asked;
}

}  // namespace tessera
