// SPDX-License-Identifier: Apache-2.0
// Weights prepacked in every pair of layouts stand for the same numbers.
#include "op/prepack.h"

#include <gtest/gtest.h>

#include <random>

#include "op/reference.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

TEST(Prepack, NumbersStayTheSame) {
  std::mt19937 random(11);
  std::normal_distribution<float> draw;
  for (const QuantType& type : {kNvfp4, kMxfp8, *parse_quant_type("i4:block32(f16)")}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 32}, {20, 96}, {130, 160}, {257, 64}}) {
      std::vector<float> numbers(static_cast<size_t>(rows * cols));
      for (float& v : numbers) v = draw(random);
      QuantizedArray q = quantize_array(type, numbers.data(), rows, cols).value();
      Operand o = dense_operand({rows, cols}, type, true);
      const std::vector<double> want =
          decode({.desc = &o, .data = q.codes.data(), .scale = q.scale.data(), .scale2 = q.scale2.data()}).v;
      for (const Layout codes : kLayouts) {
        for (const Layout scales : kLayouts) {
          if (!is_order(codes) || !is_order(scales)) continue;
          o.layout = {codes, scales};
          Prepacked packed = prepack(o, q.codes.data(), q.scale.data()).value();
          EXPECT_EQ(packed.codes.size() == 0, codes == Layout::kRows);
          EXPECT_EQ(packed.scales.size() == 0, scales == Layout::kRows);
          const TensorView view{.desc = &o,
                                .data = codes == Layout::kRows ? q.codes.data() : packed.codes.data(),
                                .scale = scales == Layout::kRows ? q.scale.data() : packed.scales.data(),
                                .scale2 = q.scale2.data()};
          EXPECT_EQ(decode(view).v, want)
              << to_string(type) << " " << rows << "x" << cols << " in " << name_of(o.layout);
          // Tiles that are read as rows are other numbers.
          if (scales != Layout::kTiles128x4 || rows < 20) continue;
          Operand plain = o;
          plain.layout.scales = Layout::kRows;
          EXPECT_NE(decode({.desc = &plain, .data = view.data, .scale = view.scale, .scale2 = view.scale2}).v, want)
              << to_string(type) << " " << rows << "x" << cols << " in " << name_of(o.layout);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
