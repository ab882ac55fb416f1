// SPDX-License-Identifier: Apache-2.0
// A report as data: sections of text, tables, charts and listings. What a report says is decided once (sections.h);
// write_html.cc and write_markdown.cc only decide how that looks. All text is plain and may come from other people's
// files: the writers escape it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

struct TextBlock {
  enum class Kind : uint8_t { kPlain, kFinding, kWarning };  // a finding is what a hurried reader must see
  std::string text;
  Kind kind = Kind::kPlain;
};

struct ListItem {
  ListItem(std::string text, std::string code = "") : text(std::move(text)), code(std::move(code)) {}  // NOLINT
  std::string text, code;  // code: a command or flag, below the text
};
struct ListBlock {
  std::vector<ListItem> items;
  bool numbered = false;
};

struct CodeBlock {
  std::vector<std::string> lines;
};

struct TableColumn {
  std::string title;
  bool number = false;  // set to the right, and sorted from the largest
};
struct TableCell {
  TableCell() = default;
  TableCell(std::string text) : text(std::move(text)) {}  // NOLINT: a cell is most often just text
  TableCell(const char* text) : text(text) {}             // NOLINT
  TableCell(std::string text, std::optional<double> value) : text(std::move(text)), value(value) {}
  static TableCell code(std::string text) {  // names of kernels, layers and flags
    TableCell cell(std::move(text));
    cell.is_code = true;
    return cell;
  }

  std::string text;
  std::optional<double> value = {};  // that the column is sorted by; nothing: by its text
  bool is_code = false, strong = false;
  int fill = -1;  // a swatch of this fill stands before the text
};
struct TableBlock {
  std::string caption;
  std::vector<TableColumn> columns;
  std::vector<std::vector<TableCell>> rows;
  bool folded = false;  // long and of interest to few: the reader opens it
};

// How an area is filled. Each differs from the others in lightness or in its pattern, so that it is told apart in grey.
namespace fill {
inline constexpr int k4Bits = 0, k8Bits = 1, k16Bits = 2, k32Bits = 3;  // products, by their precision
inline constexpr int kAttention = 4, kNorm = 5, kElementwise = 6, kConversion = 7, kCopy = 8, kOther = 9, kUnknown = 10;
inline constexpr int kCount = 11;
}  // namespace fill

// A bar per row, of segments that lie end to end.
struct BarChart {
  struct Segment {
    int fill;
    double value;
    std::string label;  // what it is: written into it where there is room
  };
  struct Row {
    std::string name, value;  // written above the bar: at its left and right end
    std::vector<Segment> segments;
    bool predicted = false;  // drawn open: nothing of it was measured
  };
  std::vector<std::pair<int, std::string>> legend;  // fill and its meaning
  std::vector<Row> rows;
};

// Points over two axes, with lines behind them.
struct ScatterChart {
  struct Axis {
    std::string title;
    bool log = false;
  };
  struct Point {
    double x, y;
    double weight = 0;  // share of the largest point's area, 0 to 1
    int shape = 0;      // of its series
    std::string label;  // written beside it where there is room, the first points first
    std::string hint;
  };
  struct Line {
    std::vector<std::pair<double, double>> points;
    std::string label;
  };
  Axis x, y;
  std::vector<std::string> series;  // a shape each
  std::vector<Point> points;
  std::vector<Line> lines;
  bool front = false;  // lines join points of a Pareto front
};

// How a measured number is spread: least, quartiles where they are known, percentiles, most.
struct SpreadChart {
  struct Row {
    std::string name;
    double least, median, mean, p90, p95, p99, most;
  };
  std::string unit;
  std::vector<Row> rows;
};

// Rows of cells with a word each: which precision a layer has.
struct MapChart {
  struct CellOfMap {
    int fill = -1;  // -1: there is none
    std::string text, hint;
    bool marked = false;  // not what was asked for
  };
  struct Row {
    std::string name;
    std::vector<CellOfMap> cells;
  };
  std::vector<std::string> columns;
  std::vector<Row> rows;
  std::vector<std::pair<int, std::string>> legend;
};

struct ChartBlock {
  std::string caption;
  std::variant<BarChart, ScatterChart, SpreadChart, MapChart> chart;
  std::string drawing = {};  // how the drawing is read; of no use where it becomes text
};

using Block = std::variant<TextBlock, ListBlock, CodeBlock, TableBlock, ChartBlock>;

struct Section {
  std::string heading;
  std::vector<Block> blocks;
};

struct Document {
  std::string title, subtitle;
  std::vector<std::string> facts;  // a line below the title: machine, date, program
  std::vector<Section> sections;
};

}  // namespace tessera
