// SPDX-License-Identifier: Apache-2.0
#include "policy/observation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "ir/shape.h"
#include "policy/camera.h"

namespace tessera {
namespace {

constexpr const char* kBytes = "|u1";

constexpr const char *kPrev = "prev_actions", *kWeights = "prev_weights";

std::string shown(const Shape& shape) {
  std::string text;
  for (const int64_t n : shape) text += cat(text.empty() ? "[" : ", ", n == 0 ? std::string("any") : std::to_string(n));
  return text + "]";
}

struct Wanted {
  const char* name;
  Shape shape;  // 0: any size
};

Status check_shape(const Array& a, const Wanted& w) {
  bool fits = a.shape.size() == w.shape.size();
  for (size_t i = 0; fits && i < w.shape.size(); ++i)
    fits = w.shape[i] == 0 ? a.shape[i] > 0 : a.shape[i] == w.shape[i];
  if (fits) return {};
  return bad_input(cat("array '", w.name, "' has the shape ", to_string(a.shape), "; wanted is ", shown(w.shape)));
}

Result<std::vector<double>> finite_numbers(const Array& a) {
  std::vector<double> numbers = numbers_of(a);
  for (const double x : numbers) {
    if (!std::isfinite(x)) return bad_input(cat("array '", a.name, "' holds NaN or Inf"));
  }
  return numbers;
}

const Array* find(const std::vector<Array>& arrays, const char* name) {
  const auto it = std::find_if(arrays.begin(), arrays.end(), [&](const Array& a) { return a.name == name; });
  return it == arrays.end() ? nullptr : &*it;
}

// Real-time chunking: whether the arrays hold the chunk before, both of them or none.
Result<bool> holds_guide(const std::vector<Array>& arrays, bool wanted) {
  const bool prev = find(arrays, kPrev) != nullptr, weights = find(arrays, kWeights) != nullptr;
  if (!prev && !weights) return false;
  if (!wanted)
    return bad_input(cat("array '", prev ? kPrev : kWeights,
                         "' is for real-time chunking, which the engine has not: build it with --rtc"));
  if (prev && weights) return true;
  return bad_input(
      cat("array '", prev ? kWeights : kPrev, "' is missing: '", kPrev, "' and '", kWeights, "' come together"));
}

// The same image as [3, n, n] in [-1, 1].
std::vector<float> normalised(const Image& image) {
  const size_t pixels = static_cast<size_t>(image.height * image.width);
  std::vector<float> numbers(3 * pixels);
  for (size_t p = 0; p < pixels; ++p) {
    for (size_t c = 0; c < 3; ++c) numbers[c * pixels + p] = static_cast<float>(image.rgb[3 * p + c]) / 127.5f - 1.0f;
  }
  return numbers;
}

}  // namespace

Status Observations::take_images(const Array& a) {
  const size_t view_bytes = static_cast<size_t>(sizes_.view_bytes());
  images_.resize(static_cast<size_t>(count_ * views_) * view_bytes);
  if (a.dtype != kBytes) {
    TS_TRY(check_shape(a, {"images", {count_, 0, 3, sizes_.image, sizes_.image}}));
    if (sizes_.bytes)
      return bad_input(cat("array 'images' holds numbers (", a.dtype,
                           ") and the engine takes bytes: give u8 [b, views, h, w, 3], or build it with --images f32"));
    TS_ASSIGN(const std::vector<double> numbers, finite_numbers(a));
    const std::vector<float> f32(numbers.begin(), numbers.end());
    std::memcpy(images_.data(), f32.data(), images_.size());
    return {};
  }
  TS_TRY(check_shape(a, {"images", {count_, 0, 0, 0, 3}}));
  const int64_t height = a.shape[2], width = a.shape[3];
  TS_TRY(check_image_size(height, width));
  const size_t given = static_cast<size_t>(height * width * 3);
  for (size_t i = 0; i < static_cast<size_t>(count_ * views_); ++i) {
    const uint8_t* const from = a.data.data() + i * given;
    const Image image = fit_in_square(
        {.height = height, .width = width, .rgb = std::vector<uint8_t>(from, from + given)}, sizes_.image);
    uint8_t* const to = images_.data() + i * view_bytes;
    if (sizes_.bytes) {
      std::copy(image.rgb.begin(), image.rgb.end(), to);
    } else {
      std::memcpy(to, normalised(image).data(), view_bytes);
    }
  }
  return {};
}

Status Observations::take_numbers(const std::vector<Array>& arrays) {
  std::vector<Wanted> wanted = {{"image_valid", {count_, views_}},
                                {"tokens", {count_, 0}},
                                {"token_valid", {count_, prompt_}},
                                {"noise", {count_, sizes_.horizon, sizes_.actions}}};
  if (sizes_.state) wanted.push_back({"state", {count_, sizes_.actions}});
  TS_ASSIGN(guided_, holds_guide(arrays, sizes_.rtc));
  if (guided_) {
    wanted.push_back({kPrev, {count_, sizes_.horizon, sizes_.actions}});
    wanted.push_back({kWeights, {count_, sizes_.horizon}});
  }
  for (const Wanted& w : wanted) {
    const Array* a = find(arrays, w.name);
    if (a == nullptr) return bad_input(cat("array '", w.name, "' is missing"));
    TS_TRY(check_shape(*a, w));
    TS_ASSIGN(std::vector<double> numbers, finite_numbers(*a));
    const bool weights = std::string(w.name) == kWeights;
    for (const double x : numbers) {
      if (weights && !(x >= 0 && x <= 1))
        return bad_input(cat("array '", kWeights, "' holds ", x, "; 0 to 1 is wanted"));
    }
    arrays_.emplace_back(w.name, std::move(numbers));
  }
  return {};
}

Result<Observations> Observations::of(std::vector<Array> arrays, const PolicySizes& sizes) {
  Observations all;
  all.sizes_ = sizes;
  const Array *images = find(arrays, "images"), *tokens = find(arrays, "tokens");
  if (images == nullptr || images->shape.size() != 5 || tokens == nullptr || tokens->shape.size() != 2)
    return bad_input(
        "arrays 'images' (u8 [b, views, h, w, 3], or f32 [b, views, 3, n, n]) and 'tokens' [b, prompt] are wanted");
  all.count_ = images->shape[0], all.views_ = images->shape[1], all.prompt_ = tokens->shape[1];
  TS_TRY(all.take_images(*images));
  TS_TRY(all.take_numbers(arrays));
  return all;
}

PackedObservation seeded_observation(const PolicySizes& s, uint64_t seed) {
  uint64_t next = mix64(seed);
  const auto draw = [&] { return next = mix64(next); };
  const auto number = [&] { return static_cast<float>(draw() >> 40) * 0x1p-23f - 1; };  // -1 .. 1
  PackedObservation o;
  const size_t pixels = static_cast<size_t>(s.views * 3 * s.image * s.image);
  if (s.bytes) {
    for (size_t i = 0; i < pixels; ++i) o.images.push_back(static_cast<uint8_t>(draw() >> 56));
  } else {
    std::vector<float> f32(pixels);
    for (float& x : f32) x = number();
    o.images.resize(pixels * sizeof(float));
    std::memcpy(o.images.data(), f32.data(), o.images.size());
  }
  for (int64_t t = 0; t < s.prompt; ++t)
    o.tokens.push_back(static_cast<int64_t>(draw() % static_cast<uint64_t>(s.vocabulary)));
  for (int64_t i = 0; i < s.horizon * s.actions; ++i) o.noise.push_back(number());
  for (int64_t i = 0; s.state && i < s.actions; ++i) o.state.push_back(number());
  for (int64_t i = 0; s.rtc && i < s.horizon * s.actions; ++i) o.prev.push_back(number());
  for (int64_t i = 0; s.rtc && i < s.horizon; ++i)
    o.weights.push_back(1 - static_cast<float>(i) / static_cast<float>(s.horizon));
  o.image_rows = static_cast<int32_t>(s.views * s.patches);
  o.prefix_rows = o.image_rows + static_cast<int32_t>(s.prompt);
  for (int64_t r = 0; r < o.prefix_rows; ++r) o.rows.push_back(r);
  return o;
}

const std::vector<double>& Observations::numbers(const char* name) const {
  return std::find_if(arrays_.begin(), arrays_.end(), [&](const auto& a) { return a.first == name; })->second;
}

Result<PackedObservation> Observations::packed(int64_t index) const {
  const size_t i = static_cast<size_t>(index), view_bytes = static_cast<size_t>(sizes_.view_bytes());
  PackedObservation o;
  const std::vector<double>&seen = numbers("image_valid"), &tokens = numbers("tokens"), &valid = numbers("token_valid");
  int64_t views = 0;
  for (size_t v = 0; v < static_cast<size_t>(views_); ++v) {
    const size_t view = i * static_cast<size_t>(views_) + v;
    if (seen[view] == 0) continue;
    const auto from = images_.begin() + static_cast<std::ptrdiff_t>(view * view_bytes);
    o.images.insert(o.images.end(), from, from + static_cast<std::ptrdiff_t>(view_bytes));
    for (int64_t p = 0; p < sizes_.patches; ++p) o.rows.push_back(static_cast<int64_t>(v) * sizes_.patches + p);
    ++views;
  }
  for (size_t t = 0; t < static_cast<size_t>(prompt_); ++t) {
    const size_t token = i * static_cast<size_t>(prompt_) + t;
    if (valid[token] == 0) continue;
    // A kernel cannot tell: on a GPU such an id would be a row of zeros.
    if (!(tokens[token] >= 0 && tokens[token] < static_cast<double>(sizes_.vocabulary)))
      return bad_input(cat("array 'tokens' holds ", tokens[token], " in observation ", index, "; ids are 0 to ",
                           sizes_.vocabulary - 1));
    o.tokens.push_back(static_cast<int64_t>(tokens[token]));
    o.rows.push_back(views_ * sizes_.patches + static_cast<int64_t>(t));
  }
  const int64_t words = static_cast<int64_t>(o.tokens.size());
  if (views > sizes_.views || words > sizes_.prompt)
    return bad_input(cat("observation ", index, " has ", views, " views and ", words, " tokens; the engine takes ",
                         sizes_.views, " and ", sizes_.prompt, " at most: build it with --views ",
                         std::max(views, sizes_.views), " --prompt ", std::max(words, sizes_.prompt)));
  if (views == 0 && words == 0) return bad_input(cat("observation ", index, " has no view and no token that is valid"));
  o.image_rows = static_cast<int32_t>(views * sizes_.patches);
  o.prefix_rows = o.image_rows + static_cast<int32_t>(words);
  o.images.resize(view_bytes * static_cast<size_t>(sizes_.views));
  o.tokens.resize(static_cast<size_t>(sizes_.prompt));
  const auto take = [&](const char* name, size_t size, std::vector<float>& into) {
    const auto from = numbers(name).begin() + static_cast<std::ptrdiff_t>(i * size);
    into.assign(from, from + static_cast<std::ptrdiff_t>(size));
  };
  take("noise", static_cast<size_t>(sizes_.horizon * sizes_.actions), o.noise);
  if (sizes_.state) take("state", static_cast<size_t>(sizes_.actions), o.state);
  if (guided_) {
    take(kPrev, o.noise.size(), o.prev);
    take(kWeights, static_cast<size_t>(sizes_.horizon), o.weights);
  } else if (sizes_.rtc) {
    o.prev.assign(o.noise.size(), 0.0f), o.weights.assign(static_cast<size_t>(sizes_.horizon), 0.0f);
  }
  return o;
}

}  // namespace tessera
