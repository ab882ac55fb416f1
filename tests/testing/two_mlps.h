// SPDX-License-Identifier: Apache-2.0
// A small model whose layers differ in how much their precision matters: two MLPs beside a residual stream.
#pragma once

namespace tessera {

inline constexpr const char* kTwoMlps = R"(graph mlps {
  in %image: f32[4,4,16]
  const %we: f32[32,16] = seed(1)
  const %g: f32[32] = seed(2)
  const %w1: f32[64,32] = seed(3)
  const %w2: f32[32,64] = seed(4)
  const %w3: f32[64,32] = seed(6)
  const %w4: f32[32,64] = seed(7)
  const %wh: f32[16,32] = seed(5)
  %e: f32[4,4,32] = matmul(%image, %we) @"embed"
  %n: f32[4,4,32] = norm(%e, %g) {eps=0.000001, kind="layer"} @"norm1"
  %h: f32[4,4,64] = matmul(%n, %w1) then act(gelu_erf) @"a.fc1"
  %r: f32[4,4,32] = matmul(%h, %w2, %e) then residual(2) @"a.fc2"
  %m: f32[4,4,32] = norm(%r, %g) {eps=0.000001, kind="layer"} @"norm2"
  %k: f32[4,4,64] = matmul(%m, %w3) then act(gelu_erf) @"b.fc1"
  %s: f32[4,4,32] = matmul(%k, %w4, %r) then residual(2) @"b.fc2"
  %o: f32[4,4,32] = norm(%s, %g) {eps=0.000001, kind="layer"} @"norm3"
  %y: f32[4,4,16] = matmul(%o, %wh) @"head"
  out %y
}
)";

}  // namespace tessera
