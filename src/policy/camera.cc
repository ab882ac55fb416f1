// SPDX-License-Identifier: Apache-2.0
#include "policy/camera.h"

#include <algorithm>

#include "io/images_prepare.h"

namespace tessera {

Image fit_in_square(Image image, int64_t side) {
  if (image.height == side && image.width == side) return image;
  const double n = static_cast<double>(side), h = static_cast<double>(image.height),
               w = static_cast<double>(image.width), ratio = std::max(w / n, h / n);
  const int64_t height = std::max<int64_t>(1, static_cast<int64_t>(h / ratio)),
                width = std::max<int64_t>(1, static_cast<int64_t>(w / ratio));
  // The longer side first: the passes round to bytes between them, so their order shows.
  if (image.height > image.width) image = resize_image(image, height, image.width, /*bicubic=*/false);
  const Image scaled = resize_image(image, height, width, /*bicubic=*/false);
  Image square{.height = side, .width = side, .rgb = std::vector<uint8_t>(static_cast<size_t>(side * side * 3), 0)};
  const int64_t top = (side - height) / 2, left = (side - width) / 2;
  for (int64_t y = 0; y < height; ++y)
    std::copy_n(scaled.rgb.begin() + y * width * 3, width * 3, square.rgb.begin() + ((top + y) * side + left) * 3);
  return square;
}

}  // namespace tessera
