// SPDX-License-Identifier: Apache-2.0
// Resize: along each axis every result is a sum of few elements of x with fixed weights. One element each is a gather,
// or a view where elements are repeated; up to four are as many gathers; more (antialias) a product with the matrix of
// weights. A constant x, a table of positions, is folded. Positions are worked out in f32, as ONNX Runtime does: ties
// of nearest then fall to the same side.
#include <algorithm>
#include <cmath>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

constexpr int64_t kMostWeights = int64_t{1} << 20;

struct ResizeRule {
  std::string mode, positions, nearest;
  float cubic = -0.75f;
  bool antialias = false, outside = true;  // outside: elements beyond the edge count, as the one at the edge
};

// One axis: `size` elements become `count`.
struct ResizeAxis {
  int64_t size = 0, count = 0;
  float scale = 1, start = 0, end = 1;  // start and end: of the part of x that tf_crop_and_resize asks for
};

// Results of an axis: result i is the sum over t of weight[i taps + t] * x[source[i taps + t]].
struct Sums {
  int64_t taps = 1;
  std::vector<int64_t> source;
  std::vector<float> weight;
  std::vector<bool> beyond;  // results that lie outside of x, where that matters
};

float position(const ResizeRule& rule, const ResizeAxis& a, int64_t i) {
  const float at = static_cast<float>(i), size = static_cast<float>(a.size), count = static_cast<float>(a.count);
  if (rule.positions == "asymmetric") return at / a.scale;
  if (rule.positions == "align_corners") return a.count == 1 ? 0 : at * (size - 1) / (count - 1);
  if (rule.positions == "tf_half_pixel_for_nn") return (at + 0.5f) / a.scale;
  if (rule.positions == "pytorch_half_pixel") return a.count > 1 ? (at + 0.5f) / a.scale - 0.5f : 0;
  if (rule.positions == "tf_crop_and_resize") {
    if (a.count == 1) return 0.5f * (a.start + a.end) * (size - 1);
    return a.start * (size - 1) + at * (a.end - a.start) * (size - 1) / (count - 1);
  }
  if (rule.positions == "half_pixel_symmetric") {
    const float adjust = count / (a.scale * size), center = size / 2;
    return center * (1 - adjust) + (at + 0.5f) / a.scale - 0.5f;
  }
  return (at + 0.5f) / a.scale - 0.5f;  // half_pixel
}

float nearest(const std::string& how, float x) {
  if (how == "round_prefer_ceil") return std::floor(x + 0.5f);
  if (how == "floor") return std::floor(x);
  if (how == "ceil") return std::ceil(x);
  return std::ceil(x - 0.5f);  // round_prefer_floor
}

// The weight of an element at a distance.
float filter(const ResizeRule& rule, float distance) {
  const float d = std::fabs(distance), a = rule.cubic;
  if (rule.mode == "linear") return d < 1 ? 1 - d : 0;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// Elements that a result sums up: within `reach` of its position.
Result<Sums> sums_of(const ResizeRule& rule, const ResizeAxis& a) {
  const float wide = rule.antialias && a.scale < 1 ? 1 / a.scale : 1;  // how much the filter is stretched
  const float reach = (rule.mode == "cubic" ? 2.0f : 1.0f) * wide;
  Sums s;
  s.taps = rule.mode == "nearest" ? 1
           : wide == 1            ? static_cast<int64_t>(2 * reach)
                                  : static_cast<int64_t>(std::ceil(2 * reach)) + 1;
  if (s.taps > kMostWeights / std::max<int64_t>(1, a.count))
    return bad_input(cat(a.count, " results that each sum up ", s.taps, " of ", a.size, " elements are too many"));
  const bool crops = rule.positions == "tf_crop_and_resize";
  for (int64_t i = 0; i < a.count; ++i) {
    float at = position(rule, a, i);
    if (!(std::fabs(at) < 0x1p40f)) return bad_input("a position that is not finite, or far outside of x");
    s.beyond.push_back(crops && (at < 0 || at > static_cast<float>(a.size - 1)));
    if (rule.mode == "linear" && wide == 1) at = std::clamp(at, 0.0f, static_cast<float>(a.size - 1));
    const int64_t first = rule.mode == "nearest" ? static_cast<int64_t>(nearest(rule.nearest, at))
                          : wide == 1 ? static_cast<int64_t>(std::floor(at)) - static_cast<int64_t>(reach) + 1
                                      : static_cast<int64_t>(std::floor(at - reach + 1));
    double total = 0;
    const size_t row = s.weight.size();
    for (int64_t t = 0; t < s.taps; ++t) {
      const int64_t source = first + t;
      const bool inside = source >= 0 && source < a.size;
      float weight = rule.mode == "nearest" ? 1 : filter(rule, (static_cast<float>(source) - at) / wide);
      if (!inside && !rule.outside && rule.mode != "nearest") weight = 0;
      s.source.push_back(std::clamp<int64_t>(source, 0, a.size - 1));
      s.weight.push_back(weight);
      total += static_cast<double>(weight);
    }
    const bool sums_to_one = rule.outside && wide == 1;
    for (size_t t = row; !sums_to_one && total != 0 && t < s.weight.size(); ++t)
      s.weight[t] = static_cast<float>(static_cast<double>(s.weight[t]) / total);
  }
  return s;
}

// Without elements that no result gives a weight: where an axis keeps its size, one of two or four has all of it.
Sums without_zeros(const Sums& s) {
  const size_t taps = static_cast<size_t>(s.taps);
  std::vector<bool> used(taps, false);
  for (size_t i = 0; i < s.weight.size(); ++i) used[i % taps] = used[i % taps] || s.weight[i] != 0;
  Sums out{.taps = std::count(used.begin(), used.end(), true), .source = {}, .weight = {}, .beyond = s.beyond};
  for (size_t i = 0; i < s.weight.size(); ++i) {
    if (!used[i % taps]) continue;
    out.source.push_back(s.source[i]);
    out.weight.push_back(s.weight[i]);
  }
  return out.taps == 0 ? s : out;
}

bool all_ones(const Sums& s) {
  return std::all_of(s.weight.begin(), s.weight.end(), [](float w) { return w == 1; });
}

bool keeps(const Sums& s, int64_t size) {
  if (s.taps != 1 || !all_ones(s) || static_cast<int64_t>(s.source.size()) != size) return false;
  for (int64_t i = 0; i < size; ++i) {
    if (s.source[static_cast<size_t>(i)] != i) return false;
  }
  return true;
}

// x by a table of elements; where each is repeated as often as every other, a view.
Result<ValueId> pick(OnnxCall& c, ValueId x, size_t axis, const std::vector<int64_t>& source) {
  const int64_t size = c.b.shape(x)[axis], count = static_cast<int64_t>(source.size()), times = count / size;
  bool repeats = times > 1 && times * size == count;
  for (int64_t i = 0; repeats && i < count; ++i) repeats = source[static_cast<size_t>(i)] == i / times;
  if (!repeats) return take(c, x, axis, c.b.integer_list(source));
  const int64_t at = static_cast<int64_t>(axis);
  TS_ASSIGN(const ValueId apart, c.b.unsqueeze(x, {at + 1}));
  Shape wide = c.b.shape(apart), joined = c.b.shape(x);
  wide[axis + 1] = times, joined[axis] = count;
  TS_ASSIGN(const ValueId repeated, c.b.expand(apart, wide));
  return c.b.reshape(repeated, joined, c.name());
}

// x, its axis last, times the transposed matrix of weights. The matrix keeps its type in every precision.
Result<ValueId> multiply(OnnxCall& c, ValueId x, size_t axis, const Sums& s) {
  const int64_t size = c.b.shape(x)[axis], count = static_cast<int64_t>(s.source.size()) / s.taps;
  if (size > kMostWeights / std::max<int64_t>(1, count))
    return bad_input(cat("Resize of an axis of ", size, " to ", count, " is too large"));
  std::vector<float> matrix(static_cast<size_t>(count * size), 0.0f);
  for (size_t i = 0; i < s.source.size(); ++i)
    matrix[i / static_cast<size_t>(s.taps) * static_cast<size_t>(size) + static_cast<size_t>(s.source[i])] +=
        s.weight[i];
  const ValueId w = c.b.graph().add_constant(c.name() + ".weights", {count, size}, matrix);
  c.b.graph().at(w).exact = true;
  std::vector<int64_t> swap;
  for (size_t i = 0; i < c.b.rank(x); ++i) swap.push_back(static_cast<int64_t>(i));
  std::swap(swap[axis], swap.back());
  TS_ASSIGN(x, c.b.permute(x, swap));
  TS_ASSIGN(const ValueId y, c.b.emit("matmul", {x, w}, {}, c.name()));
  return c.b.permute(y, swap);
}

Result<ValueId> resize_axis(OnnxCall& c, ValueId x, size_t axis, const Sums& s) {
  if (keeps(s, c.b.shape(x)[axis])) return x;
  if (s.taps > 4) return multiply(c, x, axis, s);
  const size_t taps = static_cast<size_t>(s.taps), count = s.source.size() / taps;
  Shape along(c.b.rank(x), 1);
  along[axis] = static_cast<int64_t>(count);
  ValueId sum = kNoValue;
  for (size_t t = 0; t < taps; ++t) {
    std::vector<int64_t> source;
    std::vector<float> weight;
    for (size_t i = 0; i < count; ++i) {
      source.push_back(s.source[i * taps + t]);
      weight.push_back(s.weight[i * taps + t]);
    }
    TS_ASSIGN(ValueId part, pick(c, x, axis, source));
    if (!all_ones(s)) {
      const ValueId factor = c.b.graph().add_constant(c.name() + ".weights", along, weight);
      TS_ASSIGN(part, c.b.map("mul", {part, factor}, c.name()));
    }
    if (sum == kNoValue) {
      sum = part;
    } else {
      TS_ASSIGN(sum, c.b.map("add", {sum, part}, c.name()));
    }
  }
  return sum;
}

Result<std::vector<float>> numbers_of(OnnxCall& c, size_t operand, const char* what) {
  if (!c.has(operand)) return std::vector<float>{};
  const ValueId v = c.in[operand];
  if (elements(c.b.shape(v)) == 0) return std::vector<float>{};
  const std::vector<double> numbers = c.b.graph().numbers(v);
  if (numbers.empty() || numbers.size() > 64)
    return bad_input(cat("the ", what, " of Resize must be a few numbers known at build"));
  return std::vector<float>(numbers.begin(), numbers.end());
}

Result<ResizeRule> rule_of(OnnxCall& c) {
  ResizeRule rule;
  TS_ASSIGN(rule.mode, c.word("mode", "nearest"));
  TS_ASSIGN(rule.positions, c.word("coordinate_transformation_mode", "half_pixel"));
  TS_ASSIGN(rule.nearest, c.word("nearest_mode", "round_prefer_floor"));
  TS_ASSIGN(const double cubic, c.number("cubic_coeff_a", -0.75));
  TS_ASSIGN(const int64_t antialias, c.integer("antialias", 0));
  TS_ASSIGN(const int64_t exclude, c.integer("exclude_outside", 0));
  rule.cubic = static_cast<float>(cubic);
  rule.antialias = antialias != 0;
  rule.outside = exclude == 0;
  const auto known = [](const std::string& word, std::initializer_list<const char*> list) {
    return std::any_of(list.begin(), list.end(), [&](const char* w) { return word == w; });
  };
  if (!known(rule.mode, {"nearest", "linear", "cubic"}))
    return bad_input(cat("Resize with mode '", shown(rule.mode), "'; known: nearest, linear, cubic"));
  if (!known(rule.positions, {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                              "tf_half_pixel_for_nn", "tf_crop_and_resize"}))
    return bad_input(cat("Resize with coordinate_transformation_mode '", shown(rule.positions), "'"));
  if (!known(rule.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}))
    return bad_input(cat("Resize with nearest_mode '", shown(rule.nearest), "'"));
  return rule;
}

// The axes that the node resizes, with what it says of each; in ascending order of their numbers in x.
Result<std::map<size_t, ResizeAxis>> axes_of(OnnxCall& c, ValueId x) {
  TS_ASSIGN(std::vector<int64_t> axes, c.integers("axes"));
  TS_ASSIGN(const std::vector<float> roi, numbers_of(c, 1, "roi"));
  TS_ASSIGN(const std::vector<float> scales, numbers_of(c, 2, "scales"));
  TS_ASSIGN(const std::string policy, c.word("keep_aspect_ratio_policy", "stretch"));
  std::vector<int64_t> sizes;
  if (c.has(3) && elements(c.b.shape(c.in[3])) > 0) {
    TS_ASSIGN(sizes, c.b.integers(c.in[3], "the sizes of Resize"));
  }
  for (size_t i = 0; i < c.b.rank(x) && !c.node.attrs.contains("axes"); ++i) axes.push_back(static_cast<int64_t>(i));
  const size_t n = axes.size();
  if (sizes.empty() == scales.empty() || (sizes.empty() ? scales.size() : sizes.size()) != n ||
      (!roi.empty() && roi.size() != 2 * n))
    return bad_input(cat("Resize of ", n, " axes wants as many scales, or as many sizes, and a roi of twice as many"));
  std::map<size_t, ResizeAxis> out;
  float common = 0;
  for (size_t i = 0; i < n; ++i) {
    TS_ASSIGN(const size_t axis, resolve_axis(axes[i], c.b.rank(x)));
    ResizeAxis a{.size = c.b.shape(x)[axis]};
    if (a.size < 1) return bad_input(cat("Resize of ", to_string(c.b.shape(x))));
    a.scale = sizes.empty() ? scales[i] : static_cast<float>(sizes[i]) / static_cast<float>(a.size);
    const double count = sizes.empty() ? std::floor(static_cast<double>(a.scale * static_cast<float>(a.size)))
                                       : static_cast<double>(sizes[i]);
    if (!(a.scale > 0) || !(count >= 1) || !(count <= static_cast<double>(kMaxListed)))
      return bad_input(cat("Resize of an axis of ", a.size, " to ", count, "; results have 1 to ", kMaxListed,
                           " elements along an axis"));
    a.count = static_cast<int64_t>(count);
    if (!roi.empty()) a.start = roi[i], a.end = roi[n + i];
    const bool least = policy == "not_larger";
    common = i == 0 ? a.scale : least ? std::min(common, a.scale) : std::max(common, a.scale);
    if (!out.emplace(axis, a).second) return bad_input(cat("axis ", axis, " is resized twice"));
  }
  if (sizes.empty() || policy == "stretch") return out;
  if (policy != "not_larger" && policy != "not_smaller")
    return bad_input(cat("Resize with keep_aspect_ratio_policy '", shown(policy), "'"));
  for (auto& [axis, a] : out) {
    a.scale = common;
    a.count = static_cast<int64_t>(std::floor(common * static_cast<float>(a.size) + 0.5f));
    if (a.count < 1 || a.count > kMaxListed) return bad_input("Resize to a size that is too small, or too large");
  }
  return out;
}

// tf_crop_and_resize: results outside of x are a number.
Result<ValueId> replace_beyond(OnnxCall& c, ValueId y, size_t axis, const Sums& s, double number) {
  if (std::none_of(s.beyond.begin(), s.beyond.end(), [](bool b) { return b; })) return y;
  const std::vector<float> marks(s.beyond.begin(), s.beyond.end());
  Shape along(c.b.rank(y), 1);
  along[axis] = static_cast<int64_t>(marks.size());
  const ValueId marked = c.b.graph().add_constant(c.name() + ".outside", along, marks);
  TS_ASSIGN(const ValueId beyond, c.b.map("greater", {marked, c.b.scalar(0, Element::f32)}, c.name()));
  return c.b.map("where", {beyond, c.b.scalar(number, c.b.element(y)), y}, c.name());
}

Result<Values> resize(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const ResizeRule rule, rule_of(c));
  TS_ASSIGN(const double fill, c.number("extrapolation_value", 0));
  if (rule.mode != "nearest" && info(c.b.element(x)).kind != ElementKind::kFloat)
    return bad_input(cat("Resize with mode '", rule.mode, "' of ", info(c.b.element(x)).name));
  using Axes = std::map<size_t, ResizeAxis>;
  TS_ASSIGN(const Axes axes, axes_of(c, x));
  Shape wanted = c.b.shape(x);
  std::map<size_t, Sums> all;
  for (const auto& [axis, a] : axes) {
    TS_ASSIGN(const Sums sums, sums_of(rule, a));
    all[axis] = without_zeros(sums);
    wanted[axis] = a.count;
  }
  if (!checked_elements(wanted, kMaxElements)) return bad_input(cat("Resize to ", to_string(wanted), " is too large"));
  // What makes x smaller comes first.
  for (const bool grows : {false, true}) {
    for (const auto& [axis, a] : axes) {
      if ((a.count > a.size) != grows) continue;
      TS_ASSIGN(x, resize_axis(c, x, axis, all[axis]));
    }
  }
  for (const auto& [axis, s] : all) {
    TS_ASSIGN(x, replace_beyond(c, x, axis, s, fill));
  }
  return Values{x};
}

}  // namespace

std::span<const OnnxOp> onnx_resize_ops() {
  static const OnnxOp kOps[] = {{"Resize", resize}};
  return kOps;
}

}  // namespace tessera
