// SPDX-License-Identifier: Apache-2.0
// The shelf of ops: every op of ops.inc and every variant of their lists, by name.
#pragma once

#include <span>
#include <string_view>

#include "op/op.h"

namespace tessera {

// Every op of ops.inc. find_op returns null for an unknown name.
std::span<const OpInfo* const> all_ops();
const OpInfo* find_op(std::string_view name);
const Variant* find_variant(std::string_view name);
// The variant "<op>/reference" (arch ref) that every op has: decode, reference, program, encode.
const Variant* reference_variant(const OpInfo& op);

}  // namespace tessera
