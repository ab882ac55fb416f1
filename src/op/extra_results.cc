// SPDX-License-Identifier: Apache-2.0
#include "op/extra_results.h"

#include <algorithm>
#include <cmath>

#include "steps/step.h"

namespace tessera {
namespace {

constexpr size_t kWords = 5;
constexpr int64_t kMost = int64_t{1} << 31;  // what KeptRows counts

// Calls body(element of the tensor, element of y) for each number that is replaced.
template <class Body>
void for_each_kept(const Problem& p, const KeptColumns& kept, std::span<const Dense> in, int64_t cols,
                   const Body& body) {
  const KeptRows k = kept_rows(p, kept);
  for (int item = 0; item < k.batch; ++item) {
    double number = 0;
    if (kept.at >= 0) {
      const std::vector<double>& at = in[static_cast<size_t>(kept.at)].v;
      number = at[at.size() > 1 ? static_cast<size_t>(item) : 0];
    }
    const int first = k.first_row(static_cast<int>(number));
    for (int t = 0; t < k.tokens; ++t) {
      for (int c = 0; c < kept.count; ++c)
        body(static_cast<size_t>(k.index(item, first + t, c)),
             static_cast<size_t>((int64_t{item} * k.tokens + t) * cols + kept.first + c));
    }
  }
}

Status check_one(const Problem& p, const KeptColumns& kept, const Shape& y) {
  const Operand* before = kept.before < 0 ? nullptr : p.operand(static_cast<size_t>(kept.before));
  const Operand* at = kept.at < 0 ? nullptr : p.operand(static_cast<size_t>(kept.at));
  if (before == nullptr || (kept.at >= 0 && at == nullptr)) return bad_input("an operand is not there");
  const Shape& s = before->shape;
  const int64_t cols = y.empty() ? 0 : y.back();
  if (kept.first < 0 || kept.count < 1 || kept.first > cols || kept.count > cols - kept.first)
    return bad_input(
        cat("wants columns inside the result's ", cols, ", has ", kept.count, " from ", kept.first, " on"));
  if (kept.axis < 1 || kept.axis >= static_cast<int64_t>(s.size()) || s[0] < 1)
    return bad_input(cat("wants rows along an axis behind the batch, ", kept.axis, " of ", to_string(s), " is none"));
  if (std::any_of(s.begin(), s.end(), [](int64_t d) { return d >= kMost; }))
    return bad_input(cat(to_string(s), " has an axis of 2^31 or more"));
  const int64_t extent = s[static_cast<size_t>(kept.axis)], rows = cols == 0 ? 0 : elements(y) / cols;
  if (extent < 1 || elements(s) != s[0] * extent * kept.count)
    return bad_input(cat("a row of ", to_string(s), " along axis ", kept.axis, " is not ", kept.count, " columns"));
  if (rows % s[0] != 0 || rows / s[0] > extent)
    return bad_input(cat(rows, " rows do not fit ", s[0], " times ", extent));
  if (at != nullptr && (at->type != QuantType(Element::i32) || (at->shape != Shape{1} && at->shape != Shape{s[0]})))
    return bad_input(
        cat("the first row is ", to_string(at->type), to_string(at->shape), ", wanted i32 [1] or [", s[0], "]"));
  return {};
}

// Null: the result is made of y as it is.
const Dense* gain_of(const Problem& p, size_t result, std::span<const Dense> in) {
  const ExtraResults extra = ExtraResults::of(p.attrs);
  const bool has_gain = extra.gain > 0 && static_cast<int>(result) == extra.codes;
  return has_gain ? &in[static_cast<size_t>(extra.gain)] : nullptr;
}

}  // namespace

ExtraResults ExtraResults::of(const Attrs& attrs) {
  ExtraResults b;
  int results = 1;
  if (attrs.integer(kCodesResult) != 0) b.codes = results++;
  if (attrs.integer(kMomentsResult) != 0) b.moments = results++;
  if (attrs.has(kKeptResults)) b.kept = results;
  if (b.codes > 0) b.gain = static_cast<int>(attrs.integer(kCodesGain));
  return b;
}

std::vector<KeptColumns> kept_columns(const Attrs& attrs) {
  std::vector<KeptColumns> all;
  const std::vector<int64_t> words = attrs.list(kKeptResults);
  for (size_t i = 0; i + kWords <= words.size(); i += kWords)
    all.push_back(
        {words[i], words[i + 1], words[i + 2], static_cast<int>(words[i + 3]), static_cast<int>(words[i + 4])});
  return all;
}

void set_kept_columns(Attrs& attrs, const std::vector<KeptColumns>& all) {
  std::vector<int64_t> words;
  for (const KeptColumns& k : all) words.insert(words.end(), {k.first, k.count, k.axis, k.before, k.at});
  attrs.set(kKeptResults, words);
}

KeptRows kept_rows(const Problem& p, const KeptColumns& kept) {
  const Shape& s = p.in[static_cast<size_t>(kept.before)].shape;
  const Shape& y = p.out[0].shape;
  KeptRows k{.batch = static_cast<int>(s[0]), .rows = static_cast<int>(s[static_cast<size_t>(kept.axis)])};
  for (size_t a = 1; a < s.size(); ++a) {
    if (static_cast<int64_t>(a) < kept.axis) k.outer *= static_cast<int>(s[a]);
    if (static_cast<int64_t>(a) > kept.axis) k.run *= static_cast<int>(s[a]);
  }
  k.tokens = static_cast<int>(elements(y) / std::max<int64_t>(1, y.back()) / k.batch);
  return k;
}

Dense kept_result(const Problem& p, const KeptColumns& kept, std::span<const Dense> in, const Dense& y) {
  Dense made = in[static_cast<size_t>(kept.before)];
  for_each_kept(p, kept, in, y.shape.back(), [&](size_t to, size_t from) { made.v[to] = y.v[from]; });
  return made;
}

// As a copy: the product of a code with its scale is rounded once in f32.
std::vector<double> kept_result_errors(const Problem& p, const KeptColumns& kept, std::span<const Dense> in,
                                       const std::vector<double>& errors) {
  const Dense& before = in[static_cast<size_t>(kept.before)];
  std::vector<double> e(before.v.size(), 0.0);
  if (p.in[static_cast<size_t>(kept.before)].type.scaled())
    std::transform(before.v.begin(), before.v.end(), e.begin(), [](double v) { return 0x1p-24 * std::fabs(v); });
  for_each_kept(p, kept, in, p.out[0].shape.back(), [&](size_t to, size_t from) { e[to] = errors[from]; });
  return e;
}

Status check_kept(const Problem& p, const Shape& y) {
  if (!p.attrs.has(kKeptResults)) return {};
  const std::vector<int64_t> words = p.attrs.list(kKeptResults);
  if (words.empty() || words.size() % kWords != 0)
    return bad_input(cat("kept has ", words.size(), " numbers; five for each result are wanted"));
  for (const int64_t w : words) {
    if (w < -1 || w >= kMost) return bad_input(cat("kept: ", w, " is no column and no operand"));
  }
  for (const KeptColumns& kept : kept_columns(p.attrs)) TS_TRY(check_one(p, kept, y).at("kept"));
  return {};
}

Dense made_of(const Problem& problem, size_t result, std::span<const Dense> in, const Dense& first) {
  const Dense* gain = gain_of(problem, result, in);
  Dense made = first;
  for (size_t i = 0; gain != nullptr && i < made.v.size(); ++i) made.v[i] *= gain->v[i % gain->v.size()];
  return made;
}

std::vector<double> errors_made_of(const Problem& problem, size_t result, std::span<const Dense> in, const Dense& first,
                                   std::vector<double> errors) {
  const Dense* gain = gain_of(problem, result, in);
  for (size_t i = 0; gain != nullptr && i < errors.size(); ++i) {
    const double g = std::fabs(gain->v[i % gain->v.size()]);
    errors[i] = errors[i] * g + 2 * kFp32Unit * g * std::fabs(first.v[i]);
  }
  return errors;
}

}  // namespace tessera
