// SPDX-License-Identifier: Apache-2.0
// image [b,c,h,w] -> logits [b,classes]:
//   x = [class token; patches] + positions
//   x = x + scale1 * out(attention(norm1(x)));  x = x + scale2 * fc2(act(fc1(norm2(x))))      for every block
//   logits = head(norm(x)[class token]), or head(pooled_norm(mean of x's patches))
#include <cmath>

#include "models/layer_builder.h"
#include "models/vit/settings.h"
#include "models/vit/vit.h"

namespace tessera {
namespace {

class VitGraph {
 public:
  VitGraph(Graph& graph, Checkpoint& checkpoint, const VitSettings& settings)
      : tensors_(checkpoint.tensors()), s_(settings), n_(*settings.names), l_(graph, checkpoint) {}

  Result<ValueId> build(ValueId image) {
    TS_ASSIGN(ValueId x, embed(image));
    for (int64_t i = 0; i < s_.depth; ++i) {
      TS_ASSIGN(x, block(i, x));
    }
    TS_ASSIGN(x, pool(x));
    return l_.linear(n_.head, x, s_.classes);
  }

 private:
  Result<ValueId> embed(ValueId image) {
    const int64_t batch = l_.b.shape(image)[0];
    TS_ASSIGN(ValueId x, l_.patches(n_.patches, image, s_.patch_h, s_.patch_w, s_.width));
    TS_ASSIGN(const ValueId positions, l_.constant(n_.positions, {1, s_.tokens(), s_.width}));
    if (s_.class_token) {
      TS_ASSIGN(ValueId token, l_.constant(n_.class_token, {1, 1, s_.width}));
      TS_ASSIGN(token, l_.b.expand(token, {batch, 1, s_.width}));
      TS_ASSIGN(x, l_.b.concat({token, x}, 1, "tokens"));
    }
    return l_.add(x, positions, "positions.add");
  }

  // Multiplied by a vector where the checkpoint has them (layer scale): all blocks do or none.
  Result<ValueId> scaled(ValueId x, const char* pattern, int64_t i) {
    if (pattern == nullptr || !tensors_.has(name_in_block(pattern, 0))) return x;
    TS_ASSIGN(const ValueId factors, l_.constant(name_in_block(pattern, i), {s_.width}));
    return l_.b.map("mul", {x, factors}, name_in_block(pattern, i));
  }

  Result<ValueId> attend(int64_t i, ValueId x) {
    const Shape in = l_.b.shape(x), heads = {in[0], in[1], s_.heads, s_.width / s_.heads};
    std::vector<ValueId> parts;
    if (n_.qkv != nullptr) {
      TS_ASSIGN(ValueId qkv, l_.linear(name_in_block(n_.qkv, i), x, 3 * s_.width, s_.qkv_bias));
      TS_ASSIGN(qkv, l_.b.reshape(qkv, {in[0], in[1], 3, heads[2], heads[3]}));
      for (int64_t part = 0; part < 3; ++part) {
        TS_ASSIGN(const ValueId slice, l_.b.slice(qkv, 2, part, 1, 1));
        parts.push_back(slice);
      }
    } else {
      for (const char* pattern : {n_.q, n_.k, n_.v}) {
        TS_ASSIGN(const ValueId y, l_.linear(name_in_block(pattern, i), x, s_.width, s_.qkv_bias));
        parts.push_back(y);
      }
    }
    for (ValueId& part : parts) {
      TS_ASSIGN(part, l_.b.reshape(part, heads));
    }
    const double scale = 1 / std::sqrt(static_cast<double>(heads[3]));
    TS_ASSIGN(ValueId y, l_.b.emit("attention", parts, {{"scale", scale}}, name_in_block(n_.attention, i)));
    TS_ASSIGN(y, l_.b.reshape(y, in));
    return l_.linear(name_in_block(n_.attention_out, i), y, s_.width);
  }

  Result<ValueId> block(int64_t i, ValueId x) {
    TS_ASSIGN(ValueId y, l_.layer_norm(name_in_block(n_.norm1, i), x, s_.eps));
    TS_ASSIGN(y, attend(i, y));
    TS_ASSIGN(y, scaled(y, n_.scale1, i));
    TS_ASSIGN(x, l_.add(x, y, name_in_block(n_.norm1, i) + ".residual"));
    TS_ASSIGN(y, l_.layer_norm(name_in_block(n_.norm2, i), x, s_.eps));
    TS_ASSIGN(y, l_.linear(name_in_block(n_.fc1, i), y, s_.mlp));
    TS_ASSIGN(y, l_.b.map(s_.act, {y}, name_in_block(n_.fc1, i) + ".act"));
    TS_ASSIGN(y, l_.linear(name_in_block(n_.fc2, i), y, s_.width));
    TS_ASSIGN(y, scaled(y, n_.scale2, i));
    return l_.add(x, y, name_in_block(n_.norm2, i) + ".residual");
  }

  // One vector per image. Rows do not meet in a norm, so that only the class token's needs one.
  Result<ValueId> pool(ValueId x) {
    if (!s_.mean_of_tokens) {
      TS_ASSIGN(ValueId first, l_.b.slice(x, 1, 0, 1, 1));
      TS_ASSIGN(first, l_.b.squeeze(first, {1}));
      return l_.layer_norm(n_.norm, first, s_.eps);
    }
    const bool after = n_.pooled_norm != nullptr && tensors_.has(std::string(n_.pooled_norm) + ".weight");
    if (!after) {
      TS_ASSIGN(x, l_.layer_norm(n_.norm, x, s_.eps));
    }
    if (s_.class_token) {
      TS_ASSIGN(x, l_.b.slice(x, 1, 1, 1, s_.patches()));
    }
    TS_ASSIGN(x, l_.b.transpose(x));
    TS_ASSIGN(x, l_.b.emit("reduce", {x}, {{"fn", std::string("mean")}}, "pool"));
    return after ? l_.layer_norm(n_.pooled_norm, x, s_.eps) : Result<ValueId>(x);
  }

  const CheckpointTensors& tensors_;
  const VitSettings& s_;
  const VitNames& n_;
  LayerBuilder l_;
};

}  // namespace

Result<Graph> vit_graph(Checkpoint& checkpoint, const FamilySizes& sizes) {
  TS_ASSIGN(const VitSettings s, read_vit_settings(checkpoint));
  Graph graph;
  Value image;
  image.name = "image";
  image.type = {{sizes.batch, s.channels, s.image_h, s.image_w}, Element::f32};
  graph.inputs = {graph.add_value(std::move(image))};
  TS_ASSIGN(const ValueId logits, VitGraph(graph, checkpoint, s).build(graph.inputs[0]));
  graph.at(logits).name = "logits";
  graph.outputs = {logits};
  return graph;
}

// Poolers and mask tokens serve other tasks; position_ids are counted.
std::vector<std::string> vit_harmless() {
  return {"vit.pooler", "vit.embeddings.mask_token", "vit.embeddings.position_ids"};
}

}  // namespace tessera
