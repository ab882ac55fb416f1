// SPDX-License-Identifier: Apache-2.0
// A small engine for tests of executors: y = x * w by way of the arena, before = the x of the run before (a state). And
// one of two graphs with a schedule.
#pragma once

#include <cstring>
#include <vector>

#include "plan/engine.h"
#include "runtime/executor.h"

namespace tessera {

inline PlanTensor test_tensor(const std::string& name, const Shape& shape, Storage storage, int64_t index,
                              int64_t offset_bytes = 0) {
  PlanTensor t;
  t.name = name;
  t.desc = dense_operand(shape, Element::f32, storage == Storage::kConstant);
  t.storage = storage;
  t.index = index;
  t.offset_bytes = offset_bytes;
  return t;
}

inline float test_weight(int64_t i) { return static_cast<float>(1 + i % 7); }

inline Engine remembering_engine(Arch arch, int64_t rows, int64_t cols) {
  const Shape shape = {rows, cols};
  const int64_t bytes = rows * cols * 4;
  Engine e;
  e.target = arch;
  Buffer w(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float v = test_weight(i);
    std::memcpy(w.data() + 4 * i, &v, 4);
  }
  e.constants = {{"w", Bytes::own(std::move(w))}};
  e.states = {{"last", bytes}};
  Plan p{.name = "main", .arch = arch, .batch = rows};
  p.tensors = {test_tensor("x", shape, Storage::kInput, 0),        test_tensor("y", shape, Storage::kOutput, 0),
               test_tensor("before", shape, Storage::kOutput, 1),  test_tensor("last", shape, Storage::kState, 0),
               test_tensor("w", shape, Storage::kConstant, 0),     test_tensor("a", shape, Storage::kArena, -1),
               test_tensor("b", shape, Storage::kArena, -1, bytes)};
  p.arena_bytes = 2 * bytes;
  p.inputs = {{"x", 0}};
  p.outputs = {{"y", 1}, {"before", 2}};
  const std::string on = cat("/", info(arch).name);
  p.steps = {{.layer = "recall", .op = "copy", .variant = "copy" + on, .in = {3}, .out = {2}},
             {.layer = "keep", .op = "copy", .variant = "copy" + on, .in = {0}, .out = {3}},
             {.layer = "enter", .op = "copy", .variant = "copy" + on, .in = {0}, .out = {5}},
             {.layer = "times", .op = "map", .variant = "map" + on, .in = {5, 4}, .out = {6}},
             {.layer = "leave", .op = "copy", .variant = "copy" + on, .in = {6}, .out = {1}}};
  p.steps[3].attrs.set("fn", "mul");
  e.plans = {p};
  return e;
}

inline constexpr int64_t kCountedRows = 3, kCountedCols = 5;
inline constexpr size_t kCounted = kCountedRows * kCountedCols;

// Two graphs over one state: `begin` puts x there, `step` adds w to it and gives a copy.
inline Engine counting_engine(Arch arch = Arch::cpu) {
  const std::string on = cat("/", info(arch).name);
  const Shape shape = {kCountedRows, kCountedCols};
  Engine e;
  e.target = arch;
  Buffer w(kCounted * 4);
  for (size_t i = 0; i < kCounted; ++i) {
    const float v = test_weight(static_cast<int64_t>(i));
    std::memcpy(w.data() + 4 * i, &v, 4);
  }
  e.constants = {{"w", Bytes::own(std::move(w))}};
  e.states = {{"sum", kCounted * 4}};
  Plan begin{.name = "begin", .graph = "begin", .arch = arch, .batch = kCountedRows};
  begin.tensors = {test_tensor("x", shape, Storage::kInput, 0), test_tensor("sum", shape, Storage::kState, 0),
                   test_tensor("sum after", shape, Storage::kState, 0)};
  begin.inputs = {{"x", 0}, {"sum", 1}};
  begin.outputs = {{"sum after", 2}};
  begin.steps = {{.layer = "keep", .op = "copy", .variant = "copy" + on, .in = {0}, .out = {2}}};
  Plan step{.name = "step", .graph = "step", .arch = arch, .batch = kCountedRows};
  step.tensors = {test_tensor("sum", shape, Storage::kState, 0), test_tensor("w", shape, Storage::kConstant, 0),
                  test_tensor("added", shape, Storage::kArena, -1), test_tensor("sum after", shape, Storage::kState, 0),
                  test_tensor("y", shape, Storage::kOutput, 1)};
  step.arena_bytes = static_cast<int64_t>(kCounted) * 4;
  step.inputs = {{"sum", 0}};
  step.outputs = {{"sum after", 3}, {"y", 4}};
  step.steps = {{.layer = "add", .op = "map", .variant = "map" + on, .in = {0, 1}, .out = {2}},
                {.layer = "keep", .op = "copy", .variant = "copy" + on, .in = {2}, .out = {3}},
                {.layer = "leave", .op = "copy", .variant = "copy" + on, .in = {2}, .out = {4}}};
  step.steps[0].attrs.set("fn", "add");
  e.plans = {begin, step};
  e.schedule = {{"begin", 1}, {"step", 10}};
  return e;
}

// Numbers of one input: exact in f32, as is their product with the weights.
inline std::vector<float> test_input(size_t count, int which) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(which * 1000 + static_cast<int>(i % 997));
  return x;
}
// Whether y is what the engine gives for x.
inline bool is_product(const std::vector<float>& y, const std::vector<float>& x) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (y[i] != x[i] * test_weight(static_cast<int64_t>(i))) return false;
  }
  return y.size() == x.size();
}

struct Answer {
  Status status;
  std::vector<float> y, before;
};
inline Answer answer_of(Executor& executor, const std::vector<float>& x) {
  Answer a{.status = {}, .y = std::vector<float>(x.size(), -1), .before = std::vector<float>(x.size(), -1)};
  const void* in[] = {x.data()};
  void* out[] = {a.y.data(), a.before.data()};
  a.status = executor.run(in, out);
  return a;
}

}  // namespace tessera
