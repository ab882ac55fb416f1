// SPDX-License-Identifier: Apache-2.0
#include "runtime/fit_lengths.h"

#include <algorithm>
#include <cstring>

#include "runtime/batches.h"

namespace tessera {
namespace {

using Sizes = std::map<std::string, int64_t>;

const Shape& shape_of(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].desc.shape;
}

// A number that some array has of a size, and which.
struct Found {
  int64_t number;
  std::string port;
  int64_t axis;
};

// The size of each of the arrays' axes that go with one.
Result<std::map<std::string, Found>> find_sizes(const Engine& engine, const Plan& plan, std::span<const Shape> inputs) {
  std::map<std::string, Found> found;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Port& port = plan.inputs[i];
    const Shape &wanted = shape_of(plan, port), &given = inputs[i];
    const auto misfit = [&] {
      return bad_input(
          cat("array '", port.name, "' has shape ", to_string(given), "; wanted ", shape_in_words(engine, plan, port)));
    };
    if (given.size() != wanted.size()) return misfit();
    for (size_t axis = 1; axis < given.size(); ++axis) {
      const LengthAxis* const length = find_axis(engine.lengths.inputs, port.name, axis);
      if (length == nullptr && given[axis] != wanted[axis]) return misfit();
      if (length == nullptr) continue;
      const std::string& size = length->per.begin()->first;
      const Found& first = found.emplace(size, Found{given[axis], port.name, length->axis}).first->second;
      if (first.number != given[axis])
        return bad_input(cat("array '", port.name, "' has ", given[axis], " along axis ", axis, ", '", first.port,
                             "' has ", first.number, " along axis ", first.axis, ": both are '", size, "'"));
    }
  }
  return found;
}

// The number of the plans that is taken for one of the arrays.
Result<int64_t> bucket_of(const Engine& engine, const std::string& size, const Found& f) {
  const std::vector<int64_t> numbers = numbers_of_size(engine.plans, size);
  const std::string& why = engine.lengths.why_exact.at(size);
  const std::string where = cat("array '", f.port, "' has ", f.number, " along axis ", f.axis, " ('", size, "')");
  const auto least = std::lower_bound(numbers.begin(), numbers.end(), f.number);
  if (!why.empty()) {
    if (least != numbers.end() && *least == f.number) return f.number;
    return bad_input(cat(where, "; this engine takes exactly ", numbers_in_words(engine, size), ", since ", why));
  }
  if (least == numbers.end() || f.number < numbers[0])
    return bad_input(cat(where, "; this engine takes ", numbers[0], " to ", numbers.back()));
  return *least;
}

}  // namespace

std::string numbers_in_words(const Engine& engine, const std::string& size) {
  const std::vector<int64_t> numbers = numbers_of_size(engine.plans, size);
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i)
    text += cat(i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  return text;
}

std::string shape_in_words(const Engine& engine, const Plan& plan, const Port& port) {
  std::string text = "[samples";
  const Shape& shape = shape_of(plan, port);
  for (size_t axis = 1; axis < shape.size(); ++axis) {
    const LengthAxis* const length = find_axis(engine.lengths.inputs, port.name, axis);
    text += cat(",", length == nullptr ? std::to_string(shape[axis]) : length->per.begin()->first);
  }
  return text + "]";
}

Result<Fit> largest_fit(const Engine& engine, const std::string& graph) {
  Fit fit;
  fit.plans = largest_plans(engine, graph);
  if (fit.plans.empty()) return bad_input("the engine has no plan to run");
  const Plan& largest = *fit.plans[0];
  for (const Port& p : largest.inputs) fit.inputs.push_back(shape_of(largest, p));
  for (const Port& p : largest.outputs) fit.outputs.push_back(shape_of(largest, p));
  return fit;
}

Result<Fit> fit_lengths(const Engine& engine, const std::string& graph, std::span<const Shape> inputs) {
  TS_ASSIGN(Fit fit, largest_fit(engine, graph));
  if (engine.lengths.none()) return fit;
  const Plan& largest = *fit.plans[0];
  if (inputs.size() != largest.inputs.size())
    return bad_input(cat(inputs.size(), " arrays for ", largest.inputs.size(), " inputs"));
  TS_ASSIGN(const auto found, find_sizes(engine, largest, inputs));
  Sizes own, bucket;
  for (const auto& [size, f] : found) {
    own[size] = f.number;
    TS_ASSIGN(bucket[size], bucket_of(engine, size, f));
  }
  fit.plans = runnable_plans(engine, graph);
  std::erase_if(fit.plans, [&](const Plan* p) { return p->sizes != bucket; });
  if (fit.plans.empty()) {  // an engine from elsewhere: those of `build` have every combination
    std::string text;
    for (const auto& [size, n] : bucket) text += cat(text.empty() ? "" : ", ", size, " ", n);
    return bad_input(cat("the engine has no plan of ", text));
  }
  const Plan& plan = *fit.plans[0];
  fit.inputs.assign(inputs.begin(), inputs.end());
  for (size_t o = 0; o < plan.outputs.size(); ++o) {
    Shape shape = shape_of(plan, plan.outputs[o]);
    for (size_t axis = 1; axis < shape.size() && own != bucket; ++axis) {
      const LengthAxis* const length = find_axis(engine.lengths.outputs, plan.outputs[o].name, axis);
      if (length != nullptr) shape[axis] = std::clamp<int64_t>(length->extent(own), 0, shape[axis]);
    }
    fit.outputs[o] = std::move(shape);
  }
  return fit;
}

void copy_front(const Shape& from_shape, const void* from, const Shape& to_shape, void* to, int64_t element_bytes) {
  const int64_t to_count = elements(to_shape);
  if (to_count == 0) return;
  if (from_shape == to_shape) {
    std::memcpy(to, from, static_cast<size_t>(to_count * element_bytes));
    return;
  }
  std::memset(to, 0, static_cast<size_t>(to_count * element_bytes));
  const size_t axes = to_shape.size();
  Shape both(axes), at(axes, 0);
  for (size_t a = 0; a < axes; ++a) both[a] = std::min(from_shape[a], to_shape[a]);
  if (axes == 0 || elements(both) == 0) return;
  const size_t row_bytes = static_cast<size_t>(both[axes - 1] * element_bytes);
  for (int64_t rows = elements(both) / both[axes - 1]; rows > 0; --rows) {
    int64_t source = 0, target = 0;
    for (size_t a = 0; a < axes; ++a) source = source * from_shape[a] + at[a], target = target * to_shape[a] + at[a];
    std::memcpy(static_cast<uint8_t*>(to) + target * element_bytes,
                static_cast<const uint8_t*>(from) + source * element_bytes, row_bytes);
    for (size_t a = axes - 1; a-- > 0;) {  // the next row
      if (++at[a] < both[a]) break;
      at[a] = 0;
    }
  }
}

}  // namespace tessera
