// SPDX-License-Identifier: Apache-2.0
#include "policy/observation.h"

#include <algorithm>
#include <cmath>

#include "ir/shape.h"

namespace tessera {
namespace {

struct Wanted {
  const char* name;
  Shape shape;  // 0: any size
};

Status check_shape(const Array& a, const Wanted& w) {
  bool fits = a.shape.size() == w.shape.size();
  for (size_t i = 0; fits && i < w.shape.size(); ++i)
    fits = w.shape[i] == 0 ? a.shape[i] > 0 : a.shape[i] == w.shape[i];
  if (fits) return {};
  std::string shape;
  for (const int64_t n : w.shape)
    shape += cat(shape.empty() ? "[" : ", ", n == 0 ? std::string("any") : std::to_string(n));
  return bad_input(cat("array '", w.name, "' has the shape ", to_string(a.shape), "; wanted is ", shape, "]"));
}

}  // namespace

Result<Observations> Observations::of(std::vector<Array> arrays, const PolicySizes& sizes) {
  Observations all;
  all.sizes_ = sizes;
  const auto find = [&](const char* name) -> const Array* {
    const auto it = std::find_if(arrays.begin(), arrays.end(), [&](const Array& a) { return a.name == name; });
    return it == arrays.end() ? nullptr : &*it;
  };
  const Array *images = find("images"), *tokens = find("tokens");
  if (images == nullptr || images->shape.size() != 5 || tokens == nullptr || tokens->shape.size() != 2)
    return bad_input("arrays 'images' [b, views, 3, n, n] and 'tokens' [b, prompt] are wanted");
  const int64_t b = images->shape[0], views = images->shape[1], prompt = tokens->shape[1], n = sizes.image;
  std::vector<Wanted> wanted = {{"images", {b, 0, 3, n, n}},
                                {"image_valid", {b, views}},
                                {"tokens", {b, 0}},
                                {"token_valid", {b, prompt}},
                                {"noise", {b, sizes.horizon, sizes.actions}}};
  if (sizes.state) wanted.push_back({"state", {b, sizes.actions}});
  for (const Wanted& w : wanted) {
    const Array* a = find(w.name);
    if (a == nullptr) return bad_input(cat("array '", w.name, "' is missing"));
    TS_TRY(check_shape(*a, w));
    std::vector<double> numbers = numbers_of(*a);
    for (const double x : numbers) {
      if (!std::isfinite(x)) return bad_input(cat("array '", w.name, "' holds NaN or Inf"));
    }
    all.arrays_.emplace_back(w.name, std::move(numbers));
  }
  all.count_ = b, all.views_ = views, all.prompt_ = prompt;
  return all;
}

const std::vector<double>& Observations::numbers(const char* name) const {
  return std::find_if(arrays_.begin(), arrays_.end(), [&](const auto& a) { return a.first == name; })->second;
}

Result<PackedObservation> Observations::packed(int64_t index) const {
  const size_t i = static_cast<size_t>(index), pixels = static_cast<size_t>(3 * sizes_.image * sizes_.image);
  PackedObservation o;
  const std::vector<double>&images = numbers("images"), &seen = numbers("image_valid"), &tokens = numbers("tokens"),
        &valid = numbers("token_valid");
  int64_t views = 0;
  for (size_t v = 0; v < static_cast<size_t>(views_); ++v) {
    const size_t view = i * static_cast<size_t>(views_) + v;
    if (seen[view] == 0) continue;
    const auto from = images.begin() + static_cast<std::ptrdiff_t>(view * pixels);
    o.images.insert(o.images.end(), from, from + static_cast<std::ptrdiff_t>(pixels));
    for (int64_t p = 0; p < sizes_.patches; ++p) o.rows.push_back(static_cast<int64_t>(v) * sizes_.patches + p);
    ++views;
  }
  for (size_t t = 0; t < static_cast<size_t>(prompt_); ++t) {
    const size_t token = i * static_cast<size_t>(prompt_) + t;
    if (valid[token] == 0) continue;
    o.tokens.push_back(static_cast<int64_t>(tokens[token]));
    o.rows.push_back(views_ * sizes_.patches + static_cast<int64_t>(t));
  }
  const int64_t words = static_cast<int64_t>(o.tokens.size());
  if (views > sizes_.views || words > sizes_.prompt)
    return bad_input(cat("observation ", index, " has ", views, " views and ", words, " tokens; the engine takes ",
                         sizes_.views, " and ", sizes_.prompt, " at most: build it with --size views=", views,
                         " --size prompt=", words));
  if (views == 0 && words == 0) return bad_input(cat("observation ", index, " has no view and no token that is valid"));
  o.image_rows = static_cast<int32_t>(views * sizes_.patches);
  o.prefix_rows = o.image_rows + static_cast<int32_t>(words);
  o.images.resize(pixels * static_cast<size_t>(sizes_.views));
  o.tokens.resize(static_cast<size_t>(sizes_.prompt));
  const auto take = [&](const char* name, size_t size, std::vector<float>& into) {
    const auto from = numbers(name).begin() + static_cast<std::ptrdiff_t>(i * size);
    into.assign(from, from + static_cast<std::ptrdiff_t>(size));
  };
  take("noise", static_cast<size_t>(sizes_.horizon * sizes_.actions), o.noise);
  if (sizes_.state) take("state", static_cast<size_t>(sizes_.actions), o.state);
  return o;
}

}  // namespace tessera
