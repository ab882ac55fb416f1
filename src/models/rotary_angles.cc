// SPDX-License-Identifier: Apache-2.0
#include "models/rotary_angles.h"

#include <cmath>

namespace tessera {
namespace {

struct Tables {
  std::vector<float> cosines, sines;
};
Tables tables(int64_t count, int64_t head, double base) {
  Tables t;
  for (int64_t p = 0; p < count; ++p) {
    for (int64_t i = 0; i < head / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head));
      t.cosines.push_back(static_cast<float>(std::cos(angle)));
      t.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return t;
}

}  // namespace

RotaryAngles fixed_angles(Graph& graph, int64_t count, int64_t head, double base) {
  const Tables t = tables(count, head, base);
  const Shape shape = {1, count, head / 2};
  return {graph.add_constant("rotary.cos", shape, t.cosines), graph.add_constant("rotary.sin", shape, t.sines)};
}

Result<RotaryAngles> angles_from(LayerBuilder& l, ValueId first, int64_t tokens, int64_t count, int64_t head,
                                 double base) {
  Graph& g = l.b.graph();
  Buffer counted(static_cast<size_t>(tokens) * sizeof(int32_t));
  for (int64_t t = 0; t < tokens; ++t) reinterpret_cast<int32_t*>(counted.data())[t] = static_cast<int32_t>(t);
  const ValueId steps = g.add_constant("positions", Type{{1, tokens}, Element::i32}, Bytes::own(std::move(counted)));
  TS_ASSIGN(const ValueId begin, l.b.reshape(first, {l.b.shape(first)[0], 1}));
  TS_ASSIGN(const ValueId positions, l.b.map("add", {begin, steps}, "positions"));
  const Tables t = tables(count, head, base);
  RotaryAngles angles{};
  for (const auto& [name, numbers, into] :
       {std::tuple{"rotary.cos", &t.cosines, &angles.cos}, {"rotary.sin", &t.sines, &angles.sin}}) {
    const ValueId table = g.add_constant(name, {count, head / 2}, *numbers);
    TS_ASSIGN(*into, l.b.emit("gather", {table, positions}, {}, name));
  }
  return angles;
}

}  // namespace tessera
