// SPDX-License-Identifier: Apache-2.0
// Attention of a ViT-B (one image, eight images), of a vision tower with 256 patches, and of a decoder with shared
// keys. On a GPU: the same at the batches that engines are measured with, and a long one.
#include "ops/attention/attention.h"

#include <cmath>
#include <optional>

#include "testing/device_bench.h"
#include "testing/variant_bench.h"

namespace tessera {
namespace {

struct Form {
  const char* name;
  int64_t batch, queries, keys, heads, kv_heads, size;
};

void add_forms() {
  const Form forms[] = {{"vit_b_1", 1, 197, 197, 12, 12, 64},
                        {"vit_b_8", 8, 197, 197, 12, 12, 64},
                        {"patches_256", 1, 256, 256, 16, 16, 72},
                        {"shared_keys", 1, 50, 968, 8, 1, 256}};
  for (const Form& f : forms) {
    for (const QuantType& t :
         {QuantType(Element::f32), QuantType(Element::f16), QuantType(Element::bf16), kE4m3PerTensor}) {
      Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(f.size))}};
      std::optional<QuantType> y;
      if (t.scaled()) attrs.set("p", to_string(t)), y = Element::f16;
      const Problem p = make_problem("attention",
                                     {dense_operand({f.batch, f.queries, f.heads, f.size}, t),
                                      dense_operand({f.batch, f.keys, f.kv_heads, f.size}, t),
                                      dense_operand({f.batch, f.keys, f.kv_heads, f.size}, t)},
                                     std::move(attrs), {}, y);
      add_benchmarks(cat(info(t.element).name, "/", f.name), p, f.keys);
    }
  }
}

// q, k and v as views of one matrix of q, k and v heads side by side, as a QKV layer leaves them; heads `stride` apart.
std::vector<Operand> packed_heads(const Form& f, const QuantType& t, int64_t stride) {
  const auto part = [&](int64_t length, int64_t heads) {
    Operand o = dense_operand({f.batch, length, heads, f.size}, t);
    const int64_t row = (f.heads + 2 * f.kv_heads) * stride;
    o.strides = {length * row, row, stride, 1};
    return o;
  };
  return {part(f.queries, f.heads), part(f.keys, f.kv_heads), part(f.keys, f.kv_heads)};
}

std::vector<DeviceForm> device_forms() {
  const struct {
    Form form;
    int64_t stride;
  } forms[] = {
      {{"b64 h12 s197 d64", 64, 197, 197, 12, 12, 64}, 64},    {{"b1 h12 s197 d64", 1, 197, 197, 12, 12, 64}, 64},
      {{"b64 h12 s256 d64", 64, 256, 256, 12, 12, 64}, 64},    {{"b2 h16 s256 d72/80", 2, 256, 256, 16, 16, 72}, 80},
      {{"b1 h8/1 s712 d256", 1, 712, 712, 8, 1, 256}, 256},    {{"b1 h8/1 s968 d256", 1, 968, 968, 8, 1, 256}, 256},
      {{"b4 h16 s4096 d128", 4, 4096, 4096, 16, 16, 128}, 128}};
  std::vector<DeviceForm> all;
  for (const auto& [f, stride] : forms) {
    const Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(f.size))}};
    for (const Element e : {Element::f16, Element::bf16})
      all.push_back({cat(info(e).name, "/", f.name), make_problem("attention", packed_heads(f, e, stride), attrs)});
    Attrs rounded = attrs;
    rounded.set("p", to_string(kE4m3PerTensor));
    for (const QuantType& y : {QuantType(Element::f16), kE4m3PerTensor}) {
      Program then;
      if (y.scaled()) then.steps = {{.kind = StepKind::quantize}};
      all.push_back({cat("e4m3", y.scaled() ? " to e4m3" : "", "/", f.name),
                     make_problem("attention", packed_heads(f, kE4m3PerTensor, stride), rounded, then, y), 0.5});
    }
  }
  return all;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (const auto gpu = tessera::device_bench_arguments(argc, argv); gpu.wanted)
    return tessera::bench_on_device(gpu, tessera::device_forms());
  benchmark::Initialize(&argc, argv);
  tessera::add_forms();
  benchmark::RunSpecifiedBenchmarks();
}
