// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/sparse.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/buffer.h"
#include "types/codes.h"
#include "types/sparse24.h"

namespace tessera {
namespace {

// Against expand24 on random kept codes and every pair of places; what follows the row stays poisoned.
TEST(CpuSparse, RowsAreThoseOfTheWholeMatrix) {
  std::mt19937 random(3);
  for (Element e : {Element::e2m1, Element::e4m3, Element::i8, Element::f16, Element::f32}) {
    const int bits = info(e).bits;
    for (int64_t cols : {1, 4, 5, 8, 31, 64, 100, 257, 800}) {
      const int64_t rows = 3;
      std::vector<uint8_t> kept(static_cast<size_t>(packed_bytes(e, rows * kept24_cols(cols)))),
          metadata(static_cast<size_t>(rows * meta24_row_bytes(cols)));
      std::vector<uint8_t> all(static_cast<size_t>(packed_bytes(e, rows * cols)));
      for (uint8_t& byte : kept) byte = static_cast<uint8_t>(random());
      for (uint8_t& byte : metadata) {
        const uint32_t sets[] = {3, 5, 9, 6, 10, 12};
        byte = static_cast<uint8_t>(metadata24(sets[random() % 6]) | metadata24(sets[random() % 6]) << 4);
      }
      expand24(e, kept.data(), metadata.data(), rows, cols, all.data());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; col += 8) {
          const int64_t n = cols - col;
          std::vector<uint8_t> got(static_cast<size_t>(packed_bytes(e, round_up(n, 8))) + 64, 0xa5);
          expand_sparse_row(bits, kept.data(), metadata.data(), row, col, n, cols, got.data());
          for (int64_t i = 0; i < n; ++i)
            ASSERT_EQ(code_at(got.data(), bits, i), code_at(all.data(), bits, row * cols + col + i))
                << info(e).name << " " << cols << " columns, at " << i;
          for (size_t i = got.size() - 64; i < got.size(); ++i) ASSERT_EQ(got[i], 0xa5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
