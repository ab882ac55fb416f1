// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/status.h"
#include "report/figures.h"
#include "report/svg.h"

namespace tessera {
namespace {

struct Range {
  double low = 0, high = 1;
  bool log = false;
  double place(double v) const {  // 0 to 1
    return log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
  }
};

// Nothing that can be measured lies beyond; a hostile file has such numbers.
constexpr double kLargest = 1e30;

bool is_drawn(double v, bool log) { return std::isfinite(v) && std::fabs(v) < kLargest && (!log || v > 1 / kLargest); }

void widen(double v, bool log, bool& any, double& low, double& high) {
  if (!is_drawn(v, log)) return;
  low = any ? std::min(low, v) : v;
  high = any ? std::max(high, v) : v;
  any = true;
}

// Around all points, with some room; lines do not count, but where they end in the chart's corners.
Range range_of(const ScatterChart& chart, bool of_x) {
  const bool log = of_x ? chart.x.log : chart.y.log;
  bool any = false;
  double low = 1, high = 1;
  for (const ScatterChart::Point& p : chart.points) widen(of_x ? p.x : p.y, log, any, low, high);
  for (const ScatterChart::Line& l : chart.lines) {
    for (const auto& [x, y] : l.points) widen(of_x ? x : y, log, any, low, high);
  }
  if (log) {
    const double pad = std::pow(high / low, 0.06) * 1.25;
    return {low / pad, high * pad, true};
  }
  const double pad = high > low ? (high - low) * 0.12 : std::max(std::fabs(high) * 0.2, 1e-9);
  return {low >= 0 ? std::max(0.0, low - pad) : low - pad, high + pad, false};
}

struct Box {
  double x, y, width, height;
  bool meets(const Box& b) const {
    return x < b.x + b.width && b.x < x + width && y < b.y + b.height && b.y < y + height;
  }
};

class Plot {
 public:
  Plot(const ScatterChart& chart, int width)
      : chart_(chart),
        x_(range_of(chart, true)),
        y_(range_of(chart, false)),
        width_(width),
        height_(std::clamp(width * 0.6, 240.0, 400.0)),
        area_{50, 22, width - 58.0, height_ - 22 - 38} {}

  std::string draw(const std::string& name) {
    draw_axes();
    for (const ScatterChart::Point& p : chart_.points) {
      const double r = radius(p);
      if (shown(p)) taken_.push_back({px(p.x) - r, py(p.y) - r, 2 * r, 2 * r});
    }
    for (size_t i = 0; i < chart_.lines.size(); ++i) draw_line(chart_.lines[i], i);
    for (const ScatterChart::Point& p : chart_.points) draw_point(p);
    for (const ScatterChart::Point& p : chart_.points) draw_label(p);
    return pen_.finish(width_, height_, name);
  }

 private:
  double px(double x) const { return area_.x + x_.place(x) * area_.width; }
  double py(double y) const { return area_.y + (1 - y_.place(y)) * area_.height; }
  bool shown(const ScatterChart::Point& p) const { return is_drawn(p.x, chart_.x.log) && is_drawn(p.y, chart_.y.log); }
  static double radius(const ScatterChart::Point& p) { return 4 + 7 * std::sqrt(std::clamp(p.weight, 0.0, 1.0)); }

  static std::string tick_words(double v, const ScatterChart::Axis& axis, int digits) {
    if (!axis.log) return decimals(v, digits);
    if (v >= 1e4) {  // "100 T"
      constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T", " P", " E"};
      const int power = std::min(static_cast<int>(std::floor(std::log10(v) / 3 + 1e-9)), 6);
      return decimals(v / std::pow(1e3, power), 0) + kPrefixes[power];
    }
    if (v >= 1) return decimals(v, 0);
    return v >= 1e-3 ? rounded(v, 1) : cat("1e", static_cast<int>(std::lround(std::log10(v))));
  }

  void draw_axes() {
    const Ticks along = ticks_between(x_.low, x_.high, x_.log, width_ > 400 ? 8 : 5);
    for (const double t : along.at) {
      pen_.line(px(t), area_.y, px(t), area_.y + area_.height, "grid");
      pen_.text(px(t), area_.y + area_.height + 15, tick_words(t, chart_.x, along.decimals), "tick",
                SvgPen::Anchor::kMiddle);
    }
    const Ticks up = ticks_between(y_.low, y_.high, y_.log, 6);
    for (const double t : up.at) {
      pen_.line(area_.x, py(t), area_.x + area_.width, py(t), "grid");
      pen_.text(area_.x - 6, py(t) + 4, tick_words(t, chart_.y, up.decimals), "tick", SvgPen::Anchor::kEnd);
    }
    pen_.line(area_.x, area_.y + area_.height, area_.x + area_.width, area_.y + area_.height, "axis");
    pen_.text(area_.x + area_.width, height_ - 6, chart_.x.title, "tick", SvgPen::Anchor::kEnd);
    pen_.text(0, 11, chart_.y.title, "tick");
  }

  bool is_free(const Box& b) const {
    return std::none_of(taken_.begin(), taken_.end(), [&](const Box& t) { return t.meets(b); });
  }

  void draw_line(const ScatterChart::Line& l, size_t index) {
    std::string d;
    for (const auto& [x, y] : l.points) {
      if (is_drawn(x, chart_.x.log) && is_drawn(y, chart_.y.log))
        d += cat(d.empty() ? "M" : "L", decimals(px(x), 1), " ", decimals(py(y), 1));
    }
    if (d.empty()) return;
    pen_.path(d, cat("roof d", index % 3));
    if (l.label.empty()) return;
    const double x = px(l.points.back().first), y = py(l.points.back().second) - 5;
    const double w = text_width(l.label);
    // The legend names it too: where a point is in the way, that must do.
    if (const Box b{x - w, y - 11, w, 14}; is_free(b)) {
      taken_.push_back(b);
      pen_.text(x, y, l.label, "tick", SvgPen::Anchor::kEnd);
    }
  }

  // Shapes: circle, square, triangle, diamond, then the same ones open.
  void draw_point(const ScatterChart::Point& p) {
    if (!shown(p)) return;
    const double x = px(p.x), y = py(p.y), r = radius(p);
    const auto n = [](double v) { return decimals(v, 2); };
    std::string d;
    switch (p.shape % 4) {
      case 0:
        d = cat("M", n(x - r), " ", n(y), "a", n(r), " ", n(r), " 0 1 0 ", n(2 * r), " 0a", n(r), " ", n(r), " 0 1 0 ",
                n(-2 * r), " 0z");
        break;
      case 1:
        d = cat("M", n(x - 0.85 * r), " ", n(y - 0.85 * r), "h", n(1.7 * r), "v", n(1.7 * r), "h", n(-1.7 * r), "z");
        break;
      case 2:
        d = cat("M", n(x), " ", n(y - 1.1 * r), "l", n(1.1 * r), " ", n(2 * r), "h", n(-2.2 * r), "z");
        break;
      default:
        d = cat("M", n(x), " ", n(y - 1.2 * r), "l", n(1.2 * r), " ", n(1.2 * r), " ", n(-1.2 * r), " ", n(1.2 * r),
                " ", n(-1.2 * r), " ", n(-1.2 * r), "z");
    }
    pen_.path(d, p.shape < 4 ? cat("point s", p.shape) : std::string("point hollow"),
              p.hint.empty() ? p.label : p.hint);
  }

  // Right of the point, left, above or below it; where all are taken, only its title names it.
  void draw_label(const ScatterChart::Point& p) {
    if (p.label.empty() || !shown(p)) return;
    const double x = px(p.x), y = py(p.y), r = radius(p) + 3, w = text_width(p.label);
    // The same layer of two engines in one place needs one label.
    constexpr double kNear = 16;
    for (const auto& [words, at_x, at_y] : labelled_) {
      if (words == p.label && std::fabs(at_x - x) < kNear && std::fabs(at_y - y) < kNear) return;
    }
    const Box places[] = {
        {x + r, y - 7, w, 14}, {x - r - w, y - 7, w, 14}, {x - w / 2, y - r - 13, w, 13}, {x - w / 2, y + r, w, 13}};
    for (const Box& b : places) {
      const bool inside = b.x >= 0 && b.x + b.width <= width_ && b.y >= 12 && b.y + b.height <= area_.y + area_.height;
      if (!inside || !is_free(b)) continue;
      taken_.push_back(b);
      labelled_.emplace_back(p.label, x, y);
      pen_.text(b.x, b.y + 11, p.label, "label");
      return;
    }
  }

  const ScatterChart& chart_;
  const Range x_, y_;
  const double width_, height_;
  const Box area_;
  std::vector<Box> taken_;
  std::vector<std::tuple<std::string, double, double>> labelled_;
  SvgPen pen_;
};

}  // namespace

std::string svg_of(const ScatterChart& chart, int width, const std::string& name) {
  return Plot(chart, width).draw(name);
}

}  // namespace tessera
