// SPDX-License-Identifier: Apache-2.0
#include "inputs/pixel_bytes.h"

#include <algorithm>
#include <cmath>

#include "rewrite/byte_ports.h"

namespace tessera {
namespace {

// How far a float may be from a byte's number, in bytes: f32 arithmetic errs by less than 2^-20 of one, f16 holds
// numbers up to 4 within 2^-10, which is 255 * 2^-10 of a byte where std is 1, and less where it is less.
double slack_of(const std::string& dtype) { return dtype == "<f2" ? 0.25 : 0.01; }

}  // namespace

std::optional<Pixels> pixels_of(const Plan& plan, const Port& input) {
  const auto tensor = [&](int t) -> const PlanTensor& { return plan.tensors[static_cast<size_t>(t)]; };
  const PlanTensor& port = tensor(input.tensor);
  if (port.desc.type != QuantType(Element::u8)) return std::nullopt;
  int copied = -1;
  // Views of an input lie in it, as they do in what it is copied to.
  const auto reads = [&](int t) {
    if (t < 0) return false;
    return t == copied || (tensor(t).storage == Storage::kInput && tensor(t).index == port.index);
  };
  for (const PlanStep& s : plan.steps) {
    if (s.op == "copy" && copied < 0 && reads(s.in[0])) copied = s.out[0];
    if (s.op == "gather" && s.in.size() > 1 && reads(s.in[1])) return pixels_of(s.attrs);
  }
  return std::nullopt;
}

Result<Array> bytes_of_floats(const Array& given, const Shape& wanted, const Pixels& pixels) {
  const auto fits = [&](const Shape& shape) {
    return shape.size() == wanted.size() && std::equal(shape.begin() + 1, shape.end(), wanted.begin() + 1);
  };
  Shape shape(given.shape.begin(), given.shape.end());
  if (shape.size() == 3) shape.insert(shape.begin(), 1);
  const bool last = fits(shape), first = !last && shape.size() == 4 && fits({shape[0], shape[2], shape[3], shape[1]});
  if (!last && !first) return given;  // whoever reads it says so
  const int64_t channels = wanted[3], area = wanted[1] * wanted[2], count = shape[0];
  const std::vector<double> numbers = numbers_of(given);
  const auto of = [](const std::vector<double>& all, int64_t c) {
    return all[all.size() == 1 ? 0 : static_cast<size_t>(c)];
  };
  const double slack = slack_of(given.dtype);
  Buffer bytes(numbers.size());
  for (int64_t n = 0, i = 0; n < count; ++n) {
    for (int64_t pixel = 0; pixel < area; ++pixel) {
      for (int64_t c = 0; c < channels; ++c, ++i) {
        const int64_t at = first ? (n * channels + c) * area + pixel : i;
        const double x = numbers[static_cast<size_t>(at)];
        const double byte = 255 * (x * of(pixels.std, c) + of(pixels.mean, c)), whole = std::round(byte);
        if (!(std::fabs(byte - whole) <= slack) || whole < 0 || whole > 255)
          return bad_input(cat("array '", given.name, "' holds ", x, " at ", at,
                               ", which no byte becomes: give bytes (uint8), or floats that are (byte / 255 - mean) / "
                               "std with the engine's ",
                               to_string(pixels)));
        bytes.data()[i] = static_cast<uint8_t>(whole);
      }
    }
  }
  Array out{.name = given.name, .shape = {}, .dtype = "|u1", .data = Bytes::own(std::move(bytes))};
  out.shape.assign({count, wanted[1], wanted[2], channels});
  return out;
}

}  // namespace tessera
