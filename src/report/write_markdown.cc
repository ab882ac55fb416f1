// SPDX-License-Identifier: Apache-2.0
// The same sections as Markdown with tables (GitHub's). Charts become bars of text or tables of their points.
#include <algorithm>

#include "base/status.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/report.h"

namespace tessera {
namespace {

constexpr int kBarLength = 40;

std::string bar(double share) {
  const double eighths = std::clamp(share, 0.0, 1.0) * kBarLength * 8;
  constexpr const char* kParts[] = {"", "\u258F", "\u258E", "\u258D", "\u258C", "\u258B", "\u258A", "\u2589"};
  std::string out;
  const int whole = static_cast<int>(eighths) / 8;
  for (int i = 0; i < whole; ++i) out += "\u2588";
  out += kParts[static_cast<int>(eighths) % 8];
  return out.empty() && share > 0 ? kParts[1] : out;
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Lines of equal columns, for a block of code.
class Columns {
 public:
  void add(std::vector<std::string> row) {
    for (std::string& cell : row) cell = clean_text(cell);
    rows_.push_back(std::move(row));
  }
  std::vector<std::string> lines() const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], characters(row[c]));
    }
    std::vector<std::string> out;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        line += row[c];
        if (c + 1 < row.size()) line.append(widths[c] - characters(row[c]) + 2, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out.push_back(std::move(line));
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

class MarkdownWriter {
 public:
  explicit MarkdownWriter(const Document& document) : document_(document) {}

  std::string write() {
    const Document& d = document_;
    out_ = cat("# ", markdown_text(d.title), "\n\n");
    if (!d.subtitle.empty()) out_ += cat("**", markdown_text(d.subtitle), "**\n\n");
    for (size_t i = 0; i < d.facts.size(); ++i)
      out_ +=
          cat(i == 0 ? markdown_line(d.facts[i]) : markdown_text(d.facts[i]), i + 1 < d.facts.size() ? " · " : "\n\n");
    for (size_t i = 0; i < d.sections.size(); ++i) {
      out_ += cat("## ", i + 1, " ", markdown_text(d.sections[i].heading), "\n\n");
      for (const Block& b : d.sections[i].blocks) std::visit([&](const auto& block) { put(block); }, b);
    }
    while (out_.ends_with("\n\n")) out_.pop_back();
    return std::move(out_);
  }

 private:
  void put(const TextBlock& b) {
    const char* before = b.kind == TextBlock::Kind::kFinding   ? "> "
                         : b.kind == TextBlock::Kind::kWarning ? "> **Note.** "
                                                               : "";
    out_ += cat(before, *before == '\0' ? markdown_line(b.text) : markdown_text(b.text), "\n\n");
  }

  void put(const ListBlock& b) {
    for (size_t i = 0; i < b.items.size(); ++i)
      out_ += cat(b.numbered ? cat(i + 1, ". ") : std::string("- "), markdown_line(b.items[i].text),
                  b.items[i].code.empty() ? "" : cat(" ", markdown_code(b.items[i].code, false)), "\n");
    out_ += "\n";
  }

  void put(const CodeBlock& b) {
    std::string fence = "```";
    for (const std::string& line : b.lines) {
      while (line.find(fence) != std::string::npos) fence += '`';
    }
    out_ += fence + "\n";
    for (const std::string& line : b.lines) out_ += clean_text(line) + "\n";
    out_ += fence + "\n\n";
  }

  void put(const TableBlock& t) {
    caption("Table", ++tables_, t.caption);
    std::string rule = "|";
    out_ += "|";
    for (const TableColumn& c : t.columns) {
      out_ += cat(" ", markdown_text(c.title), " |");
      rule += c.number ? "---:|" : "---|";
    }
    out_ += "\n" + rule + "\n";
    for (const auto& row : t.rows) {
      out_ += "|";
      for (const TableCell& cell : row) {
        const std::string text = cell.is_code ? markdown_code(cell.text, true) : markdown_text(cell.text);
        out_ += cell.strong && !text.empty() ? cat(" **", text, "** |") : cat(" ", text, " |");
      }
      out_ += "\n";
    }
    out_ += "\n";
  }

  void put(const ChartBlock& b) {
    caption("Figure", ++figures_, b.caption);
    std::visit([&](const auto& chart) { draw(chart); }, b.chart);
  }

  void caption(const char* what, int number, const std::string& text) {
    out_ += cat("**", what, " ", number, ".** ", markdown_text(text), "\n\n");
  }

  void draw(const BarChart& chart) {
    double longest = 0;
    bool stacked = false;
    for (const BarChart::Row& r : chart.rows) {
      double sum = 0;
      for (const BarChart::Segment& s : r.segments) sum += s.value;
      longest = std::max(longest, sum);
      stacked = stacked || r.segments.size() > 1;
    }
    Columns columns;
    for (const BarChart::Row& r : chart.rows) {
      if (stacked) columns.add({r.name, r.value});
      for (const BarChart::Segment& s : r.segments) {
        const std::string drawn = bar(longest > 0 ? s.value / longest : 0);
        columns.add(stacked ? std::vector<std::string>{cat("  ", s.label), "", drawn}
                            : std::vector<std::string>{r.name, r.value, cat(drawn, r.predicted ? "" : " measured")});
      }
    }
    put(CodeBlock{columns.lines()});
  }

  void draw(const SpreadChart& chart) {
    Columns columns;
    double most = 0;
    for (const SpreadChart::Row& r : chart.rows) most = std::max(most, r.p99);
    for (const SpreadChart::Row& r : chart.rows) {
      columns.add({r.name, cat("median ", rounded(r.median), " ", chart.unit), bar(most > 0 ? r.median / most : 0)});
      columns.add({"", cat("p99    ", rounded(r.p99), " ", chart.unit), bar(most > 0 ? r.p99 / most : 0)});
    }
    put(CodeBlock{columns.lines()});
  }

  void draw(const ScatterChart& chart) {
    const auto words = [](double v, bool log) { return log && v >= 1e6 ? count_words(v, "") : rounded(v, 4); };
    out_ +=
        cat("| point | ", markdown_text(chart.x.title), " | ", markdown_text(chart.y.title), " |\n|---|---:|---:|\n");
    for (const ScatterChart::Point& p : chart.points) {
      const size_t series = chart.front ? static_cast<size_t>(p.shape / 4) : static_cast<size_t>(p.shape);
      const std::string of = series < chart.series.size() && chart.series.size() > 1 ? chart.series[series] + ": " : "";
      out_ += cat("| ", markdown_text(of + p.label), " | ", words(p.x, chart.x.log), " | ",
                  p.y < 1e-3 ? cat(p.y) : words(p.y, chart.y.log), " |\n");
    }
    out_ += "\n";
    for (const ScatterChart::Line& l : chart.lines) {
      if (!l.label.empty()) out_ += cat("- ", markdown_text(l.label), "\n");
    }
    if (std::any_of(chart.lines.begin(), chart.lines.end(), [](const auto& l) { return !l.label.empty(); }))
      out_ += "\n";
  }

  void draw(const MapChart& chart) {
    out_ += "| |";
    for (const std::string& c : chart.columns) out_ += cat(" ", markdown_text(c), " |");
    out_ += "\n|---|";
    for (size_t c = 0; c < chart.columns.size(); ++c) out_ += "---|";
    out_ += "\n";
    for (const MapChart::Row& r : chart.rows) {
      out_ += cat("| ", markdown_text(r.name), " |");
      for (const auto& c : r.cells) out_ += cat(" ", markdown_text(c.text), c.marked ? "!" : "", " |");
      out_ += "\n";
    }
    out_ += "\n";
    const bool marked = std::any_of(chart.rows.begin(), chart.rows.end(), [](const MapChart::Row& r) {
      return std::any_of(r.cells.begin(), r.cells.end(), [](const auto& c) { return c.marked; });
    });
    if (marked) out_ += "!: computed with more bits than asked for.\n\n";
  }

  const Document& document_;
  std::string out_;
  int tables_ = 0, figures_ = 0;
};

}  // namespace

std::string write_markdown(const Document& document) { return MarkdownWriter(document).write(); }

}  // namespace tessera
