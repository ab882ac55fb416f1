// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/open_axes.h"

#include <algorithm>

#include "import/onnx/reader.h"
#include "io/mmap.h"

namespace tessera {
namespace {

// Who said first how large a named axis is.
struct Said {
  int64_t size;
  std::string by;
};

std::string wanted(const OnnxInput& input) {
  std::string out = cat("'", shown(input.name), "' [batch");
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const OnnxDim& d = input.dims[i];
    out += cat(",", d.size >= 0 ? std::to_string(d.size) : d.symbol.empty() ? "?" : shown(d.symbol));
  }
  return out + "]";
}

// Notes what `shape`, whose words are `by`, says of the named axes of an input.
Status note_sizes(const OnnxInput& input, const Shape& shape, const std::string& by,
                  std::map<std::string, Said>& sizes) {
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const OnnxDim& d = input.dims[i];
    if (d.size >= 0 || d.symbol.empty()) continue;
    const Said& first = sizes.emplace(d.symbol, Said{shape[i], by}).first->second;
    if (first.size != shape[i])
      return bad_input(cat(by, " says ", shape[i], " for the axis '", shown(d.symbol), "' of the model, ", first.by,
                           " says ", first.size, ": it has one size"));
  }
  return {};
}

Status check_fits(const OnnxInput& input, const Shape& shape) {
  bool fits = shape.size() == input.dims.size();
  for (size_t i = 1; fits && i < shape.size(); ++i)
    fits = shape[i] >= 1 && (input.dims[i].size < 0 || input.dims[i].size == shape[i]);
  if (fits) return {};
  return bad_input(cat("array '", shown(input.name), "' has shape ", to_string(shape), "; wanted ", wanted(input)));
}

bool has_open_axes(const OnnxInput& input) {
  for (size_t i = 1; i < input.dims.size(); ++i) {
    if (input.dims[i].size < 0) return true;
  }
  return false;
}

bool channels_first(const OnnxInput& image) {
  const auto may_be_channels = [&](size_t axis) {
    const int64_t n = image.dims[axis].size;
    return n == 1 || n == 3 || n == 4;
  };
  return image.dims.size() == 4 && may_be_channels(1) && !may_be_channels(3);
}

OnnxInput with_channels_last(OnnxInput image) {
  std::rotate(image.dims.begin() + 1, image.dims.begin() + 2, image.dims.end());
  return image;
}

}  // namespace

Result<ClosedAxes> close_axes(const std::string& model_path, const std::string& arrays_path,
                              const std::map<std::string, Shape>& arrays, const std::map<std::string, Shape>& given,
                              const std::set<std::string>& bytes) {
  TS_ASSIGN(const Bytes file, map_file(model_path));
  const auto inputs = read_onnx_inputs(file);
  if (!inputs.ok()) return inputs.status().at(model_path);
  ClosedAxes out;
  std::map<std::string, Said> sizes;
  for (const OnnxInput& input : *inputs) {
    const auto shape = given.find(input.name);
    // A shape that does not fit is refused by who imports the model.
    if (shape == given.end() || shape->second.size() != input.dims.size()) continue;
    TS_TRY(note_sizes(input, shape->second, cat("--shape ", shown(input.name)), sizes));
  }
  for (const OnnxInput& input : *inputs) {
    if (out.first_input.empty()) out.first_input = input.name;
    const auto array = arrays.find(input.name);
    if (given.contains(input.name) || array == arrays.end()) continue;
    const bool turned = bytes.contains(input.name) && channels_first(input);
    const OnnxInput seen = turned ? with_channels_last(input) : input;
    TS_TRY(check_fits(seen, array->second).at(arrays_path));
    TS_TRY(note_sizes(seen, array->second, cat("array '", shown(input.name), "'"), sizes).at(arrays_path));
    if (!has_open_axes(input)) continue;
    Shape shape = array->second;
    if (turned) shape = {shape[0], shape[3], shape[1], shape[2]};
    shape[0] = 0;
    out.shapes.emplace(input.name, std::move(shape));
  }
  return out;
}

}  // namespace tessera
