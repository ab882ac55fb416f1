// SPDX-License-Identifier: Apache-2.0
#include "types/element.h"

#include <algorithm>
#include <cmath>

#include "types/bulk.h"
#include "types/elements.h"

namespace tessera {
namespace {

template <class E>
concept Integer = requires {
  E::kInteger;
};

template <class E>
constexpr ElementInfo make_info(const char* name) {
  return {.name = name,
          .kind = Integer<E> ? ElementKind::kInteger : ElementKind::kFloat,
          .bits = E::kBits,
          .mantissa_bits = E::kMantissaBits,
          .min_exponent = E::kMinExponent,
          .max = E::kMax,
          .decode = decode_array<E, float>,
          .decode_f64 = decode_array<E, double>,
          .encode = encode_array<E, true, float>,
          .encode_f64 = encode_array<E, true, double>,
          .encode_unsaturated = encode_array<E, false, float>};
}

constexpr ElementInfo kElements[] = {
#define TS_ELEMENT(name, Struct) make_info<Struct>(#name),
#include "types/types.inc"
#undef TS_ELEMENT
};

}  // namespace

const ElementInfo& info(Element e) { return kElements[static_cast<int>(e)]; }

std::optional<Element> find_element(std::string_view name) {
  for (size_t i = 0; i < std::size(kElements); ++i) {
    if (name == kElements[i].name) return static_cast<Element>(i);
  }
  return std::nullopt;
}

double smallest(const ElementInfo& e) { return std::ldexp(1.0, e.min_exponent - e.mantissa_bits); }

bool holds(const ElementInfo& wide, const ElementInfo& narrow) {
  return wide.mantissa_bits >= narrow.mantissa_bits && wide.max >= narrow.max && smallest(wide) <= smallest(narrow);
}

int64_t packed_bytes(Element e, int64_t n) { return (n * info(e).bits + 7) / 8; }

double step_at(Element e, double x) {
  const ElementInfo& i = info(e);
  if (i.kind == ElementKind::kInteger) return 1;
  const double magnitude = std::min(std::fabs(x), i.max);
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), i.min_exponent) : i.min_exponent;
  return std::ldexp(1.0, exponent - i.mantissa_bits);
}

}  // namespace tessera
