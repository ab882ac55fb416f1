// SPDX-License-Identifier: Apache-2.0
#include "passes/precision.h"

namespace tessera {
namespace {

const Precision kPrecisions[] = {
#define TS_PRECISION(name, weight, activation, carrier) {#name, weight, activation, carrier},
#include "passes/precisions.inc"
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

const Precision& plain_precision(Element carrier) {
  for (const Precision& p : kPrecisions) {
    if (p.weight == QuantType(carrier)) return p;
  }
  return kPrecisions[0];
}

bool matches(const char* pattern, const char* text) {
  // The last star takes one character more whenever the rest does not fit: linear in practice, never exponential.
  const char *star = nullptr, *taken = nullptr;
  while (*text != '\0') {
    if (*pattern == '*') {
      star = pattern++, taken = text;
    } else if (*pattern == '?' || *pattern == *text) {
      ++pattern, ++text;
    } else if (star != nullptr) {
      pattern = star + 1, text = ++taken;
    } else {
      return false;
    }
  }
  while (*pattern == '*') ++pattern;
  return *pattern == '\0';
}

Result<Allowance> parse_allowance(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return usage_error(cat("--allow '", text, "': wanted LAYER=PRECISION, for example 'blocks.*.mlp.fc2=fp16'"));
  }
  Allowance allowance{text.substr(0, equals), text.substr(equals + 1)};
  if (find_precision(allowance.precision) == nullptr) {
    return usage_error(cat("--allow '", text, "': precision '", allowance.precision, "' is unknown; accepted: ",
                           precision_list()));
  }
  return allowance;
}

}  // namespace tessera
