// SPDX-License-Identifier: Apache-2.0
#include "types/bulk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include "types/codes.h"
#include "types/element.h"
#include "types/elements.h"

namespace tessera {
namespace {

// The conversions of arrays give the bits of the plain ones: every code, and floats of every exponent around every
// rounding.
template <class T>
class Arrays : public ::testing::Test {};
template <class Struct, Element kName>
struct Case {
  using E = Struct;
  static constexpr Element kElement = kName;
};
// Every element of the list whose codes can all be tried; u8 is the machine's own.
template <class Struct, Element kName>
using IfNarrow = std::conditional_t<Struct::kBits <= 16 && !std::is_same_v<Struct, U8>, std::tuple<Case<Struct, kName>>,
                                    std::tuple<>>;
template <class... Cases>
::testing::Types<Cases...> as_types(std::tuple<Cases...>);
using ArrayCases = decltype(as_types(std::tuple_cat(
#define TS_ELEMENT(name, Struct) IfNarrow<Struct, Element::name>(),
#include "types/types.inc"
#undef TS_ELEMENT
    std::tuple<>())));
TYPED_TEST_SUITE(Arrays, ArrayCases);

TYPED_TEST(Arrays, AreBitIdentical) {
  using E = typename TypeParam::E;
  const ElementInfo& element = info(TypeParam::kElement);
  const int64_t count = int64_t{1} << E::kBits;
  std::vector<uint8_t> codes(static_cast<size_t>(packed_bytes(TypeParam::kElement, count)));
  for (int64_t i = 0; i < count; ++i) set_code(codes.data(), E::kBits, i, static_cast<uint64_t>(i));
  std::vector<float> numbers(static_cast<size_t>(count));
  std::vector<double> wide(static_cast<size_t>(count));
  element.decode(codes.data(), 0, count, numbers.data());
  element.decode_f64(codes.data(), 0, count, wide.data());
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(bits_of(numbers[i]), bits_of(E::decode(static_cast<typename E::Storage>(i)))) << i;
    ASSERT_TRUE(wide[i] == static_cast<double>(numbers[i]) || std::isnan(wide[i])) << i;
  }

  constexpr int64_t kCount = 1 << 16;
  std::vector<float> in(kCount);
  std::vector<uint8_t> back(static_cast<size_t>(packed_bytes(TypeParam::kElement, kCount)));
  std::mt19937 random(3);
  for (uint32_t round = 0; round < 64; ++round) {
    // Each round: all 2^16 upper halves of a float, with a lower half that is zero, all ones, a single bit or random.
    for (size_t i = 0; i < in.size(); ++i) {
      const uint32_t low = round == 0   ? 0
                           : round == 1 ? 0xffff
                           : round < 18 ? 1u << (round - 2)
                                        : static_cast<uint32_t>(random()) & 0xffff;
      in[i] = float_of(static_cast<uint32_t>(i) << 16 | low);
    }
    for (const bool saturate : {true, false}) {
      (saturate ? element.encode : element.encode_unsaturated)(in.data(), kCount, back.data(), 0);
      for (int64_t i = 0; i < kCount; ++i) {
        const float x = in[static_cast<size_t>(i)];
        ASSERT_EQ(code_at(back.data(), E::kBits, i), E::encode(x, saturate)) << x << (saturate ? "" : " unsaturated");
      }
    }
  }
}

// Any first and any count, odd ones included; the codes before and after stay.
TYPED_TEST(Arrays, RangesLeaveTheirNeighbours) {
  using E = typename TypeParam::E;
  const ElementInfo& element = info(TypeParam::kElement);
  std::mt19937 random(9);
  constexpr int64_t kCount = 80;
  const auto bytes = static_cast<size_t>(packed_bytes(TypeParam::kElement, kCount));
  for (int64_t first = 0; first < 5; ++first) {
    for (int64_t n = 0; n <= 67; ++n) {
      std::vector<uint8_t> codes(bytes);
      for (uint8_t& b : codes) b = static_cast<uint8_t>(random());
      const std::vector<uint8_t> before = codes;
      std::vector<float> in(static_cast<size_t>(n));
      for (float& x : in) x = static_cast<float>(static_cast<int>(random() % 200)) / 16 - 6;
      element.encode(in.data(), n, codes.data(), first);
      for (int64_t i = 0; i < kCount; ++i) {
        const bool inside = i >= first && i < first + n;
        const uint64_t want =
            inside ? E::encode(in[static_cast<size_t>(i - first)]) : code_at(before.data(), E::kBits, i);
        ASSERT_EQ(code_at(codes.data(), E::kBits, i), want) << first << " " << n << " " << i;
      }
      std::vector<float> out(static_cast<size_t>(n) + 1, -77.0f);
      element.decode(codes.data(), first, n, out.data());
      for (int64_t i = 0; i < n; ++i) {
        const auto code = static_cast<typename E::Storage>(code_at(codes.data(), E::kBits, first + i));
        ASSERT_EQ(bits_of(out[static_cast<size_t>(i)]), bits_of(E::decode(code)));
      }
      ASSERT_EQ(out.back(), -77.0f);
    }
  }
}

}  // namespace
}  // namespace tessera
