// SPDX-License-Identifier: Apache-2.0
#include "traces/classify.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/embedded_text.h"
#include "base/wildcard.h"

namespace tessera {

std::span<const EmbeddedText> built_in_rules();

namespace {

constexpr const char* kPrecisions[] = {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"};
constexpr size_t kRules = 10'000;  // every name is matched with every rule

std::string lowered(std::string_view text) {
  std::string low(text);
  for (char& c : low) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return low;
}

// The hash at the end of a name (TensorRT: __myl_AddMul_0x5d2f...) spells words by chance.
std::string_view without_hash(std::string_view name) {
  const size_t at = name.rfind("_0x");
  if (at == std::string_view::npos || name.size() - at < 12) return name;
  return name.find_first_not_of("0123456789abcdef", at + 3) == std::string_view::npos ? name.substr(0, at) : name;
}

template <class Names>
std::string listed(const Names& names) {
  std::string all;
  for (const char* name : names) all += cat(all.empty() ? "" : ", ", name);
  return all;
}

std::string classes() {
  std::vector<const char*> names;
  for (int c = 0; c <= static_cast<int>(KernelClass::kUnknown); ++c)
    names.push_back(name_of(static_cast<KernelClass>(c)));
  return listed(names);
}

Result<KernelRule> parse_rule(const std::vector<std::string>& words) {
  if (words.size() != 3)
    return bad_input(
        cat("has ", words.size(), " words; want three: a pattern (? for a blank), a class or -, a precision or -"));
  KernelRule rule{.pattern = lowered(words[0]), .kernel_class = {}, .precision = {}};
  if (words[1] != "-") {
    rule.kernel_class = class_of_name(words[1]);
    if (!rule.kernel_class)
      return bad_input(cat("'", words[1].substr(0, 60), "' is no class of kernels; there are ", classes(), " and -"));
  }
  if (words[2] != "-") {
    if (std::find(std::begin(kPrecisions), std::end(kPrecisions), words[2]) == std::end(kPrecisions))
      return bad_input(
          cat("'", words[2].substr(0, 60), "' is no precision; there are ", listed(kPrecisions), " and -"));
    rule.precision = words[2];
  }
  return rule;
}

}  // namespace

Result<Rules> parse_rules(std::string_view text, std::string_view where) {
  Rules rules;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    std::istringstream stream(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    if (words.empty() || words[0][0] == '#') continue;
    auto rule = parse_rule(words);
    if (!rule.ok()) return rule.status().at(cat(where, ":", number));
    if (rules.size() >= kRules) return bad_input(cat(where, ": more than ", kRules, " rules"));
    rules.push_back(std::move(rule).value());
  }
  return rules;
}

Rules with_built_in(Rules first) {
  static const Rules kBuiltIn = [] {
    Rules all;
    for (const EmbeddedText& file : built_in_rules()) {
      auto rules = parse_rules(file.text(), file.name);
      TS_CHECK(rules.ok(), "assets: ", rules.status().message());
      all.insert(all.end(), rules->begin(), rules->end());
    }
    return all;
  }();
  first.insert(first.end(), kBuiltIn.begin(), kBuiltIn.end());
  return first;
}

Classified classify(std::string_view name, const Rules& rules) {
  const std::string whole = lowered(name), low(without_hash(whole));
  Classified found;
  bool has_class = false;
  for (const KernelRule& rule : rules) {
    const bool wants_class = !has_class && rule.kernel_class,
               wants_precision = found.precision.empty() && !rule.precision.empty();
    if (!(wants_class || wants_precision) || !matches(rule.pattern.c_str(), low.c_str())) continue;
    if (wants_class) found.kernel_class = *rule.kernel_class, has_class = true;
    if (wants_precision) found.precision = rule.precision;
    if (has_class && !found.precision.empty()) break;
  }
  return found;
}

}  // namespace tessera
