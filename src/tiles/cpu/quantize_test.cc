// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "types/quantize_array.h"

namespace tessera {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct QuantizedRow {
  std::vector<uint8_t> codes, scale;
  bool operator==(const QuantizedRow&) const = default;
};

// Rows and pieces of rows give the bits of quantize_array.h, whatever their length and wherever they begin.
TEST(CpuQuantize, MakesTheCodesAndScalesOfTheType) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const char* text : {"e4m3:token(f32)!", "i8:token(f32)!", "e4m3:block32(e8m0)!", "e4m3:block32(e8m0,floor)!",
                           "e4m3:block32(e8m0,even)!", "e2m1:block16(e4m3):tensor(f32)!", "e2m1:block32(e8m0)!",
                           "i8:block64(f32)!", "e5m2:block7(f32)!", "e4m3:block2000(f32)!", "i4:token(bf16)!",
                           "e4m3:tensor(f32)", "i8:tensor(f32)", "e2m1:tensor(f32)"}) {
    const QuantType type = *parse_quant_type(text);
    const bool in_blocks = type.scale.granularity == Granularity::kBlock;
    for (int64_t cols : {1, 15, 16, 17, 33, 64, 197, 768, 1031, 4100}) {
      for (int kind = 0; kind < 5; ++kind) {
        const int64_t rows = 4, all = rows * cols, count = scale_count(type.scale, rows, cols);
        std::vector<float> x(static_cast<size_t>(all));
        for (size_t i = 0; i < x.size(); ++i) {
          const int exponent = static_cast<int>(random() % 12) - (kind == 3 ? 140 : 6);
          x[i] = kind == 1 ? (i % 2 == 0 ? 0.0f : -0.0f) : std::ldexp(normal(random), exponent);
          if (kind == 2) x[i] *= std::exp2(static_cast<float>(i % 97));
          if (kind == 4 && i % 131 == 130) x[i] = i % 2 == 0 ? kNan : -kInf;
        }
        const float scale2 = 0.37f, fixed = 0.11f;
        QuantizedRow want{std::vector<uint8_t>(static_cast<size_t>(packed_bytes(type.element, all)) + 1, 0xa5),
                          std::vector<uint8_t>(static_cast<size_t>(packed_bytes(type.scale.element, count)), 0xa5)};
        if (!type.dynamic) std::memcpy(want.scale.data(), &fixed, sizeof(fixed));
        QuantizedRow got = want;
        if (type.dynamic) {
          quantize_under(type, x.data(), rows, cols, &scale2, want.scale.data(), want.codes.data());
        } else {
          encode_scaled(type, x.data(), rows, cols, want.scale.data(), nullptr, want.codes.data());
        }
        // Whole rows; or, of blocks, two pieces.
        const int64_t cut =
            in_blocks ? std::min<int64_t>(cols, type.scale.block * (1 + cols / type.scale.block / 2)) : cols;
        for (int64_t r = 0; r < rows; ++r) {
          for (const auto& [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, cols}}) {
            quantize_row(type, x.data() + r * cols + begin, end - begin,
                         {.codes = got.codes.data(),
                          .first = r * cols + begin,
                          .scale = got.scale.data(),
                          .first_scale = scale_index(type.scale, r, begin, cols),
                          .scale2 = &scale2});
          }
        }
        ASSERT_TRUE(got.scale == want.scale) << text << ", rows of " << cols << ", kind " << kind;
        ASSERT_TRUE(got.codes == want.codes) << text << ", rows of " << cols << ", kind " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
