// SPDX-License-Identifier: Apache-2.0
// A camera's image as a policy wants it: square, the whole image in the middle, black where it does not reach.
#pragma once

#include <cstdint>

#include "io/images.h"

namespace tessera {

// Scaled by side / max(height, width), sizes rounded down, by Pillow's bilinear filter (io/images_prepare.h), the
// longer side first; of an odd rest the last row or column is black. An image of that size is returned as it is.
Image fit_in_square(Image image, int64_t side);

}  // namespace tessera
