// SPDX-License-Identifier: Apache-2.0
// The layers of a ViT-B for one image and for eight, in the precisions that engines are built in, dense and with 2:4 sparse weights, beside fp32.
#include "ops/matmul/matmul.h"
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
      p.attrs.set("sparse24", int64_t{1});
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

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tessera::add_layers();
  benchmark::RunSpecifiedBenchmarks();
}
