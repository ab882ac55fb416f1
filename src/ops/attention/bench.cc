// SPDX-License-Identifier: Apache-2.0
// Attention of a ViT-B (one image, eight images), of a vision tower with 256 patches, and of a decoder with shared
// keys.
#include "ops/attention/attention.h"

#include <cmath>
#include <optional>

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

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tessera::add_forms();
  benchmark::RunSpecifiedBenchmarks();
}
