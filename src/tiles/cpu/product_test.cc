// SPDX-License-Identifier: Apache-2.0
// Every product that this machine can run, against f64 on the same numbers; panels, scratch and tile are poisoned with
// NaN first.
#include "tiles/cpu/product.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tiles/cpu/rows.h"
#include "types/bf16.h"
#include "types/e4m3.h"

namespace tessera {
namespace {

// Codes of `element` for normal random numbers, and what they decode to.
struct Numbers {
  Numbers(Element e, int64_t n, uint64_t seed)
      : element(e), codes(static_cast<size_t>(4 * n)), decoded(static_cast<size_t>(n)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> v(decoded.size());
    for (float& x : v) x = normal(random) * (e == Element::i8 ? 50.0f : 1.0f);
    info(e).encode(v.data(), n, codes.data(), 0);
    info(e).decode(codes.data(), 0, n, decoded.data());
  }
  Element element;
  std::vector<uint8_t> codes;
  std::vector<float> decoded;
};

std::vector<float> poison(int64_t bytes) {
  return std::vector<float>(static_cast<size_t>(bytes / 4 + 16), std::numeric_limits<float>::quiet_NaN());
}

// Rows of x and w a little apart from each other; w as rows and in the product's own layout.
void check(const PanelProduct& p, Element element, int64_t rows, int64_t cols, int64_t k) {
  SCOPED_TRACE(testing::Message() << p.instruction << " " << info(element).name << " " << rows << "x" << cols << "x"
                                  << k);
  const int64_t gap = 3;
  const Numbers x(element, rows * (k + gap) + 5, 1), w(element, cols * k, 2);
  const int64_t width = info(element).bits / 8;
  std::vector<uint8_t> stored(static_cast<size_t>(layout_elements(p.layout, cols, k) * width));
  for (int64_t i = 0; i < cols * k; ++i)
    std::memcpy(&stored[static_cast<size_t>(layout_index(p.layout, i / k, i % k, cols, k) * width)],
                &w.codes[static_cast<size_t>(i * width)], static_cast<size_t>(width));
  int64_t offsets[kPanelCols];
  for (int64_t c = 0; c < cols; ++c) offsets[c] = c * k;

  const int64_t stride = kPanelCols + 8;
  for (const bool from_rows : {false, true}) {
    std::vector<float> x_panels = poison(p.x_bytes(rows, p.block_k)), w_panel = poison(p.w_bytes(p.block_k)),
                       tile = poison(rows * stride * 4);
    std::vector<float> scratch = poison(std::max(kPanelCols, p.rows) * round_up(std::min(k, p.block_k), 8) * 4);
    for (int64_t k0 = 0; k0 < k; k0 += p.block_k) {
      const int64_t n = std::min(p.block_k, k - k0);
      p.pack_x(element, x.codes.data(), k + gap, 5 + k0, rows, n, scratch.data(), x_panels.data());
      const void* panel = w_panel.data();
      if (from_rows) {
        int64_t at[kPanelCols];
        for (int64_t c = 0; c < cols; ++c) at[c] = offsets[c] + k0;
        p.pack_w(element, w.codes.data(), at, cols, n, scratch.data(), w_panel.data());
      } else {
        panel = p.take_w(element, stored.data(), layout_index(p.layout, 0, k0, cols, k), n, w_panel.data());
      }
      p.multiply(x_panels.data(), panel, rows, n, k0 == 0, tile.data(), stride);
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        const float stored = tile[static_cast<size_t>(r * stride + c)];
        if (c >= kPanelCols) {
          EXPECT_TRUE(std::isnan(stored)) << "beyond the tile, row " << r;
          continue;
        }
        const double got = p.integer ? std::bit_cast<int32_t>(stored) : double{stored};
        double want = 0, magnitude = 0;
        for (int64_t i = 0; i < k && c < cols; ++i) {
          const double product =
              double{x.decoded[static_cast<size_t>(5 + r * (k + gap) + i)]} * w.decoded[static_cast<size_t>(c * k + i)];
          want += product, magnitude += std::fabs(product);
        }
        ASSERT_NEAR(got, want, p.integer ? 0 : static_cast<double>(k + 1) * 0x1p-23 * magnitude)
            << "row " << r << " col " << c;
      }
    }
  }
}

const int64_t kRows[] = {1, 2, 5, 6, 7, 12, 13, 16, 33, 64, 65},
              kDepths[] = {1, 3, 4, 7, 31, 32, 33, 64, 100, 767, 768, 771};

TEST(CpuProduct, Bf16AgreesWithF64) {
  for (const PanelProduct& p : bf16_products()) {
    EXPECT_EQ(p.block_k % p.depth, 0);
    for (Element e : {Element::bf16, Element::e4m3}) {
      for (int64_t rows : kRows) {
        for (int64_t k : kDepths) check(p, e, rows, rows % 2 == 0 ? 16 : 11, k);
      }
    }
  }
}

TEST(CpuProduct, Int8IsExact) {
  for (const PanelProduct& p : int8_products()) {
    EXPECT_EQ(p.block_k % p.depth, 0);
    for (int64_t rows : kRows) {
      for (int64_t k : {1, 7, 8, 9, 63, 64, 65, 100, 1535, 1536, 1541})
        check(p, Element::i8, rows, rows % 2 == 0 ? 16 : 11, k);
    }
  }
}

// The numbers that are furthest from zero, all of one sign or by turns: no step between saturates or is off by a bit.
TEST(CpuProduct, Int8IsExactAtItsEnds) {
  const int64_t rows = 13, cols = kPanelCols, k = 1541;
  for (const PanelProduct& p : int8_products()) {
    for (const int8_t ends : {int8_t{-128}, int8_t{127}}) {
      for (const bool by_turns : {false, true}) {
        std::vector<int8_t> x(static_cast<size_t>(rows * k), -128), w(static_cast<size_t>(cols * k), ends);
        for (size_t i = 0; by_turns && i < w.size(); i += 2) w[i] = static_cast<int8_t>(-1 - ends);
        std::vector<float> tile = poison(rows * kPanelCols * 4);
        for (int64_t k0 = 0; k0 < k; k0 += p.block_k) {
          const int64_t n = std::min(p.block_k, k - k0);
          std::vector<float> x_panels = poison(p.x_bytes(rows, n)), panel = poison(p.w_bytes(n)),
                             scratch = poison(std::max(kPanelCols, p.rows) * round_up(n, 8) * 4);
          int64_t at[kPanelCols];
          for (int64_t c = 0; c < cols; ++c) at[c] = c * k + k0;
          p.pack_x(Element::i8, x.data(), k, k0, rows, n, scratch.data(), x_panels.data());
          p.pack_w(Element::i8, w.data(), at, cols, n, scratch.data(), panel.data());
          p.multiply(x_panels.data(), panel.data(), rows, n, k0 == 0, tile.data(), kPanelCols);
        }
        for (int64_t i = 0; i < rows * cols; ++i) {
          int32_t want = 0;
          for (int64_t j = 0; j < k; ++j) want += -128 * w[static_cast<size_t>(i % cols * k + j)];
          ASSERT_EQ(std::bit_cast<int32_t>(tile[static_cast<size_t>(i)]), want) << p.instruction << " " << i;
        }
      }
    }
  }
}

TEST(CpuProduct, Fp32AgreesWithF64) {
  for (Element e : {Element::f32, Element::f16, Element::bf16, Element::e4m3}) {
    for (int64_t rows : kRows) {
      for (int64_t k : kDepths) check(fp32_product(), e, rows, rows % 2 == 0 ? 16 : 11, k);
    }
  }
}

TEST(CpuProduct, EveryE4m3CodeInBf16) {
  uint8_t codes[256 + 64];
  for (size_t i = 0; i < sizeof(codes); ++i) codes[i] = static_cast<uint8_t>(i * 37);
  for (int64_t first : {0, 1, 5}) {
    for (int64_t n : {1, 7, 16, 31, 300}) {
      std::vector<uint16_t> got(static_cast<size_t>(n) + 1, 0x1234);
      decode_row_bf16(Element::e4m3, codes, first, n, got.data());
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(got[static_cast<size_t>(i)], Bf16::encode(E4m3::decode(codes[first + i]))) << int{codes[first + i]};
      EXPECT_EQ(got.back(), 0x1234);
    }
  }
}

}  // namespace
}  // namespace tessera
