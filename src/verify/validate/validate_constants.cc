// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/validate_constants.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/parallel.h"
#include "base/status.h"
#include "op/reference.h"
#include "types/quantize_array.h"
#include "verify/validate/explain_weight.h"
#include "verify/validate/scale_of.h"

namespace tessera {
namespace {

constexpr int64_t kPart = 4096;
// x / (scale * scale2) in fp32: three roundings, of which one may be of a subnormal product.
constexpr double kQuotient = 0x1p-22;
// Sums in f64 of another order, as a share of the largest number.
constexpr double kReordered = 0x1p-40;
// More than so many of a constant's numbers: all of it is looked at for a cause.
constexpr double kMany = 0.03;

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", x);
  return text;
}

int64_t cols_of(const Counterpart& c) { return c.shape.empty() ? 1 : std::max<int64_t>(1, c.shape.back()); }

double largest(const std::vector<double>& numbers) {
  double most = 0;
  for (double x : numbers) most = std::isfinite(x) ? std::max(most, std::fabs(x)) : most;
  return most;
}

// The codes that numbers round to, as numbers. At most kPart of them.
void round_codes(const ElementInfo& element, std::vector<double>& x) {
  uint8_t codes[kPart * 8];
  for (double& v : x) v = std::clamp(v, -element.max, element.max);
  element.encode_f64(x.data(), static_cast<int64_t>(x.size()), codes, 0);
  element.decode_f64(codes, 0, static_cast<int64_t>(x.size()), x.data());
}

class Fitting {
 public:
  Fitting(const TensorView& stored, const Counterpart& model)
      : model_(model),
        element_(info(stored.desc->type.element)),
        scaled_(stored.desc->type.scaled()),
        scales_(stored),
        codes_(decode_codes(stored)) {
    spread_ = model.derived ? kReordered * largest(model.numbers) : 0;
  }

  // Of a part of at most kPart numbers: those whose code is another than the nearest.
  std::vector<int64_t> misfits(int64_t begin, int64_t end) const {
    const size_t n = static_cast<size_t>(end - begin);
    std::vector<double> low(n), high(n);
    for (size_t i = 0; i < n; ++i) {
      const double s = scaled_ ? scales_.at(begin + static_cast<int64_t>(i)) : 1,
                   w = model_.numbers[static_cast<size_t>(begin) + i];
      const double e = (scaled_ || model_.derived ? kQuotient * std::fabs(w) : 0) + spread_;
      low[i] = (w - e) / s, high[i] = (w + e) / s;
    }
    round_codes(element_, low), round_codes(element_, high);
    std::vector<int64_t> found;
    for (size_t i = 0; i < n; ++i) {
      const double c = codes_[static_cast<size_t>(begin) + i];
      const double w = model_.numbers[static_cast<size_t>(begin) + i];
      const bool same = !scaled_ && (c == w || (std::isnan(c) && std::isnan(w)));  // infinities too
      if (!same && !(low[i] <= c && c <= high[i])) found.push_back(begin + static_cast<int64_t>(i));
    }
    return found;
  }

 private:
  const Counterpart& model_;
  const ElementInfo& element_;
  const bool scaled_;
  const ScaleOf scales_;
  const std::vector<float> codes_;
  double spread_ = 0;
};

// Indices of numbers that do not fit, in order.
std::vector<int64_t> all_misfits(const TensorView& stored, const Counterpart& model) {
  const int64_t n = static_cast<int64_t>(model.numbers.size());
  std::vector<std::vector<int64_t>> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  const auto each = [&](const auto& body) {
    parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        parts[static_cast<size_t>(p)] = body(p * kPart, std::min(n, (p + 1) * kPart));
    });
  };
  if (model.rounded) {
    const Dense got = decode(stored);
    each([&](int64_t begin, int64_t end) {
      std::vector<int64_t> found;
      for (int64_t i = begin; i < end; ++i) {
        if (got.v[static_cast<size_t>(i)] != model.numbers[static_cast<size_t>(i)]) found.push_back(i);
      }
      return found;
    });
  } else {
    const Fitting fitting(stored, model);
    each([&](int64_t begin, int64_t end) { return fitting.misfits(begin, end); });
  }
  std::vector<int64_t> all;
  for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

// Two rows of the model that are stored in each other's place.
std::string swapped_rows(const TensorView& stored, const Counterpart& model, const std::vector<int64_t>& found) {
  const int64_t cols = cols_of(model);
  std::set<int64_t> rows;
  for (int64_t i : found) rows.insert(i / cols);
  if (rows.size() != 2 || cols < 2 || model.rounded) return "";
  const int64_t a = *rows.begin(), b = *rows.rbegin();
  Counterpart turned = model;
  std::swap_ranges(turned.numbers.begin() + a * cols, turned.numbers.begin() + (a + 1) * cols,
                   turned.numbers.begin() + b * cols);
  // Their scales may have stayed behind: then the rows are only alike.
  const Dense got = decode(stored);
  double off = 0, size = 0;
  for (const int64_t row : {a, b}) {
    for (size_t i = static_cast<size_t>(row * cols); i < static_cast<size_t>((row + 1) * cols); ++i)
      off += (got.v[i] - turned.numbers[i]) * (got.v[i] - turned.numbers[i]),
          size += turned.numbers[i] * turned.numbers[i];
  }
  return size > 0 && off < 0.1 * size ? cat("rows ", a, " and ", b, " of its ", model.what, " are swapped") : "";
}

std::string place_of(const Counterpart& model, int64_t i) {
  if (model.shape.size() < 2) return cat(model.what, " ", i);
  return cat(model.what, " [", i / cols_of(model), ",", i % cols_of(model), "]");
}

// Scales of one level that are not those of their numbers, whose largest magnitudes are `amax` under each.
std::string wrong_scale(const QuantType& type, const std::vector<double>& amax, const void* scale2,
                        const std::vector<double>& stored, const std::string& what) {
  QuantType alone = type;  // each magnitude under a scale of its own
  alone.scale.granularity = Granularity::kBlock, alone.scale.block = 1;
  const int64_t count = static_cast<int64_t>(amax.size());
  const auto made = [&](double factor) {
    std::vector<float> x(amax.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(amax[i] * factor);
    Buffer codes(static_cast<size_t>(packed_bytes(type.scale.element, count)));
    std::vector<double> scales(amax.size());
    make_scales(alone, x.data(), 1, count, scale2, codes.data());
    info(type.scale.element).decode_f64(codes.data(), 0, count, scales.data());
    return scales;
  };
  const std::vector<double> low = made(1 - kQuotient), high = made(1 + kQuotient);
  for (size_t i = 0; i < stored.size(); ++i) {
    if (low[i] <= stored[i] && stored[i] <= high[i]) continue;
    return cat("scale ", i, " of its ", what, " is ", brief(stored[i]), ", its numbers ask for ", brief(high[i]));
  }
  return "";
}

std::string wrong_scales(const TensorView& t, const Counterpart& model) {
  const QuantType& type = t.desc->type;
  if (!type.scaled() || model.rounded || !check_quantizable(type).ok()) return "";
  const int64_t cols = cols_of(model), rows = static_cast<int64_t>(model.numbers.size()) / cols;
  const std::vector<double> first = first_scales(t), second = second_scales(t);
  if (!second.empty()) {
    const double amax = largest(model.numbers);
    const auto made = [&](double factor) {
      const float x = static_cast<float>(amax * factor);
      float scale2 = 0;
      make_scale2(type, &x, 1, 1, &scale2);
      return static_cast<double>(scale2);
    };
    if (!(made(1 - kQuotient) <= second[0] && second[0] <= made(1 + kQuotient)))
      return cat("the global scale of its ", model.what, " is ", brief(second[0]), ", its numbers ask for ",
                 brief(made(1)));
  }
  std::vector<double> amax(first.size(), 0.0);
  for (int64_t i = 0; i < rows * cols; ++i) {
    double& most = amax[static_cast<size_t>(scale_index(type.scale, i / cols, i % cols, cols))];
    most = std::max(most, std::fabs(model.numbers[static_cast<size_t>(i)]));
  }
  return wrong_scale(type, amax, t.scale2, first, model.what);
}

}  // namespace

std::string misfit(const TensorView& stored, const Counterpart& model) {
  if (stored.desc->shape != model.shape)
    return cat("its ", model.what, " is ", to_string(stored.desc->shape), ", the model's ", to_string(model.shape));
  const std::vector<int64_t> found = all_misfits(stored, model);
  if (found.empty()) return wrong_scales(stored, model);
  if (const std::string rows = swapped_rows(stored, model, found); !rows.empty()) return rows;
  const double share = static_cast<double>(found.size()) / static_cast<double>(model.numbers.size());
  if (share > kMany && model.numbers.size() >= 64) return explain_weight(stored, model.numbers, model.what, share);
  const size_t first = static_cast<size_t>(found[0]);
  const std::string more =
      found.size() > 1 ? cat(" (", found.size() - 1, " more of ", model.numbers.size(), " are off)") : "";
  return cat(place_of(model, found[0]), " is stored as ", brief(decode(stored).v[first]), ", the model has ",
             brief(model.numbers[first]), more);
}

}  // namespace tessera
