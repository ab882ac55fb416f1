// SPDX-License-Identifier: Apache-2.0
#include "assemble/plan_case.h"

#include <algorithm>
#include <tuple>

#include "base/status.h"

namespace tessera {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace

bool PlanCase::operator<(const PlanCase& other) const {
  return std::tie(other.sizes, batch) < std::tie(sizes, other.batch);
}

std::string PlanCase::name() const {
  std::string text;
  for (const auto& [size, n] : sizes) {
    std::string word = size;  // a model may call an axis anything
    for (char& c : word) c = is_plain(c) ? c : '_';
    const bool ends_in_digit = !word.empty() && word.back() >= '0' && word.back() <= '9';
    text += cat(word, ends_in_digit ? "_" : "", n, ".");
  }
  return cat(text, "batch", batch);
}

std::vector<PlanCase> cases_of(const std::vector<int64_t>& batches,
                               const std::map<std::string, std::vector<int64_t>>& buckets) {
  std::vector<PlanCase> all;
  for (const int64_t batch : batches) all.push_back({.batch = batch});
  if (all.empty()) all.emplace_back();
  for (const auto& [name, numbers] : buckets) {
    std::vector<PlanCase> more;
    for (const PlanCase& one : all) {
      for (const int64_t n : numbers) more.emplace_back(one).sizes[name] = n;
    }
    all = std::move(more);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace tessera
