// SPDX-License-Identifier: Apache-2.0
#include "op/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/random.h"
#include "io/mmap.h"
#include "op/extra_results.h"
#include "op/prepack.h"
#include "op/program_rows.h"
#include "tiles/strided.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

constexpr int64_t kGrain = 4096;  // numbers per piece of parallel work: far above the cost of handing one out

int64_t grain_of(int64_t length) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, length)); }

// Both levels of a tensor's scales, ready to ask for element (row, col).
class Scales {
 public:
  Scales(const TensorView& t)  // NOLINT: a reading of the tensor
      : type_(t.desc->type), cols_(cols_of(t.desc->shape)) {
    TS_CHECK(!type_.scaled() || elements(t.desc->shape) == 0 || t.scale != nullptr,
             "a scaled tensor came without its scales");
    first_ = first_scales(t);
    second_ = second_scales(t);
  }
  bool any() const { return !first_.empty(); }
  // The number that a decoded code stands for; with as(element), code * scale is rounded before the second level.
  double scaled(double number, int64_t row, int64_t col) const {
    number *= first_[static_cast<size_t>(scale_index(type_.scale, row, col, cols_))];
    if (type_.product) {
      const ElementInfo& product = info(*type_.product);
      uint64_t code = 0;
      product.encode_f64(&number, 1, &code, 0);
      product.decode_f64(&code, 0, 1, &number);
    }
    if (second_.empty()) return number;
    return number * second_[static_cast<size_t>(scale_index(type_.scale2, row, col, cols_))];
  }

 private:
  QuantType type_;
  int64_t cols_;
  std::vector<double> first_, second_;
};

// Calls body(index in row order, offset in the tensor, elements, step between them) for the innermost runs of a tensor
// of Layout::kRows. Where codes share bytes and are not dense, one thread makes all of the calls.
template <class Body>
void for_each_run(const Operand& o, const Body& body) {
  Shape shape = o.shape;
  std::vector<Shape> strides = {o.strides};
  if (elements(shape) == 0) return;
  merge_axes(shape, strides);
  const int64_t length = shape.back(), step = strides[0].back();
  if (shape.size() == 1) {  // one run: cut it into pieces
    parallel_for(length, kGrain, [&](int64_t begin, int64_t end) { body(begin, begin * step, end - begin, step); });
    return;
  }
  const int64_t count = elements(shape) / length, grain = info(o.type.element).bits < 8 ? count : grain_of(length);
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    StridedRuns runs(shape, strides);
    runs.seek(begin);
    for (int64_t r = begin; r < end; ++r, runs.next()) body(r * length, runs.offset(0), length, step);
  });
}

// Codes of dense numbers in their row order, by the rules of types/quantize_array.h, through f32 as everywhere else;
// scales first where they are made while running. Threads take pieces of rows that begin at a byte.
void quantize_rows(const QuantType& type, const std::vector<double>& numbers, int64_t rows, int64_t cols,
                   const TensorView& t, void* codes) {
  std::vector<float> x(numbers.size());
  parallel_for(static_cast<int64_t>(x.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      x[i] = static_cast<float>(numbers[i]);
  });
  const bool one_scale = type.scale.granularity == Granularity::kTensor;
  if (type.dynamic && one_scale) make_scales(type, x.data(), rows, cols, t.scale2, t.scale);
  parallel_for(rows, 2 * grain_of(cols), [&](int64_t begin, int64_t end) {
    const float* from = x.data() + begin * cols;
    const int64_t first = scale_index(type.scale, begin, 0, cols), bits = info(type.element).bits;
    void* scale = static_cast<uint8_t*>(t.scale) + packed_bytes(type.scale.element, first);
    void* to = static_cast<uint8_t*>(codes) + begin * cols * bits / 8;
    if (type.dynamic && !one_scale) return quantize_under(type, from, end - begin, cols, t.scale2, scale, to);
    encode_scaled(type, from, end - begin, cols, scale, t.scale2, to);
  });
}

void move_code(const ElementInfo& element, const void* from, int64_t i, void* to, int64_t j) {
  if (element.bits < 8) {
    float number;  // two of them share a byte: the element's own conversion keeps the neighbour
    element.decode(from, i, 1, &number);
    return element.encode(&number, 1, to, j);
  }
  const int64_t width = element.bits / 8;
  std::memcpy(static_cast<uint8_t*>(to) + j * width, static_cast<const uint8_t*>(from) + i * width,
              static_cast<size_t>(width));
}

// A number in [-1, 1] for each seed and index.
double noise_at(uint64_t seed, uint64_t index) {
  return static_cast<double>(static_cast<int64_t>(mix64(seed * 0xd1342543de82ef95u + index * kMixStep))) * 0x1p-63;
}

std::vector<double> scale_numbers(const Operand& o, const ScaleLevel& level, const void* data) {
  if (level.granularity == Granularity::kNone || data == nullptr) return {};
  std::vector<double> out(static_cast<size_t>(scale_count(level, rows_of(o.shape), cols_of(o.shape))));
  info(level.element).decode_f64(data, 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

}  // namespace

std::vector<double> first_scales(const TensorView& t) {
  const Operand& o = *t.desc;
  if (o.layout.scales == Layout::kRows || t.scale == nullptr) return scale_numbers(o, o.type.scale, t.scale);
  const Shape blocks = block_scales_shape(o);
  const Buffer rows = restore_rows(o.layout.scales, o.type.scale.element, blocks[0], blocks[1], t.scale);
  return scale_numbers(o, o.type.scale, rows.data());
}

std::vector<double> second_scales(const TensorView& t) { return scale_numbers(*t.desc, t.desc->type.scale2, t.scale2); }

Dense decode(const TensorView& t) {
  const Operand& o = *t.desc;
  const int64_t cols = cols_of(o.shape), rows = rows_of(o.shape);
  const ElementInfo& element = info(o.type.element);
  Dense d{o.shape, std::vector<double>(static_cast<size_t>(elements(o.shape)))};
  if (o.layout.codes == Layout::kRows) {
    for_each_run(o, [&](int64_t at, int64_t offset, int64_t n, int64_t step) {
      if (step == 1) return element.decode_f64(t.data, offset, n, d.v.data() + at);
      for (int64_t i = 0; i < n; ++i) element.decode_f64(t.data, offset + i * step, 1, d.v.data() + at + i);
    });
  } else {
    const Buffer codes = restore_rows(o.layout.codes, o.type.element, rows, cols, t.data);
    element.decode_f64(codes.data(), 0, rows * cols, d.v.data());
  }
  if (o.constant) give_back(t.data, static_cast<size_t>(packed_bytes(o.type.element, elements(o.shape))));
  if (const Scales scales(t); scales.any()) {
    parallel_for(rows, grain_of(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          double& number = d.v[static_cast<size_t>(r * cols + c)];
          number = scales.scaled(number, r, c);
        }
      }
    });
  }
  return d;
}

std::vector<float> decode_codes(const TensorView& t) {
  Operand bare = *t.desc;
  bare.type = QuantType(bare.type.element);
  bare.layout.scales = Layout::kRows;
  const Dense d = decode({.desc = &bare, .data = t.data});
  return {d.v.begin(), d.v.end()};
}

void encode_units(const QuantType& type, std::vector<double> numbers, void* codes) {
  const ElementInfo& element = info(type.element);
  if (type.scaled() && element.kind == ElementKind::kInteger) {
    for (double& x : numbers) x = std::clamp(x, -element.max, element.max);
  }
  element.encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), codes, 0);
}

void encode(const Dense& numbers, const TensorView& t) {
  const Operand& o = *t.desc;
  const QuantType& type = o.type;
  TS_CHECK(o.layout == Layout::kRows, "results are rows");
  TS_CHECK(numbers.v.size() == static_cast<size_t>(elements(o.shape)), "result of shape ", to_string(o.shape));
  TS_CHECK(!type.scaled() || t.scale != nullptr || numbers.v.empty(), "a scaled result came without its scales");
  const ElementInfo& element = info(type.element);
  if (!type.scaled()) {
    for_each_run(o, [&](int64_t at, int64_t offset, int64_t n, int64_t step) {
      const double* v = numbers.v.data() + at;
      if (step == 1) return element.encode_f64(v, n, t.data, offset);
      for (int64_t i = 0; i < n; ++i) element.encode_f64(v + i, 1, t.data, offset + i * step);
    });
    return;
  }
  const int64_t rows = rows_of(o.shape), cols = cols_of(o.shape);
  if (o.dense()) return quantize_rows(type, numbers.v, rows, cols, t, t.data);
  Buffer codes(static_cast<size_t>(packed_bytes(type.element, elements(o.shape))));
  quantize_rows(type, numbers.v, rows, cols, t, codes.data());
  for_each_run(o, [&](int64_t at, int64_t offset, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; ++i) move_code(element, codes.data(), at + i, t.data, offset + i * step);
  });
}

void apply_program(const Problem& problem, std::span<const Dense> in, Dense& y) {
  const ProgramRows program(problem, in);
  const int64_t made = cols_of(y.shape), rows = rows_of(y.shape);
  parallel_for(rows, grain_of(made), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (size_t s = 0; s < program.steps(); ++s) program.apply(s, row, y.v.data() + row * made);
    }
  });
  const int64_t kept = keep_columns(y.v, made, program.cols_after());
  if (!y.shape.empty()) y.shape.back() = kept;
}

std::vector<Dense> compute_reference(const OpInfo& op, const Problem& problem, std::span<const Dense> in) {
  std::vector<Dense> out;
  const Problem plain = before_program(problem);
  for (const Operand& o : plain.out)
    out.push_back({o.shape, std::vector<double>(static_cast<size_t>(elements(o.shape)))});
  op.reference(plain, in, out);
  if (!problem.then.empty()) apply_program(problem, in, out[0]);
  for (size_t i = out.size(); i < problem.out.size(); ++i)
    out.push_back(op.extra_result(problem, i, in, made_of(problem, i, in, out[0])));
  return out;
}

Status run_reference(const OpInfo& op, const Problem& problem, std::span<const TensorView> in,
                     std::span<const TensorView> out, Noise noise) {
  int64_t count = 0;
  for (const TensorView& t : in) count += t.desc != nullptr ? elements(t.desc->shape) : 0;
  for (const Operand& o : problem.out) count += problem.then.cols_before(elements(o.shape));
  TS_TRY(check_memory(count * static_cast<int64_t>(sizeof(double)),
                      cat("the operands and results of ", op.name, " in f64")));
  std::vector<Dense> numbers;
  for (const TensorView& t : in) numbers.push_back(t.desc != nullptr ? decode(t) : Dense{});
  if (op.check_numbers != nullptr) TS_TRY(op.check_numbers(problem, numbers));
  std::vector<Dense> results = compute_reference(op, problem, numbers);
  for (size_t i = 0; i < results.size(); ++i) {
    std::vector<double>& v = results[i].v;
    if (noise.relative > 0) {
      parallel_for(static_cast<int64_t>(v.size()), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          double& x = v[static_cast<size_t>(k)];
          const double by = noise.relative * noise_at(noise.seed + i, static_cast<uint64_t>(k));
          x = std::fabs(x) > noise.most ? x + noise.most * by : x * (1 + by);
        }
      });
    }
    encode(results[i], out[i]);
  }
  return {};
}

Result<std::vector<Buffer>> evaluate(const OpInfo& op, const Problem& problem, std::span<const TensorView> in) {
  std::vector<Buffer> buffers;
  std::vector<TensorView> out;
  for (const Operand& o : problem.out) {
    if (o.type.scaled() || !o.dense() || info(o.type.element).bits < 8)
      return refused(
          cat(op.name, ": only plain, dense results of whole bytes can be computed at build, not ", to_string(o.type)));
    buffers.emplace_back(static_cast<size_t>(packed_bytes(o.type.element, elements(o.shape))));
    out.push_back({.desc = &o, .data = buffers.back().data()});
  }
  TS_TRY(run_reference(op, problem, in, out));
  return buffers;
}

}  // namespace tessera
