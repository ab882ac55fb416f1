// SPDX-License-Identifier: Apache-2.0
#include "rewrite/byte_ports.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera {
namespace {

constexpr int64_t kBytes = 256;  // values that one has

bool may_be_channels(int64_t n) { return n == 1 || n == 3 || n == 4; }

// [256], or [256, channels] where each has its own numbers.
Value table_of(const std::string& input, const Pixels& pixels, int64_t channels) {
  const int64_t cols = pixels.uniform() ? 1 : channels;
  const auto of = [](const std::vector<double>& all, int64_t c) {
    return all[all.size() == 1 ? 0 : static_cast<size_t>(c)];
  };
  std::vector<float> numbers;
  for (int64_t byte = 0; byte < kBytes; ++byte) {
    for (int64_t c = 0; c < cols; ++c)
      numbers.push_back(pixel_number(static_cast<uint8_t>(byte), of(pixels.mean, c), of(pixels.std, c)));
  }
  Buffer data(numbers.size() * sizeof(float));
  std::memcpy(data.data(), numbers.data(), data.size());
  Value table;
  table.name = input + ".numbers";
  table.type = {cols == 1 ? Shape{kBytes} : Shape{kBytes, cols}, Element::f32};
  table.constant = true, table.data = Bytes::own(std::move(data));
  return table;
}

}  // namespace

std::optional<Pixels> pixels_of(const Attrs& attrs) {
  if (!attrs.has(kPixels)) return std::nullopt;
  const auto pixels = parse_pixels(attrs.word(kPixels));
  return pixels.ok() && pixels->layout != ImageLayout::kUnsaid ? std::optional(*pixels) : std::nullopt;
}

Shape model_shape(const Shape& bytes, ImageLayout layout) {
  if (bytes.size() != 4 || layout != ImageLayout::kChannelsFirst) return bytes;
  return {bytes[0], bytes[3], bytes[1], bytes[2]};
}

Result<Pixels> fit_pixels(const Graph& graph, size_t input, const Pixels& pixels) {
  const Shape& shape = graph.at(graph.inputs[input]).type.shape;
  const std::string is = cat("it is ", to_string(shape));
  if (shape.size() != 4)
    return usage_error(
        cat(is, "; an image has four axes, [batch,channels,height,width] or [batch,height,width,channels]"));
  Pixels fit = pixels;
  const bool first = may_be_channels(shape[1]), last = may_be_channels(shape[3]);
  if (pixels.layout == ImageLayout::kUnsaid) {
    if (first && last)
      return usage_error(cat(is, ", whose channels may be either axis: add layout=nchw or layout=nhwc"));
    fit.layout = first ? ImageLayout::kChannelsFirst : ImageLayout::kChannelsLast;
  }
  const int64_t channels = shape[fit.layout == ImageLayout::kChannelsFirst ? 1 : 3];
  if (!may_be_channels(channels))
    return usage_error(
        cat(is, pixels.layout == ImageLayout::kUnsaid ? "" : cat(", so it has ", channels, " channels there"),
            "; an image has 1, 3 or 4 channels, on its second or its last axis"));
  for (const auto& [name, numbers] : {std::pair("mean", &pixels.mean), {"std", &pixels.std}}) {
    if (numbers->size() != 1 && static_cast<int64_t>(numbers->size()) != channels)
      return usage_error(cat(is, ", which has ", channels, channels == 1 ? " channel" : " channels", ", and ", name,
                             " has ", numbers->size(), " numbers; give one, or one for each channel"));
  }
  return fit;
}

void give_bytes(Graph& graph, size_t input, const Pixels& pixels, std::vector<Node>& before) {
  const ValueId own = graph.inputs[input];
  const std::string name = graph.at(own).name;
  const Shape shape = graph.at(own).type.shape;
  const bool first = pixels.layout == ImageLayout::kChannelsFirst;
  const int64_t channels = shape[first ? 1 : 3], height = shape[first ? 2 : 1], width = shape[first ? 3 : 2];
  const Shape image = {shape[0], height, width, channels};
  graph.at(own).name = name + ".f32";
  graph.at(own).constant = false;
  Value port;
  port.name = name;
  port.type = {image, Element::u8};
  graph.inputs[input] = graph.add_value(std::move(port));
  const ValueId table = graph.add_value(table_of(name, pixels, channels));
  const auto look_up = [&](ValueId to) -> Node {
    return {.name = name + ".pixels",
            .op = "gather",
            .inputs = {table, graph.inputs[input]},
            .outputs = {to},
            .attrs = {{kPixels, to_string(pixels)}}};
  };
  if (pixels.uniform() && !first) {
    before.push_back(look_up(own));
    return;
  }
  // With numbers for each channel every byte is looked up for all of them, and its own is taken.
  const int64_t cols = pixels.uniform() ? 1 : channels;
  Value numbers;
  numbers.name = name + ".pixels";
  numbers.type = {image, Element::f32};
  if (cols > 1) numbers.type.shape.push_back(cols);
  const ValueId made = graph.add_value(std::move(numbers));
  before.push_back(look_up(made));
  const int64_t channel = cols > 1 ? cols + 1 : 1, across = channels * cols, down = width * across;
  const Shape strides =
      first ? Shape{height * down, channel, down, across} : Shape{height * down, down, across, channel};
  Value shown;
  shown.name = name + ".view";
  shown.type = {shape, Element::f32};
  const ValueId seen = graph.add_value(std::move(shown));
  before.push_back({.name = {},
                    .op = "view",
                    .inputs = {made},
                    .outputs = {seen},
                    .attrs = {{"strides", strides}, {"offset", int64_t{0}}}});
  // Nodes that view the input count in its dense rows (ir/region.h); what copies change nothing goes with
  // simplify_views.
  before.push_back({.name = name + ".dense", .op = "copy", .inputs = {seen}, .outputs = {own}});
}

namespace {

// The only reader of a value, as a node's number; -1: it has none, several, or is a result.
int only_reader(const Graph& g, ValueId v) {
  int found = -1;
  if (std::find(g.outputs.begin(), g.outputs.end(), v) != g.outputs.end()) return -1;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (std::find(g.nodes[n].inputs.begin(), g.nodes[n].inputs.end(), v) == g.nodes[n].inputs.end()) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(n);
  }
  return found;
}

}  // namespace

Status copy_bytes_first(Graph& graph) {
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    const Node look_up = graph.nodes[at];
    if (look_up.op != "gather" || !pixels_of(look_up.attrs) || graph.at(look_up.inputs[0]).type.shape.size() != 1)
      continue;
    const int view = only_reader(graph, look_up.outputs[0]);
    if (view < 0 || graph.nodes[static_cast<size_t>(view)].op != "view") continue;
    const int copy = only_reader(graph, graph.nodes[static_cast<size_t>(view)].outputs[0]);
    if (copy < 0) continue;
    Node seen = graph.nodes[static_cast<size_t>(view)], moved = graph.nodes[static_cast<size_t>(copy)];
    const ValueId result = moved.outputs[0];
    if (moved.op != "copy" || !moved.then.empty() ||
        graph.at(result).type.quant != graph.at(look_up.outputs[0]).type.quant)
      continue;
    const auto bytes_like = [&](ValueId numbers) {
      Value v;
      v.name = graph.at(numbers).name + ".bytes";
      v.type = {graph.at(numbers).type.shape, Element::u8};
      return graph.add_value(std::move(v));
    };
    const ValueId seen_bytes = bytes_like(seen.outputs[0]), moved_bytes = bytes_like(result);
    seen.inputs = {look_up.inputs[1]}, seen.outputs = {seen_bytes};
    moved.inputs = {seen_bytes}, moved.outputs = {moved_bytes}, moved.attrs = {};
    Node last = look_up;
    last.inputs[1] = moved_bytes, last.outputs = {result};
    std::vector<Node> nodes;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (static_cast<int>(n) == copy) {
        for (const Node* const made : {&seen, &moved, &last}) nodes.push_back(*made);
      } else if (n != at && static_cast<int>(n) != view) {
        nodes.push_back(std::move(graph.nodes[n]));
      }
    }
    graph.nodes = std::move(nodes);
  }
  return {};
}

}  // namespace tessera
