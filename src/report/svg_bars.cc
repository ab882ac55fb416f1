// SPDX-License-Identifier: Apache-2.0
// Bars and spreads: rows below each other, each with its words above it, so that long names have the whole width.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "report/figures.h"
#include "report/svg.h"

namespace tessera {
namespace {

constexpr double kBar = 20, kBetween = 13, kLine = 15;  // height of a bar, room below it, height of a line of words

// The words above a bar, from `y` down; long names take two lines. Returns where the bar begins.
double draw_words(SvgPen& pen, double y, double width, const std::string& name, const std::string& value) {
  const double room = width - text_width(value) - 12;
  std::vector<std::string> lines = wrap_text(name, room, 2);
  if (lines.empty()) lines.emplace_back();
  for (const std::string& line : lines) {
    pen.text(0, y + 11, line, "name");
    y += kLine;
  }
  pen.text(width, y - kLine + 11, value, "value", SvgPen::Anchor::kEnd);
  return y + 2;
}

void draw_segment(SvgPen& pen, double x, double y, double width, const BarChart::Segment& s, bool predicted) {
  const std::string hint = s.label;
  if (predicted) {
    pen.rect(x, y, width, kBar, "open");
  } else {
    pen.filled(x, y, std::max(width, 0.5), kBar, s.fill, "bar", hint);
  }
  const double words = text_width(s.label) + 10;
  if (s.label.empty() || words > width) return;
  const bool dark = carries_text(s.fill);
  if (!dark) pen.rect(x + width / 2 - words / 2, y + 3, words, kBar - 6, "plate");
  pen.text(x + width / 2, y + 14, s.label, dark ? "on-dark" : "", SvgPen::Anchor::kMiddle);
}

}  // namespace

std::string svg_of(const BarChart& chart, int width, const std::string& name) {
  double longest = 0;
  for (const BarChart::Row& row : chart.rows) {
    double sum = 0;
    for (const BarChart::Segment& s : row.segments) sum += s.value;
    longest = std::max(longest, sum);
  }
  SvgPen pen;
  double y = 0;
  for (const BarChart::Row& row : chart.rows) {
    y = draw_words(pen, y, width, row.name, row.value);
    double x = 0;
    for (const BarChart::Segment& s : row.segments) {
      const double w = longest > 0 ? s.value / longest * (width - 1) : 0;
      draw_segment(pen, x + 0.5, y, w, s, row.predicted);
      x += w;
    }
    y += kBar + kBetween;
  }
  return pen.finish(width, std::max(y - kBetween + 1, 1.0), name);
}

namespace {

// Multiples of each row's median: rows that are far apart can still be compared.
struct Scale {
  double low, high, left, right;
  double at(double v) const { return left + (std::min(v, high) - low) / (high - low) * (right - left); }
};

Scale scale_of(const SpreadChart& chart, double left, double right) {
  double low = 1, high = 1;
  for (const SpreadChart::Row& r : chart.rows) {
    if (r.median <= 0) continue;
    low = std::min(low, r.least / r.median), high = std::max(high, r.p99 / r.median);
  }
  // A few slow runs must not squeeze all others: what lies beyond the axis gets an arrow.
  const double pad = std::max((high - low) * 0.08, 0.005);
  return {low - pad, high + pad, left, right};
}

void draw_spread(SvgPen& pen, const Scale& s, double y, const SpreadChart::Row& r) {
  const auto at = [&](double v) { return s.at(r.median > 0 ? v / r.median : 1); };
  const double middle = y + 10;
  pen.line(at(r.least), middle, at(r.most), middle, "whisker");
  pen.filled(at(r.least), y + 4, std::max(at(r.median) - at(r.least), 0.5), 12, fill::kOther, "bar", "");
  pen.filled(at(r.median), y + 4, std::max(at(r.p90) - at(r.median), 0.5), 12, fill::k8Bits, "bar", "");
  pen.line(at(r.median), y, at(r.median), y + 20, "strong-line");
  pen.line(at(r.p95), y + 3, at(r.p95), y + 17, "tick-line");
  pen.line(at(r.p99), y + 1, at(r.p99), y + 19, "tick-line");
  const double m = at(r.mean);
  pen.path(cat("M", decimals(m - 4, 1), " ", decimals(middle, 1), "l4 -4 4 4 -4 4z"), "mean");
  if (r.most > s.high * r.median)
    pen.path(cat("M", decimals(s.right - 6, 1), " ", decimals(middle - 4, 1), "l6 4 -6 4z"), "ink");
}

}  // namespace

std::string svg_of(const SpreadChart& chart, int width, const std::string& name) {
  SvgPen pen;
  if (chart.rows.empty()) return pen.finish(width, 1, name);
  const Scale s = scale_of(chart, 8, width - 8);
  const double bottom = (kLine + 2 + kBar + kBetween) * static_cast<double>(chart.rows.size());
  const Ticks ticks = ticks_between(100 * s.low, 100 * s.high, false, width > 400 ? 8 : 4);
  for (const double t : ticks.at) {
    pen.line(s.at(t / 100), kLine, s.at(t / 100), bottom, "grid");
    pen.text(s.at(t / 100), bottom + 13, decimals(t, ticks.decimals), "tick", SvgPen::Anchor::kMiddle);
  }
  double y = 0;
  for (const SpreadChart::Row& r : chart.rows) {
    const std::string value = cat("median ", rounded(r.median), ", p99 ", rounded(r.p99), " ", chart.unit);
    const double begin = draw_words(pen, y, width, fit_text(r.name, width - text_width(value) - 12), value);
    draw_spread(pen, s, begin, r);
    y = begin + kBar + kBetween;
  }
  pen.text(width, bottom + 29, "percent of the row's median", "tick", SvgPen::Anchor::kEnd);
  return pen.finish(width, bottom + 34, name);
}

}  // namespace tessera
