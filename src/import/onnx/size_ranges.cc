// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/size_ranges.h"

#include <algorithm>
#include <set>

#include "import/onnx/reader.h"
#include "io/mmap.h"

namespace tessera {
namespace {

std::string described(const OnnxInput& input) {
  std::string out;
  for (const OnnxDim& d : input.dims)
    out += cat(out.empty() ? "[" : ",", d.size >= 0        ? std::to_string(d.size)
                                        : d.symbol.empty() ? "?"
                                                           : shown(d.symbol));
  return out.empty() ? "[]" : out + "]";
}

class Naming {
 public:
  Status add(const OnnxInput& input, const RangedShape& given) {
    const std::string where = cat("--shape ", shown(input.name));
    if (given.size() != input.dims.size())
      return bad_input(cat(where, ": ", given.size(), " axes where the model has ", described(input)));
    Shape& shape = out_.shapes[input.name];
    for (size_t axis = 0; axis < given.size(); ++axis) {
      const OnnxDim& d = input.dims[axis];
      const AxisNumbers& numbers = given[axis];
      if (d.size >= 0 && numbers.size() > 1)
        return bad_input(cat(where, ": the model fixes axis ", axis, " to ", d.size,
                             "; several numbers are for axes that it leaves open, ", described(input)));
      shape.push_back(numbers.back());
      if (d.size >= 0) continue;
      if (axis == 0) {
        TS_TRY(add_batch(numbers, where));
        if (numbers.size() > 1) shape[0] = 0;  // open
      } else {
        TS_TRY(add_size(input, axis, numbers, where));
      }
    }
    return {};
  }

  Result<SizeRanges> done() {
    std::erase_if(out_.sizes, [](const RangedSize& s) { return s.numbers.size() == 1; });
    if (batch_.numbers.size() > 1) out_.batches = batch_.numbers;
    return std::move(out_);
  }

 private:
  static Status one_size(const RangedSize& known, const std::string& by, const AxisNumbers& numbers,
                         const std::string& where, const std::string& what) {
    if (known.numbers == numbers) return {};
    const auto text = [](const AxisNumbers& list) {
      return list.size() == 1 ? std::to_string(list[0])
                              : cat(list.size(), " numbers from ", list[0], " to ", list.back());
    };
    return bad_input(cat(where, " says ", text(numbers), " for ", what, ", ", by, " says ", text(known.numbers),
                         ": it has the same numbers wherever it stands"));
  }

  Status add_batch(const AxisNumbers& numbers, const std::string& where) {
    if (batch_by_.empty()) batch_by_ = where, batch_.numbers = numbers;
    return one_size(batch_, batch_by_, numbers, where, "the batch, the first axis");
  }

  Status add_size(const OnnxInput& input, size_t axis, const AxisNumbers& numbers, const std::string& where) {
    const std::string& symbol = input.dims[axis].symbol;
    const std::string name = symbol.empty() ? cat(input.name, ".", axis) : symbol;
    auto known = std::find_if(out_.sizes.begin(), out_.sizes.end(), [&](const auto& s) { return s.name == name; });
    if (known == out_.sizes.end()) {
      known = out_.sizes.insert(known, {.name = name, .numbers = numbers, .axes = {}});
      by_[name] = where;
    }
    known->axes.emplace_back(input.name, axis);
    return one_size(*known, by_[name], numbers, where, cat("the axis '", shown(name), "' of the model"));
  }

  SizeRanges out_;
  RangedSize batch_;
  std::string batch_by_;
  std::map<std::string, std::string> by_;  // who said a size first
};

}  // namespace

std::vector<int64_t> numbers_from(int64_t least, int64_t most) {
  std::set<int64_t> numbers = {least, most};
  for (int64_t n = 1; n < most; n *= 2) {
    if (n > least) numbers.insert(n);
    if (n > most / 2) break;
  }
  return {numbers.begin(), numbers.end()};
}

Result<SizeRanges> name_sizes(const std::string& model_path, const std::map<std::string, RangedShape>& shapes) {
  TS_ASSIGN(const Bytes file, map_file(model_path));
  const auto inputs = read_onnx_inputs(file);
  if (!inputs.ok()) return inputs.status().at(model_path);
  Naming naming;
  std::string known;
  size_t used = 0;
  for (const OnnxInput& input : *inputs) {
    known += cat(known.empty() ? "'" : ", '", shown(input.name), "' ", described(input));
    const auto given = shapes.find(input.name);
    if (given == shapes.end()) continue;
    TS_TRY(naming.add(input, given->second));
    ++used;
  }
  for (const auto& [name, shape] : shapes) {
    const bool there =
        std::any_of(inputs->begin(), inputs->end(), [&, n = &name](const OnnxInput& i) { return i.name == *n; });
    if (!there && used < shapes.size())
      return bad_input(cat("--shape ", shown(name), ": the model has no such input; it has ", known));
  }
  return naming.done();
}

}  // namespace tessera
