// SPDX-License-Identifier: Apache-2.0
#include "report/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace tessera {
namespace {

TEST(Ticks, AreRoundAndInside) {
  const Ticks t = ticks_between(0.3, 9.7, false, 5);
  EXPECT_EQ(t.at, (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(t.decimals, 0);
  EXPECT_EQ(ticks_between(1, 1, false, 5).at.size(), 0u);
  const Ticks fine = ticks_between(0.98, 1.07, false, 5);
  EXPECT_EQ(fine.decimals, 2);
  for (const double v : fine.at) EXPECT_TRUE(v >= 0.98 && v <= 1.07) << v;
  EXPECT_EQ(ticks_between(3, 2000, true, 6).at, (std::vector<double>{10, 100, 1000}));
  EXPECT_EQ(ticks_between(1.5, 8, true, 6).at, (std::vector<double>{2, 5}));
  EXPECT_LE(ticks_between(1e-9, 1e9, true, 6).at.size(), 7u);
}

TEST(WrapText, BreaksAtBlanksAndCutsTheRest) {
  EXPECT_EQ(wrap_text("one two", 1000, 2), std::vector<std::string>{"one two"});
  const double seven = text_width("one two");
  EXPECT_EQ(wrap_text("one two three", seven, 2), (std::vector<std::string>{"one two", "three"}));
  const auto cut = wrap_text("one two three four five", seven, 2);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_LE(text_width(cut[1]), seven);
  const auto word = wrap_text("incomprehensibilities", seven, 3);
  ASSERT_EQ(word.size(), 1u);
  EXPECT_LE(text_width(word[0]), seven);
}

// Every number of a drawing lies inside its box, give or take a label at the edge.
void expect_inside(const std::string& svg, double width) {
  const std::regex rects(R"re(<rect x="([-0-9.]+)" y="([-0-9.]+)" width="([-0-9.]+)")re");
  size_t count = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), rects), end; it != end; ++it, ++count) {
    EXPECT_GE(std::stod((*it)[1]), -1) << svg;
    EXPECT_LE(std::stod((*it)[1]) + std::stod((*it)[3]), width + 1) << svg;
    EXPECT_GE(std::stod((*it)[3]), 0) << svg;
  }
  EXPECT_GT(count, 0u);
}

TEST(Charts, FitTheirWidth) {
  BarChart bars;
  bars.rows.push_back({"one", "7.60 ms", {{fill::k16Bits, 3, "fp16 GEMM 84 %"}, {fill::kNorm, 1, "norm"}}});
  bars.rows.push_back({"two", "1.00 ms", {{fill::k8Bits, 0.001, "tiny"}}});
  MapChart map;
  map.columns = {"0", "1"};
  map.rows.push_back({"mlp.fc1", {{fill::k8Bits, "8", "", true}, {}}});
  for (const int width : {kWideChart, kNarrowChart}) {
    expect_inside(svg_of(bars, width, "bars"), width);
    expect_inside(svg_of(map, width, "map"), width);
  }
}

TEST(Charts, OfNothingAreDrawnToo) {
  for (const std::string& svg : {svg_of(BarChart{}, 300, ""), svg_of(ScatterChart{}, 300, ""),
                                 svg_of(SpreadChart{}, 300, ""), svg_of(MapChart{}, 300, "")}) {
    EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  }
}

TEST(Charts, LabelsOfPointsDoNotLieOnEachOther) {
  ScatterChart chart;
  for (int i = 0; i < 40; ++i)
    chart.points.push_back({1 + i * 0.01, 1 + i * 0.01, 1, 0, "layer" + std::to_string(i), ""});
  const std::string svg = svg_of(chart, kWideChart, "");
  size_t labels = 0;
  for (size_t at = svg.find("class=\"label\""); at != std::string::npos; at = svg.find("class=\"label\"", at + 1))
    ++labels;
  EXPECT_GT(labels, 0u);
  EXPECT_LT(labels, 40u);
}

}  // namespace
}  // namespace tessera
