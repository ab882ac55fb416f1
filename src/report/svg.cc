// SPDX-License-Identifier: Apache-2.0
#include "report/svg.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/typeset.h"

namespace tessera {
namespace {

constexpr double kCharWidth = 7.2;  // of text at 12 px: wide fonts take so much, most less

// Tenths of a pixel.
std::string number(double v) {
  std::string text = decimals(v, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string title_of(const std::string& hint) {
  return hint.empty() ? "" : cat("<title>", html_text(hint), "</title>");
}

// What is drawn over the ground of a fill, in a square of 6 x 6.
constexpr const char* kPatterns[fill::kCount] = {
    "",                                      // 4 bits: solid and dark
    "",                                      // 8 bits: solid, lighter
    "M-1 5L1 7M-1 -1L7 7M5 -1L7 1",          // 16 bits: falling lines
    "M0 1.5H6M0 4.5H6",                      // 32 bits: level lines
    "M-1 1L1 -1M-1 7L7 -1M5 7L7 5",          // attention: rising lines
    "M1 1h1.6v1.6h-1.6zM4 4h1.6v1.6h-1.6z",  // norm: dots
    "M3 0V6",                                // elementwise: upright lines
    "M0 0L6 6M6 0L0 6",                      // conversion: crosses
    "M0 3H6M3 0V6",                          // copy: squares
    "",                                      // other: solid and pale
    "M2.2 2.2h1.6v1.6h-1.6z",                // unknown: open, with points
};

}  // namespace

void SvgPen::rect(double x, double y, double width, double height, std::string_view classes) {
  body_ += cat("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(width), "\" height=\"",
               number(height), "\" class=\"", classes, "\"/>");
}

void SvgPen::filled(double x, double y, double width, double height, int fill, std::string_view classes,
                    const std::string& hint) {
  body_ += cat("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(width), "\" height=\"",
               number(height), "\" fill=\"url(#fill", fill, ")\" class=\"", classes, "\">", title_of(hint), "</rect>");
}

void SvgPen::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  body_ +=
      cat("<path d=\"M", number(x1), " ", number(y1), "L", number(x2), " ", number(y2), "\" class=\"", classes, "\"/>");
}

void SvgPen::path(const std::string& d, std::string_view classes, const std::string& hint) {
  body_ += cat("<path d=\"", d, "\" class=\"", classes, "\">", title_of(hint), "</path>");
}

void SvgPen::text(double x, double y, std::string_view text, std::string_view classes, Anchor anchor,
                  double turned_degrees) {
  body_ += cat("<text x=\"", number(x), "\" y=\"", number(y), "\"");
  if (!classes.empty()) body_ += cat(" class=\"", classes, "\"");
  if (anchor != Anchor::kStart) body_ += cat(" text-anchor=\"", anchor == Anchor::kMiddle ? "middle" : "end", "\"");
  if (turned_degrees != 0)
    body_ += cat(" transform=\"rotate(", number(turned_degrees), " ", number(x), " ", number(y), ")\"");
  body_ += cat(">", typeset(text), "</text>");
}

std::string SvgPen::finish(double width, double height, const std::string& name) const {
  return cat("<svg viewBox=\"0 0 ", number(width), " ", number(height), "\" width=\"", number(width), "\" height=\"",
             number(height), "\" role=\"img\" aria-label=\"", html_text(name), "\">", body_, "</svg>");
}

std::string svg_fills() {
  std::string out = "<svg class=\"fills\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>";
  for (int i = 0; i < fill::kCount; ++i) {
    out += cat("<pattern id=\"fill", i, "\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">",
               "<rect width=\"6\" height=\"6\" class=\"g", i, "\"/>");
    if (*kPatterns[i] != '\0') out += cat("<path d=\"", kPatterns[i], "\" class=\"p", i, "\"/>");
    out += "</pattern>";
  }
  return out + "</defs></svg>";
}

double text_width(std::string_view text) {
  return kCharWidth *
         static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string fit_text(std::string_view text, double width) {
  const double room = std::floor(width / kCharWidth);
  return room < 3 ? std::string() : cut_middle(text, static_cast<size_t>(room));
}

std::vector<std::string> wrap_text(std::string_view text, double width, size_t most) {
  std::vector<std::string> lines;
  const std::string clean = clean_text(text);
  for (size_t at = 0; at < clean.size();) {
    size_t end = clean.size();
    while (end > at && text_width(std::string_view(clean).substr(at, end - at)) > width) {
      const size_t blank = clean.rfind(' ', end - 1);
      end = blank == std::string::npos || blank <= at ? at : blank;
    }
    if (end == at || lines.size() + 1 == most) {  // a word that is too long, or no more lines
      lines.push_back(fit_text(std::string_view(clean).substr(at), width));
      break;
    }
    lines.push_back(clean.substr(at, end - at));
    at = end < clean.size() ? end + 1 : end;
  }
  return lines;
}

Ticks ticks_between(double low, double high, bool log, int about) {
  Ticks ticks;
  if (!(high > low) || !std::isfinite(low) || !std::isfinite(high) || (log && low <= 0)) return ticks;
  if (log) {
    const double decades = std::log10(high / low);
    const int every = std::max(1, static_cast<int>(std::ceil(decades / about)));
    for (int d = static_cast<int>(std::ceil(std::log10(low) - 1e-9)); std::pow(10.0, d) <= high * (1 + 1e-9); ++d) {
      if (d % every == 0) ticks.at.push_back(std::pow(10.0, d));
    }
    if (ticks.at.size() >= 2) return ticks;
    ticks.at.clear();
    for (int d = static_cast<int>(std::floor(std::log10(low))); d <= std::log10(high); ++d) {
      for (const double m : {1.0, 2.0, 5.0}) {
        const double v = m * std::pow(10.0, d);
        if (v >= low && v <= high) ticks.at.push_back(v);
      }
    }
    return ticks;
  }
  const double rough = (high - low) / about, power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
  ticks.decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 6);
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i < 3 * about && (first + i) * step <= high + step * 1e-9; ++i)
    ticks.at.push_back((first + i) * step);
  return ticks;
}

}  // namespace tessera
