// SPDX-License-Identifier: Apache-2.0
#include "types/element.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "types/bf16.h"
#include "types/bulk.h"
#include "types/e4m3.h"
#include "types/f16.h"
#include "types/plain.h"

namespace tessera {
namespace {

template <class E>
concept NarrowFloat = requires { typename E::Bits; };

template <class E, class Wide>
void decode_many(const void* codes, int64_t first, int64_t n, Wide* out) {
  const auto* in = static_cast<const typename E::Storage*>(codes) + first;
  if constexpr (NarrowFloat<E> && std::is_same_v<Wide, float>) {
    decode_array<E>(in, n, out);
  } else if constexpr (NarrowFloat<E>) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Wide>(decode_branch_free(typename E::Bits{}, in[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Wide>(E::decode(in[i]));
  }
}

template <class E, class Wide>
void encode_many(const Wide* in, int64_t n, void* codes, int64_t first) {
  auto* out = static_cast<typename E::Storage*>(codes) + first;
  if constexpr (NarrowFloat<E> && std::is_same_v<Wide, float>) {
    encode_array<E>(in, n, out);
  } else if constexpr (NarrowFloat<E>) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<typename E::Storage>(encode_branch_free(typename E::Bits{}, static_cast<float>(in[i])));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = E::encode(in[i]);
  }
}

template <class E>
constexpr ElementInfo make_info(const char* name) {
  constexpr bool kInteger = std::is_integral_v<typename E::Storage> && E::kMantissaBits == 0;
  return {.name = name,
          .kind = kInteger ? ElementKind::kInteger : ElementKind::kFloat,
          .bits = E::kBits,
          .mantissa_bits = E::kMantissaBits,
          .min_exponent = E::kMinExponent,
          .max = E::kMax,
          .decode = decode_many<E, float>,
          .decode_f64 = decode_many<E, double>,
          .encode = encode_many<E, float>,
          .encode_f64 = encode_many<E, double>};
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

int64_t packed_bytes(Element e, int64_t n) { return (n * info(e).bits + 7) / 8; }

double step_at(Element e, double x) {
  const ElementInfo& i = info(e);
  if (i.kind == ElementKind::kInteger) return 1;
  const double magnitude = std::min(std::fabs(x), i.max);
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), i.min_exponent) : i.min_exponent;
  return std::ldexp(1.0, exponent - i.mantissa_bits);
}

}  // namespace tessera
