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

Result<const Precision*> find_attention_precision(std::string_view name) {
  std::string names;
  for (const Precision& p : kPrecisions) {
    if (!p.attention) continue;
    if (name == p.name) return &p;
    names += cat(names.empty() ? "" : ", ", p.name);
  }
  return bad_input(cat("attention in '", name, "' is not known; accepted: ", names));
}

const Precision& plain_precision(Element carrier) {
  for (const Precision& p : kPrecisions) {
    if (p.weight == QuantType(carrier)) return p;
  }
  return kPrecisions[0];
}

namespace {
constexpr std::string_view kSparseWords = " 2:4";
}

std::string Asked::words() const { return sparse ? precision + std::string(kSparseWords) : precision; }

Asked read_asked(std::string_view words) {
  Asked asked{.sparse = words.ends_with(kSparseWords)};
  if (asked.sparse) words.remove_suffix(kSparseWords.size());
  asked.precision = words;
  return asked;
}

}  // namespace tessera
