// SPDX-License-Identifier: Apache-2.0
// Graph: values and the nodes that make them, in an order in which they can run. Every value is made once.
// A value with scales names the constants that hold them; its bytes (if constant) are dense codes in row order.
// `view` nodes make no new bytes: their result is their input's storage with another shape, strides and offset (attrs
// `strides`, `offset`, in elements).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "ir/attrs.h"
#include "ir/program.h"
#include "ir/shape.h"
#include "types/quant_type.h"

namespace tessera {

using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

// Attribute of a node whose results lie in the storage of inputs that they change some of (OpInfo::in_place says which;
// ops/write/write.h). No later node reads these inputs (lower/keep_states.h).
inline constexpr const char* kInPlace = "in_place";

struct Type {
  Shape shape;
  QuantType quant;
  bool operator==(const Type&) const = default;
};

struct Value {
  std::string name;
  Type type;
  bool constant = false;
  // Keeps its type in every precision: what a model adds up over steps, or multiplies whole rows by.
  bool exact = false;
  Bytes data;  // constants only
  ValueId scale = kNoValue,
          scale2 = kNoValue;  // constants (static scales); kNoValue for plain types and dynamic scales
};

struct Node {
  std::string name;  // the layer, as users know it: "blocks.0.attn.qkv"
  std::string op;
  std::vector<ValueId> inputs;  // kNoValue where an optional operand is absent
  std::vector<ValueId> outputs;
  Attrs attrs;
  Program then;
  std::string role;   // what it is for (precision/roles.h), empty where it has none
  std::string asked;  // the precision asked for, empty where none was
};

// An input that outlives a run (a KV cache): a session keeps it, and the next run begins with what this one left. So a
// graph stays a function, (inputs, states) -> (outputs, states after): passes and golden runs see inputs and outputs.
struct StatePair {
  size_t input;                       // index into the graph's inputs; the state has this input's name
  std::optional<size_t> output = {};  // into its outputs, of the same type; nothing: the graph only reads the state
  bool operator==(const StatePair&) const = default;
};
class DerivedConstants;

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
  std::vector<StatePair> states;
  // What was made of the model's constants, for all graphs of the model (ir/derived_constants.h); may be null.
  std::shared_ptr<DerivedConstants> derived;

  ValueId add_value(Value value);
  ValueId add_constant(std::string name, Type type, Bytes data);
  // A constant of plain f32 from numbers.
  ValueId add_constant(std::string name, const Shape& shape, const std::vector<float>& numbers);
  Value& at(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Value& at(ValueId id) const { return values[static_cast<size_t>(id)]; }

  // Index of the node that makes each value (-1: input or constant), and how many reads (nodes' inputs, scales, graph
  // outputs) each value has.
  std::vector<int> producers() const;
  std::vector<int> use_counts() const;
  // Every read of `from` becomes a read of `to`.
  void replace_uses(ValueId from, ValueId to);
  // Numbers of a small constant as doubles; empty where the value is not a constant.
  std::vector<double> numbers(ValueId id) const;
};

// The strides with which a value lies in its storage: a view's own, else dense. `producers` comes from
// Graph::producers().
struct Placement {
  ValueId base;  // the value that owns the storage
  int64_t offset = 0;
  Shape strides;
};
Placement placement_of(const Graph& graph, const std::vector<int>& producers, ValueId id);

}  // namespace tessera
