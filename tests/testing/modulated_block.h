// SPDX-License-Identifier: Apache-2.0
// A graph for tests of norms whose gain and shift change with time (adaRMS): an embedding and a block of a transformer
// over ten rows, with three such norms before q, k and v, before a gate's two layers, and before two layers whose
// results leave. Gains and shifts are rows of one table in f32, gates of the stream of another, picked by `step`.
#pragma once

#include <string>

#include "base/status.h"

namespace tessera::testing {

inline std::string modulated_block(int64_t rows = 10) {
  const std::string x = cat("f32[1,", rows, ",64]"), wide = cat("f32[1,", rows, ",128]"),
                    heads = cat("f32[1,", rows, ",1,64]"), strides = cat(rows * 64, ",64,64,1");
  const auto norm = [&](const char* name, const char* of, int at) {
    const auto vector = [&](const char* what, int offset) {
      return cat("  %", name, what, ": f32[64] exact = view(%mods) {offset=", offset, ", strides=[1]}\n");
    };
    return cat(vector(".g", at), vector(".s", at + 64), "  %", name, ": ", x, " = norm(%", of, ", %", name, ".g, %",
               name, ".s) {eps=0.000001, kind=\"rms\"} @\"", name, "\"\n");
  };
  const auto gated = [&](const char* name, const char* of, const char* stream, int at) {
    return cat("  %", name, ".gate: f32[64] = view(%gates) {offset=", at, ", strides=[1]}\n  %", name, ".gated: ", x,
               " = map(%", of, ", %", name, ".gate) {fn=\"mul\"} @\"", name, ".times\"\n  %", name, ": ", x, " = map(%",
               name, ".gated, %", stream, ") {fn=\"add\"} @\"", name, "\"\n");
  };
  const auto layer = [&](const std::string& name, const std::string& of, const std::string& type) {
    return cat("  %", name, ": ", type, " = matmul(%", of, ", %w.", name, ") @\"", name, "\"\n");
  };
  std::string weights;
  int seed = 3;
  for (const char* name : {"q", "k", "v", "o", "left", "right", "further"})
    weights += cat("  const %w.", name, ": f32[64,64] = seed(", seed++, ")\n");
  for (const char* name : {"gate", "up"}) weights += cat("  const %w.", name, ": f32[128,64] = seed(", seed++, ")\n");
  std::string seen;
  for (const char* name : {"q", "k", "v"})
    seen += cat("  %", name, ".heads: ", heads, " = view(%", name, ") {offset=0, strides=[", strides, "]}\n");
  return cat("graph block {\n  in %image: f32[1,", rows, ",32]\n  in %step: i32[1]\n",
             "  const %w.embed: f32[64,32] = seed(1)\n  const %w.down: f32[64,128] = seed(2)\n", weights,
             "  const %mods.table: f32[4,384] exact = seed(20)\n  const %gates.table: f32[4,128] = seed(21)\n",
             "  const %left.bias: f32[64] = seed(22)\n",
             "  %mods: f32[1,384] exact = gather(%mods.table, %step) @\"mods\"\n",
             "  %gates: f32[1,128] = gather(%gates.table, %step) @\"gates\"\n",  //
             layer("embed", "image", x), norm("norm1", "embed", 0), layer("q", "norm1", x), layer("k", "norm1", x),
             layer("v", "norm1", x), seen, "  %attended: ", heads,
             " = attention(%q.heads, %k.heads, %v.heads) {scale=0.125} @\"attention\"\n  %rows: ", x,
             " = view(%attended) {offset=0, strides=[", rows * 64, ",64,1]}\n", layer("o", "rows", x),
             gated("stream1", "o", "embed", 0), norm("norm2", "stream1", 128), layer("gate", "norm2", wide),
             "  %act: ", wide, " = map(%gate) {fn=\"gelu_tanh\"} @\"act\"\n", layer("up", "norm2", wide),
             "  %product: ", wide, " = map(%act, %up) {fn=\"mul\"} @\"product\"\n", layer("down", "product", x),
             gated("stream2", "down", "stream1", 64), norm("norm3", "stream2", 256), layer("left", "norm3", x),
             "  %biased: ", x, " = map(%left, %left.bias) {fn=\"add\"} @\"left.add\"\n", layer("right", "norm3", x),
             layer("further", "stream2", x), "  out %biased\n  out %right\n  out %further\n}");
}

}  // namespace tessera::testing
