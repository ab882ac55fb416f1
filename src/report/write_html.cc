// SPDX-License-Identifier: Apache-2.0
// One HTML file that needs nothing else. Style and script are assets/report, put into the program at build; a content
// security policy forbids everything from outside, whatever a name might still smuggle in.
#include <algorithm>
#include <span>

#include "base/embedded_text.h"
#include "base/status.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/report.h"
#include "report/svg.h"
#include "report/typeset.h"

namespace tessera {

std::span<const EmbeddedText> report_assets();  // generated: style, sort

namespace {

// Characters: up to the first a cell stays on one line, from the second on it is read as a sentence.
constexpr size_t kShortCell = 26, kProseCell = 60;
constexpr size_t kKeptRows = 14;    // of a table that stays on one sheet of paper
constexpr size_t kTextColumn = 82;  // characters of a table's row that fit into the width of the text

std::string asset(std::string_view name) {
  for (const EmbeddedText& t : report_assets()) {
    if (name == t.name) return t.text();
  }
  TS_CHECK(false, "assets/report has no ", name);
  return "";
}

size_t length_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// About how many characters wide the table wants to be.
size_t wanted_width(const TableBlock& t) {
  size_t sum = 0;
  for (size_t c = 0; c < t.columns.size(); ++c) {
    size_t widest = length_of(t.columns[c].title);
    for (const auto& row : t.rows) {
      if (c < row.size()) widest = std::max(widest, std::min<size_t>(length_of(row[c].text), kShortCell));
    }
    sum += widest + 2;
  }
  return sum;
}

std::string swatch(int fill) {
  return cat(
      "<svg class=\"swatch\" width=\"18\" height=\"11\" aria-hidden=\"true\"><rect x=\"1\" y=\"1\" width=\"16\" "
      "height=\"9\" ",
      fill < 0 ? std::string("class=\"open\"") : cat("fill=\"url(#fill", fill, ")\""), "/></svg>");
}

// A point of the series, alone in a small drawing.
std::string symbol(int shape) {
  constexpr const char* kPaths[] = {"M3 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M3.5 2.5h7v7h-7z", "M7 2l4.4 8h-8.8z",
                                    "M7 1l5 5-5 5-5-5z"};
  return cat("<svg class=\"swatch\" width=\"14\" height=\"12\" aria-hidden=\"true\"><path d=\"", kPaths[shape % 4],
             "\" class=\"", shape < 4 ? cat("point s", shape) : std::string("point hollow"), "\"/></svg>");
}

class HtmlWriter {
 public:
  explicit HtmlWriter(const Document& document) : document_(document) {}

  std::string write() {
    head();
    for (size_t i = 0; i < document_.sections.size(); ++i) {
      const Section& s = document_.sections[i];
      out_ +=
          cat("<section id=\"s", i + 1, "\">\n<h2><span class=\"n\">", i + 1, "</span>", typeset(s.heading), "</h2>\n");
      for (const Block& b : s.blocks) std::visit([&](const auto& block) { put(block); }, b);
      out_ += "</section>\n";
    }
    out_ += cat("</main>\n<script>\n", asset("sort"), "</script>\n</body>\n</html>\n");
    return std::move(out_);
  }

 private:
  void head() {
    const Document& d = document_;
    out_ =
        cat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
            "<link rel=\"icon\" href=\"data:,\">\n<title>",
            html_text(d.title), "</title>\n<style>\n", asset("style"), "</style>\n</head>\n<body>\n", svg_fills(),
            "\n<main>\n<header>\n<h1>", html_text(d.title), "</h1>\n");
    if (!d.subtitle.empty()) out_ += cat("<p class=\"subtitle\">", html_text(d.subtitle), "</p>\n");
    if (!d.facts.empty()) {
      out_ += "<p class=\"facts\">";
      for (const std::string& f : d.facts) out_ += cat("<span>", html_text(f), "</span>");
      out_ += "</p>\n";
    }
    out_ += "</header>\n<nav aria-label=\"Contents\"><ol>";
    for (size_t i = 0; i < d.sections.size(); ++i)
      out_ += cat("<li><a href=\"#s", i + 1, "\">", i + 1, "&ensp;", typeset(d.sections[i].heading), "</a></li>");
    out_ += "</ol></nav>\n";
  }

  void put(const TextBlock& b) {
    const char* kind = b.kind == TextBlock::Kind::kFinding   ? " class=\"finding\""
                       : b.kind == TextBlock::Kind::kWarning ? " class=\"warning\""
                                                             : "";
    out_ += cat("<p", kind, ">", typeset(b.text), "</p>\n");
  }

  void put(const ListBlock& b) {
    const char* tag = b.numbered ? "ol" : "ul";
    out_ += cat("<", tag, ">");
    for (const ListItem& item : b.items) {
      out_ += cat("<li>", typeset(item.text));
      if (!item.code.empty()) out_ += cat("<br><code>", html_text(item.code), "</code>");
      out_ += "</li>";
    }
    out_ += cat("</", tag, ">\n");
  }

  void put(const CodeBlock& b) {
    out_ += "<pre><code>";
    for (const std::string& line : b.lines) {
      // Words are kept whole where a printed line is broken: a hyphen is no place for it.
      for (size_t at = 0; at <= line.size();) {
        const size_t end = std::min(line.find(' ', at), line.size());
        out_ += cat(at > 0 ? " " : "", "<span>", html_text(line.substr(at, end - at)), "</span>");
        at = end + 1;
      }
      out_ += "\n";
    }
    out_ += "</code></pre>\n";
  }

  void put(const TableBlock& t) {
    const std::string name = cat("Table ", ++tables_, ".");
    const std::string caption = cat("<b>", name, "</b> ", typeset(t.caption));
    if (t.folded) {
      out_ += cat("<details>\n<summary>", caption, " (", t.rows.size(), t.rows.size() == 1 ? " row" : " rows",
                  ")</summary>\n");
    }
    out_ += cat("<figure class=\"table", wanted_width(t) > kTextColumn ? " wide" : "",
                t.rows.size() <= kKeptRows ? " kept" : "", "\">\n");
    if (!t.folded) out_ += cat("<figcaption>", caption, "</figcaption>\n");
    out_ += cat("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", html_text(name),
                "\"><table>\n<thead><tr>");
    for (const TableColumn& c : t.columns)
      out_ += cat("<th scope=\"col\"", c.number ? " class=\"num\"" : "", ">", html_text(c.title), "</th>");
    out_ += "</tr></thead>\n<tbody>\n";
    for (const auto& row : t.rows) put_row(t, row);
    out_ += "</tbody></table></div>\n</figure>\n";
    if (t.folded) out_ += "</details>\n";
  }

  void put_row(const TableBlock& t, const std::vector<TableCell>& row) {
    out_ += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) {
      const TableCell& cell = row[c];
      std::string classes = c < t.columns.size() && t.columns[c].number ? "num" : "";
      const auto add = [&](const char* word) { classes += cat(classes.empty() ? "" : " ", word); };
      if (cell.strong) add("strong");
      const bool number = c < t.columns.size() && t.columns[c].number;
      const size_t length = length_of(cell.text);
      if (length <= kShortCell && !number) add("short");
      if (length > kShortCell) add(cell.is_code ? "name" : length > kProseCell ? "prose" : "phrase");
      out_ += cat("<td", classes.empty() ? "" : cat(" class=\"", classes, "\""));
      if (cell.value) out_ += cat(" data-v=\"", rounded(*cell.value, 7), "\"");
      const std::string text = cell.is_code && !cell.text.empty() ? cat("<code>", html_text(cell.text), "</code>")
                               : number                           ? typeset_number(cell.text)
                                                                  : typeset(cell.text);
      out_ += cat(">", cell.fill >= 0 ? swatch(cell.fill) : "", text, "</td>");
    }
    out_ += "</tr>\n";
  }

  void put(const ChartBlock& b) {
    const std::string name = cat("Figure ", ++figures_, ".");
    out_ += "<figure class=\"chart\">\n";
    std::visit(
        [&](const auto& chart) {
          out_ += cat("<div class=\"scroll wide-chart\">", svg_of(chart, kWideChart, b.caption), "</div>\n",
                      "<div class=\"scroll narrow\">", svg_of(chart, kNarrowChart, b.caption), "</div>\n");
          put_legend(chart);
        },
        b.chart);
    out_ += cat("<figcaption><b>", name, "</b> ", typeset(b.caption), b.drawing.empty() ? "" : " ", typeset(b.drawing),
                "</figcaption>\n</figure>\n");
  }

  void put_legend(const std::vector<std::pair<int, std::string>>& legend) {
    if (legend.empty()) return;
    out_ += "<ul class=\"legend\">";
    for (const auto& [fill, words] : legend) out_ += cat("<li>", swatch(fill), html_text(words), "</li>");
    out_ += "</ul>\n";
  }
  void put_legend(const BarChart& c) { put_legend(c.legend); }
  void put_legend(const MapChart& c) { put_legend(c.legend); }
  void put_legend(const SpreadChart&) {}
  void put_legend(const ScatterChart& c) {
    std::string items;
    for (size_t i = 0; i < c.series.size() && c.series.size() > 1; ++i) {
      // Beside a front there are filled points and hollow ones.
      const int shape = c.front ? static_cast<int>(4 * i) : static_cast<int>(i);
      items += cat("<li>", symbol(shape), html_text(c.series[i]), "</li>");
    }
    for (size_t i = 0; i < c.lines.size(); ++i) {
      if (!c.lines[i].label.empty())
        items +=
            cat("<li><svg class=\"swatch\" width=\"26\" height=\"12\" aria-hidden=\"true\"><path d=\"M1 6H25\" "
                "class=\"roof d",
                i % 3, "\"/></svg>", typeset(c.lines[i].label), "</li>");
    }
    if (!items.empty()) out_ += cat("<ul class=\"legend\">", items, "</ul>\n");
  }

  const Document& document_;
  std::string out_;
  int tables_ = 0, figures_ = 0;
};

}  // namespace

std::string write_html(const Document& document) { return HtmlWriter(document).write(); }

}  // namespace tessera
