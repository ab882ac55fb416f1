// SPDX-License-Identifier: Apache-2.0
// What passes that replace one value by another share.
#pragma once

#include <string>

#include "base/status.h"
#include "ir/graph.h"
#include "ops/builder.h"

namespace tessera {

// Every read of `from`, a dense value, becomes a read of `to`, which has the same shape and holds the same numbers but
// may be a view. Views of `from` become views of what `to` is a view of, or of a dense copy of it. Where `from` is a
// result of the graph, `to` takes its name. Contract: `builder` stands right after `to`; views are merged
// (simplify_views).
Status take_over(GraphBuilder& builder, ValueId from, ValueId to);

// "blocks.0.attn.matmul" -> "blocks.0.attn"; a name without a dot, or an empty one: `fallback`.
std::string parent_layer(const std::string& name, const std::string& fallback);
// "blocks.0.norm1.weight" -> "blocks.0.norm1" for a constant that is called so; else empty.
std::string layer_of_constant(const Value& constant);

}  // namespace tessera
