// SPDX-License-Identifier: Apache-2.0
#include "models/rotary_angles.h"

#include <cmath>

#include "types/bf16.h"

namespace tessera {
namespace {

struct Tables {
  std::vector<float> cosines, sines;
};
double frequency(const RotaryFrequencies& f, int64_t i) {
  const double exact = std::pow(f.base, -2.0 * static_cast<double>(i) / static_cast<double>(f.head));
  return f.bf16 ? static_cast<double>(Bf16::decode(Bf16::encode(static_cast<float>(exact)))) : exact;
}
Tables tables(int64_t count, const RotaryFrequencies& f) {
  Tables t;
  for (int64_t p = 0; p < count; ++p) {
    for (int64_t i = 0; i < f.head / 2; ++i) {
      const double angle = static_cast<double>(p) * frequency(f, i);
      t.cosines.push_back(static_cast<float>(std::cos(angle)));
      t.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return t;
}

}  // namespace

RotaryAngles fixed_angles(Graph& graph, int64_t count, const RotaryFrequencies& f) {
  const Tables t = tables(count, f);
  const Shape shape = {1, count, f.head / 2};
  return {graph.add_constant("rotary.cos", shape, t.cosines), graph.add_constant("rotary.sin", shape, t.sines)};
}

Result<RotaryAngles> angles_from(LayerBuilder& l, ValueId first, int64_t tokens, int64_t count,
                                 const RotaryFrequencies& f) {
  Graph& g = l.b.graph();
  Buffer counted(static_cast<size_t>(tokens) * sizeof(int32_t));
  for (int64_t t = 0; t < tokens; ++t) reinterpret_cast<int32_t*>(counted.data())[t] = static_cast<int32_t>(t);
  const ValueId steps = g.add_constant("positions", Type{{1, tokens}, Element::i32}, Bytes::own(std::move(counted)));
  TS_ASSIGN(const ValueId begin, l.b.reshape(first, {l.b.shape(first)[0], 1}));
  TS_ASSIGN(const ValueId positions, l.b.map("add", {begin, steps}, "positions"));
  // Rows of cosines, then sines: one gather, and what a matmul's step `rotary` reads (lower/finish_heads.h).
  const Tables t = tables(count, f);
  const int64_t pairs = f.head / 2;
  std::vector<float> both;
  for (int64_t p = 0; p < count; ++p) {
    for (const std::vector<float>* numbers : {&t.cosines, &t.sines})
      both.insert(both.end(), numbers->begin() + p * pairs, numbers->begin() + (p + 1) * pairs);
  }
  const ValueId table = g.add_constant("rotary.angles", {count, 2 * pairs}, both);
  TS_ASSIGN(const ValueId rows, l.b.emit("gather", {table, positions}, {}, "rotary.angles"));
  RotaryAngles angles{};
  TS_ASSIGN(angles.cos, l.b.slice(rows, 2, 0, 1, pairs));
  TS_ASSIGN(angles.sin, l.b.slice(rows, 2, pairs, 1, pairs));
  return angles;
}

}  // namespace tessera
