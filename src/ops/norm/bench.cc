// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm over the tokens of a ViT-B, plain and quantized.
#include "ops/norm/norm.h"
#include "testing/variant_bench.h"

namespace tessera {
namespace {

void add_rows() {
  for (const int64_t rows : {197, 1576, 12608}) {
    for (const char* kind : {"layer", "rms"}) {
      for (Element e : {Element::f32, Element::f16}) {
        for (const bool quantized : {false, true}) {
          Program then;
          if (quantized) then.steps.push_back({.kind = StepKind::quantize});
          const QuantType y = quantized ? kE4m3PerTensor : QuantType(e);
          const Problem p = make_problem(
              "norm", {dense_operand({rows, 768}, e), dense_operand({768}, e, true), dense_operand({768}, e, true)},
              {{"kind", std::string(kind)}, {"eps", 1e-6}}, then, y);
          add_benchmarks(cat(kind, "/", info(e).name, quantized ? "/to_e4m3/" : "/", rows, "x768"), p, 768);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tessera::add_rows();
  benchmark::RunSpecifiedBenchmarks();
}
