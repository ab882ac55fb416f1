// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm over the tokens of a ViT-B, plain and quantized.
#include "ops/norm/norm.h"
#include "testing/device_bench.h"
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

// The tokens of 64 images and of one, in 16 bits, plain and quantized.
std::vector<DeviceForm> device_forms() {
  std::vector<DeviceForm> all;
  for (const int64_t rows : {12608, 197}) {
    for (const QuantType& y : {QuantType(Element::f16), kE4m3PerTensor, kInt8PerTensor}) {
      Program then;
      if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
      all.push_back({cat("layer/f16 to ", info(y.element).name, "/", rows, "x768"),
                     make_problem("norm",
                                  {dense_operand({rows, 768}, Element::f16), dense_operand({768}, Element::f16, true),
                                   dense_operand({768}, Element::f16, true)},
                                  {{"kind", std::string("layer")}, {"eps", 1e-6}}, then, y)});
    }
  }
  // The mean of the tokens that a head reads.
  for (const int64_t images : {64, 1}) {
    for (const QuantType& y : {QuantType(Element::f16), kE4m3PerTensor}) {
      Program then;
      if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
      all.push_back({cat("pooled layer/f16 to ", info(y.element).name, "/", images, "x256x768"),
                     make_problem("norm",
                                  {dense_operand({images, 256, 768}, Element::f16),
                                   dense_operand({768}, Element::f16, true), dense_operand({768}, Element::f16, true)},
                                  {{"kind", std::string("layer")}, {"eps", 1e-6}, {"pooled", int64_t{1}}}, then, y)});
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
  tessera::add_rows();
  benchmark::RunSpecifiedBenchmarks();
}
