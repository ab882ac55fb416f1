// SPDX-License-Identifier: Apache-2.0
// From an image to a model's input, as --preprocess says it: parts `key=value` with commas between them.
//   size=224 | size=HEIGHTxWIDTH        of the input; the one part that must be given
//   mean=M | mean=R:G:B, std=S | R:G:B  input = (pixel / 255 - mean) / std, per channel; default 0 and 1
//   layout=nchw | nhwc                  default nchw
//   fit=crop                            (default) the shorter side becomes `resize`, then the middle is cut out
//   fit=stretch                         to the size, whatever that does to proportions
//   resize=256                          with fit=crop: default the smallest that covers `size`
//   filter=bilinear | bicubic           default bilinear
// Resizing is antialiased: the filter (triangle of radius 1; cubic with a = -0.5, radius 2) is widened by the factor of
// reduction, rows first, then columns, each with weights in 22-bit fixed point and results rounded to 8 bits: the bits
// that Pillow's Image.resize gives (newer ones take columns first where fit=stretch widens and lowers at once). The
// longer side becomes floor(resize * longer / shorter), and the cut begins at (side - size) / 2, halves to even: what
// torchvision's Resize and CenterCrop do.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/images.h"

namespace tessera {

struct Preprocess {
  int64_t height = 0, width = 0;
  std::array<double, 3> mean{0, 0, 0}, std{1, 1, 1};
  bool channels_first = true;
  bool crop = true;
  int64_t resize = 0;  // 0: as `size` needs it
  bool bicubic = false;
  bool operator==(const Preprocess&) const = default;
};
Result<Preprocess> parse_preprocess(const std::string& text);
std::string to_string(const Preprocess& preprocess);  // every part, defaults included
// Whether one of the parts says what becomes of bytes: mean, std or layout.
bool says_numbers(const std::string& text);

// The image in other extents, 8 bits per channel.
Image resize_image(const Image& image, int64_t height, int64_t width, bool bicubic);
// The image in the size asked for, still bytes.
Result<Image> fit_image(const Image& image, const Preprocess& preprocess);
// height * width * 3 numbers in the layout asked for.
Result<std::vector<float>> prepare_image(const Image& image, const Preprocess& preprocess);

// How bytes become a model's numbers, (byte / 255 - mean) / std, where that is done inside an engine. As text, parts
// with commas between them: mean=, std= as above, but of any number of channels; layout= where the model has its
// channels (default: where it has 1, 3 or 4 of them).
enum class ImageLayout : uint8_t { kUnsaid, kChannelsFirst, kChannelsLast };

struct Pixels {
  std::vector<double> mean = {0}, std = {1};  // one number, or one for each channel
  ImageLayout layout = ImageLayout::kUnsaid;
  bool operator==(const Pixels&) const = default;
  bool uniform() const { return mean.size() == 1 && std.size() == 1; }
};
// The error names the part and what would be accepted, not where the text stands.
Result<Pixels> parse_pixels(const std::string& text);
std::string to_string(const Pixels& pixels);  // every part that parse_pixels reads; equal pixels give equal text

// In double, rounded once.
float pixel_number(uint8_t byte, double mean, double std);

// "0.5", "0.485:0.456:0.406": at most `most` finite numbers of at most 1e6; false where it is no such list.
bool read_channels(const std::string& text, size_t most, std::vector<double>& numbers);
std::string channels_text(const std::vector<double>& numbers);
// The pieces between the characters `at`.
std::vector<std::string> split(const std::string& text, char at);

}  // namespace tessera
