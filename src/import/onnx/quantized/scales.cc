// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/quantized/scales.h"

#include <algorithm>
#include <cmath>

#include "ir/gather_codes.h"
#include "types/codes.h"

namespace tessera {

Result<ScaleAxis> ScaleAxis::of(const Shape& x, const Shape& scale, int64_t axis, int64_t block) {
  ScaleAxis s;
  const auto wrong = [&] {
    return bad_input(cat("scales of shape ", to_string(scale), " for ", to_string(x), " along axis ", axis,
                         block > 0 ? cat(" in blocks of ", block) : "",
                         ": one number, one per index of the axis, or one per block are accepted"));
  };
  for (size_t i = 0; i < x.size(); ++i) s.perm_.push_back(static_cast<int64_t>(i));
  // [n,1] or [1,n] over a matrix is one scale per row or column.
  if (block == 0 && x.size() == 2 && scale.size() == 2 && elements(scale) != 1 && (scale[0] == 1 || scale[1] == 1)) {
    const int64_t along = scale[0] == 1 ? 1 : 0;
    if (scale[static_cast<size_t>(along)] != x[static_cast<size_t>(along)]) return wrong();
    return of(x, {scale[static_cast<size_t>(along)]}, along, 0);
  }
  const bool blocks = block > 0 || (scale.size() == x.size() && x.size() > 1 && elements(scale) != 1);
  if (!blocks && elements(scale) == 1) {
    s.moved_ = s.arranged_ = x;
    s.back_ = s.perm_;
    return s;
  }
  TS_ASSIGN(s.axis_, resolve_axis(axis, x.size()));
  const auto at = s.perm_.begin() + static_cast<std::ptrdiff_t>(s.axis_);
  if (!blocks) {
    if (scale != Shape{x[s.axis_]}) return wrong();
    s.granularity_ = Granularity::kChannel;
    std::rotate(s.perm_.begin(), at, at + 1);
  } else {
    if (scale.size() != x.size()) return wrong();
    // Without a word on the block, the axis is the one whose sizes differ.
    for (size_t i = 0; block <= 0 && i < x.size(); ++i) {
      if (scale[i] != x[i]) s.axis_ = i;
    }
    const int64_t size = x[s.axis_], count = scale[s.axis_];
    if (count < 1) return wrong();
    s.block_ = block > 0 ? block : (size + count - 1) / count;
    if (s.block_ < 1 || s.block_ > INT32_MAX || (size + s.block_ - 1) / s.block_ != count) return wrong();
    for (size_t i = 0; i < x.size(); ++i) {
      if (i != s.axis_ && scale[i] != x[i]) return wrong();
    }
    s.granularity_ = Granularity::kBlock;
    const auto last = s.perm_.begin() + static_cast<std::ptrdiff_t>(s.axis_);
    std::rotate(last, last + 1, s.perm_.end());
  }
  s.back_.resize(x.size());
  for (size_t i = 0; i < s.perm_.size(); ++i) {
    s.back_[static_cast<size_t>(s.perm_[i])] = static_cast<int64_t>(i);
    s.moved_.push_back(x[static_cast<size_t>(s.perm_[i])]);
  }
  s.arranged_ = s.moved_;
  if (!blocks) s.arranged_ = {s.moved_[0], elements(Shape(s.moved_.begin() + 1, s.moved_.end()))};
  return s;
}

ScaleLevel ScaleAxis::level(Element element) const {
  return {.granularity = granularity_, .element = element, .block = static_cast<int32_t>(block_)};
}

Region ScaleAxis::arranged(const Region& x) const { return permuted(x, perm_); }
Region ScaleAxis::arranged_scale(const Region& s) const {
  return granularity_ == Granularity::kBlock ? permuted(s, perm_) : s;
}

Result<ValueId> ScaleAxis::arrange(GraphBuilder& b, ValueId x) const {
  TS_ASSIGN(const ValueId moved, b.permute(x, perm_));
  return b.reshape(moved, arranged_);
}

Result<ValueId> ScaleAxis::restore(GraphBuilder& b, ValueId arranged) const {
  TS_ASSIGN(const ValueId moved, b.reshape(arranged, moved_));
  return b.permute(moved, back_);
}

ValueId OnnxScale::add_to(GraphBuilder& b) {
  if (constant == kNoValue) {
    const int64_t count = static_cast<int64_t>(data.size()) * 8 / info(level.element).bits;
    constant = b.graph().add_constant(name, Type{{count}, level.element}, data);
  }
  return constant;
}

QuantType OnnxScale::type(Element codes) const {
  const ScaleLevel second = {.granularity = scale2 == kNoValue ? Granularity::kNone : Granularity::kTensor};
  return {codes, level, second};
}

namespace {

Status check_numbers(const std::string& name, const std::vector<float>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!(numbers[i] > 0) || !std::isfinite(numbers[i]))
      return bad_input(cat("scale '", shown(name), "': number ", i, " of ", numbers.size(), " is ", numbers[i],
                           "; scales must be positive and finite"));
  }
  return {};
}

std::vector<float> decoded(Element element, const Bytes& data, int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  info(element).decode(data.data(), 0, count, numbers.data());
  return numbers;
}

struct Source {
  Element element;
  const Bytes* data;
  ValueId base;
  ValueId scale2 = kNoValue;
};

// The constant behind the scale operand.
Result<Source> find_source(OnnxCall& c, ValueId v, size_t operand, bool powers) {
  const Place p = c.b.place(v);
  const std::string& name = c.node.inputs[operand];
  Source s{Element::f32, nullptr, p.base};
  if (const auto decoded_from = c.file.decoded.find(p.base); decoded_from != c.file.decoded.end()) {
    const Value& scales = c.b.graph().at(decoded_from->second);
    if (scales.type.quant.scale.granularity != Granularity::kTensor)
      return bad_input(cat("scale '", shown(name), "' has scales of its own, ", to_string(scales.type.quant),
                           "; one number over all of them is accepted"));
    s.element = scales.type.quant.element, s.data = &scales.data, s.scale2 = scales.scale;
    return s;
  }
  const Value& scales = c.b.graph().at(p.base);
  if (!scales.constant)
    return bad_input(cat("scale '", shown(name), "' must be known at build, but depends on the model's input"));
  s.element = scales.type.quant.element, s.data = &scales.data;
  if (s.element == Element::u8 && powers) s.element = Element::e8m0;
  if (info(s.element).kind != ElementKind::kFloat || info(s.element).bits < 8)
    return bad_input(cat("scale '", shown(name), "' holds ", info(s.element).name, ", a float is needed"));
  return s;
}

}  // namespace

Result<OnnxScale> read_scale(OnnxCall& c, const Shape& x, bool powers) {
  TS_ASSIGN(const ValueId v, c.operand(1));
  TS_ASSIGN(const Source source, find_source(c, v, 1, powers));
  TS_ASSIGN(const int64_t axis, c.integer("axis", powers ? -1 : 1));
  TS_ASSIGN(const int64_t block, c.integer("block_size", powers ? 32 : 0));
  if (block < 0) return bad_input(cat("block_size ", block, ": a block has one element at least"));
  OnnxScale s{.name = c.b.graph().at(source.base).name, .shape = c.b.shape(v), .over = {}, .level = {}, .data = {}};
  if (const auto from = c.file.decoded.find(source.base); from != c.file.decoded.end())
    s.name = c.b.graph().at(from->second).name;
  if (const auto stored = c.file.stored.find(c.node.inputs[1]); stored != c.file.stored.end())
    s.stored = stored->second;
  Result<ScaleAxis> over = ScaleAxis::of(x, s.shape, axis, block);
  if (!over.ok()) return over.status().at(cat("scale '", shown(s.name), "'"));
  s.over = *over;
  // TensorRT's own operators may leave the block to the shapes; the standard's may not.
  if (block == 0 && s.over.granularity() == Granularity::kBlock && !c.node.op.starts_with("TRT_"))
    return bad_input(
        cat("scale '", shown(s.name), "' of shape ", to_string(s.shape), " for ", to_string(x),
            " is one of blocks, and block_size is 0: give the block_size, or one scale per index of the axis"));
  const Region region = s.over.arranged_scale(c.b.place(v).region);
  const int64_t count = elements(region.shape);
  if (count > std::max(elements(c.b.graph().at(source.base).type.shape), kMaxListed))
    return bad_input(cat("scale '", shown(s.name), "' repeats its numbers ", count, " times"));
  s.data = Bytes::own(gather_codes(source.data->data(), info(source.element).bits, region));
  const std::vector<float> numbers = decoded(source.element, s.data, count);
  TS_TRY(check_numbers(s.name, numbers));
  s.scale2 = source.scale2;
  const bool blocks = s.over.granularity() == Granularity::kBlock;
  if (s.scale2 != kNoValue && !blocks)
    return bad_input(cat("scale '", shown(s.name), "' has a scale of its own; only scales of blocks may have one"));
  s.level = s.over.level(source.element);
  if (source.element != Element::f32 && !blocks) {  // whatever has one scale per tensor or row has it in f32
    s.level.element = Element::f32;
    Buffer wide(numbers.size() * sizeof(float));
    info(Element::f32).encode(numbers.data(), count, wide.data(), 0);
    s.data = Bytes::own(std::move(wide));
  }
  const Value& base = c.b.graph().at(source.base);
  if (base.constant && base.type.quant == QuantType(s.level.element) && region.whole() &&
      elements(base.type.shape) == count)
    s.constant = source.base;
  return s;
}

Result<ValueId> read_tensor_scale(OnnxCall& c, size_t operand) {
  TS_ASSIGN(const ValueId v, c.operand(operand));
  TS_ASSIGN(const Source source, find_source(c, v, operand, false));
  const std::string name = c.node.inputs[operand];
  if (elements(c.b.shape(v)) != 1 || source.element != Element::f32 || source.scale2 != kNoValue)
    return bad_input(cat("scale '", shown(name), "' of shape ", to_string(c.b.shape(v)), ": one float is needed"));
  const Place p = c.b.place(v);
  Buffer one = gather_codes(source.data->data(), 32, p.region);
  const Bytes data = Bytes::own(std::move(one));
  TS_TRY(check_numbers(name, decoded(Element::f32, data, 1)));
  return c.b.graph().add_constant(name, Type{{1}, Element::f32}, data);
}

Result<int64_t> read_zero_point(OnnxCall& c) {
  if (!c.has(2)) return 0;
  const Place p = c.b.place(c.in[2]);
  const Value& v = c.b.graph().at(p.base);
  const std::string& name = c.node.inputs[2];
  if (!v.constant) return bad_input(cat("zero point '", shown(name), "' must be known at build"));
  if (v.type.quant.scaled()) return bad_input(cat("zero point '", shown(name), "' has scales"));
  const int64_t count = elements(p.region.shape);
  if (count > std::max(elements(v.type.shape), kMaxListed))
    return bad_input(cat("zero point '", shown(name), "' repeats its numbers ", count, " times"));
  const int bits = info(v.type.quant.element).bits;
  const Buffer codes = gather_codes(v.data.data(), bits, p.region);
  std::vector<float> numbers(static_cast<size_t>(count));
  info(v.type.quant.element).decode(codes.data(), 0, count, numbers.data());
  const auto stored = c.file.stored.find(name);
  const bool unsigned4 = stored != c.file.stored.end() && stored->second == kOnnxUint4;
  for (float& x : numbers) {
    if (unsigned4 && x < 0) x += 16;
    if (x != numbers[0])
      return bad_input(cat("zero point '", shown(name), "' differs from scale to scale; 0 is accepted"));
    if (x != std::nearbyint(x))
      return bad_input(
          cat("zero point '", shown(name), "' is ", x, ": only symmetric codes are supported, with a zero point of 0"));
    if (!(std::fabs(x) < 0x1p31f)) return bad_input(cat("zero point '", shown(name), "' is ", x));
  }
  return numbers.empty() ? 0 : static_cast<int64_t>(numbers[0]);
}

}  // namespace tessera
