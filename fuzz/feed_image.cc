// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "fuzz/feeds.h"
#include "io/images_prepare.h"

namespace tessera::fuzz {

void feed_image(std::span<const uint8_t> input) {
  const auto image = decode_image(input);
  if (!image.ok()) {
    TS_CHECK(!image.status().message().empty(), "an error without a sentence");
    return;
  }
  TS_CHECK(static_cast<int64_t>(image->rgb.size()) == image->height * image->width * 3, image->rgb.size());
  if (image->height * image->width > 1 << 16) return;  // resizing is tested, here it only costs time
  const Preprocess p{.height = 8, .width = 5};
  const auto x = prepare_image(*image, p);
  TS_CHECK(!x.ok() || x->size() == 8 * 5 * 3, "another size than asked for");
}

}  // namespace tessera::fuzz
