// SPDX-License-Identifier: Apache-2.0
// Charts as SVG elements for a page that holds the fills (write_html.cc) and the style (assets/report/report.css).
// Colours are classes, so that print and dark mode need no second drawing; a phone gets a drawing of its own width,
// since scaled text would be too small to read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/document.h"

namespace tessera {

// Widths in CSS pixels that charts are drawn for.
inline constexpr int kWideChart = 688, kNarrowChart = 320;

// `name`: what a reader who does not see it is told.
std::string svg_of(const BarChart& chart, int width, const std::string& name);
std::string svg_of(const ScatterChart& chart, int width, const std::string& name);
std::string svg_of(const SpreadChart& chart, int width, const std::string& name);
std::string svg_of(const MapChart& chart, int width, const std::string& name);

// The <defs> that fills refer to, as an element of no size.
std::string svg_fills();

// What the drawings share: elements appended to a text.
class SvgPen {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  void rect(double x, double y, double width, double height, std::string_view classes);
  void filled(double x, double y, double width, double height, int fill, std::string_view classes,
              const std::string& hint);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void path(const std::string& d, std::string_view classes, const std::string& hint = "");
  void text(double x, double y, std::string_view text, std::string_view classes = "", Anchor anchor = Anchor::kStart,
            double turned_degrees = 0);
  std::string finish(double width, double height, const std::string& name) const;

 private:
  std::string body_;
};

// Width that a text of the charts' size takes, about: no font is known here.
double text_width(std::string_view text);
// As much of the text as fits.
std::string fit_text(std::string_view text, double width);
// Lines of whole words that fit, at most `most`: what is left is cut from the last.
std::vector<std::string> wrap_text(std::string_view text, double width, size_t most);
// Whether text stands on this fill in the paper's colour: it is dark and has no pattern.
constexpr bool carries_text(int fill) { return fill == fill::k4Bits || fill == fill::k8Bits; }

// Round numbers between two others: "nice" steps of 1, 2 or 5; on a log axis decades, finer where there are few.
struct Ticks {
  std::vector<double> at;
  int decimals = 0;
};
Ticks ticks_between(double low, double high, bool log, int about);

}  // namespace tessera
