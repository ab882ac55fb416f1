// SPDX-License-Identifier: Apache-2.0
// Problem: one op with everything that a variant may ask before it says yes: operands with shape, strides, type and
// storage order, attributes, program. Each op's header gives a typed reading of it (`MatmulProblem::of(problem)`), so
// kernels never look at the lists.
#pragma once

#include <string>
#include <vector>

#include "ir/attrs.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/shape.h"
#include "types/layout.h"
#include "types/quant_type.h"

namespace tessera {

struct Operand {
  bool present = false;  // an optional operand that is absent has only this
  bool constant = false;
  Shape shape;
  Shape strides;  // elements; meaningful for codes in rows only
  QuantType type;
  OperandLayout layout;

  bool dense() const { return is_dense(shape, strides); }
  RowView rows() const { return as_rows(shape, strides); }
  bool operator==(const Operand&) const = default;
};

Operand dense_operand(const Shape& shape, const QuantType& type, bool constant = false);

struct Problem {
  std::string op;
  std::vector<Operand> in, out;
  Attrs attrs;
  Program then;
  // What a kernel is bound with, a tile shape or a library's algorithm: one of its variant's configs; empty: the first.
  // No part of what is computed.
  std::string config = {};
  // The kernel walks from the last rows to the first where it walks at all: kernels of a plan go to and fro, so that
  // each begins with what the one before has just written and the L2 still holds. No part of what is computed.
  bool backward = false;

  const Operand* operand(size_t i) const { return i < in.size() && in[i].present ? &in[i] : nullptr; }
  // The operand that a program step reads.
  const Operand& step_operand(const Step& step) const { return in[static_cast<size_t>(step.operand)]; }
};

// The same op without its program: its one result is what the program begins with.
Problem before_program(const Problem& problem);

// The problem that a node poses. `producers` comes from Graph::producers().
Problem problem_of(const Graph& graph, const std::vector<int>& producers, const Node& node);

// Where a tensor's bytes lie when a kernel runs. Pointers are of the arch's memory (host or device).
struct TensorView {
  const Operand* desc = nullptr;
  void* data = nullptr;   // first element (a view's offset is already added)
  void* scale = nullptr;  // null where the type has no such level
  void* scale2 = nullptr;
  // CUDA plans: a device-side slot that holds `data` when the kernel runs (the caller's buffers, which may change
  // between runs of one graph). Only ops whose OpInfo says `boundary` are ever given one; `data` is null then.
  void* const* slot = nullptr;
  int64_t slot_offset_bytes = 0;  // of a view's first element from what the slot holds
};

// The one scale of a tensor in host memory; 1 where it has none.
float tensor_scale(const TensorView& tensor);

}  // namespace tessera
