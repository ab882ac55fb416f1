// SPDX-License-Identifier: Apache-2.0
#include "ops/emulate_wgmma.h"

#include <algorithm>
#include <cmath>

#include "archs/sm90/approximate.h"
#include "base/parallel.h"
#include "op/extra_results.h"
#include "op/reference.h"
#include "steps/rotary.h"
#include "tiles/sm90/activation_fast.h"

namespace tessera {

std::vector<float> scales_of(const ScaleLevel& level, const TensorView& t, int64_t count) {
  std::vector<float> scales(static_cast<size_t>(count), 1.0f);
  if (level.granularity == Granularity::kNone || count == 0) return scales;
  if (level.granularity == Granularity::kTensor) return std::vector<float>(scales.size(), tensor_scale(t));
  info(level.element).decode(t.scale, 0, count, scales.data());
  return scales;
}

namespace {

// All that an epilogue reads.
struct Epilogue {
  Epilogue(const Problem& problem, const Product& product, std::span<const TensorView> in,
           std::span<const TensorView> out)
      : p(product) {
    if (p.x.scale.granularity == Granularity::kToken) {
      token = scales_of(p.x.scale, in[0], p.m);
    } else {
      x_scale = tensor_scale(in[0]);
    }
    w_scale = p.w.scaled() ? scales_of(p.w.scale, in[1], p.n) : std::vector<float>();
    unit = 1.0f / tensor_scale(out[0]);
    for (const Step& s : p.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) bias = decode_codes(*operand);
      if (s.kind == StepKind::scale) gain = decode_codes(*operand);
      if (s.kind == StepKind::residual) residual = decode_codes(*operand);
      if (names_function(s.kind)) act = smooth_activation(s.fn);
      if (s.kind == StepKind::normalise) set_factors(problem, *operand);
      if (s.kind == StepKind::rotary)
        angles = decode_codes(*operand), rotary = RotaryStep::of(s, operand->desc->shape.back());
    }
    if (const int at = ExtraResults::of(problem.attrs).gain; at > 0)
      codes_gain = decode_codes(in[static_cast<size_t>(at)]);
    gated = p.then->gated();
    // activate_half_pairs: results in e4m3 of nothing but an activation, by the normal mainloop
    // (tiles/sm90/gemm_run.cuh)
    in_half = act.present && !act.relu && !gated && gain.empty() && residual.empty() && p.y.element == Element::e4m3 &&
              unit > 0x1p-7f && unit < 0x1p10f;
  }

  void set_factors(const Problem& problem, const TensorView& moments) {
    const Dense m = decode(moments);
    const FoldedNorm norm = FoldedNorm::of(problem.attrs);
    const auto words = static_cast<size_t>(2 * moment_groups(p.k));
    for (size_t at = 0; at < m.v.size(); at += words) {
      const double f = inverse_deviation(m.v.data() + at, p.k, norm);
      row_factor.push_back({static_cast<float>(f),
                            static_cast<float>(f * (inverse_deviation_error(m.v.data() + at, p.k, norm) + 0x1p-23))});
    }
  }
  float at(const std::vector<float>& vector, int64_t col, float absent) const {
    return vector.empty() ? absent : vector[static_cast<size_t>(col)];
  }

  Product p;
  float x_scale = 1, unit = 1;
  std::vector<float> token, w_scale, bias, gain, residual, angles, codes_gain;
  RotaryStep rotary;
  std::vector<Near> row_factor;
  SmoothActivation act;
  bool gated = false, in_half = false;
};

// SmoothActivation in f32, of twice the argument.
Near activate(const SmoothActivation& act, const Near& q) {
  if (act.relu) return {SmoothActivation::twice_positive(q.v), 2 * q.off};
  const float t = q.v * q.v;
  const float u = q.v * std::fmaf(std::fmaf(std::fmaf(act.c[3], t, act.c[2]), t, act.c[1]), t, act.c[0]);
  const float tanh = std::tanh(u), y = std::fmaf(q.v, tanh, q.v);
  const double error = std::fabs(static_cast<double>(q.v)) * (sm90::tanh_error(u) + 0x1p-24);
  // The steepest of the activations rises by 1.13 for each unit of its argument, which is twice q.
  return {y, static_cast<float>(error) + 2.26f * q.off + (error == 0 && q.off == 0 ? 0 : Near::unit(y))};
}

// activate_half_pairs (tiles/sm90/activation_fast.h) of one number, to the last bit.
float activate_in_half(const SmoothActivation& act, float v, float unit) {
  using sm90::round_to_half;
  const double q = std::clamp(round_to_half(v), -65504.0, 65504.0);
  double u = round_to_half(q * q);
  u = round_to_half(round_to_half(act.half[1]) * u + round_to_half(act.half[0]));
  u = sm90::tanh_half(round_to_half(q * u));
  return static_cast<float>(round_to_half(round_to_half(q * u + q) * round_to_half(unit)));
}

// Column `col` of the sums: v = sum * factor + bias, halved where an activation follows.
struct Affine {
  float factor, bias, gain;
};
Affine normal_column(const Epilogue& e, int64_t col) {
  const bool halved = e.act.present && (!e.gated || col < e.p.cols);
  const float unit = halved ? 0.5f : e.unit, gain = e.at(e.gain, col, 1.0f);
  float factor = e.x_scale * unit;
  if (!e.w_scale.empty()) factor *= e.w_scale[static_cast<size_t>(col)];
  const float bias = e.at(e.bias, col, 0.0f) * unit;
  if (e.act.present) return {factor, bias, gain};
  return {factor * gain, bias * gain, 1.0f};
}
Affine swapped_column(const Epilogue& e, int64_t col) {
  const float half = e.act.present ? 0.5f : 1.0f;
  float factor = e.x_scale * half;
  if (!e.w_scale.empty()) factor *= e.w_scale[static_cast<size_t>(col)];
  return {factor, e.at(e.bias, col, 0.0f) * half, e.at(e.gain, col, 1.0f) * e.unit};
}

// After the affine part, in the normal mainloop.
Near finish_normal(const Epilogue& e, const Affine& c, Near v, const float* residual) {
  if (e.act.present) {
    v = activate(e.act, v);
    if (e.p.y.scaled()) v = v.times(e.unit);
    if (!e.gain.empty()) v = v.times(c.gain);
  }
  if (residual == nullptr) return v;
  if (e.act.present && !e.gain.empty()) v = v.joined();  // gain and residual
  return v.plus(*residual);
}
Near finish_swapped(const Epilogue& e, const Affine& c, Near v, const float* residual) {
  if (e.act.present) v = activate(e.act, v);
  v = v.times(c.gain);
  if (residual == nullptr) return v;
  if (c.gain != 1.0f) v = v.joined();
  return v.plus(*residual);
}

// steps/rotary.h, of a row of y.
void turn_heads(const Epilogue& e, int64_t row, Near* v) {
  const int64_t pairs = e.rotary.pairs, rows = static_cast<int64_t>(e.angles.size()) / (2 * pairs);
  const float *cosines = &e.angles[static_cast<size_t>(row % rows * 2 * pairs)], *sines = cosines + pairs;
  const auto turned = [](const Near& own, const Near& other, float cosine, float sine) {
    const Near product = other.times(sine);
    const float y = rotated(own.v, other.v, cosine, sine);
    const bool exact = own.off == 0 && product.off == 0;
    return Near{y, exact ? 0 : std::fabs(cosine) * own.off + product.off + Near::unit(y)};
  };
  for (int64_t head = 0; head < e.rotary.columns; head += e.rotary.head) {
    for (int64_t i = 0; i < pairs; ++i) {
      Near &a = v[head + i], &b = v[head + i + pairs];
      const Near first = turned(a, b, cosines[i], -sines[i]), second = turned(b, a, cosines[i], sines[i]);
      a = first, b = second;
    }
  }
}

// The tensor before, copied under the result's scale, with rows of y in it.
void emulate_kept(const Problem& problem, const KeptColumns& kept, std::span<const TensorView> in,
                  const TensorView& out, const std::vector<Near>& y, EmulatedResult& result) {
  const TensorView& before = in[static_cast<size_t>(kept.before)];
  const float unit = 1.0f / tensor_scale(out);
  const bool scaled = before.desc->type.scaled();
  std::vector<Near> all;
  for (const float code : decode_codes(before)) {
    const Near v{code, 0};
    all.push_back(scaled ? v.times(tensor_scale(before) * unit).joined() : v);
  }
  // Which number is where: the reference, over places.
  Dense places{problem.out[0].shape, std::vector<double>(y.size())};
  for (size_t i = 0; i < y.size(); ++i) places.v[i] = static_cast<double>(i);
  std::vector<Dense> numbers(in.size());
  numbers[static_cast<size_t>(kept.before)] = {before.desc->shape, std::vector<double>(all.size(), -1.0)};
  if (kept.at >= 0) numbers[static_cast<size_t>(kept.at)] = decode(in[static_cast<size_t>(kept.at)]);
  const Dense from = kept_result(problem, kept, numbers, places);
  for (size_t i = 0; i < all.size(); ++i) {
    if (from.v[i] >= 0) all[i] = y[static_cast<size_t>(from.v[i])].times(unit);
    result.low.push_back(all[i].low()), result.high.push_back(all[i].high());
  }
}

// Results beside the first, of its numbers before they are rounded.
void emulate_extra_results(const Problem& problem, const Epilogue& epilogue, std::span<const TensorView> in,
                           std::span<const TensorView> out, const std::vector<Near>& y, Emulation& all) {
  const ExtraResults extra = ExtraResults::of(problem.attrs);
  const std::vector<KeptColumns> kept = kept_columns(problem.attrs);
  for (size_t r = 1; r < problem.out.size(); ++r) {
    EmulatedResult& result = all[r];
    if (extra.kept > 0 && r >= static_cast<size_t>(extra.kept)) {
      emulate_kept(problem, kept[r - static_cast<size_t>(extra.kept)], in, out[r], y, result);
      continue;
    }
    if (static_cast<int>(r) == extra.codes) {
      const float unit = 1.0f / tensor_scale(out[r]);
      for (size_t i = 0; i < y.size(); ++i) {
        const float gain = epilogue.at(epilogue.codes_gain, static_cast<int64_t>(i) % epilogue.p.cols, 1.0f);
        const Near code = y[i].times(gain * unit);
        result.low.push_back(code.low()), result.high.push_back(code.high());
      }
      continue;
    }
    const int64_t cols = problem.out[0].shape.back(), words = 2 * moment_groups(cols);
    const auto rows = static_cast<int64_t>(y.size()) / std::max<int64_t>(1, cols);
    std::vector<double> row(static_cast<size_t>(cols)), off(row.size()), m(static_cast<size_t>(words)), e(m.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < cols; ++c) {
        const Near& v = y[static_cast<size_t>(i * cols + c)];
        row[static_cast<size_t>(c)] = v.v, off[static_cast<size_t>(c)] = v.off;
      }
      take_moments(row.data(), cols, m.data());
      moment_errors(row.data(), off.data(), cols, e.data());
      for (size_t w = 0; w < m.size(); ++w) {
        result.low.push_back(static_cast<float>(m[w] - e[w]));
        result.high.push_back(static_cast<float>(m[w] + e[w]));
      }
    }
  }
}

}  // namespace

const TensorCore* wgmma_core(Element element) {
  if (element == Element::i8) return nullptr;
  return element == Element::e4m3 ? &kWgmmaE4m3 : &kWgmmaHalf;
}

Emulation emulate_epilogue(const Problem& problem, const Product& p, std::span<const float> sums,
                           std::span<const TensorView> in, std::span<const TensorView> out, Mainloop mainloop) {
  const Epilogue e(problem, p, in, out);
  const bool swapped = mainloop == Mainloop::kSwapped, in_half = e.in_half && !swapped;
  std::vector<Affine> columns;
  for (int64_t c = 0; c < p.n; ++c) columns.push_back(swapped && !e.gated ? swapped_column(e, c) : normal_column(e, c));
  const int64_t residual_rows =
      e.residual.empty() ? 1 : static_cast<int64_t>(e.residual.size()) / std::max<int64_t>(1, p.n);
  std::vector<Near> y(static_cast<size_t>(p.m * p.cols));
  EmulatedResult first{std::vector<float>(y.size()), std::vector<float>(y.size())};
  parallel_for(p.m, 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto affine = [&](int64_t c) {
        const Affine& column = columns[static_cast<size_t>(c)];
        Near sum{sums[static_cast<size_t>(r * p.n + c)], 0};
        if (!e.token.empty()) sum = sum.times(e.token[static_cast<size_t>(r)]);
        if (!e.row_factor.empty()) sum = sum.times(e.row_factor[static_cast<size_t>(r)]);
        return sum.fma(column.factor, column.bias);
      };
      for (int64_t c = 0; c < p.cols; ++c) {
        const auto at = static_cast<size_t>(r * p.cols + c);
        const Affine& column = columns[static_cast<size_t>(c)];
        const float* residual =
            e.residual.empty() ? nullptr : &e.residual[static_cast<size_t>(r % residual_rows * p.n + c)];
        Near v = affine(c);
        if (in_half) {
          const float a = activate_in_half(e.act, v.low(), e.unit),
                      b = v.off == 0 ? a : activate_in_half(e.act, v.high(), e.unit);
          first.low[at] = std::min(a, b), first.high[at] = std::max(a, b);
          continue;
        }
        if (e.gated) {
          v = activate(e.act, v).times(affine(p.cols + c));
        } else {
          v = swapped ? finish_swapped(e, column, v, residual) : finish_normal(e, column, v, residual);
        }
        y[at] = v;
        first.low[at] = v.low(), first.high[at] = v.high();
      }
      if (e.angles.empty()) continue;
      turn_heads(e, r, y.data() + r * p.cols);
      for (int64_t c = 0; c < e.rotary.columns; ++c) {
        const auto at = static_cast<size_t>(r * p.cols + c);
        first.low[at] = y[at].low(), first.high[at] = y[at].high();
      }
    }
  });
  Emulation all(problem.out.size());
  all[0] = std::move(first);
  if (problem.out.size() > 1) emulate_extra_results(problem, e, in, out, y, all);
  return all;
}

}  // namespace tessera
