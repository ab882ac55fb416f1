// SPDX-License-Identifier: Apache-2.0
// The layers of a ViT-B for one image and for eight, in the precisions that engines are built in.
#include "ops/matmul/matmul.h"
#include "testing/variant_bench.h"

namespace tessera {
namespace {

struct Types {
  const char* name;
  QuantType x, w, y;
};

void add_layers() {
  const Types types[] = {{"f32", Element::f32, Element::f32, Element::f32},
                         {"f16", Element::f16, Element::f16, Element::f16},
                         {"bf16", Element::bf16, Element::bf16, Element::bf16},
                         {"e4m3", kE4m3PerTensor, kE4m3PerChannel, Element::f16},
                         {"i8",
                          {Element::i8, {Granularity::kTensor, Element::f32}},
                          {Element::i8, {Granularity::kChannel, Element::f32}},
                          Element::f16}};
  const Shape layers[] = {{197, 768, 768}, {1576, 768, 2304}, {1576, 768, 3072}, {1576, 3072, 768}, {1, 768, 1000}};
  for (const Shape& s : layers) {
    for (const Types& t : types) {
      Problem p = make_problem("matmul", {dense_operand({s[0], s[1]}, t.x), dense_operand({s[2], s[1]}, t.w, true)}, {},
                               {}, t.y);
      add_benchmarks(cat(t.name, "/", s[0], "x", s[1], "x", s[2]), p, s[1]);
    }
  }
  // The first layer of an MLP with its program.
  Program then;
  then.steps = {{.kind = StepKind::bias, .operand = 2}, {.kind = StepKind::act, .fn = Unary::gelu_erf}};
  const QuantType f32 = Element::f32;
  add_benchmarks("f32/1576x768x3072/bias,gelu_erf",
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
