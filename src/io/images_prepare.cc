// SPDX-License-Identifier: Apache-2.0
#include "io/images_prepare.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {

constexpr int64_t kLargestSide = 16384;
constexpr int kFraction = 22;  // bits of the weights: 8 of the pixel and 2 of headroom fill up 32

double triangle(double x) { return std::max(0.0, 1 - std::fabs(x)); }
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// Weights of the input pixels from `first` on that make up one output pixel.
struct Window {
  int64_t first;
  std::vector<int32_t> weight;
};

std::vector<Window> windows(int64_t from, int64_t to, bool bicubic) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), wide = std::max(scale, 1.0);
  const double reach = (bicubic ? 2 : 1) * wide;
  std::vector<Window> all;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(centre - reach + 0.5));
    const int64_t last = std::min<int64_t>(from, static_cast<int64_t>(centre + reach + 0.5));
    std::vector<double> exact;
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      const double t = (static_cast<double>(x) - centre + 0.5) * (1 / wide);
      exact.push_back(bicubic ? cubic(t) : triangle(t));
      sum += exact.back();
    }
    Window w{first, {}};
    for (const double e : exact) {
      const double fixed = (sum != 0 ? e * (1 / sum) : e) * (1 << kFraction);
      w.weight.push_back(static_cast<int32_t>(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
    }
    all.push_back(std::move(w));
  }
  return all;
}

uint8_t to_pixel(int64_t sum) { return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kFraction, 0, 255)); }

Image resize_rows(const Image& in, int64_t width, bool bicubic) {
  Image out{in.height, width, std::vector<uint8_t>(static_cast<size_t>(in.height * width * 3))};
  const std::vector<Window> all = windows(in.width, width, bicubic);
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* row = in.rgb.data() + y * in.width * 3;
    uint8_t* to = out.rgb.data() + y * width * 3;
    for (const Window& w : all) {
      int64_t sum[3] = {1 << (kFraction - 1), 1 << (kFraction - 1), 1 << (kFraction - 1)};
      const uint8_t* pixel = row + w.first * 3;
      for (const int32_t weight : w.weight) {
        for (int c = 0; c < 3; ++c) sum[c] += int64_t{*pixel++} * weight;
      }
      for (int c = 0; c < 3; ++c) *to++ = to_pixel(sum[c]);
    }
  }
  return out;
}

Image resize_columns(const Image& in, int64_t height, bool bicubic) {
  const int64_t stride = in.width * 3;
  Image out{height, in.width, std::vector<uint8_t>(static_cast<size_t>(height * stride))};
  const std::vector<Window> all = windows(in.height, height, bicubic);
  std::vector<int64_t> sums(static_cast<size_t>(stride));
  for (int64_t y = 0; y < height; ++y) {
    const Window& w = all[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), int64_t{1} << (kFraction - 1));
    for (size_t k = 0; k < w.weight.size(); ++k) {
      const uint8_t* row = in.rgb.data() + (w.first + static_cast<int64_t>(k)) * stride;
      for (int64_t x = 0; x < stride; ++x) sums[static_cast<size_t>(x)] += int64_t{row[x]} * w.weight[k];
    }
    for (int64_t x = 0; x < stride; ++x)
      out.rgb[static_cast<size_t>(y * stride + x)] = to_pixel(sums[static_cast<size_t>(x)]);
  }
  return out;
}

// (side - wanted) / 2, halves to even.
int64_t middle(int64_t side, int64_t wanted) {
  const int64_t spare = side - wanted;
  return spare / 2 + (spare % 2 != 0 && (spare / 2) % 2 != 0 ? 1 : 0);
}

Image cut(const Image& in, int64_t height, int64_t width) {
  const int64_t top = middle(in.height, height), left = middle(in.width, width);
  Image out{height, width, {}};
  out.rgb.reserve(static_cast<size_t>(height * width * 3));
  for (int64_t y = 0; y < height; ++y) {
    const auto row = in.rgb.begin() + ((top + y) * in.width + left) * 3;
    out.rgb.insert(out.rgb.end(), row, row + width * 3);
  }
  return out;
}

bool read_side(const std::string& text, int64_t& side) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, side);
  return error == std::errc() && rest == end && !text.empty() && side >= 1 && side <= kLargestSide;
}

// One number for all three, or one for each.
bool read_three(const std::string& text, std::array<double, 3>& out) {
  std::vector<double> numbers;
  if (!read_channels(text, 3, numbers) || numbers.size() == 2) return false;
  for (size_t c = 0; c < 3; ++c) out[c] = numbers[numbers.size() == 1 ? 0 : c];
  return true;
}

std::string three_text(const std::array<double, 3>& numbers) { return channels_text({numbers.begin(), numbers.end()}); }

Status wrong(const std::string& part, const char* wanted) {
  return usage_error(cat("--preprocess '", part.substr(0, 80), "': wanted ", wanted));
}

Status read_part(const std::string& part, Preprocess& p) {
  const size_t equals = std::min(part.find('='), part.size());
  const std::string key = part.substr(0, equals), value = equals < part.size() ? part.substr(equals + 1) : "";
  if (key == "size") {
    const std::vector<std::string> sides = split(value, 'x');
    if (sides.size() > 2 || !read_side(sides[0], p.height) || !read_side(sides.back(), p.width))
      return wrong(part, "size=224 or size=HEIGHTxWIDTH, sides from 1 to 16384");
  } else if (key == "mean") {
    if (!read_three(value, p.mean)) return wrong(part, "mean=0.5 or mean=R:G:B, of pixels from 0 to 1");
  } else if (key == "std") {
    if (!read_three(value, p.std) || *std::min_element(p.std.begin(), p.std.end()) < 1e-6)
      return wrong(part, "std=0.5 or std=R:G:B, above zero");
  } else if (key == "layout") {
    if (value != "nchw" && value != "nhwc") return wrong(part, "layout=nchw or layout=nhwc");
    p.channels_first = value == "nchw";
  } else if (key == "fit") {
    if (value != "crop" && value != "stretch") return wrong(part, "fit=crop or fit=stretch");
    p.crop = value == "crop";
  } else if (key == "resize") {
    if (!read_side(value, p.resize)) return wrong(part, "resize=N, the shorter side before the crop, from 1 to 16384");
  } else if (key == "filter") {
    if (value != "bilinear" && value != "bicubic") return wrong(part, "filter=bilinear or filter=bicubic");
    p.bicubic = value == "bicubic";
  } else {
    return wrong(part, "one of size=, mean=, std=, layout=, fit=, resize=, filter=, with commas between them");
  }
  return {};
}

}  // namespace

Result<Preprocess> parse_preprocess(const std::string& text) {
  Preprocess p;
  std::vector<std::string> seen;
  for (const std::string& part : split(text, ',')) {
    TS_TRY(read_part(part, p));
    const std::string key = part.substr(0, part.find('='));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return wrong(part, cat(key, " only once").c_str());
    seen.push_back(key);
  }
  if (p.height == 0) return wrong(text, "a size=, as in size=224x224,mean=0.5:0.5:0.5,std=0.5:0.5:0.5,layout=nchw");
  if (p.resize != 0 && !p.crop) return wrong(text, "no resize= with fit=stretch, which goes to the size at once");
  if (p.resize != 0 && p.resize < std::max(p.height, p.width))
    return wrong(text, "a resize= of at least both sides of size=: the crop is cut out of it");
  return p;
}

std::string to_string(const Preprocess& p) {
  return cat("size=", p.height, "x", p.width, ",mean=", three_text(p.mean), ",std=", three_text(p.std),
             ",layout=", p.channels_first ? "nchw" : "nhwc", ",fit=", p.crop ? "crop" : "stretch",
             p.resize != 0 ? cat(",resize=", p.resize) : "", ",filter=", p.bicubic ? "bicubic" : "bilinear");
}

bool says_numbers(const std::string& text) {
  const std::vector<std::string> parts = split(text, ',');
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.starts_with("mean=") || part.starts_with("std=") || part.starts_with("layout=");
  });
}

Image resize_image(const Image& image, int64_t height, int64_t width, bool bicubic) {
  if (width == image.width) return height == image.height ? image : resize_columns(image, height, bicubic);
  const Image rows = resize_rows(image, width, bicubic);
  return height == image.height ? rows : resize_columns(rows, height, bicubic);
}

Result<Image> fit_image(const Image& image, const Preprocess& p) {
  int64_t height = p.height, width = p.width;
  if (p.crop) {
    // The shorter side is `resize`; without it, the least extents in proportion that cover the crop.
    const bool upright = image.height >= image.width;
    const int64_t shorter = upright ? image.width : image.height, longer = upright ? image.height : image.width;
    int64_t side = p.resize != 0 ? p.resize : upright ? p.width : p.height;
    const int64_t along = upright ? p.height : p.width;
    while (p.resize == 0 && side * longer / shorter < along) ++side;
    const int64_t other = side * longer / shorter;
    height = upright ? other : side, width = upright ? side : other;
    TS_TRY(check_image_size(height, width).at("resized"));
  }
  const Image fitted = resize_image(image, height, width, p.bicubic);
  return p.crop ? cut(fitted, p.height, p.width) : fitted;
}

Result<std::vector<float>> prepare_image(const Image& image, const Preprocess& p) {
  TS_ASSIGN(const Image fitted, fit_image(image, p));
  const int64_t pixels = p.height * p.width;
  std::vector<float> out(static_cast<size_t>(pixels * 3));
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      const auto channel = static_cast<size_t>(c);
      out[static_cast<size_t>(p.channels_first ? c * pixels + i : i * 3 + c)] =
          pixel_number(fitted.rgb[static_cast<size_t>(i * 3 + c)], p.mean[channel], p.std[channel]);
    }
  }
  return out;
}

}  // namespace tessera
