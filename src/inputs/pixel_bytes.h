// SPDX-License-Identifier: Apache-2.0
// Images for ports that take bytes (rewrite/byte_ports.h).
#pragma once

#include <optional>

#include "base/status.h"
#include "io/images_prepare.h"
#include "io/npz.h"
#include "plan/plan.h"

namespace tessera {

// What the plan makes of the bytes of an input; nothing where it takes no images in bytes.
std::optional<Pixels> pixels_of(const Plan& plan, const Port& input);

// Floats that were made of bytes, back to bytes [n, height, width, channels]: numbers after (byte / 255 - mean) / std,
// in the model's layout or with the channels last. An error where a number is none of those that 256 bytes become:
// then it was normalised otherwise, or not at all. `wanted`: the port's shape.
Result<Array> bytes_of_floats(const Array& given, const Shape& wanted, const Pixels& pixels);

}  // namespace tessera
