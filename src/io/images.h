// SPDX-License-Identifier: Apache-2.0
// JPEG and PNG files as 8-bit RGB. Grey becomes three equal channels, palettes their colours; alpha is dropped, 16 bits
// are rounded to 8, and orientation, gamma and colour profiles are ignored, as most training pipelines do. Refused:
// CMYK, anything cut short or damaged, and images of more than kImagePixels, whatever
// their file's size. Each format is there where its library was found at build.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera {

constexpr int64_t kImagePixels = 100'000'000;

struct Image {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// By its first bytes. The error does not name the file.
Result<Image> decode_image(std::span<const uint8_t> file);
Result<Image> read_image(const std::string& path);

// Paths of the files of a folder, and of folders in it, that end in .jpg, .jpeg or .png in any case, sorted.
Result<std::vector<std::string>> list_images(const std::string& folder);

// The formats themselves, in images_jpeg.cc and images_png.cc.
Result<Image> decode_jpeg(std::span<const uint8_t> file);
Result<Image> decode_png(std::span<const uint8_t> file);
Status check_image_size(int64_t height, int64_t width);

}  // namespace tessera
