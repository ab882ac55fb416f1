// SPDX-License-Identifier: Apache-2.0
#include "library/ports.h"

#include <algorithm>
#include <iterator>

#include "library/structs.h"
#include "runtime/bind.h"

namespace tessera {
namespace {

// DLPack's codes; 7 to 9, 11, 13, 15 and 16 are types that no port has.
tess_dtype dtype_of(Element e) {
  constexpr uint8_t kE8m0 = 14, kE2m1 = 17;
  const auto of = [&](uint8_t code) { return tess_dtype{code, static_cast<uint8_t>(info(e).bits), 1}; };
  switch (e) {
    case Element::f64:
    case Element::f32:
    case Element::f16:
      return of(TESS_FLOAT);
    case Element::bf16:
      return of(TESS_BFLOAT);
    case Element::e4m3:
      return of(TESS_FLOAT8_E4M3FN);
    case Element::e5m2:
      return of(TESS_FLOAT8_E5M2);
    case Element::e8m0:
      return of(kE8m0);
    case Element::e2m1:
      return of(kE2m1);
    case Element::i64:
    case Element::i32:
    case Element::i8:
    case Element::i4:
      return of(TESS_INT);
    case Element::u8:
      return of(TESS_UINT);
  }
  return {};
}

bool same(const tess_dtype& a, const tess_dtype& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// "f32 (DLPack's type 2, 32 bits)".
std::string name_of(const tess_dtype& t) {
  constexpr Element kAll[] = {
#define TS_ELEMENT(name, Struct) Element::name,
#include "types/types.inc"
#undef TS_ELEMENT
  };
  const auto* const known =
      std::find_if(std::begin(kAll), std::end(kAll), [&](Element e) { return same(dtype_of(e), t); });
  return cat(known == std::end(kAll) ? "" : cat(info(*known).name, " "), "(DLPack's type ", int{t.code}, ", ",
             int{t.bits}, " bits", t.lanes == 1 ? "" : cat(", ", t.lanes, " lanes"), ")");
}

// "shape [2,3]": of a tensor whose ndim was checked.
std::string shape_of(const tess_tensor& t) { return to_string(Shape(t.shape, t.shape + t.ndim)); }

std::string wanted(const CPort& port) {
  std::string shape = to_string(port.desc->shape);
  if (port.any_samples) shape = cat("[samples", port.desc->shape.size() > 1 ? shape.substr(shape.find(',')) : "]");
  return cat(info(port.desc->type.element).name, " ", shape);
}

Status check_shape(const CPort& port, const tess_tensor& t) {
  const Shape& shape = port.desc->shape;
  if (t.ndim != static_cast<int32_t>(shape.size()))
    return bad_input(cat("has ", t.ndim, " dimensions; it takes ", wanted(port)));
  if (t.ndim > 0 && t.shape == nullptr) return bad_input("has no shape (NULL)");
  bool fits = true;
  for (size_t i = port.any_samples ? 1 : 0; i < shape.size(); ++i) fits = fits && t.shape[i] == shape[i];
  if (!fits) return bad_input(cat("has the shape ", shape_of(t), "; it takes ", wanted(port)));
  if (port.any_samples) {
    const int64_t one = shape[0] == 0 ? 0 : port.bytes / shape[0];
    if (t.shape[0] <= 0 || (one > 0 && t.shape[0] > INT64_MAX / one))
      return bad_input(cat("holds ", t.shape[0], " samples; at least one is needed"));
  }
  if (t.strides == nullptr) return {};
  int64_t dense = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (t.shape[i] != 1 && t.strides[i] != dense && port.bytes > 0)
      return bad_input(cat("is not in dense rows: dimension ", i, " has a stride of ", t.strides[i],
                           " elements where it would be ", dense, "; copy it into dense rows first"));
    if (i > 0) dense *= t.shape[i];
  }
  return {};
}

Status check_place(const CPort& port, const tess_tensor& t, const Place& place) {
  const int32_t type = t.device.type;
  if (!place.device) {
    if (type == TESS_CPU || type == TESS_CUDA_HOST || type == TESS_CUDA_MANAGED) return {};
    return bad_input(cat("lies on a device of DLPack's type ", type, "; host memory (", TESS_CPU, ") is wanted here",
                         type == TESS_CUDA ? ": tess_enqueue takes device memory" : ""));
  }
  if ((type == TESS_CUDA && t.device.id == place.id) || type == TESS_CUDA_MANAGED) return {};
  return bad_input(cat("lies on device ", t.device.id, " of DLPack's type ", type, "; memory of CUDA device ", place.id,
                       " (", TESS_CUDA, ") is wanted for ", wanted(port)));
}

Status take_tensor(const CPort& port, const tess_tensor* t, const Place& place, void** data, int64_t& samples) {
  *data = nullptr;
  if (t == nullptr)
    return port.state ? Status() : bad_input(cat("was given no tensor (NULL); it takes ", wanted(port)));
  if (const tess_dtype want = dtype_of(port.desc->type.element); !same(t->dtype, want))
    return bad_input(cat("holds ", name_of(t->dtype), "; ", name_of(want), " is wanted"));
  TS_TRY(check_shape(port, *t));
  TS_TRY(check_place(port, *t, place));
  if (port.any_samples) {
    if (samples != 0 && samples != t->shape[0])
      return bad_input(cat("holds ", t->shape[0], " samples where the others hold ", samples));
    samples = t->shape[0];
  }
  if (t->data == nullptr && port.bytes > 0) return bad_input("has no data (NULL)");
  *data = static_cast<uint8_t*>(t->data) + t->byte_offset;
  const auto address = reinterpret_cast<uintptr_t>(*data);
  if (const int bytes = info(port.desc->type.element).bits / 8; bytes > 1 && address % static_cast<size_t>(bytes) != 0)
    return bad_input(cat("begins at an address that is no multiple of its elements' ", bytes, " bytes"));
  return {};
}

CPort port_of(const Plan& plan, const Port& port, bool any_samples) {
  const Operand& desc = plan.tensors[static_cast<size_t>(port.tensor)].desc;
  return {port.name.c_str(), &desc, port_bytes(plan, port), is_state(plan, port), any_samples};
}

struct Range {
  uintptr_t begin, end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

// Empty for a port that lies in the state: it is copied there and back, one after the other.
Range range_of(const CPort& port, const void* data, int64_t samples) {
  if (port.state || data == nullptr) return {0, 0};
  const Shape& shape = port.desc->shape;
  const int64_t bytes = port.any_samples ? port.bytes / shape[0] * samples : port.bytes;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + static_cast<uintptr_t>(bytes)};
}

}  // namespace

Status check_apart(std::span<const CPort> inputs, std::span<void* const> ins, std::span<const CPort> outputs,
                   std::span<void* const> outs, int64_t samples) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Range out = range_of(outputs[o], outs[o], samples);
    if (out.begin == out.end) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (out.meets(range_of(inputs[i], ins[i], samples)))
        return bad_input(
            cat("output '", outputs[o].name, "' overlaps input '", inputs[i].name, "': give it memory of its own"));
    }
    for (size_t i = 0; i < o; ++i) {
      if (out.meets(range_of(outputs[i], outs[i], samples)))
        return bad_input(
            cat("output '", outputs[o].name, "' overlaps output '", outputs[i].name, "': give it memory of its own"));
    }
  }
  return {};
}

std::vector<CPort> ports_of(const Plan& plan, bool outputs, bool any_samples) {
  std::vector<CPort> ports;
  for (const Port& p : outputs ? plan.outputs : plan.inputs) ports.push_back(port_of(plan, p, any_samples));
  return ports;
}

std::vector<CPort> ports_of(const std::vector<Session::PortOf>& ports, bool outputs) {
  std::vector<CPort> all;
  for (const Session::PortOf& p : ports)
    all.push_back(port_of(*p.plan, (outputs ? p.plan->outputs : p.plan->inputs)[p.port], false));
  return all;
}

Status describe_port(std::span<const CPort> ports, bool outputs, size_t port, tess_port_info* out) {
  if (port >= ports.size()) return usage_error(cat(outputs ? "output " : "input ", port, ": there are ", ports.size()));
  const CPort& p = ports[port];
  tess_port_info info{};
  info.name = p.name, info.element = tessera::info(p.desc->type.element).name;
  info.dtype = dtype_of(p.desc->type.element);
  info.ndim = static_cast<int32_t>(p.desc->shape.size()), info.shape = p.desc->shape.data();
  info.bytes = p.bytes, info.is_state = p.state ? 1 : 0;
  return write_struct(info, TS_UP_TO(tess_port_info, reserved), "tess_port_info", out);
}

Status take_tensors(std::span<const CPort> ports, bool outputs, const tess_tensor* const* tensors, size_t count,
                    const Place& place, std::span<void*> data, int64_t& samples) {
  const char* side = outputs ? "output" : "input";
  if (count != ports.size()) return bad_input(cat(count, " ", side, "s were given where there are ", ports.size()));
  if (count > 0 && tensors == nullptr) return usage_error(cat(side, "s is NULL"));
  for (size_t i = 0; i < count; ++i) {
    const Status taken = take_tensor(ports[i], tensors[i], place, &data[i], samples);
    if (!taken.ok()) return {taken.code(), cat(side, " '", ports[i].name, "' ", taken.message())};
  }
  return {};
}

}  // namespace tessera
