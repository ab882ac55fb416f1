// SPDX-License-Identifier: Apache-2.0
#include "ir/ranges.h"

#include <charconv>
#include <cmath>

namespace tessera {

std::string to_string(const RangeMethod& method) {
  if (method.kind == RangeMethod::kAmax) return "amax";
  return method.kind == RangeMethod::kMse ? "mse" : cat("percentile=", method.percent);
}

Result<RangeMethod> parse_range_method(std::string_view text) {
  if (text == "amax") return RangeMethod{RangeMethod::kAmax};
  if (text == "mse") return RangeMethod{RangeMethod::kMse};
  if (text == "percentile") return RangeMethod{RangeMethod::kPercentile};
  constexpr std::string_view kPrefix = "percentile=";
  if (text.starts_with(kPrefix)) {
    const std::string_view number = text.substr(kPrefix.size());
    RangeMethod method{RangeMethod::kPercentile};
    const char* end = number.data() + number.size();
    const auto [rest, error] = std::from_chars(number.data(), end, method.percent, std::chars_format::fixed);
    if (error != std::errc() || rest != end || !(method.percent >= 50 && method.percent < 100) || number.size() > 7)
      return usage_error(cat("'", text, "': wanted a percentile from 50 to below 100, as percentile=99.99"));
    return method;
  }
  return usage_error(cat("'", text, "' is no way to choose ranges; there are amax, percentile, percentile=99.9, mse"));
}

std::optional<float> Ranges::clip(const std::string& value, Element element) const {
  const auto found = values.find(value);
  if (found == values.end()) return {};
  const ValueRange& range = found->second;
  if (range.by_hand) return range.by_hand;
  if (method.kind == RangeMethod::kAmax || !std::isfinite(range.amax)) return range.amax;
  if (method.kind == RangeMethod::kMse) {
    const auto best = range.mse.find(element);
    return best == range.mse.end() ? std::nullopt : std::optional(best->second);
  }
  const auto at = range.percentiles.find(method.percent);
  return at == range.percentiles.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace tessera
