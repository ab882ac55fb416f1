// SPDX-License-Identifier: Apache-2.0
// Shapes in which an axis has several numbers, and what that makes of a model: batch sizes where it is the first axis,
// else sizes with a name, the one that the model gives the axis ("sequence"), or INPUT.AXIS. Axes of one name are one
// size wherever they stand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ir/shape.h"

namespace tessera {

using AxisNumbers = std::vector<int64_t>;                        // ascending, each once
using RangedShape = std::vector<AxisNumbers>;                    // per axis
std::vector<int64_t> numbers_from(int64_t least, int64_t most);  // both, and the powers of two between them

struct RangedSize {
  std::string name;
  AxisNumbers numbers;
  std::vector<std::pair<std::string, size_t>> axes;  // of inputs whose shape was given
};

struct SizeRanges {
  std::vector<int64_t> batches;         // empty: no range says them
  std::vector<RangedSize> sizes;        // in the order of the model's inputs
  std::map<std::string, Shape> shapes;  // of the largest sizes, as OnnxOptions::shapes takes them
};
// `shapes`: all that were given, by input, some with several numbers for an axis.
Result<SizeRanges> name_sizes(const std::string& model_path, const std::map<std::string, RangedShape>& shapes);

}  // namespace tessera
