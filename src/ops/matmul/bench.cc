// SPDX-License-Identifier: Apache-2.0
// The layers of a ViT-B for one image and for eight, in the precisions that engines are built in, dense and with 2:4
// sparse weights, beside fp32. On a GPU: its layers for one image and for 64, with their programs, a gated MLP, and
// layers of few rows with weights in 4, 8 and 16 bits.
#include "ops/matmul/matmul.h"

#include <cmath>
#include <optional>

#include "testing/device_bench.h"
#include "testing/variant_bench.h"

namespace tessera {
namespace {

struct Types {
  const char *name, *x, *w;
  QuantType y = Element::f16;
};

// Keeps the first two numbers of each four: which ones does not change the time.
void prune(const Problem& p, size_t i, std::vector<double>& v) {
  if (i != 1 || !is_sparse24(p)) return;
  const size_t cols = static_cast<size_t>(p.in[1].shape.back());
  for (size_t at = 0; at < v.size(); ++at) {
    if (at % cols % 4 > 1) v[at] = 0;
  }
}

void add_layers() {
  const char* const kNvfp4Weight = "e2m1:block16(e4m3):tensor(f32)";
  const Types types[] = {{"fp32", "f32", "f32", Element::f32},
                         {"fp16", "f16", "f16"},
                         {"bf16", "bf16", "bf16", Element::bf16},
                         {"fp8", "e4m3:tensor(f32)", "e4m3:channel(f32)"},
                         {"fp8_token", "e4m3:token(f32)!", "e4m3:channel(f32)"},
                         {"mxfp8", "e4m3:block32(e8m0)!", "e4m3:block32(e8m0)"},
                         {"nvfp4", "e2m1:block16(e4m3):tensor(f32)!", kNvfp4Weight},
                         {"w4a16", "f16", kNvfp4Weight},
                         {"w4a8", "e4m3:tensor(f32)", "e2m1:block16(e4m3):tensor(f32):as(e4m3)"},
                         {"int8", "i8:tensor(f32)", "i8:channel(f32)"},
                         {"int4", "f16", "i4:block32(f16)"}};
  const Shape layers[] = {{197, 768, 768}, {1576, 768, 2304}, {1576, 768, 3072}, {1576, 3072, 768}, {1, 768, 3072}};
  for (const Shape& s : layers) {
    for (const Types& t : types) {
      Problem p = make_problem("matmul",
                               {dense_operand({s[0], s[1]}, *parse_quant_type(t.x)),
                                dense_operand({s[2], s[1]}, *parse_quant_type(t.w), true)},
                               {}, {}, t.y);
      const std::string shape = cat("/", s[0], "x", s[1], "x", s[2]);
      add_benchmarks(t.name + shape, p, s[1]);
      p.attrs.set(kSparse24, int64_t{1});
      add_benchmarks(cat(t.name, "+2:4", shape), p, s[1], prune);
    }
  }
  // The first layer of an MLP with its program.
  Program then;
  then.steps = {{.kind = StepKind::bias, .operand = 2}, {.kind = StepKind::act, .fn = Unary::gelu_erf}};
  const QuantType f32 = Element::f32;
  add_benchmarks("fp32/1576x768x3072/bias,gelu_erf",
                 make_problem("matmul",
                              {dense_operand({1576, 768}, f32), dense_operand({3072, 768}, f32, true),
                               dense_operand({3072}, f32, true)},
                              {}, then),
                 768);
}

struct Precision {
  const char* name;
  QuantType x, w;
};
const Precision kPrecisions[] = {{"fp16", Element::f16, Element::f16},
                                 {"bf16", Element::bf16, Element::bf16},
                                 {"fp8", kE4m3PerTensor, kE4m3PerChannel},
                                 {"int8", kInt8PerTensor, kInt8PerChannel}};

// A linear layer with bias, an activation or a residual; `quantized`: its result is what the next layer of this
// precision reads.
DeviceForm layer(const Precision& p, int64_t m, int64_t k, int64_t n, std::optional<Unary> act, bool residual,
                 bool quantized) {
  const QuantType vectors = p.x.scaled() ? QuantType(Element::f16) : p.x, y = quantized && p.x.scaled() ? p.x : vectors;
  std::vector<Operand> in = {dense_operand({m, k}, p.x), dense_operand({n, k}, p.w, true),
                             dense_operand({n}, vectors, true)};
  Program then;
  std::string words = "bias";
  then.steps = {{.kind = StepKind::bias, .operand = 2}};
  if (act) then.steps.push_back({.kind = StepKind::act, .fn = *act}), words += cat(",", name_of(*act));
  if (residual) {
    in.push_back(dense_operand({m, n}, vectors));
    then.steps.push_back({.kind = StepKind::residual, .operand = 3}), words += ",residual";
  }
  if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize}), words += ",quantize";
  return {cat(p.name, "/", m, "x", k, "x", n, " ", words), make_problem("matmul", std::move(in), {}, then, y),
          4 * std::sqrt(static_cast<double>(k))};
}

std::vector<DeviceForm> device_forms() {
  std::vector<DeviceForm> all;
  for (const int64_t m : {12608, 197}) {
    for (const Precision& p : kPrecisions) {
      all.push_back(layer(p, m, 768, 2304, {}, false, false));
      if (p.x.scaled()) all.push_back(layer(p, m, 768, 2304, {}, false, true));
      all.push_back(layer(p, m, 768, 768, {}, true, false));
      all.push_back(layer(p, m, 768, 3072, Unary::gelu_erf, false, true));
      all.push_back(layer(p, m, 3072, 768, {}, true, false));
    }
  }
  // A gated MLP of 970 tokens, 2048 -> 16384 -> 2048: both halves with their gate, which makes what the way down reads,
  // and the way down.
  for (const Precision& p : {kPrecisions[0], kPrecisions[2]}) {
    const QuantType f16 = Element::f16, codes = p.x.scaled() ? p.x : f16;
    const auto operands = [&](int64_t k, int64_t n) {
      return std::vector<Operand>{dense_operand({970, k}, p.x), dense_operand({n, k}, p.w, true)};
    };
    for (const Unary act : {Unary::silu, Unary::gelu_tanh}) {
      Program then;
      then.steps = {{.kind = StepKind::gate, .fn = act}};
      if (codes.scaled()) then.steps.push_back({.kind = StepKind::quantize});
      all.push_back({cat(p.name, "/970x2048x32768 gate(", name_of(act), ")"),
                     make_problem("matmul", operands(2048, 32768), {}, then, codes),
                     8.0 * 2048});  // a product of two sums
    }
    all.push_back({cat(p.name, "/970x16384x2048"), make_problem("matmul", operands(16384, 2048), {}, {}, f16)});
  }
  // Few rows, where weights are what takes time: in 4, 8 and 16 bits.
  const Precision few_rows[] = {
      {"w4a16", Element::f16, kNvfp4}, {"w4a8", kE4m3PerTensor, kNvfp4AsE4m3}, kPrecisions[2], kPrecisions[0]};
  for (const Shape& s : {Shape{4096, 1024}, Shape{1024, 8192}, Shape{2048, 32768}}) {
    for (const int64_t m : {1, 10, 16, 50, 64}) {
      for (const Precision& p : few_rows) {
        all.push_back({cat(p.name, "/", m, "x", s[0], "x", s[1]),
                       make_problem("matmul", {dense_operand({m, s[0]}, p.x), dense_operand({s[1], s[0]}, p.w, true)},
                                    {}, {}, Element::f16)});
      }
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
  tessera::add_layers();
  benchmark::RunSpecifiedBenchmarks();
}
