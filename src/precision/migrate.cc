// SPDX-License-Identifier: Apache-2.0
#include "precision/migrate.h"

#include <algorithm>
#include <cmath>

#include "types/quantize_array.h"

namespace tessera {
namespace {

bool is_plain(const Graph& g, ValueId id) {
  return id != kNoValue && g.at(id).constant && g.at(id).type.quant == QuantType(Element::f32);
}

std::string into(const char* place, const Node& node) { return cat("into ", place, " ", node.name); }

std::vector<float> f32_numbers(const Graph& g, ValueId id) {
  const std::vector<double> wide = g.numbers(id);
  return {wide.begin(), wide.end()};
}

// Which columns of rows of `width` elements a value takes up; all of them where it does not follow rows.
std::vector<bool> columns_of(const Placement& placed, const Shape& shape, int64_t width) {
  std::vector<int64_t> columns{placed.offset % width};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (placed.strides[axis] % width == 0 || shape[axis] == 1) continue;
    const size_t many = columns.size();
    for (int64_t i = 1; i < shape[axis]; ++i) {
      for (size_t c = 0; c < many; ++c) columns.push_back(columns[c] + i * placed.strides[axis]);
    }
  }
  std::vector<bool> taken(static_cast<size_t>(width), false);
  for (int64_t c : columns) {
    if (c < 0 || c >= width) return std::vector<bool>(static_cast<size_t>(width), true);
    taken[static_cast<size_t>(c)] = true;
  }
  return taken;
}

class Migrator {
 public:
  Migrator(Graph& graph, std::span<const size_t> layers, const std::vector<float>& factors)
      : g_(graph),
        layers_(layers),
        producers_(graph.producers()),
        k_(static_cast<int64_t>(factors.size())),
        factors_(factors) {
    for (float f : factors) inverse_.push_back(1 / f);
  }

  Migrated run(ValueId x) {
    const Placement placed = placement_of(g_, producers_, x);
    const std::string name = g_.at(placed.base).name;
    if (!follows_rows(placed, x)) return {.how = cat("'", name, "' is read in other columns than it is made in")};
    for (ValueId out : g_.outputs) {
      if (placement_of(g_, producers_, out).base == placed.base)
        return {.how = cat("'", name, "' is a result of the model")};
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op == "view") continue;
      const bool layer = std::find(layers_.begin(), layers_.end(), n) != layers_.end();
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId in = node.inputs[i];
        if (in == kNoValue || placement_of(g_, producers_, in).base != placed.base) continue;
        if (!layer || i != 0) return {.how = cat("'", name, "' is read by ", node.name, " too")};
      }
    }
    const int maker = producers_[static_cast<size_t>(placed.base)];
    if (maker < 0) return {.how = cat("'", name, "' is an input of the model")};
    Node& node = g_.nodes[static_cast<size_t>(maker)];
    Migrated out = node.op == "norm"     ? into_norm(node)
                   : node.op == "matmul" ? into_matmul(node)
                   : node.op == "attention"
                       ? into_values(node, static_cast<size_t>(maker))
                       : Migrated{.how = cat(node.name, " (", node.op, ") has no place for factors")};
    if (!out.done) return out;
    for (size_t n : layers_) {
      ValueId& w = g_.nodes[n].inputs[1];
      std::vector<float> numbers = f32_numbers(g_, w);
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= factors_[i % factors_.size()];
      w = g_.add_constant(g_.at(w).name, Shape(g_.at(w).type.shape), numbers);
    }
    return out;
  }

 private:
  // Column c of x is column c of rows of k elements in its storage.
  bool follows_rows(const Placement& placed, ValueId x) const {
    const Shape& shape = g_.at(x).type.shape;
    if (shape.empty() || shape.back() != k_ || placed.offset % k_ != 0 || (placed.strides.back() != 1 && k_ != 1))
      return false;
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      if (shape[axis] != 1 && placed.strides[axis] % k_ != 0) return false;
    }
    int64_t row = 1;  // of the storage: its last axes
    const Shape& base = g_.at(placed.base).type.shape;
    for (size_t axis = base.size(); axis-- > 0 && row < k_;) row *= base[axis];
    return row == k_;
  }

  ValueId divided(ValueId id) {
    std::vector<float> numbers = f32_numbers(g_, id);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= inverse_[i % inverse_.size()];
    return g_.add_constant(g_.at(id).name, Shape(g_.at(id).type.shape), numbers);
  }

  Migrated into_norm(Node& node) {
    if (!node.then.empty()) return {.how = cat(node.name, " has a program after it")};
    const bool has_gain = node.inputs.size() > 1 && node.inputs[1] != kNoValue;
    const bool has_shift = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (g_.at(node.inputs[0]).type.shape.back() != k_) return {.how = cat(node.name, " has rows of another length")};
    if ((has_gain && !is_plain(g_, node.inputs[1])) || (has_shift && !is_plain(g_, node.inputs[2])))
      return {.how = cat("gain and shift of ", node.name, " are not constants in f32")};
    if (has_gain) {
      node.inputs[1] = divided(node.inputs[1]);
    } else {
      if (node.inputs.size() < 2) node.inputs.push_back(kNoValue);
      node.inputs[1] = g_.add_constant(node.name + ".gain", {k_}, inverse_);
    }
    if (has_shift) node.inputs[2] = divided(node.inputs[2]);
    return {.done = true, .how = into("the gain of", node), .maker = node.name};
  }

  Migrated into_matmul(Node& node) {
    if (node.then.find(StepKind::residual) != nullptr || node.then.find(StepKind::quantize) != nullptr)
      return {.how = cat(node.name, " adds to another value")};
    if (!node.then.empty() && node.then.steps.back().kind == StepKind::scale) {
      ValueId& vector = node.inputs[static_cast<size_t>(node.then.steps.back().operand)];
      if (!is_plain(g_, vector)) return {.how = cat("the scale of ", node.name, " is not a constant in f32")};
      vector = divided(vector);
      return {.done = true, .how = into("the scale of", node), .maker = node.name};
    }
    if (node.then.find(StepKind::act) == nullptr && !node.then.gated()) {
      std::vector<int64_t> rows(static_cast<size_t>(k_));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
      if (Migrated out = into_rows(node, rows); out.done) return out;
    }
    node.then.steps.push_back({StepKind::scale, Unary::identity, static_cast<int>(node.inputs.size())});
    node.inputs.push_back(g_.add_constant(node.name + ".divide", {k_}, inverse_));
    return {.done = true, .how = into("a scale after", node), .maker = node.name};
  }

  // Row rows[i] of the weight, and that entry of the bias, by factor i.
  Migrated into_rows(Node& node, const std::vector<int64_t>& rows) {
    if (!node.then.within({StepKind::bias})) return {.how = cat(node.name, " does more than add a bias")};
    const Step* bias = node.then.find(StepKind::bias);
    const ValueId w = node.inputs[1];
    if (!is_plain(g_, w) || g_.at(w).type.shape.size() != 2 ||
        (bias != nullptr && !is_plain(g_, node.inputs[static_cast<size_t>(bias->operand)])))
      return {.how = cat("weight and bias of ", node.name, " are not constants in f32")};
    const int64_t cols = g_.at(w).type.shape[1];
    std::vector<float> numbers = f32_numbers(g_, w);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int64_t c = 0; c < cols; ++c) numbers[static_cast<size_t>(rows[i] * cols + c)] *= inverse_[i];
    }
    node.inputs[1] = g_.add_constant(g_.at(w).name, Shape(g_.at(w).type.shape), numbers);
    if (bias != nullptr) {
      ValueId& b = node.inputs[static_cast<size_t>(bias->operand)];
      std::vector<float> shift = f32_numbers(g_, b);
      for (size_t i = 0; i < rows.size(); ++i) shift[static_cast<size_t>(rows[i])] *= inverse_[i];
      b = g_.add_constant(g_.at(b).name, Shape(g_.at(b).type.shape), shift);
    }
    return {.done = true, .how = into("the rows of", node), .maker = node.name};
  }

  // Attention's results are sums over v's rows: a channel of v is a channel of the result.
  Migrated into_values(const Node& attention, size_t index) {
    const ValueId v = attention.inputs[2];
    const Placement placed = placement_of(g_, producers_, v);
    const Shape& shape = g_.at(v).type.shape;  // [b, sk, heads, d]
    const int maker = producers_[static_cast<size_t>(placed.base)];
    if (!attention.then.empty() || attention.attrs.has("p") || shape.size() != 4 || shape[2] * shape[3] != k_)
      return {.how = cat("a head of ", attention.name, " shares its values with others")};
    if (maker < 0 || g_.nodes[static_cast<size_t>(maker)].op != "matmul")
      return {.how = cat("the values of ", attention.name, " do not come from a linear layer")};
    const int64_t width = g_.at(placed.base).type.shape.back();
    const std::vector<bool> taken = columns_of(placed, shape, width);
    if (std::count(taken.begin(), taken.end(), true) != k_)
      return {.how = cat("the values of ", attention.name, " are no columns of a linear layer")};
    for (ValueId out : g_.outputs) {
      if (placement_of(g_, producers_, out).base == placed.base)
        return {.how = cat("the values of ", attention.name, " are a result of the model")};
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].op == "view") continue;
      for (size_t i = 0; i < g_.nodes[n].inputs.size(); ++i) {
        const ValueId in = g_.nodes[n].inputs[i];
        if (in == kNoValue || (n == index && i == 2)) continue;
        const Placement other = placement_of(g_, producers_, in);
        if (other.base != placed.base) continue;
        const std::vector<bool> too = columns_of(other, g_.at(in).type.shape, width);
        for (size_t c = 0; c < too.size(); ++c) {
          if (too[c] && taken[c])
            return {.how = cat("the values of ", attention.name, " are read by ", g_.nodes[n].name, " too")};
        }
      }
    }
    std::vector<int64_t> rows;
    for (int64_t h = 0; h < shape[2]; ++h) {
      for (int64_t d = 0; d < shape[3]; ++d)
        rows.push_back(placed.offset % width + h * placed.strides[2] + d * placed.strides[3]);
    }
    return into_rows(g_.nodes[static_cast<size_t>(maker)], rows);
  }

  Graph& g_;
  std::span<const size_t> layers_;
  const std::vector<int> producers_;
  const int64_t k_;
  const std::vector<float>& factors_;
  std::vector<float> inverse_;
};

// Factors far from 1 would take numbers out of the range of 16-bit carriers.
float bounded(double factor) {
  if (!std::isfinite(factor) || factor <= 0) return 1;
  return static_cast<float>(std::clamp(factor, 0x1p-10, 0x1p10));
}

constexpr int64_t kAwqRows = 256;  // rows of each weight that the search looks at, evenly spread
constexpr int kAwqSteps = 20;      // exponents 0, 1/20 ... 1

}  // namespace

Migrated migrate(Graph& graph, ValueId x, std::span<const size_t> layers, const std::vector<float>& factors) {
  return Migrator(graph, layers, factors).run(x);
}

std::vector<float> smooth_factors(const InputMoments& moments, std::span<const MigratedWeight> weights,
                                  double exponent) {
  const size_t k = static_cast<size_t>(moments.cols);
  std::vector<float> largest(k, 0.0f), factors(k);
  for (const MigratedWeight& m : weights) {
    for (size_t i = 0; i < m.w.size(); ++i) largest[i % k] = std::max(largest[i % k], std::fabs(m.w[i]));
  }
  for (size_t j = 0; j < k; ++j)
    factors[j] = bounded(std::pow(moments.amax[j], exponent) / std::pow(largest[j], 1 - exponent));
  return factors;
}

Result<AwqFactors> awq_factors(const InputMoments& moments, const Hessian& hessian,
                               std::span<const MigratedWeight> weights) {
  const int64_t k = moments.cols;
  const size_t cols = static_cast<size_t>(k);
  AwqFactors best;
  double all = 0;
  std::vector<std::vector<float>> samples;
  for (const MigratedWeight& m : weights) {
    const int64_t rows = static_cast<int64_t>(m.w.size()) / k, step = std::max<int64_t>(1, divide_up(rows, kAwqRows));
    samples.emplace_back();
    for (int64_t r = 0; r < rows; r += step)
      samples.back().insert(samples.back().end(), m.w.begin() + r * k, m.w.begin() + (r + 1) * k);
    all += error_under(hessian, samples.back().data(), static_cast<int64_t>(samples.back().size()) / k);
  }
  std::vector<double> means(cols, 0.0);  // of |w|, by column
  for (const std::vector<float>& w : samples) {
    for (size_t i = 0; i < w.size(); ++i) means[i % cols] += std::fabs(w[i]);
  }
  double least = 0, plain = 0;
  for (int a = 0; a <= 2 * kAwqSteps;
       ++a) {  // without the weight's means from 0 to 1, then with them from 0 to below 1
    const bool by_weight = a > kAwqSteps;
    const double exponent = static_cast<double>(by_weight ? a - kAwqSteps - 1 : a) / kAwqSteps;
    std::vector<double> wanted(cols, 0.0);
    double high = 0, low = INFINITY;
    for (size_t j = 0; j < cols; ++j) {
      if (!(moments.mean_abs[j] > 0) || !(means[j] > 0)) continue;
      wanted[j] = std::pow(moments.mean_abs[j], exponent) / (by_weight ? std::pow(means[j], 1 - exponent) : 1.0);
      high = std::max(high, wanted[j]), low = std::min(low, wanted[j]);
    }
    std::vector<float> factors(cols);
    for (size_t j = 0; j < cols; ++j) factors[j] = bounded(wanted[j] / std::sqrt(high * low));
    double error = 0;
    for (size_t m = 0; m < samples.size(); ++m) {
      const std::vector<float>& w = samples[m];
      const int64_t rows = static_cast<int64_t>(w.size()) / k;
      std::vector<float> scaled(w.size());
      for (size_t i = 0; i < w.size(); ++i) scaled[i] = w[i] * factors[i % cols];
      TS_ASSIGN(const QuantizedArray codes, quantize_array(weights[m].type, scaled.data(), rows, k));
      dequantize_array(weights[m].type, codes.codes.data(), codes.scale.data(), codes.scale2.data(), rows, k,
                       scaled.data());
      for (size_t i = 0; i < w.size(); ++i) scaled[i] = scaled[i] / factors[i % cols] - w[i];
      error += error_under(hessian, scaled.data(), rows);
    }
    if (a == 0) plain = error;
    if (a == 0 || error < least)
      least = error, best.factors = factors, best.exponent = exponent, best.by_weight = by_weight;
  }
  best.before = all > 0 ? std::sqrt(plain / all) : 0;
  best.after = all > 0 ? std::sqrt(least / all) : 0;
  return best;
}

void divide_moments(InputMoments& moments, const std::vector<float>& factors) {
  const size_t k = factors.size();
  for (size_t i = 0; i < k; ++i) {
    moments.amax[i] /= factors[i];
    moments.mean_abs[i] /= factors[i];
    for (size_t j = 0; j < moments.xtx.size() / k; ++j) moments.xtx[i * k + j] /= factors[i] * factors[j];
  }
}

}  // namespace tessera
