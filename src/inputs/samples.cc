// SPDX-License-Identifier: Apache-2.0
#include "inputs/samples.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/random.h"
#include "inputs/pixel_bytes.h"
#include "io/npz.h"
#include "runtime/bind.h"
#include "runtime/fit_lengths.h"

namespace tessera {
namespace {

// Sum of twelve uniforms less six: normal enough for inputs, and exact on every machine (no libm).
float normal_at(uint64_t seed, uint64_t index) {
  double sum = -6;
  uint64_t state = mix64(seed * 0x100000001b3ull + index);
  for (int i = 0; i < 12; ++i) {
    state = mix64(state);
    sum += static_cast<double>(state >> 11) * 0x1p-53;
  }
  return static_cast<float>(sum);
}

float number_at(InputKind kind, uint64_t seed, uint64_t index) {
  switch (kind) {
    case InputKind::kNormal:
      return normal_at(seed, index);
    case InputKind::kUniform:
      return static_cast<float>(static_cast<double>(mix64(mix64(seed * 0x100000001b3ull + index)) >> 11) * 0x1p-52 - 1);
    case InputKind::kSmall:
      return normal_at(seed, index) * 0x1p-10f;
    case InputKind::kLarge:
      return normal_at(seed, index) * 0x1p5f;
  }
  return 0;
}

constexpr const char* kKindNames[] = {"normal", "uniform", "small", "large"};

const Operand& desc_of(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].desc;
}

int64_t sample_elements(const Plan& plan, const Port& port) {
  return elements(desc_of(plan, port).shape) / std::max<int64_t>(plan.batch, 1);
}

std::string wanted_inputs(const Plan& plan) {
  std::string text;
  for (const Port& p : plan.inputs) {
    Shape shape = desc_of(plan, p).shape;
    std::string dims = "[batch";
    for (size_t i = 1; i < shape.size(); ++i) dims += "," + std::to_string(shape[i]);
    text += cat(text.empty() ? "" : ", ", "'", p.name, "' ", dims, "]");
  }
  return text;
}

// Ids must name rows of the table that reads them; 0: no table reads them directly.
int64_t ids_below(const Plan& plan, int tensor) {
  int64_t below = 0;  // the smallest of the tables that read it
  for (const PlanStep& s : plan.steps) {
    if (s.op != "gather" || s.in.size() < 2 || s.in[1] != tensor) continue;
    const int64_t rows = std::max<int64_t>(1, plan.tensors[static_cast<size_t>(s.in[0])].desc.shape[0]);
    below = below == 0 ? rows : std::min(below, rows);
  }
  return below;
}

// What no table reads may be a mask or a position: 0 or 1, the first of each row 1, so that every query sees a key,
// those of a decoder too, as most do in use. (Under a sliding window some see none.)
uint64_t truth_at(uint64_t bits, int64_t index, int64_t cols) { return cols > 0 && index % cols == 0 ? 1 : bits % 2; }

bool is_float_dtype(const std::string& dtype) { return dtype.size() > 1 && dtype[1] == 'f'; }

bool is_half(Element e) { return e == Element::f16 || e == Element::bf16; }

// Appends the largest number of an input that the element cannot hold, where there is one.
void note_clamped(std::vector<Clamped>& found, const std::string& input, const std::vector<double>& numbers,
                  int64_t samples, Element element) {
  if (info(element).kind != ElementKind::kFloat) return;
  double largest = info(element).max;
  size_t at = numbers.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double x = std::fabs(numbers[i]);
    if (x > largest && std::isfinite(x)) largest = x, at = i;
  }
  if (at == numbers.size()) return;
  const size_t one = numbers.size() / static_cast<size_t>(samples);
  found.push_back({input, static_cast<int64_t>(at / one), largest, element});
}

// The plain float that copies and joins bring an input into as it is; of several the narrowest. Views of an input lie
// in it.
std::optional<Element> carried_as(const Plan& plan, size_t input) {
  std::optional<Element> narrowest;
  for (const PlanStep& s : plan.steps) {
    if ((s.op != "copy" && s.op != "concat") || !s.then.steps.empty()) continue;
    const bool reads = std::any_of(s.in.begin(), s.in.end(), [&](int t) {
      if (t < 0) return false;
      const PlanTensor& from = plan.tensors[static_cast<size_t>(t)];
      return from.storage == Storage::kInput && from.index == static_cast<int64_t>(input);
    });
    if (!reads) continue;
    const QuantType& type = plan.tensors[static_cast<size_t>(s.out[0])].desc.type;
    if (type.scaled() || info(type.element).kind != ElementKind::kFloat) continue;
    if (!narrowest || info(type.element).max < info(*narrowest).max) narrowest = type.element;
  }
  return narrowest;
}

}  // namespace

Samples Samples::part(int64_t first, int64_t few) const {
  Samples p{.count = few, .names = names, .data = {}, .elements = elements};
  for (const Clamped& c : clamped) {
    if (c.sample >= first && c.sample < first + few)
      p.clamped.push_back({c.input, c.sample - first, c.magnitude, c.element});
  }
  for (const Bytes& all : data) {
    const size_t one = all.size() / static_cast<size_t>(count);
    p.data.push_back(all.slice(static_cast<size_t>(first) * one, static_cast<size_t>(few) * one));
  }
  return p;
}

Samples Samples::repeated(int64_t wanted) const {
  if (wanted == count) return *this;
  Samples r{.count = wanted, .names = names, .data = {}, .elements = elements, .clamped = clamped};
  for (const Bytes& all : data) {
    const size_t one = all.size() / static_cast<size_t>(count);
    Buffer b(one * static_cast<size_t>(wanted));
    for (int64_t i = 0; i < wanted && one > 0; ++i) {
      std::memcpy(b.data() + static_cast<size_t>(i) * one, all.data() + static_cast<size_t>(i % count) * one, one);
    }
    r.data.push_back(Bytes::own(std::move(b)));
  }
  return r;
}

const char* name_of(InputKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::optional<InputKind> find_input_kind(std::string_view name) {
  for (const InputKind kind : kInputKinds) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

Samples random_samples(const Plan& plan, int64_t count, uint64_t seed, InputKind kind) {
  Samples s{.count = count, .names = {}, .data = {}};
  const std::vector<CacheLength> lengths = cache_lengths(plan);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Port& port = plan.inputs[i];
    const Element e = desc_of(plan, port).type.element;
    const int64_t n = sample_elements(plan, port) * count;
    const uint64_t ids = static_cast<uint64_t>(ids_below(plan, port.tensor));
    const int64_t longest = longest_cache(lengths, i);
    const Shape& shape = desc_of(plan, port).shape;
    const int64_t cols = shape.size() < 2 ? 0 : shape.back();
    const bool pixels = (shape.size() >= 4 && shape.back() == 3) || pixels_of(plan, port);  // else a byte is a truth
    std::vector<float> numbers(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j) {
      const uint64_t index = static_cast<uint64_t>(j);
      const uint64_t bits = mix64(seed + i * 7919 + index);
      numbers[static_cast<size_t>(j)] = info(e).kind != ElementKind::kInteger
                                            ? number_at(kind, seed + i * 7919, index)
                                            : static_cast<float>(ids == 0 ? truth_at(bits, j, cols) : bits % ids);
      if (longest >= 0)
        numbers[static_cast<size_t>(j)] = static_cast<float>(longest);  // as the model as written has it
      // Masks: everything takes part.
      if (e == Element::u8) numbers[static_cast<size_t>(j)] = pixels ? static_cast<float>(bits % 256) : 1;
    }
    Buffer b(static_cast<size_t>(packed_bytes(e, n)));
    info(e).encode(numbers.data(), n, b.data(), 0);
    s.names.push_back(port.name);
    s.data.push_back(Bytes::own(std::move(b)));
    s.elements.push_back(e);
  }
  return s;
}

void draw_lengths(const Plan& plan, Samples& samples, uint64_t seed) {
  const std::vector<CacheLength> of_caches = cache_lengths(plan);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const int64_t longest = longest_cache(of_caches, i);
    if (longest < 0) continue;
    const ElementInfo& e = info(desc_of(plan, plan.inputs[i]).type.element);
    const int64_t n = sample_elements(plan, plan.inputs[i]) * samples.count;
    std::vector<double> lengths(static_cast<size_t>(n));
    for (size_t j = 0; j < lengths.size(); ++j)
      lengths[j] = static_cast<double>(mix64(seed * 31 + j) % static_cast<uint64_t>(longest + 1));
    Buffer b(samples.data[i].size());
    e.encode_f64(lengths.data(), n, b.data(), 0);
    samples.data[i] = Bytes::own(std::move(b));
  }
}

void clamp_lengths(const Plan& plan, Samples& samples) {
  const std::vector<CacheLength> of_caches = cache_lengths(plan);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const int64_t longest = longest_cache(of_caches, i);
    if (longest < 0) continue;
    const ElementInfo& e = info(desc_of(plan, plan.inputs[i]).type.element);
    std::vector<double> lengths(static_cast<size_t>(sample_elements(plan, plan.inputs[i]) * samples.count));
    const auto n = static_cast<int64_t>(lengths.size());
    e.decode_f64(samples.data[i].data(), 0, n, lengths.data());
    for (double& length : lengths) length = std::clamp(length, 0.0, static_cast<double>(longest));
    Buffer b(samples.data[i].size());
    e.encode_f64(lengths.data(), n, b.data(), 0);
    samples.data[i] = Bytes::own(std::move(b));
  }
}

std::string misfit_lengths(const Plan& plan, const Samples& samples) {
  const std::vector<CacheLength> of_caches = cache_lengths(plan);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const int64_t longest = longest_cache(of_caches, i);
    if (longest < 0) continue;
    const int64_t n = sample_elements(plan, plan.inputs[i]) * samples.count;
    std::vector<double> lengths(static_cast<size_t>(n));
    info(desc_of(plan, plan.inputs[i]).type.element).decode_f64(samples.data[i].data(), 0, n, lengths.data());
    for (size_t j = 0; j < lengths.size(); ++j) {
      if (lengths[j] < 0 || lengths[j] > static_cast<double>(longest))
        return cat("input '", plan.inputs[i].name, "' is ", lengths[j], " in sample ",
                   static_cast<int64_t>(j) / sample_elements(plan, plan.inputs[i]), "; the cache has room for 0 to ",
                   longest, " rows before the new ones");
    }
  }
  return "";
}

namespace {

std::string unread_arrays(const Plan& plan, const std::vector<Array>& arrays, const std::string& path) {
  if (path.ends_with(".npy")) return "";
  std::string names;
  int64_t count = 0;
  for (const Array& a : arrays) {
    const bool read =
        std::any_of(plan.inputs.begin(), plan.inputs.end(), [&](const Port& p) { return p.name == a.name; });
    if (!read && ++count <= 4) names += cat(count == 1 ? "'" : "', '", a.name);
  }
  if (count == 0) return "";
  return cat(count == 1 ? "array " : "arrays ", names, "'", count > 4 ? cat(" and ", count - 4, " more") : "",
             count == 1 ? " is" : " are", " read by no input; the model has ", wanted_inputs(plan));
}

// The first rows of every sample, where there are more than `wanted` has.
void cut_rows(Array& a, const Shape& wanted) {
  if (a.shape.size() < 2 || wanted.size() < 2 || a.shape[1] <= wanted[1] || elements(a.shape) == 0) return;
  const size_t samples = static_cast<size_t>(a.shape[0]), given = a.data.size() / samples,
               kept = given / static_cast<size_t>(a.shape[1]) * static_cast<size_t>(wanted[1]);
  Buffer front(samples * kept);
  for (size_t s = 0; s < samples; ++s) std::copy_n(a.data.data() + s * given, kept, front.data() + s * kept);
  a.shape[1] = wanted[1];
  a.data = Bytes::own(std::move(front));
}

// The array, or `made` where it holds floats and the port takes images in bytes.
Result<const Array*> in_bytes(const Plan& plan, const Port& port, const Array* given, Array& made,
                              const std::string& path) {
  const auto pixels = pixels_of(plan, port);
  if (!pixels || !is_float_dtype(given->dtype)) return given;
  auto bytes = bytes_of_floats(*given, desc_of(plan, port).shape, *pixels);
  if (!bytes.ok()) return bytes.status().at(path);
  made = std::move(bytes).value();
  return &made;
}

// The array of an input; null where there is none. A .npy has no name but the file's: for a model with one input it is
// that input.
template <class Arrays>
auto* array_of(Arrays& arrays, const Plan& plan, const Port& port, const std::string& path) {
  decltype(&arrays[0]) found = nullptr;
  for (auto& a : arrays) {
    if (a.name == port.name) found = &a;
  }
  if (plan.inputs.size() == 1 && arrays.size() == 1 && path.ends_with(".npy")) found = &arrays[0];
  return found;
}

Status no_array(const Plan& plan, const Port& port, const std::vector<Array>& arrays, const std::string& path) {
  std::string held;
  for (size_t i = 0; i < arrays.size() && i < 8; ++i) held += cat(i == 0 ? "" : ", ", "'", arrays[i].name, "'");
  return bad_input(cat(path, ": no array '", port.name, "'; wanted ", wanted_inputs(plan), "; the file holds ",
                       held.empty() ? "none" : held));
}

// An array without the axis of the batch is one sample.
Shape with_batch(const Array& a, const Shape& wanted) {
  Shape shape(a.shape.begin(), a.shape.end());
  if (shape.size() + 1 == wanted.size()) shape.insert(shape.begin(), 1);
  return shape;
}

// The array with as many numbers along the axes that go with a size as the plan has. What does not fit stays: its
// reader says what is wrong.
void fit_axes(Array& a, const std::string& port, const Shape& wanted, const ArrayShapes& shapes) {
  const Shape given = with_batch(a, wanted);
  if (given.size() != wanted.size() || given.empty()) return;
  Shape to = given;
  for (size_t axis = 1; axis < given.size(); ++axis) {
    if (given[axis] == wanted[axis]) continue;
    if (find_axis(shapes.lengths->inputs, port, axis) == nullptr || (given[axis] > wanted[axis] && !shapes.front))
      return;
    to[axis] = wanted[axis];
  }
  if (to == given) return;
  const int64_t bytes = dtype_bytes(a.dtype);
  Buffer fitted(static_cast<size_t>(elements(to) * bytes));
  copy_front(given, a.data.data(), to, fitted.data(), bytes);
  a.shape.assign(to.begin(), to.end());
  a.data = Bytes::own(std::move(fitted));
}

}  // namespace

Result<std::vector<Shape>> read_shapes(const Plan& plan, const std::string& path) {
  TS_ASSIGN(const std::vector<Array> arrays, read_npz(path));
  std::vector<Shape> shapes;
  for (const Port& port : plan.inputs) {
    const Array* const found = array_of(arrays, plan, port, path);
    if (found == nullptr) return no_array(plan, port, arrays, path);
    shapes.push_back(with_batch(*found, desc_of(plan, port).shape));
  }
  return shapes;
}

Result<Samples> read_samples(const Plan& plan, const std::string& path, const ArrayShapes& shapes) {
  TS_ASSIGN(std::vector<Array> arrays, read_npz(path));
  for (const Port& port : plan.inputs) {
    Array* const a = array_of(arrays, plan, port, path);
    if (a == nullptr) continue;
    if (shapes.lengths != nullptr && !shapes.lengths->none()) {
      fit_axes(*a, port.name, desc_of(plan, port).shape, shapes);
    } else if (shapes.front) {
      cut_rows(*a, desc_of(plan, port).shape);
    }
  }
  Samples s;
  for (const Port& port : plan.inputs) {
    const Array* found = array_of(arrays, plan, port, path);
    if (found == nullptr && is_state(plan, port)) {  // a session begins with zeros
      s.names.push_back(port.name);
      s.data.emplace_back();
      continue;
    }
    if (found == nullptr) return no_array(plan, port, arrays, path);
    const Operand& desc = desc_of(plan, port);
    Array bytes;
    TS_ASSIGN(found, in_bytes(plan, port, found, bytes, path));
    Shape shape(found->shape.begin(), found->shape.end());
    const bool bare = shape == Shape(desc.shape.begin() + 1, desc.shape.end());
    s.bare = bare && (s.bare || s.count == 0);
    if (bare) shape.insert(shape.begin(), 1);
    if (shape.size() != desc.shape.size() || !std::equal(shape.begin() + 1, shape.end(), desc.shape.begin() + 1)) {
      return bad_input(cat(path, ": array '", port.name, "' has shape ",
                           to_string(Shape(found->shape.begin(), found->shape.end())), "; wanted ",
                           wanted_inputs(plan)));
    }
    const int64_t count = shape[0];
    if (count == 0) return bad_input(cat(path, ": array '", port.name, "' holds no samples"));
    if (s.count != 0 && s.count != count) {
      return bad_input(cat(path, ": '", port.name, "' holds ", count, " samples, '", s.names[0], "' ", s.count));
    }
    s.count = count;
    s.names.push_back(port.name);
    if (found->dtype == numpy_dtype(desc.type.element)) {  // as it lies in the file
      s.data.push_back(found->data);
      continue;
    }
    const std::vector<double> numbers = numbers_of(*found);
    const int64_t n = static_cast<int64_t>(numbers.size());
    Buffer b(static_cast<size_t>(packed_bytes(desc.type.element, n)));
    info(desc.type.element).encode_f64(numbers.data(), n, b.data(), 0);
    for (size_t i = 0; i < numbers.size() && is_half(desc.type.element); ++i) {
      const float x = static_cast<float>(numbers[i]);  // what no number is stays so, as in a port of f32
      if (!std::isfinite(numbers[i]))
        info(desc.type.element).encode_unsaturated(&x, 1, b.data(), static_cast<int64_t>(i));
    }
    note_clamped(s.clamped, port.name, numbers, count, desc.type.element);
    if (info(desc.type.element).kind == ElementKind::kInteger) {  // half an id, or none, is no id
      std::vector<double> kept(numbers.size());
      info(desc.type.element).decode_f64(b.data(), 0, n, kept.data());
      const auto odd = std::mismatch(numbers.begin(), numbers.end(), kept.begin()).first;
      if (odd != numbers.end())
        return bad_input(cat(path, ": array '", port.name, "' holds ", *odd, " at ", odd - numbers.begin(),
                             "; the model takes whole numbers (", info(desc.type.element).name, ")"));
    }
    s.data.push_back(Bytes::own(std::move(b)));
  }
  s.count = std::max<int64_t>(s.count, 1);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    s.elements.push_back(desc_of(plan, plan.inputs[i]).type.element);
    if (s.data[i].size() == 0)
      s.data[i] = Bytes::own(Buffer(static_cast<size_t>(s.count * port_bytes(plan, plan.inputs[i]) / plan.batch)));
  }
  s.unread = unread_arrays(plan, arrays, path);
  if (shapes.front) clamp_lengths(plan, s);
  return s;
}

std::string non_finite_inputs(const Plan& plan, const Samples& samples) {
  constexpr int64_t kChunk = 4096;
  std::vector<float> numbers(kChunk);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const ElementInfo& element = info(desc_of(plan, plan.inputs[i]).type.element);
    if (element.kind != ElementKind::kFloat) continue;
    const int64_t one = sample_elements(plan, plan.inputs[i]), n = one * samples.count;
    int64_t bad = 0, first = 0;
    for (int64_t at = 0; at < n; at += kChunk) {
      const int64_t here = std::min(kChunk, n - at);
      element.decode(samples.data[i].data(), at, here, numbers.data());
      for (int64_t k = 0; k < here; ++k) {
        if (!std::isfinite(numbers[static_cast<size_t>(k)]) && bad++ == 0) first = (at + k) / one;
      }
    }
    if (bad > 0)
      return cat("input '", plan.inputs[i].name, "' holds NaN or Inf in ", bad, " of ", n, " numbers, first in sample ",
                 first);
  }
  return "";
}

std::string clamped_inputs(const Plan& plan, const Samples& samples) {
  std::vector<Clamped> clamped = samples.clamped;
  for (size_t i = 0; i < plan.inputs.size() && clamped.empty(); ++i) {
    const Element own = desc_of(plan, plan.inputs[i]).type.element;
    const std::optional<Element> carried = carried_as(plan, i);
    if (!carried || info(own).kind != ElementKind::kFloat || info(*carried).max >= info(own).max) continue;
    std::vector<double> numbers(static_cast<size_t>(sample_elements(plan, plan.inputs[i]) * samples.count));
    info(own).decode_f64(samples.data[i].data(), 0, static_cast<int64_t>(numbers.size()), numbers.data());
    note_clamped(clamped, plan.inputs[i].name, numbers, samples.count, *carried);
  }
  if (clamped.empty()) return "";
  const Clamped& c = clamped[0];
  char size[32];
  std::snprintf(size, sizeof(size), "%.3g", c.magnitude);
  return cat("input '", c.input, "' holds numbers up to ", size, " in sample ", c.sample,
             "; this engine holds at most ", info(c.element).max, " there (", info(c.element).name,
             ") and clamps what is larger");
}

std::string numpy_dtype(Element element) {
  const std::string name = info(element).name;
  for (const auto& [ours, numpy] :
       {std::pair{"f16", "<f2"}, {"f32", "<f4"}, {"f64", "<f8"}, {"i32", "<i4"}, {"i64", "<i8"}, {"u8", "|u1"}}) {
    if (name == ours) return numpy;
  }
  return "";
}

Bytes converted(const Bytes& data, Element from, Element to) {
  const int64_t n = static_cast<int64_t>(data.size()) * 8 / info(from).bits;
  std::vector<double> numbers(static_cast<size_t>(n));
  info(from).decode_f64(data.data(), 0, n, numbers.data());
  Buffer out(static_cast<size_t>(packed_bytes(to, n)));
  info(to).encode_f64(numbers.data(), n, out.data(), 0);
  return Bytes::own(std::move(out));
}

Filled fill_inputs(const Plan& plan, const Samples& samples, int64_t first) {
  Filled f;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    Buffer b(static_cast<size_t>(port_bytes(plan, plan.inputs[i])));
    const Element wanted = desc_of(plan, plan.inputs[i]).type.element;
    const bool other = !samples.elements.empty() && samples.elements[i] != wanted;
    const Bytes data = other ? converted(samples.data[i], samples.elements[i], wanted) : samples.data[i];
    const size_t one = data.size() / static_cast<size_t>(samples.count);
    for (int64_t s = 0; s < plan.batch; ++s) {
      std::memcpy(b.data() + static_cast<size_t>(s) * one,
                  data.data() + static_cast<size_t>((first + s) % samples.count) * one, one);
    }
    f.buffers.push_back(std::move(b));
  }
  for (Buffer& b : f.buffers) f.pointers.push_back(b.data());
  return f;
}

Outputs make_outputs(const Plan& plan) {
  Outputs o;
  for (const Port& p : plan.outputs) {
    o.buffers.emplace_back(static_cast<size_t>(port_bytes(plan, p)));
    if (o.buffers.back().size() > 0) std::memset(o.buffers.back().data(), 0xA5, o.buffers.back().size());
  }
  for (Buffer& b : o.buffers) o.pointers.push_back(b.data());
  return o;
}

std::vector<double> decode_output(const Plan& plan, size_t port, const void* data) {
  const Operand& desc = desc_of(plan, plan.outputs[port]);
  std::vector<double> out(static_cast<size_t>(elements(desc.shape)));
  info(desc.type.element).decode_f64(data, 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

Array output_array(const Plan& plan, size_t port, const Shape& shape, int64_t samples, Buffer data) {
  const Operand& desc = desc_of(plan, plan.outputs[port]);
  Array array{.name = plan.outputs[port].name, .shape = shape, .dtype = numpy_dtype(desc.type.element), .data = {}};
  array.shape[0] = samples;
  if (array.dtype.empty()) {  // numpy has no such type: the numbers themselves
    array.dtype = "<f4";
    const int64_t count = elements(array.shape);
    Buffer numbers(static_cast<size_t>(count) * sizeof(float));
    info(desc.type.element).decode(data.data(), 0, count, reinterpret_cast<float*>(numbers.data()));
    data = std::move(numbers);
  }
  array.data = Bytes::own(std::move(data));
  return array;
}

}  // namespace tessera
