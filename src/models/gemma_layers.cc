// SPDX-License-Identifier: Apache-2.0
#include "models/gemma_layers.h"

#include <cmath>

namespace tessera {

std::vector<std::pair<std::string, Shape>> gemma_tensors(const std::string& layer, const GemmaSettings& s,
                                                         bool modulated) {
  const int64_t q = s.heads * s.head, kv = s.kv_heads * s.head;
  std::vector<std::pair<std::string, Shape>> all = {
      {layer + ".self_attn.q_proj.weight", {q, s.width}},  {layer + ".self_attn.k_proj.weight", {kv, s.width}},
      {layer + ".self_attn.v_proj.weight", {kv, s.width}}, {layer + ".self_attn.o_proj.weight", {s.width, q}},
      {layer + ".mlp.gate_proj.weight", {s.mlp, s.width}}, {layer + ".mlp.up_proj.weight", {s.mlp, s.width}},
      {layer + ".mlp.down_proj.weight", {s.width, s.mlp}}};
  for (const char* norm : {".input_layernorm", ".post_attention_layernorm"}) {
    if (modulated) {
      all.push_back({layer + norm + ".dense.weight", {3 * s.width, s.width}});
      all.push_back({layer + norm + ".dense.bias", {3 * s.width}});
    } else {
      all.push_back({layer + norm + ".weight", {s.width}});
    }
  }
  return all;
}

Result<ValueId> GemmaLayers::norm(const std::string& module, ValueId x, const Modulation* m) {
  const Attrs attrs = {{"kind", std::string("rms")}, {"eps", s_.eps}};
  if (m == nullptr) {
    TS_ASSIGN(const ValueId stored, l_.constant(module + ".weight", {s_.width}));
    TS_ASSIGN(const ValueId gain, l_.b.map("add", {stored, l_.b.scalar(1, Element::f32)}, module + ".gain"));
    return l_.b.emit("norm", {x, gain}, attrs, module);
  }
  TS_ASSIGN(ValueId y, l_.b.emit("norm", {x}, attrs, module));
  TS_ASSIGN(y, l_.b.map("mul", {y, m->factor}, module + ".factor"));
  return l_.b.map("add", {y, m->shift}, module + ".shift");
}

Result<ValueId> GemmaLayers::heads(const std::string& module, ValueId x, int64_t count) {
  const Shape in = l_.b.shape(x);
  TS_ASSIGN(const ValueId y, l_.linear(module, x, count * s_.head, /*bias=*/false));
  return l_.b.reshape(y, {in[0], in[1], count, s_.head});
}

// Keys and values of x behind those in the cache.
Status GemmaLayers::write_new(const std::string& name, ValueId x, GemmaCache& cache) {
  const std::string module = name + ".self_attn";
  TS_ASSIGN(ValueId k, heads(module + ".k_proj", x, s_.kv_heads));
  TS_ASSIGN(k, l_.b.emit("rotary", {k, angles_.cos, angles_.sin}, {}, module + ".k_rotary"));
  TS_ASSIGN(const ValueId v, heads(module + ".v_proj", x, s_.kv_heads));
  Attrs attrs = {{"axis", int64_t{1}}};
  if (cache.at == kNoValue) attrs.set("at", int64_t{0});
  for (const auto& [rows, into, what] : {std::tuple{k, &cache.keys, ".key"}, {v, &cache.values, ".value"}}) {
    std::vector<ValueId> operands = {*into, rows};
    if (cache.at != kNoValue) operands.push_back(cache.at);
    TS_ASSIGN(*into, l_.b.emit("write", operands, attrs, name + what + ".write"));
  }
  return {};
}

Result<ValueId> GemmaLayers::attend(const std::string& name, ValueId x, GemmaCache& cache) {
  const std::string module = name + ".self_attn";
  const Shape in = l_.b.shape(x);
  TS_ASSIGN(ValueId q, heads(module + ".q_proj", x, s_.heads));
  TS_ASSIGN(q, l_.b.emit("rotary", {q, angles_.cos, angles_.sin}, {}, module + ".q_rotary"));
  TS_TRY(write_new(name, x, cache));
  Node node{.name = module, .op = "attention", .inputs = {q, cache.keys, cache.values, cache.bias, cache.lengths}};
  node.attrs.set("scale", 1 / std::sqrt(static_cast<double>(s_.head)));
  if (cache.causal) node.attrs.set("causal", int64_t{1});
  node.attrs.set("fresh", cache.fresh);
  TS_ASSIGN(ValueId y, l_.b.emit(std::move(node)));
  TS_ASSIGN(y, l_.b.reshape(y, {in[0], in[1], s_.heads * s_.head}));
  return l_.linear(module + ".o_proj", y, s_.width, /*bias=*/false);
}

Result<ValueId> GemmaLayers::mlp(const std::string& module, ValueId x) {
  TS_ASSIGN(ValueId gate, l_.linear(module + ".gate_proj", x, s_.mlp, /*bias=*/false));
  TS_ASSIGN(gate, l_.b.map("gelu_tanh", {gate}, module + ".act"));
  TS_ASSIGN(const ValueId up, l_.linear(module + ".up_proj", x, s_.mlp, /*bias=*/false));
  TS_ASSIGN(const ValueId y, l_.b.map("mul", {gate, up}, module + ".mul"));
  return l_.linear(module + ".down_proj", y, s_.width, /*bias=*/false);
}

Result<ValueId> GemmaLayers::added(ValueId x, ValueId y, const Modulation* m, const std::string& name) {
  if (m != nullptr) {
    TS_ASSIGN(y, l_.b.map("mul", {y, m->gate}, name + ".gate"));
  }
  return l_.add(x, y, name + ".residual");
}

Result<ValueId> GemmaLayers::layer(const std::string& name, ValueId x, GemmaCache& cache,
                                   const std::vector<Modulation>& modulations) {
  const Modulation* first = modulations.empty() ? nullptr : &modulations[0];
  const Modulation* second = modulations.empty() ? nullptr : &modulations[1];
  TS_ASSIGN(ValueId y, norm(name + ".input_layernorm", x, first));
  TS_ASSIGN(y, attend(name, y, cache));
  TS_ASSIGN(x, added(x, y, first, name + ".self_attn"));
  TS_ASSIGN(y, norm(name + ".post_attention_layernorm", x, second));
  TS_ASSIGN(y, mlp(name + ".mlp", y));
  return added(x, y, second, name + ".mlp");
}

Status GemmaLayers::keys_and_values(const std::string& name, ValueId x, GemmaCache& cache) {
  TS_ASSIGN(const ValueId y, norm(name + ".input_layernorm", x));
  return write_new(name, y, cache);
}

}  // namespace tessera
