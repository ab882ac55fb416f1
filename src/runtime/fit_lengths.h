// SPDX-License-Identifier: Apache-2.0
// Which plans arrays of some lengths run through (plan/engine.h, Lengths), and what becomes of their ends: the smallest
// bucket that holds them is taken, inputs are padded with zeros up to its plans, results are cut to what the model
// gives at the arrays' own lengths. A size that may not be padded takes exactly its buckets' lengths.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

struct Fit {
  std::vector<const Plan*> plans;  // one for each batch; of one bucket
  std::vector<Shape> inputs,
      outputs;  // of the arrays, per port; the first axis counts samples, of as many as there are
};
// The largest plans of a graph, and arrays of their own shapes.
Result<Fit> largest_fit(const Engine& engine, const std::string& graph);
// `inputs`: shapes of the arrays per port, with their samples. Of an engine without lengths the largest plans and their
// own shapes, whatever the arrays are.
Result<Fit> fit_lengths(const Engine& engine, const std::string& graph, std::span<const Shape> inputs);

// "16, 32 and 64", the lengths that plans have of a size.
std::string numbers_in_words(const Engine& engine, const std::string& size);
// "[samples,sequence,3]": an input as its arrays may be.
std::string shape_in_words(const Engine& engine, const Plan& plan, const Port& port);

// Copies the numbers that both shapes have, axis by axis from the front; what only `to` has becomes zero.
// Contract: both are dense, with as many axes; they do not overlap.
void copy_front(const Shape& from_shape, const void* from, const Shape& to_shape, void* to, int64_t element_bytes);

}  // namespace tessera
