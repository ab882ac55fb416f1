// SPDX-License-Identifier: Apache-2.0
#include "op/host_numbers.h"

#include <cmath>
#include <cstring>

#include "op/whole_numbers.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

template <class Code>
void pack_as(const void* codes, int64_t first, int64_t step, int64_t n, void* out) {
  const Code* from = static_cast<const Code*>(codes) + first;
  Code* to = static_cast<Code*>(out);
  if (step == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(Code));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
  }
}

template <class Code>
void spread_as(const void* packed, int64_t n, void* codes, int64_t first, int64_t step) {
  const Code* from = static_cast<const Code*>(packed);
  Code* to = static_cast<Code*>(codes) + first;
  for (int64_t i = 0; i < n; ++i) to[i * step] = from[i];
}

template <class T>
bool stored_as(Element e) {
  return e == (std::is_same_v<T, float> ? Element::f32 : Element::f64);
}

template <class T>
void decode(Element e, const void* codes, int64_t first, int64_t n, T* out) {
  if constexpr (std::is_same_v<T, float>) {
    decode_row(e, codes, first, n, out);
  } else {
    info(e).decode_f64(codes, first, n, out);
  }
}

template <class T>
void encode(Element e, const T* in, int64_t n, void* codes, int64_t first) {
  if constexpr (std::is_same_v<T, float>) {
    encode_row(e, in, n, 1.0f, codes, first);
  } else {
    info(e).encode_f64(in, n, codes, first);
  }
}

// Codes that f32 cannot hold: f64, and integers of more than 24 bits.
bool is_wide(Element e) { return info(e).bits >= 32 && e != Element::f32; }

template <class T>
void convert_as(const TensorView& x, const TensorView& y, int64_t y_offset, const Shape& shape,
                const std::vector<Shape>& strides) {
  const Reader<T> from(x);
  const Writer<T> to(y);
  const bool truncate = is_whole(y.desc->type) && !is_whole(x.desc->type);
  for_each_chunk(shape, strides, [&](const int64_t* at, int64_t n) {
    T a[kChunk], b[kChunk];
    const T* in = from.read(at[0], strides[0].back(), n, a);
    const int64_t first = y_offset + at[1], step = strides[1].back();
    T* out = to.place(first, step, b);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i];
    if (truncate) {
      for (int64_t i = 0; i < n; ++i) out[i] = std::trunc(out[i]);
    }
    to.write(out, n, first, step);
  });
}

// Same plain type on both sides: codes move as they are.
void move_codes(const TensorView& x, const TensorView& y, int64_t y_offset, const Shape& shape,
                const std::vector<Shape>& strides) {
  const Element e = x.desc->type.element;
  const int64_t bytes = info(e).bits / 8;
  for_each_chunk(shape, strides, [&](const int64_t* at, int64_t n) {
    const int64_t first = y_offset + at[1];
    if (strides[1].back() == 1)
      return pack_codes(x.data, e, at[0], strides[0].back(), n, static_cast<uint8_t*>(y.data) + first * bytes);
    alignas(8) uint8_t packed[8 * kChunk];
    pack_codes(x.data, e, at[0], strides[0].back(), n, packed);
    spread_codes(packed, e, n, y.data, first, strides[1].back());
  });
}

}  // namespace

Verdict accepts_numbers(const Operand& o) {
  if (!o.present) return {};
  TS_REQUIRE(o.layout == Layout::kRows, "reads rows, not ", name_of(o.layout));
  TS_REQUIRE(info(o.type.element).bits >= 8, "reads whole bytes, not ", info(o.type.element).name);
  const ScaleLevel& s = o.type.scale;
  TS_REQUIRE(!o.type.dynamic &&
                 (!o.type.scaled() || (s.granularity == Granularity::kTensor && s.element == Element::f32)) &&
                 o.type.scale2.granularity == Granularity::kNone,
             "knows plain types and one static f32 scale for the tensor, not ", to_string(o.type));
  return {};
}

Verdict accepts_all_numbers(const Problem& p) {
  TS_REQUIRE(p.then.empty(), "runs no program");
  for (const Operand& o : p.in) {
    if (Verdict v = accepts_numbers(o); !v) return v;
  }
  for (const Operand& o : p.out) {
    if (Verdict v = accepts_numbers(o); !v) return v;
    TS_REQUIRE(o.dense(), "writes dense results");
  }
  return {};
}

bool needs_f64(const Problem& p) {
  const auto wide = [](const Operand& o) { return o.present && is_wide(o.type.element); };
  return std::any_of(p.in.begin(), p.in.end(), wide) || std::any_of(p.out.begin(), p.out.end(), wide);
}

Arithmetic generic_arithmetic(const Problem& p) {
  if (needs_f64(p)) return {.computed = Element::f64, .instruction = "f64", .accumulator_bits = 53};
  return {.computed = Element::f32, .instruction = "fp32", .accumulator_bits = 24};
}

void pack_codes(const void* codes, Element e, int64_t first, int64_t step, int64_t n, void* out) {
  switch (info(e).bits) {
    case 8:
      return pack_as<uint8_t>(codes, first, step, n, out);
    case 16:
      return pack_as<uint16_t>(codes, first, step, n, out);
    case 32:
      return pack_as<uint32_t>(codes, first, step, n, out);
    default:
      return pack_as<uint64_t>(codes, first, step, n, out);
  }
}

void spread_codes(const void* packed, Element e, int64_t n, void* codes, int64_t first, int64_t step) {
  switch (info(e).bits) {
    case 8:
      return spread_as<uint8_t>(packed, n, codes, first, step);
    case 16:
      return spread_as<uint16_t>(packed, n, codes, first, step);
    case 32:
      return spread_as<uint32_t>(packed, n, codes, first, step);
    default:
      return spread_as<uint64_t>(packed, n, codes, first, step);
  }
}

template <class T>
const T* Reader<T>::read(int64_t first, int64_t step, int64_t n, T* scratch) const {
  if (step == 1 || n == 1) {
    if (stored_as<T>(element_) && scale_ == 1.0f) return static_cast<const T*>(data_) + first;
    decode(element_, data_, first, n, scratch);
  } else if (step == 0) {
    decode(element_, data_, first, 1, scratch);
    std::fill_n(scratch + 1, n - 1, scratch[0]);
  } else {
    alignas(8) uint8_t packed[8 * kChunk];
    pack_codes(data_, element_, first, step, n, packed);
    decode(element_, packed, 0, n, scratch);
  }
  if (scale_ != 1.0f) {
    for (int64_t i = 0; i < n; ++i) scratch[i] *= static_cast<T>(scale_);
  }
  return scratch;
}

void read_run(const Reader<float>& from, int64_t first, int64_t step, int64_t n, float* out) {
  for (int64_t done = 0; done < n; done += kChunk) {
    const int64_t count = std::min(kChunk, n - done);
    const float* numbers = from.read(first + done * step, step, count, out + done);
    if (numbers != out + done) std::copy_n(numbers, count, out + done);
  }
}

template <class T>
bool Writer<T>::direct(int64_t step) const {
  return step == 1 && stored_as<T>(element_) && !scaled_;
}

template <class T>
T* Writer<T>::place(int64_t first, int64_t step, T* scratch) const {
  return direct(step) ? static_cast<T*>(data_) + first : scratch;
}

template <class T>
void Writer<T>::write(T* numbers, int64_t n, int64_t first, int64_t step) const {
  if (direct(step)) return;
  if (scaled_) {  // at most max in magnitude: -128 is no code of a scaled i8
    const T max = static_cast<T>(info(element_).max);
    for (int64_t i = 0; i < n; ++i) numbers[i] = std::clamp(numbers[i] / static_cast<T>(scale_), -max, max);
  }
  if (step == 1 || n == 1) return encode(element_, numbers, n, data_, first);
  alignas(8) uint8_t packed[8 * kChunk];
  encode(element_, numbers, n, packed, 0);
  spread_codes(packed, element_, n, data_, first, step);
}

template class Reader<float>;
template class Reader<double>;
template class Writer<float>;
template class Writer<double>;

Conversion::Conversion(Shape shape, Shape x_strides, Shape y_strides)
    : shape_(std::move(shape)), strides_{std::move(x_strides), std::move(y_strides)} {
  merge_axes(shape_, strides_);
}

void Conversion::run(const TensorView& x, const TensorView& y, int64_t y_offset) const {
  const QuantType &from = x.desc->type, &to = y.desc->type;
  if (from == to && !from.scaled()) return move_codes(x, y, y_offset, shape_, strides_);
  const bool wide = is_wide(from.element) || is_wide(to.element);
  return wide ? convert_as<double>(x, y, y_offset, shape_, strides_)
              : convert_as<float>(x, y, y_offset, shape_, strides_);
}

}  // namespace tessera
