// SPDX-License-Identifier: Apache-2.0
#include "compile/weights_checksum.h"

#include <cstdio>

#include "base/checksum.h"
#include "io/mmap.h"
#include "ir/layer_ops.h"

namespace tessera {

std::string weights_checksum(const Graph& graph) {
  Checksum64 sum;
  for (const Node& n : graph.nodes) {
    if (!multiplies_weights(n.op) || n.inputs.size() < 2 || !graph.at(n.inputs[1]).constant) continue;
    const Bytes& data = graph.at(n.inputs[1]).data;
    const uint64_t one = checksum64(data.span());
    give_back(data.data(), data.size());
    sum.add({reinterpret_cast<const uint8_t*>(&one), sizeof(one)});
  }
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(sum.value()));
  return text;
}

}  // namespace tessera
