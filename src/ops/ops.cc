// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

namespace tessera {

#define TS_OP(name) extern const OpInfo& name##_op();
#include "ops/ops.inc"
#undef TS_OP

std::span<const OpInfo* const> all_ops() {
  static const OpInfo* const kOps[] = {
#define TS_OP(name) &name##_op(),
#include "ops/ops.inc"
#undef TS_OP
  };
  return kOps;
}

const OpInfo* find_op(std::string_view name) {
  for (const OpInfo* op : all_ops()) {
    if (name == op->name) return op;
  }
  return nullptr;
}

const Variant* find_variant(std::string_view name) {
  const OpInfo* op = find_op(name.substr(0, name.find('/')));
  if (op == nullptr) return nullptr;
  for (const Variant* v : op->variants) {
    if (name == v->name) return v;
  }
  const Variant* reference = reference_variant(*op);
  return name == reference->name ? reference : nullptr;
}

}  // namespace tessera
