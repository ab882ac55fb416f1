// SPDX-License-Identifier: Apache-2.0
#include "testing/variant_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "op/operand_extent.h"
#include "op/reference.h"
#include "ops/ops.h"
#include "testing/mutations.h"
#include "testing/receipts.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

Buffer encoded(Element e, const std::vector<double>& numbers) {
  Buffer b(static_cast<size_t>(packed_bytes(e, static_cast<int64_t>(numbers.size()))));
  if (!numbers.empty()) info(e).encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), b.data(), 0);
  return b;
}

Buffer poisoned(size_t bytes) {
  Buffer b(bytes);
  if (bytes > 0) std::memset(b.data(), 0xff, bytes);  // a NaN in every float
  return b;
}

Buffer room_for_scales(const ScaleLevel& level, const Shape& shape) {
  return poisoned(static_cast<size_t>(packed_bytes(level.element, scale_count(level, rows_of(shape), cols_of(shape)))));
}

// The second level over the numbers, as calibration fixes it.
Buffer second_scale(const QuantType& type, const Shape& shape, const std::vector<double>& numbers) {
  Buffer b = room_for_scales(type.scale2, shape);
  const std::vector<float> x(numbers.begin(), numbers.end());
  make_scale2(type, x.data(), rows_of(shape), cols_of(shape), b.data());
  return b;
}

// Scales of e4m3 between 2^-6 and 2^-5: decoded codes then reach 14, and products of two such numbers stay far from
// every limit. Elements of a smaller range get larger ones, so that random numbers use all of their codes. A second
// level is between 1/2 and 1.
Buffer random_scales(const ScaleLevel& level, double most, const Shape& shape, std::mt19937_64& random) {
  std::vector<double> scales(static_cast<size_t>(scale_count(level, rows_of(shape), cols_of(shape))));
  std::uniform_real_distribution<double> draw(most / 2, most);
  for (double& s : scales) s = draw(random);
  return encoded(level.element, scales);
}

// About normal, variance 1: four uniform numbers of 16 bits from one draw.
double draw_normal(std::mt19937_64& random) {
  uint64_t bits = random();
  double sum = -2;
  for (int i = 0; i < 4; ++i, bits >>= 16) sum += static_cast<double>(bits & 0xffff) * 0x1p-16;
  return sum * 1.7320508075688772;
}

double draw_number(const QuantType& type, Values values, double large, std::mt19937_64& random) {
  const ElementInfo& element = info(type.element);
  if (values == Values::kZeros) return 0;
  if (element.kind == ElementKind::kInteger && !type.scaled()) {
    const int64_t reach = type.element == Element::u8 ? 255 : 1000;
    return static_cast<double>(static_cast<int64_t>(random() % static_cast<uint64_t>(reach + 1)) -
                               (type.element == Element::u8 ? 0 : reach / 2));
  }
  const double unit = type.scaled() ? 1.5 : 1.0;  // with random_scales: codes of about 64
  if (values == Values::kRandom) return unit * draw_normal(random);
  const int least = std::max(element.min_exponent, -60);
  const double magnitudes[] = {
      0, std::ldexp(1.0, least - element.mantissa_bits), std::ldexp(1.0, least), 0x1p-12, 0.25, 1, large};
  const double m = magnitudes[random() % std::size(magnitudes)];
  return random() % 2 == 0 ? m : -m;
}

}  // namespace

TensorView HostTensor::view() const {
  const auto at = [](const Buffer& b) { return b.size() == 0 ? nullptr : const_cast<uint8_t*>(b.data()); };
  return {.desc = &desc, .data = at(data), .scale = at(scale), .scale2 = at(scale2)};
}

double HostTensor::number(int64_t i) const {
  double v = 0;
  info(desc.type.element).decode_f64(data.data(), i, 1, &v);
  const int64_t cols = cols_of(desc.shape);
  for (const auto& [level, bytes] : {std::pair{&desc.type.scale, &scale}, std::pair{&desc.type.scale2, &scale2}}) {
    if (level->granularity == Granularity::kNone) continue;
    double s = 1;
    info(level->element).decode_f64(bytes->data(), scale_index(*level, i / cols, i % cols, cols), 1, &s);
    v *= s;
  }
  return v;
}

std::string Case::text() const {
  std::string out = problem.op;
  for (const auto& [name, attr] : problem.attrs.all()) {
    if (const auto* word = std::get_if<std::string>(&attr)) out += " " + name + "=" + *word;
  }
  for (const Operand& o : problem.in) {
    out += " ";
    out += o.present ? to_string(o.type) + to_string(o.shape) + (o.dense() ? "" : "/" + to_string(o.strides)) : "-";
  }
  out += " ->";
  for (const Step& s : problem.then.steps) out += " " + text_of(s, /*with_operand=*/false);
  return out + " " + to_string(problem.out[0].type) + to_string(problem.out[0].shape) +
         (problem.config.empty() ? "" : " by " + problem.config);
}

Problem make_problem(std::string op, std::vector<Operand> in, Attrs attrs, Program then, std::optional<QuantType> y) {
  Problem p{.op = std::move(op), .in = std::move(in), .out = {}, .attrs = std::move(attrs), .then = std::move(then)};
  const auto types = infer_types(*find_op(p.op), p);
  EXPECT_TRUE(types.ok()) << types.status().message();
  if (types.ok()) {
    for (const Type& t : *types)
      p.out.push_back(dense_operand(t.shape, p.out.empty() ? y.value_or(t.quant) : t.quant));  // `y` is the first one's
    const Status fits = check_problem(*find_op(p.op), p);
    EXPECT_TRUE(fits.ok()) << fits.message();
  }
  return p;
}

Operand gapped(const Shape& shape, const QuantType& type, int64_t gap) {
  Operand o = dense_operand(shape, type);
  Shape wider = shape;
  wider.back() += gap;
  o.strides = dense_strides(wider);
  return o;
}

Operand swapped(const Shape& shape, const QuantType& type, size_t axis, size_t other) {
  Operand o = dense_operand(shape, type);
  Shape stored = shape;
  std::swap(stored[axis], stored[other]);
  o.strides = dense_strides(stored);
  std::swap(o.strides[axis], o.strides[other]);
  return o;
}

Case make_case(const Problem& problem, uint64_t seed, Values values, Adjust adjust) {
  Case c{.problem = problem, .in = {}, .out = {}, .numbers = {}, .exact = {}};
  std::mt19937_64 random(seed);
  // A result in f16 holds sums of products up to 65504; elsewhere there is room.
  const double large = problem.out[0].type.element == Element::f16 ? 8 : 200;
  for (size_t i = 0; i < problem.in.size(); ++i) {
    const Operand& o = problem.in[i];
    HostTensor t{.desc = o, .data = {}, .scale = {}, .scale2 = {}};
    if (!o.present) {
      c.in.push_back(std::move(t));
      c.numbers.emplace_back();
      continue;
    }
    t.data = poisoned(static_cast<size_t>(packed_bytes(o.type.element, span_of(o))));
    t.scale = random_scales(o.type.scale, 14 / std::max(28.0, info(o.type.element).max), o.shape, random);
    t.scale2 = random_scales(o.type.scale2, 1, o.shape, random);
    Dense numbers{o.shape, std::vector<double>(static_cast<size_t>(elements(o.shape)))};
    for (double& v : numbers.v) v = draw_number(o.type, values, large, random);
    if (adjust != nullptr) adjust(problem, i, numbers.v);
    t.desc.type.dynamic = false;  // these scales are there already
    encode(numbers, t.view());
    t.desc.type.dynamic = o.type.dynamic;
    c.numbers.push_back(decode(t.view()));
    c.in.push_back(std::move(t));
  }
  c.exact = compute_reference(*find_op(problem.op), problem, c.numbers);
  for (size_t i = 0; i < problem.out.size(); ++i) {
    HostTensor t{.desc = problem.out[i], .data = {}, .scale = {}, .scale2 = {}};
    t.scale2 = second_scale(t.desc.type, t.desc.shape, c.exact[i].v);
    if (t.desc.type.dynamic) {
      t.scale = room_for_scales(t.desc.type.scale, t.desc.shape);
    } else if (t.desc.type.scaled()) {
      double amax = 0;
      for (double v : c.exact[i].v) amax = std::max(amax, std::fabs(v));
      t.scale =
          encoded(t.desc.type.scale.element, {scale_for_amax(t.desc.type.element, static_cast<float>(0.8 * amax))});
    }
    c.out.push_back(std::move(t));
  }
  return c;
}

std::vector<TensorView> views_of(const std::vector<HostTensor>& tensors) {
  std::vector<TensorView> views;
  for (const HostTensor& t : tensors) views.push_back(t.desc.present ? t.view() : TensorView{});
  return views;
}

Judge judge_of(const Variant& variant, const Case& c) {
  return Judge(*find_op(c.problem.op), variant, c.problem, views_of(c.in), views_of(c.out));
}

void expect_close(const Variant& variant, const Case& c, const Judge& judge, const std::vector<HostTensor>& got) {
  const Judgement j = judge.of(views_of(got));
  if (!j.ok()) {
    ADD_FAILURE() << variant.name << " on " << c.text() << ", result " << j.result << " at " << j.at << ": got "
                  << j.got << ", allowed " << j.low << " to " << j.high
                  << (judge.emulated() ? " (emulated)" : " (bounded)") << "; relative L2 " << j.relative_l2
                  << ", allowed " << j.allowed_l2;
  }
  record_receipt(variant, j.ok() ? j.share : 2.0);
}

bool check_variant(const Variant& variant, const Problem& problem, uint64_t seed, Values values, Adjust adjust) {
  if (!variant.accepts(problem)) return false;
  Case c = make_case(problem, seed, values, adjust);
  std::optional<Judge> judge;
  // Few tile shapes run on every problem; of many, the first and two that follow the seed, so that a list of problems
  // meets all of them.
  constexpr size_t kEvery = 4;
  const std::vector<std::string> configs = configs_of(variant, problem);
  for (size_t i = 0; i < configs.size(); ++i) {
    if (configs.size() > kEvery && i > 0 && i != seed % configs.size() &&
        i != (seed + configs.size() / 2) % configs.size())
      continue;
    c.problem.config = configs[i];
    c.problem.backward = (seed + i) % 2 == 1;
    const auto got = run_on(variant, c);
    if (!got.ok()) {
      ADD_FAILURE() << variant.name << " on " << c.text() << ": " << got.status().message();
      record_receipt(variant, 2.0);
      continue;
    }
    if (!judge || judge->emulated()) judge.emplace(judge_of(variant, c));  // emulated sums follow the tile shape
    expect_close(variant, c, *judge, *got);
    if (values == Values::kRandom && adjust == nullptr && i == 0) expect_mutations_caught(variant, c, *judge);
  }
  return true;
}

void expect_each_accepts(const OpInfo& op, const std::vector<Problem>& problems) {
  for (const Variant* v : op.variants) {
    EXPECT_EQ(info(v->arch).device == DeviceKind::kCuda, !v->sass.rules.empty())
        << v->name << ": kernels say what their machine code shows (op/sass.h)";
    int accepted = 0;
    for (const Problem& p : problems) {
      if (!v->accepts(p)) continue;
      ++accepted;
      EXPECT_FALSE(v->arithmetic(p).instruction.empty()) << v->name;
    }
    EXPECT_GT(accepted, 0) << v->name << " accepts none of " << problems.size()
                           << " problems; the first refusal: " << v->accepts(problems[0]).refusal;
    EXPECT_EQ(find_variant(v->name), v);
  }
  EXPECT_EQ(reference_variant(op)->name, cat(op.name, "/reference"));
}

std::string short_name(const ::testing::TestParamInfo<const Variant*>& info) {
  const std::string name = info.param->name;
  return name.substr(name.find('/') + 1);
}

}  // namespace tessera
