// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/status.h"
#include "report/svg.h"

namespace tessera {

std::string svg_of(const MapChart& chart, int width, const std::string& name) {
  constexpr double kHeight = 22, kTop = 18, kLeast = 19;
  double label = 0;
  for (const MapChart::Row& r : chart.rows) label = std::max(label, text_width(r.name) + 8);
  label = std::min(label, width * 0.36);
  const auto columns = static_cast<double>(chart.columns.size());
  // Where so many columns do not fit, the drawing is wider and its box scrolls.
  const double cell = columns > 0 ? std::clamp((width - label) / columns, kLeast, 46.0) : kLeast;
  SvgPen pen;
  const size_t every = cell < 22 && chart.columns.size() > 16 ? 2 : 1;
  for (size_t c = 0; c < chart.columns.size(); c += every)
    pen.text(label + (static_cast<double>(c) + 0.5) * cell, 11, fit_text(chart.columns[c], cell * 1.6), "tick",
             SvgPen::Anchor::kMiddle);
  double y = kTop;
  for (const MapChart::Row& r : chart.rows) {
    pen.text(0, y + 15, fit_text(r.name, label - 6));
    for (size_t c = 0; c < r.cells.size(); ++c) {
      const MapChart::CellOfMap& cell_of = r.cells[c];
      if (cell_of.fill < 0) continue;
      const double x = label + static_cast<double>(c) * cell;
      pen.filled(x + 1, y + 1, cell - 2, kHeight - 2, cell_of.fill, cell_of.marked ? "bar marked" : "bar",
                 cell_of.hint);
      const double words = std::min(text_width(cell_of.text) + 2, cell - 5);
      const bool dark = carries_text(cell_of.fill);
      if (!dark) pen.rect(x + cell / 2 - words / 2, y + 4, words, kHeight - 8, "plate");
      pen.text(x + cell / 2, y + 15, cell_of.text, dark ? "on-dark" : "", SvgPen::Anchor::kMiddle);
    }
    y += kHeight;
  }
  return pen.finish(std::max<double>(label + columns * cell + 1, 1), y + 2, name);
}

}  // namespace tessera
