// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear as all opsets that the reader takes have them, and what TensorRT's domain adds to
// them (FP8, INT4, MXFP8 and NVFP4 with scales made while running).
//   constant codes         a constant with scales, and a copy that decodes it; codes and scales keep their bits
//   numbers being rounded  a copy to a type with scales, and one that decodes it at once (OnnxCodes)
// Which layers the types belong to is found later (rewrite/recognise). Numbers known at build are rounded here,
// dividing in the scale's own type as the standard says: x / s is rounded to FLOAT16 before it becomes a code where s
// is FLOAT16.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "import/onnx/quantized/scales.h"
#include "ir/gather_codes.h"
#include "types/codes.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

bool is_unsigned(int64_t data_type) { return data_type == kOnnxUint8 || data_type == kOnnxUint4; }

// The element that codes of a data type become; unsigned ones whose zero is their middle are signed ones.
Result<Element> code_element(int64_t data_type, int64_t zero) {
  const int64_t middle = data_type == kOnnxUint8 ? 128 : 8;
  if (is_unsigned(data_type) ? zero != middle && zero != 0 : zero != 0)
    return bad_input(cat("zero point ", zero, ": only symmetric codes are supported, with a zero point of 0",
                         is_unsigned(data_type) ? cat(" or ", middle) : "", "; ", kAskForSymmetricCodes));
  if (data_type == kOnnxUint8) return Element::i8;
  const auto element = code_of_onnx(data_type);
  if (!element || *element == Element::e8m0)
    return bad_input(cat("codes of ", onnx_type_name(data_type),
                         "; INT8, UINT8, INT4, UINT4, FLOAT8E4M3FN, FLOAT8E5M2 and FLOAT4E2M1 are supported"));
  return *element;
}

// A scale without effect is a mistake in the model.
Status check_read(const OnnxCall& c) {
  for (const std::string& name : c.node.outputs) {
    const auto readers = c.file.readers.find(name);
    if (c.file.outputs.contains(name) || (readers != c.file.readers.end() && readers->second > 0)) return {};
  }
  return bad_input(cat("its result is not read, so that the scale",
                       c.node.inputs.size() > 1 ? cat(" '", shown(c.node.inputs[1]), "'") : "",
                       " is used for nothing"));
}

// x / scale, rounded as a division in `precision` is; f32 holds enough for one rounding to be as good as two.
class Division {
 public:
  explicit Division(int64_t precision)
      : half_(precision == kOnnxFloat16    ? &info(Element::f16)
              : precision == kOnnxBfloat16 ? &info(Element::bf16)
                                           : nullptr) {}
  float operator()(float x, float s) const { return rounded(rounded(x) / rounded(s)); }

 private:
  float rounded(float x) const {
    if (half_ == nullptr) return x;
    uint16_t code = 0;
    half_->encode_unsaturated(&x, 1, &code, 0);
    half_->decode(&code, 0, 1, &x);
    return x;
  }
  const ElementInfo* half_;
};

// Codes of constant numbers, in the file's type.
Result<ValueId> quantize_constant(OnnxCall& c, ValueId x, OnnxScale& scale, int64_t data_type, int64_t zero) {
  TS_ASSIGN(const int64_t saturate, c.integer("saturate", 1));
  TS_ASSIGN(const int64_t given, c.integer("precision", 0));
  const int64_t precision = given != 0 ? given : scale.stored;
  if (given != 0 && given != kOnnxFloat && given != kOnnxFloat16 && given != kOnnxBfloat16)
    return bad_input(cat("precision ", onnx_type_name(given), ": FLOAT, FLOAT16 and BFLOAT16 are supported"));
  const Place p = c.b.place(x);
  const Region region = scale.over.arranged(p.region);
  const int64_t count = elements(region.shape);
  if (count > std::max(elements(c.b.shape(p.base)), kMaxListed))
    return bad_input(cat("its input repeats numbers ", count, " times"));
  const Buffer numbers = gather_codes(c.b.graph().at(p.base).data.data(), 32, region);
  std::vector<float> scales(scale.data.size() * 8 / static_cast<size_t>(info(scale.level.element).bits));
  info(scale.level.element).decode(scale.data.data(), 0, static_cast<int64_t>(scales.size()), scales.data());
  const Shape& rows = scale.over.arranged_shape();
  const int64_t cols = rows.empty() ? 1 : rows.back();
  const Division divide(precision);
  std::vector<float> quotients(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    float number;
    std::memcpy(&number, numbers.data() + static_cast<size_t>(i) * sizeof(float), sizeof(float));
    const int64_t at = scale_index(scale.level, i / std::max<int64_t>(1, cols), i % std::max<int64_t>(1, cols), cols);
    quotients[static_cast<size_t>(i)] = divide(number, scales[static_cast<size_t>(at)]);
  }
  TS_ASSIGN(const Element element, code_element(data_type, zero));
  const int bits = info(element).bits;
  Buffer codes(static_cast<size_t>(packed_bytes(element, count)));
  if (is_unsigned(data_type) && zero == 0) {
    const float top = bits == 4 ? 15 : 255;
    for (int64_t i = 0; i < count; ++i) {
      const float whole = std::nearbyint(quotients[static_cast<size_t>(i)]);
      set_code(codes.data(), bits, i, static_cast<uint64_t>(whole > 0 ? std::min(whole, top) : 0));
    }
  } else {
    (saturate != 0 ? info(element).encode : info(element).encode_unsaturated)(quotients.data(), count, codes.data(), 0);
    const uint64_t flip = is_unsigned(data_type) ? uint64_t{1} << (bits - 1) : 0;
    for (int64_t i = 0; flip != 0 && i < count; ++i)
      set_code(codes.data(), bits, i, code_at(codes.data(), bits, i) ^ flip);
  }
  const Element held = data_type == kOnnxUint8 ? Element::u8 : element;
  const ValueId made =
      c.b.graph().add_constant(c.b.graph().at(p.base).name, Type{rows, held}, Bytes::own(std::move(codes)));
  c.file.stored[c.node.outputs[0]] = data_type;
  return scale.over.restore(c.b, made);
}

Result<Values> quantize_to(OnnxCall& c, int64_t data_type) {
  TS_TRY(check_read(c));
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t wanted, c.integer("output_dtype", 0));
  if (wanted != 0) data_type = wanted;
  if (c.has(2)) {
    const auto stored = c.file.stored.find(c.node.inputs[2]);
    if (stored != c.file.stored.end()) data_type = stored->second;
  }
  if (c.b.element(x) != Element::f32)
    return bad_input(cat("quantizes ", info(c.b.element(x)).name, "; floats are quantized"));
  TS_ASSIGN(OnnxScale scale, read_scale(c, c.b.shape(x)));
  TS_ASSIGN(const int64_t zero, read_zero_point(c));
  if (c.b.is_constant(x)) return single(quantize_constant(c, x, scale, data_type, zero));
  TS_ASSIGN(const Element element, code_element(data_type, zero));
  if (is_unsigned(data_type) && zero == 0)
    return bad_input(cat("zero point 0 of ", onnx_type_name(data_type),
                         ": only symmetric codes are supported, such as INT8 with a zero point of 0; ",
                         kAskForSymmetricCodes));
  TS_ASSIGN(const int64_t saturate, c.integer("saturate", 1));
  if (saturate == 0 && (element == Element::e4m3 || element == Element::e5m2))
    return bad_input("saturate = 0, which makes NaN of large numbers; saturate = 1 is supported");
  const QuantType type = scale.type(element);
  TS_ASSIGN(ValueId numbers, scale.over.arrange(c.b, x));
  numbers = c.b.quantize(numbers, type, scale.add_to(c.b), scale.scale2, c.name());
  TS_ASSIGN(numbers, c.b.emit("copy", {numbers}, {}, c.name() + ".decoded"));
  TS_ASSIGN(numbers, scale.over.restore(c.b, numbers));
  c.file.codes[c.node.outputs[0]] = {.numbers = numbers, .type = type, .axis = scale.over.axis(), .scale = scale.data};
  return Values{numbers};
}

// Whether the numbers of the two are the same, bit by bit.
bool equal(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Codes that were made while running: their numbers are there already.
Result<Values> dequantize_made(OnnxCall& c, const OnnxCodes& codes) {
  using Role = OnnxCodes::Role;
  const auto made_scale = c.file.codes.find(c.node.inputs.size() > 1 ? c.node.inputs[1] : "");
  if (codes.role == Role::kScales) {  // the second level over scales that were made while running
    TS_ASSIGN(const ValueId second, read_tensor_scale(c, 1));
    if (c.b.graph().numbers(second)[0] != codes.scale2)
      return bad_input(cat("scale '", shown(c.node.inputs[1]), "' is not the one that its codes were made with"));
    OnnxCodes numbers = codes;
    numbers.role = Role::kScaleNumbers;
    c.file.codes[c.node.outputs[0]] = numbers;
    return Values{c.in[0]};
  }
  if (codes.role != Role::kCodes) return bad_input("dequantizes scales that are numbers already");
  if (codes.type.dynamic) {
    const Role last = codes.type.scale2.granularity == Granularity::kNone ? Role::kScales : Role::kScaleNumbers;
    if (made_scale == c.file.codes.end() || made_scale->second.numbers != codes.numbers ||
        made_scale->second.role != last)
      return bad_input("its scales are not the ones that its codes were made with");
    if (codes.moved) return bad_input("its codes were moved after they were made; move the numbers instead");
    return Values{c.in[0]};
  }
  if (made_scale != c.file.codes.end()) return bad_input("its scales are not the ones that its codes were made with");
  TS_ASSIGN(const OnnxScale scale, read_scale(c, c.b.shape(c.in[0])));
  TS_ASSIGN(const int64_t zero, read_zero_point(c));
  if (zero != 0 && info(codes.type.element).kind == ElementKind::kFloat)
    return bad_input(cat("zero point ", zero, ": only symmetric codes are supported, with a zero point of 0"));
  const bool one = scale.over.granularity() == Granularity::kTensor;
  if (scale.type(codes.type.element) != codes.type || !equal(scale.data, codes.scale) ||
      (!one && (codes.moved || scale.over.axis() != codes.axis)) ||
      (zero != 0 && zero != (info(codes.type.element).bits == 4 ? 8 : 128)))
    return bad_input(cat("scale '", shown(scale.name), "' is not the one that its codes were made with"));
  return Values{c.in[0]};
}

// A bias in INT32: numbers at once.
Result<Values> dequantize_bias(OnnxCall& c, ValueId x) {
  TS_ASSIGN(const OnnxScale scale, read_scale(c, c.b.shape(x)));
  TS_ASSIGN(const int64_t zero, read_zero_point(c));
  if (zero != 0) return bad_input(cat("zero point ", zero, " of INT32; 0 is accepted"));
  TS_ASSIGN(const ValueId numbers, c.b.cast(x, Element::f32, c.name()));
  ValueId factors = c.b.graph().add_constant(scale.name, Type{scale.shape, scale.level.element}, scale.data);
  if (scale.over.granularity() == Granularity::kBlock) return bad_input("blocks of INT32 codes are not supported");
  if (scale.over.granularity() == Granularity::kTensor) {
    TS_ASSIGN(factors, c.b.reshape(factors, {}));
  } else {
    Shape along(c.b.rank(x), 1);
    along[scale.over.axis()] = elements(scale.shape);
    TS_ASSIGN(factors, c.b.reshape(factors, along));
  }
  return single(c.b.map("mul", {numbers, factors}, c.name()));
}

// Codes of the file as a constant with scales, decoded by a copy.
Result<ValueId> decode_constant(OnnxCall& c, const std::string& name, Type type, Bytes codes, OnnxScale& scale) {
  type.quant = scale.type(type.quant.element);
  const int64_t count = elements(type.shape);
  // A small file must not become a large graph: one constant, dequantized again and again.
  constexpr int64_t kTimes = 8;
  c.file.decoded_count += count;
  if (c.file.decoded_count > kMaxListed + kTimes * c.file.code_count)
    return bad_input(cat("the file's codes are dequantized more than ", kTimes, " times over"));
  std::vector<float> numbers(static_cast<size_t>(count));
  info(type.quant.element).decode(codes.data(), 0, count, numbers.data());
  const auto odd = std::find_if(numbers.begin(), numbers.end(), [](float x) { return !std::isfinite(x); });
  if (odd != numbers.end())
    return bad_input(cat("codes '", shown(name), "': number ", odd - numbers.begin(), " of ", count, " is ", *odd,
                         "; codes of weights must be finite"));
  const ValueId id = c.b.graph().add_constant(name, type, std::move(codes));
  const ValueId first = scale.add_to(c.b);
  c.b.graph().at(id).scale = first;
  c.b.graph().at(id).scale2 = scale.scale2;
  TS_ASSIGN(const ValueId decoded, c.b.emit("copy", {id}, {}, c.name()));
  c.file.decoded[decoded] = id;
  return scale.over.restore(c.b, decoded);
}

// as: what bytes of an untyped constant are; 0: what the file says.
Result<Values> dequantize_as(OnnxCall& c, int64_t as, bool powers = false) {
  TS_TRY(check_read(c));
  TS_ASSIGN(const ValueId x, c.operand(0));
  if (const auto made = c.file.codes.find(c.node.inputs[0]); made != c.file.codes.end())
    return dequantize_made(c, OnnxCodes(made->second));
  const Place p = c.b.place(x);
  const auto stored = c.file.stored.find(c.node.inputs[0]);
  if (!c.b.graph().at(p.base).constant || c.b.graph().at(p.base).type.quant.scaled())
    return bad_input(cat("'", shown(c.node.inputs[0]), "' is neither a constant nor made by QuantizeLinear"));
  if (c.b.element(x) == Element::i32) return dequantize_bias(c, x);
  int64_t data_type = stored == c.file.stored.end() ? 0 : stored->second;
  if (data_type == kOnnxUint8 && as != 0) data_type = as;
  TS_ASSIGN(const int64_t zero, read_zero_point(c));
  TS_ASSIGN(const Element element, code_element(data_type, zero));
  TS_ASSIGN(OnnxScale scale, read_scale(c, c.b.shape(x), powers));
  const Region region = scale.over.arranged(p.region);
  const int64_t count = elements(region.shape);
  const Value& base = c.b.graph().at(p.base);
  if (count > std::max(elements(base.type.shape), kMaxListed))
    return bad_input(cat("'", shown(c.node.inputs[0]), "' repeats its codes ", count, " times"));
  const int bits = info(element).bits;
  Buffer codes = gather_codes(base.data.data(), bits, region);
  const uint64_t half = uint64_t{1} << (bits - 1);
  for (int64_t i = 0; is_unsigned(data_type) && i < count; ++i) {
    const uint64_t code = code_at(codes.data(), bits, i);
    if (zero == 0 && code >= half)
      return bad_input(cat("code ", code, " of ", onnx_type_name(data_type),
                           " with a zero point of 0: only symmetric codes are supported"));
    if (zero != 0) set_code(codes.data(), bits, i, code ^ half);
  }
  return single(decode_constant(c, std::string(base.name), Type{scale.over.arranged_shape(), element},
                                Bytes::own(std::move(codes)), scale));
}

Result<Values> quantize_linear(OnnxCall& c) { return quantize_to(c, kOnnxUint8); }
Result<Values> quantize_fp8(OnnxCall& c) { return quantize_to(c, kOnnxFloat8E4m3); }
Result<Values> quantize_int4(OnnxCall& c) { return quantize_to(c, kOnnxInt4); }
Result<Values> dequantize_linear(OnnxCall& c) { return dequantize_as(c, 0); }
Result<Values> dequantize_fp8(OnnxCall& c) { return dequantize_as(c, kOnnxFloat8E4m3); }
Result<Values> dequantize_mxfp8(OnnxCall& c) { return dequantize_as(c, kOnnxFloat8E4m3, true); }

// Codes and scales of blocks along the last axis, made while running.
Result<Values> quantize_blocks(OnnxCall& c, QuantType type, ValueId scale2) {
  TS_TRY(check_read(c));
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", -1));
  TS_ASSIGN(const int64_t block, c.integer("block_size", type.scale.block));
  TS_ASSIGN(const int64_t data_type, c.integer("output_dtype", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  if (axis + 1 != c.b.rank(x))
    return bad_input(cat("axis ", axis_given, " of ", to_string(c.b.shape(x)), ": blocks run along the last axis"));
  if (block < 1 || block > INT32_MAX) return bad_input(cat("block_size ", block, ": a block has one element at least"));
  if (data_type != 0 && code_of_onnx(data_type) != type.element)
    return bad_input(cat("makes ", onnx_type_name(data_type), "; ", info(type.element).name, " is supported"));
  if (c.b.element(x) != Element::f32)
    return bad_input(cat("quantizes ", info(c.b.element(x)).name, "; floats are quantized"));
  type.scale.block = static_cast<int32_t>(block);
  type.dynamic = true;
  ValueId numbers = c.b.quantize(x, type, kNoValue, scale2, c.name());
  TS_ASSIGN(numbers, c.b.emit("copy", {numbers}, {}, c.name() + ".decoded"));
  OnnxCodes codes{.numbers = numbers, .type = type};
  if (scale2 != kNoValue) codes.scale2 = static_cast<float>(c.b.graph().numbers(scale2)[0]);
  c.file.codes[c.node.outputs[0]] = codes;
  codes.role = OnnxCodes::Role::kScales;
  if (c.node.outputs.size() > 1) c.file.codes[c.node.outputs[1]] = codes;
  return Values{numbers, numbers};
}

Result<Values> quantize_mxfp8(OnnxCall& c) { return quantize_blocks(c, kMxfp8, kNoValue); }
Result<Values> quantize_nvfp4(OnnxCall& c) {
  TS_ASSIGN(const int64_t scale_type, c.integer("scale_type", kOnnxFloat8E4m3));
  if (scale_type != kOnnxFloat8E4m3)
    return bad_input(cat("scales of ", onnx_type_name(scale_type), "; FLOAT8E4M3FN is supported"));
  TS_ASSIGN(const ValueId scale2, read_tensor_scale(c, 1));
  return quantize_blocks(c, kNvfp4, scale2);
}

// A weight that is still in numbers: quantized here, by the rules of formats.md.
Result<Values> round_to_nvfp4(OnnxCall& c) {
  TS_TRY(check_read(c));
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t block, c.integer("block_size", kNvfp4.scale.block));
  const Place p = c.b.place(x);
  if (!c.b.is_constant(x) || c.b.element(x) != Element::f32 || c.b.rank(x) == 0)
    return bad_input("rounds weights known at build only; activations are quantized by TRT_FP4DynamicQuantize");
  if (block < 1 || block > INT32_MAX) return bad_input(cat("block_size ", block, ": a block has one element at least"));
  QuantType type = kNvfp4;
  type.scale.block = static_cast<int32_t>(block);
  const Shape shape = c.b.shape(x);
  const int64_t cols = shape.back(), rows = elements(shape) / std::max<int64_t>(1, cols);
  if (rows * cols > std::max(elements(c.b.shape(p.base)), kMaxListed)) return bad_input("its input repeats numbers");
  const Buffer numbers = gather_codes(c.b.graph().at(p.base).data.data(), 32, p.region);
  TS_ASSIGN(QuantizedArray made, quantize_array(type, reinterpret_cast<const float*>(numbers.data()), rows, cols));
  const std::string name = c.b.graph().at(p.base).name;
  TS_ASSIGN(const ScaleAxis along, ScaleAxis::of(
                                       shape,
                                       [&] {
                                         Shape s = shape;
                                         s.back() = (cols + block - 1) / block;
                                         return s;
                                       }(),
                                       -1, block));
  OnnxScale scale{.name = name + ".scale",
                  .shape = {},
                  .over = along,
                  .level = type.scale,
                  .data = Bytes::own(std::move(made.scale))};
  scale.scale2 =
      c.b.graph().add_constant(name + ".scale2", Type{{1}, Element::f32}, Bytes::own(std::move(made.scale2)));
  return single(decode_constant(c, name, Type{shape, Element::e2m1}, Bytes::own(std::move(made.codes)), scale));
}

Result<Values> dynamic_uint8(OnnxCall&) {
  return bad_input("makes UINT8 codes with a zero point of their own; only symmetric codes are supported");
}

}  // namespace

std::span<const OnnxOp> onnx_quantize_ops() {
  static const OnnxOp kOps[] = {
      {"QuantizeLinear", quantize_linear},
      {"DequantizeLinear", dequantize_linear},
      {"DynamicQuantizeLinear", dynamic_uint8},
      {"TRT_FP8QuantizeLinear", quantize_fp8},
      {"TRT_FP8DequantizeLinear", dequantize_fp8},
      {"TRT_INT4QuantizeLinear", quantize_int4},
      {"TRT_INT4DequantizeLinear", dequantize_linear},
      {"TRT_MXFP8DynamicQuantize", quantize_mxfp8},
      {"TRT_MXFP8DequantizeLinear", dequantize_mxfp8},
      {"TRT_FP4DynamicQuantize", quantize_nvfp4},
      {"TRT_FP4QDQ", round_to_nvfp4},
      {"MatMulNBits", matmul_of_block_weights},
  };
  return kOps;
}

}  // namespace tessera
