// SPDX-License-Identifier: Apache-2.0
// GridSample: y[b, c, i...] is x[b, c, :, ...] read at the position that grid[b, i..., :] names, the last axis of x
// first, from -1 to 1. With the channels last that is a sum of rows of x, gathered by numbers that are worked out while
// running:
//   p = ((g + 1) size - 1) / 2, or (g + 1) (size - 1) / 2 where corners are aligned     along each axis
//   y = sum over the corners around p of  (product over the axes of weight) * x[row of the corner]
// One corner where the nearest is taken, 2 along each axis for linear, 4 for cubic. Outside of x there are zeros, the
// edge, or x reflected.
#include <cmath>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

constexpr int64_t kLargestAxis = int64_t{1} << 23;  // f32 counts its elements exactly

enum class Outside : uint8_t { kZeros, kEdge, kReflected };

struct SampleRule {
  std::string mode;
  Outside outside = Outside::kZeros;
  bool corners = false;  // -1 and 1 are the middles of the first and last element, not their outer edges
};

// One element that a result reads along an axis: its number, clamped into the axis, and what it is multiplied by.
struct Tap {
  ValueId at = kNoValue, weight = kNoValue;  // weight: kNoValue means 1
};

// Expressions over f32 that read like their formulas.
class Positions {
 public:
  Positions(OnnxCall& c, const SampleRule& rule, int64_t size) : c_(c), rule_(rule), size_(size) {}

  // What a result reads along this axis for the grid's numbers g.
  Result<std::vector<Tap>> taps(ValueId g) const {
    TS_ASSIGN(const ValueId p, position(g));
    if (rule_.mode == "nearest") {
      TS_ASSIGN(const Tap one, tap(p, kNoValue));
      return std::vector<Tap>{one};
    }
    TS_ASSIGN(const ValueId low, map("floor", p));
    TS_ASSIGN(const ValueId t, map("sub", p, low));
    std::vector<Tap> out;
    for (const int64_t step : rule_.mode == "cubic" ? std::vector<int64_t>{-1, 0, 1, 2} : std::vector<int64_t>{0, 1}) {
      TS_ASSIGN(const ValueId at, map("add", low, number(static_cast<double>(step))));
      TS_ASSIGN(const ValueId weight, weight_of(t, step));
      TS_ASSIGN(const Tap one, tap(at, weight));
      out.push_back(one);
    }
    return out;
  }

 private:
  ValueId number(double x) const { return c_.b.scalar(x, Element::f32); }
  Result<ValueId> map(const char* fn, Result<ValueId> a) const {
    if (!a.ok()) return a;
    return c_.b.map(fn, {*a}, c_.name());
  }
  Result<ValueId> map(const char* fn, Result<ValueId> a, Result<ValueId> b) const {
    if (!a.ok()) return a;
    if (!b.ok()) return b;
    return c_.b.map(fn, {*a, *b}, c_.name());
  }
  double length() const { return static_cast<double>(size_); }
  double first() const { return rule_.corners ? 0 : -0.5; }  // the edges of x, as positions
  double range() const { return rule_.corners ? length() - 1 : length(); }

  Result<ValueId> position(ValueId g) const {
    const Result<ValueId> from_zero = map("add", g, number(1));
    Result<ValueId> p = rule_.corners
                            ? map("mul", map("div", from_zero, number(2)), number(length() - 1))
                            : map("div", map("sub", map("mul", from_zero, number(length())), number(1)), number(2));
    if (rule_.mode == "nearest") p = map("round", p);
    // The four elements around a position outside of x are clamped one by one.
    if (rule_.outside == Outside::kEdge && rule_.mode != "cubic") return clamped(p);
    return rule_.outside == Outside::kReflected ? reflected(p) : p;
  }

  Result<ValueId> clamped(const Result<ValueId>& p) const {
    return map("min", map("max", p, number(0)), number(length() - 1));
  }

  // first + |p - first|, folded back at the other edge, as often as it takes.
  Result<ValueId> reflected(const Result<ValueId>& p) const {
    if (range() == 0) return map("mul", p, number(0));
    const Result<ValueId> along = map("abs", map("sub", p, number(first())));
    TS_ASSIGN(const ValueId u, map("mod", along, number(2 * range())));
    TS_ASSIGN(const ValueId back, map("sub", number(2 * range()), u));
    return map("add", map("min", u, back), number(first()));
  }

  // Of the element `step` away from the one below the position, which lies t above it.
  Result<ValueId> weight_of(ValueId t, int64_t step) const {
    if (rule_.mode == "linear") return step == 0 ? map("sub", number(1), t) : Result<ValueId>(t);
    constexpr double a = -0.75;
    TS_ASSIGN(const ValueId d, step <= 0 ? map("add", t, number(static_cast<double>(-step)))
                                         : map("sub", number(static_cast<double>(step)), t));
    if (step == 0 || step == 1)  // ((a + 2) d - (a + 3)) d d + 1
      return map("add", map("mul", map("mul", map("sub", map("mul", d, number(a + 2)), number(a + 3)), d), d),
                 number(1));
    // ((a d - 5 a) d + 8 a) d - 4 a
    const Result<ValueId> inner =
        map("add", map("mul", map("sub", map("mul", d, number(a)), number(5 * a)), d), number(8 * a));
    return map("sub", map("mul", inner, d), number(4 * a));
  }

  // Elements outside of x: none, the edge, or the ones that x is reflected to.
  Result<Tap> tap(ValueId at, ValueId weight) const {
    ValueId inside = at;
    if (rule_.outside == Outside::kReflected) {
      TS_ASSIGN(inside, reflected(at));
      TS_ASSIGN(inside, map("round", inside));
    }
    TS_ASSIGN(inside, clamped(inside));
    Tap out{.weight = weight};
    if (rule_.outside == Outside::kZeros) {
      TS_ASSIGN(const ValueId seen, c_.b.map("equal", {inside, at}, c_.name()));
      const ValueId kept = weight == kNoValue ? number(1) : weight;
      TS_ASSIGN(out.weight, c_.b.map("where", {seen, kept, number(0)}, c_.name()));
    }
    // A position that is no number reads the first element: an index has to be one of x's.
    TS_ASSIGN(const ValueId is_number, c_.b.map("equal", {inside, inside}, c_.name()));
    TS_ASSIGN(inside, c_.b.map("where", {is_number, inside, number(0)}, c_.name()));
    TS_ASSIGN(out.at, c_.b.cast(inside, Element::i64, c_.name()));
    return out;
  }

  OnnxCall& c_;
  const SampleRule& rule_;
  int64_t size_;
};

Result<SampleRule> read_rule(OnnxCall& c, size_t axes) {
  SampleRule rule;
  TS_ASSIGN(const std::string mode, c.word("mode", "linear"));
  TS_ASSIGN(const std::string outside, c.word("padding_mode", "zeros"));
  TS_ASSIGN(const int64_t corners, c.integer("align_corners", 0));
  rule.mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;  // their names before opset 20
  rule.corners = corners != 0;
  if (rule.mode != "linear" && rule.mode != "nearest" && rule.mode != "cubic")
    return bad_input(cat("GridSample with mode '", shown(mode), "'; known: linear, nearest, cubic"));
  if (rule.mode == "cubic" && axes != 2) return bad_input("GridSample with mode 'cubic' is defined over two axes only");
  if (outside != "zeros" && outside != "border" && outside != "reflection")
    return bad_input(cat("GridSample with padding_mode '", shown(outside), "'; known: zeros, border, reflection"));
  rule.outside = outside == "zeros" ? Outside::kZeros : outside == "border" ? Outside::kEdge : Outside::kReflected;
  return rule;
}

class Sampler {
 public:
  Sampler(OnnxCall& c, const Shape& x) : c_(c), x_(x) {}

  // `table`: x with its channels last, [b * all elements of an image, c].
  Result<ValueId> run(ValueId table, const std::vector<std::vector<Tap>>& taps, const Shape& results) {
    TS_ASSIGN(ValueId images, count_along(c_, x_[0], 0, results.size()));
    int64_t cells = 1;
    for (size_t a = 2; a < x_.size(); ++a) cells *= x_[a];
    TS_ASSIGN(images, c_.b.map("mul", {images, whole(cells)}, c_.name()));
    TS_TRY(add_corners(table, taps, 0, images, kNoValue));
    return sum_;
  }

 private:
  ValueId whole(int64_t n) const { return c_.b.scalar(static_cast<double>(n), Element::i64); }

  // All corners that share the taps of the axes before `axis`: `row` is their part of the row's number.
  Status add_corners(ValueId table, const std::vector<std::vector<Tap>>& taps, size_t axis, ValueId row,
                     ValueId weight) {
    if (axis == taps.size()) return add_corner(table, row, weight);
    int64_t stride = 1;
    for (size_t a = 2 + axis + 1; a < x_.size(); ++a) stride *= x_[a];
    for (const Tap& tap : taps[axis]) {
      TS_ASSIGN(const ValueId part, c_.b.map("mul", {tap.at, whole(stride)}, c_.name()));
      TS_ASSIGN(const ValueId next, c_.b.map("add", {row, part}, c_.name()));
      ValueId both = weight == kNoValue ? tap.weight : weight;
      if (weight != kNoValue && tap.weight != kNoValue) {
        TS_ASSIGN(both, c_.b.map("mul", {weight, tap.weight}, c_.name()));
      }
      TS_TRY(add_corners(table, taps, axis + 1, next, both));
    }
    return {};
  }

  Status add_corner(ValueId table, ValueId row, ValueId weight) {
    TS_ASSIGN(ValueId part, take(c_, table, 0, row));
    if (weight != kNoValue) {
      TS_ASSIGN(const ValueId factor, c_.b.unsqueeze(weight, {-1}));
      TS_ASSIGN(part, c_.b.map("mul", {part, factor}, c_.name()));
    }
    if (sum_ == kNoValue) {
      sum_ = part;
    } else {
      TS_ASSIGN(sum_, c_.b.map("add", {sum_, part}, c_.name()));
    }
    return {};
  }

  OnnxCall& c_;
  const Shape x_;
  ValueId sum_ = kNoValue;
};

Result<Values> grid_sample(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId grid, c.operand(1));
  const Shape s = c.b.shape(x), g = c.b.shape(grid);
  const size_t axes = s.size() < 2 ? 0 : s.size() - 2;
  bool fits =
      (axes == 2 || axes == 3) && g.size() == s.size() && g.back() == static_cast<int64_t>(axes) && g[0] == s[0];
  for (size_t a = 2; a < s.size(); ++a) fits = fits && s[a] >= 1 && s[a] <= kLargestAxis;
  if (!fits || c.b.element(x) != Element::f32 || c.b.element(grid) != Element::f32)
    return bad_input(cat("GridSample of ", to_string(s), " at ", to_string(g),
                         "; wants floats [b,c,h,w] at [b,rows,cols,2], or [b,c,d,h,w] at [b,planes,rows,cols,3]"));
  TS_ASSIGN(const SampleRule rule, read_rule(c, axes));
  const Shape results(g.begin(), g.end() - 1);  // the batch among them
  std::vector<std::vector<Tap>> taps;
  for (size_t a = 0; a < axes; ++a) {
    TS_ASSIGN(const ValueId one, c.b.slice(grid, -1, static_cast<int64_t>(axes - 1 - a), 1, 1));
    TS_ASSIGN(const ValueId numbers, c.b.reshape(one, results, c.name()));
    TS_ASSIGN(std::vector<Tap> along, Positions(c, rule, s[2 + a]).taps(numbers));
    taps.push_back(std::move(along));
  }
  std::vector<int64_t> last = {0}, first = {0, static_cast<int64_t>(axes) + 1};
  for (size_t a = 0; a < axes; ++a)
    last.push_back(static_cast<int64_t>(2 + a)), first.push_back(static_cast<int64_t>(1 + a));
  last.push_back(1);
  TS_ASSIGN(const ValueId turned, c.b.permute(x, last));
  TS_ASSIGN(const ValueId table, c.b.reshape(turned, {elements(s) / std::max<int64_t>(1, s[1]), s[1]}, c.name()));
  TS_ASSIGN(const ValueId y, Sampler(c, s).run(table, taps, results));
  return single(c.b.permute(y, first));
}

}  // namespace

std::span<const OnnxOp> onnx_grid_ops() {
  static const OnnxOp kOps[] = {{"GridSample", grid_sample}};
  return kOps;
}

}  // namespace tessera
