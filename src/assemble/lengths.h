// SPDX-License-Identifier: Apache-2.0
// Lengths of an ONNX model (BuildOptions::ranges): the buckets that a range makes, which axes of the engine's arrays go
// with them, and whether shorter arrays may be padded, which is tried and not assumed.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "assemble/build_engine.h"
#include "base/status.h"
#include "ir/graph.h"
#include "plan/engine.h"

namespace tessera {

inline constexpr int64_t kMostPlans = 64;  // of batches and lengths together

// The options with batches, buckets, shapes and lengths in the place of their ranges.
Result<BuildOptions> with_lengths(const BuildOptions& options);

using BucketSizes = std::map<std::string, int64_t>;
// The canonical model with these sizes, and one sample where it leaves its batch open.
using ModelAt = std::function<Result<Graph>(const BucketSizes& sizes)>;

// Of each size the least or the largest number.
BucketSizes smallest_sizes(const BuildOptions& options);
BucketSizes largest_sizes(const BuildOptions& options);
// Which axes go with the sizes, as far as the model at its smallest and its largest sizes says; where an output's
// extent is no multiple of the sizes and a constant, no size may be padded.
Result<Lengths> find_lengths(const BuildOptions& options, const ModelAt& model);
// Runs the model at lengths between buckets, as they are and padded, and notes which sizes may be padded. Then the axes
// are held against the engine's plans.
Status try_padding(const BuildOptions& options, const ModelAt& model, Engine& engine);

// The lengths of the arrays of a file; the largest where it has none (images, ranges), or there is no file.
Result<BucketSizes> sizes_of_file(const BuildOptions& options, const Lengths& lengths, const std::string& path);

}  // namespace tessera
