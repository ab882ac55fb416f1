// SPDX-License-Identifier: Apache-2.0
// Reading a graph backwards from a value, as patterns do.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/builder.h"

namespace tessera {

// Holds as long as the graph does not change.
class Matcher {
 public:
  explicit Matcher(const Graph& graph) : g_(graph), producers_(graph.producers()) {}

  const std::vector<int>& producers() const { return producers_; }
  // The node that makes v; null for inputs and constants.
  const Node* maker(ValueId v) const;
  // The node that makes v if it is a plain `op` (no program), and a map of function `fn`; else null.
  const Node* made_by(ValueId v, std::string_view op) const;
  const Node* mapped(ValueId v, std::string_view fn) const;
  // Where v's elements lie in the value that owns the storage.
  Place place(ValueId v) const;
  // The number that a constant of one element holds.
  std::optional<double> number(ValueId v) const;
  // v = fn(x, number) with x of v's shape; where fn commutes, in either order.
  struct WithNumber {
    ValueId x;
    double number;
  };
  std::optional<WithNumber> with_number(ValueId v, std::string_view fn) const;
  // A constant whose numbers lie along the last axis of a tensor of this shape (or one number for all).
  bool is_vector(ValueId v, const Shape& shape) const;
  // Nodes that read v.
  std::vector<size_t> readers(ValueId v) const;

 private:
  const Graph& g_;
  std::vector<int> producers_;
};

}  // namespace tessera
