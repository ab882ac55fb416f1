// SPDX-License-Identifier: Apache-2.0
#include "io/images_prepare.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {

// Of pixels from 0 to 1 no mean and no deviation comes near this; of pixels from 0 to 255 both lie far beyond.
constexpr double kLargest = 4;
constexpr double kSmallestStd = 1e-6;
constexpr size_t kMostChannels = 4;

Status wrong(const std::string& part, const char* wanted) {
  return usage_error(cat("'", part.substr(0, 80), "': wanted ", wanted));
}

Status read_part(const std::string& part, Pixels& p) {
  const size_t equals = std::min(part.find('='), part.size());
  const std::string key = part.substr(0, equals), value = equals < part.size() ? part.substr(equals + 1) : "";
  const auto large = [](double x) { return std::fabs(x) > kLargest; };
  if (key == "mean") {
    if (!read_channels(value, kMostChannels, p.mean) || std::any_of(p.mean.begin(), p.mean.end(), large))
      return wrong(part, "mean=0.5 or mean=R:G:B, of pixels from 0 to 1 (a mean of 123.7 of 255 is 0.485)");
  } else if (key == "std") {
    if (!read_channels(value, kMostChannels, p.std) || std::any_of(p.std.begin(), p.std.end(), large) ||
        *std::min_element(p.std.begin(), p.std.end()) < kSmallestStd)
      return wrong(part, "std=0.5 or std=R:G:B, above zero, of pixels from 0 to 1 (58.4 of 255 is 0.229)");
  } else if (key == "layout") {
    if (value != "nchw" && value != "nhwc") return wrong(part, "layout=nchw or layout=nhwc, as the model has it");
    p.layout = value == "nchw" ? ImageLayout::kChannelsFirst : ImageLayout::kChannelsLast;
  } else {
    return wrong(part, "one of mean=, std=, layout=, with commas between them");
  }
  return {};
}

}  // namespace

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool read_channels(const std::string& text, size_t most, std::vector<double>& numbers) {
  const std::vector<std::string> words = split(text, ':');
  if (words.size() > most) return false;
  std::vector<double> read;
  for (const std::string& word : words) {
    const char* end = word.data() + word.size();
    double x = 0;
    const auto [rest, error] = std::from_chars(word.data(), end, x);
    if (error != std::errc() || rest != end || word.empty() || !(std::fabs(x) <= 1e6)) return false;
    read.push_back(x);
  }
  numbers = std::move(read);
  return true;
}

std::string channels_text(const std::vector<double>& numbers) {
  std::string out;
  for (const double x : numbers) {
    char text[32];
    out += (out.empty() ? "" : ":") + std::string(text, std::to_chars(text, text + sizeof(text), x).ptr);
  }
  return out;
}

Result<Pixels> parse_pixels(const std::string& text) {
  Pixels p;
  std::vector<std::string> seen;
  for (const std::string& part : split(text, ',')) {
    TS_TRY(read_part(part, p));
    const std::string key = part.substr(0, part.find('='));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return wrong(part, cat(key, "= only once").c_str());
    seen.push_back(key);
  }
  return p;
}

std::string to_string(const Pixels& p) {
  const char* const layout = p.layout == ImageLayout::kUnsaid          ? ""
                             : p.layout == ImageLayout::kChannelsFirst ? ",layout=nchw"
                                                                       : ",layout=nhwc";
  return cat("mean=", channels_text(p.mean), ",std=", channels_text(p.std), layout);
}

float pixel_number(uint8_t byte, double mean, double std) { return static_cast<float>((byte / 255.0 - mean) / std); }

}  // namespace tessera
