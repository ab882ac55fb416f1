// SPDX-License-Identifier: Apache-2.0
#include "models/vit/vit.h"

#include <cstdio>

#include "models/onnx_writer.h"
#include "models/seeded.h"
#include "models/zoo.h"

namespace tessera {
namespace {

constexpr float kEpsilon = 1e-6f;  // LayerNorm's, as ViTs have it
// As trained ViTs have them, roughly: weights, biases, positions and shifts of deviation 0.02, gains around 1.
constexpr float kDeviation = 0.02f, kGainDeviation = 0.1f;

class VitBuilder {
 public:
  VitBuilder(const VitConfig& config, uint64_t seed, ExternalWeights* external)
      : c_(config), seed_(seed), w_(config.name, /*opset=*/17, external) {}

  Result<std::string> build() {
    w_.input("image", {0, c_.channels, c_.image, c_.image});
    w_.output("logits", {0, c_.classes});
    std::string x = embed();
    for (int64_t i = 0; i < c_.depth; ++i) x = block("blocks." + std::to_string(i), x);
    x = norm("norm", x);
    if (c_.class_token) {
      x = w_.node("Gather", "pool", {x, w_.integers("pool.index", {}, {0})}, {{"axis", int64_t{1}}});
    } else {
      x = w_.node("ReduceMean", "pool", {x}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
    }
    const std::string weight = random("head.weight", {c_.classes, c_.width}), bias = random("head.bias", {c_.classes});
    w_.node("Gemm", "head", {x, weight, bias}, {{"transB", int64_t{1}}}, "logits");
    return w_.finish();
  }

 private:
  using Names = OnnxWriter::Names;

  std::string random(const std::string& name, const OnnxWriter::Dims& dims, float mean = 0,
                     float deviation = kDeviation) {
    int64_t count = 1;
    for (int64_t d : dims) count *= d;
    return w_.weight(name, dims, seeded_normals(seed_, name, count, mean, deviation));
  }

  // y = x w + b, with the weight as [inputs, outputs], the way exporters leave it.
  std::string linear(const std::string& name, const std::string& x, int64_t inputs, int64_t outputs) {
    const std::string y = w_.node("MatMul", name, {x, random(name + ".weight", {inputs, outputs})});
    return w_.node("Add", name + ".add", {random(name + ".bias", {outputs}), y});
  }

  std::string norm(const std::string& name, const std::string& x) {
    return w_.node("LayerNormalization", name,
                   {x, random(name + ".weight", {c_.width}, 1, kGainDeviation), random(name + ".bias", {c_.width})},
                   {{"axis", int64_t{-1}}, {"epsilon", kEpsilon}});
  }

  std::string embed() {
    const std::vector<int64_t> kernel{c_.patch, c_.patch};
    std::string x = w_.node("Conv", "patch_embed",
                            {"image", random("patch_embed.weight", {c_.width, c_.channels, c_.patch, c_.patch}),
                             random("patch_embed.bias", {c_.width})},
                            {{"kernel_shape", kernel}, {"strides", kernel}});
    x = w_.node("Reshape", "patch_embed.flatten",
                {x, w_.integers("patch_embed.shape", {3}, {0, c_.width, c_.patches()})});
    x = w_.node("Transpose", "patch_embed.transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    if (c_.class_token) {
      // The token is one vector; its batch is known only while running.
      const std::string shape = w_.node("Shape", "class_token.shape", {"image"});
      const std::string batch = w_.node("Gather", "class_token.batch",
                                        {shape, w_.integers("class_token.axis", {1}, {0})}, {{"axis", int64_t{0}}});
      const std::string rest = w_.integers("class_token.rest", {2}, {1, c_.width});
      const std::string wanted = w_.node("Concat", "class_token.wanted", {batch, rest}, {{"axis", int64_t{0}}});
      const std::string token =
          w_.node("Expand", "class_token.expand", {random("class_token", {1, 1, c_.width}), wanted});
      x = w_.node("Concat", "tokens", {token, x}, {{"axis", int64_t{1}}});
    }
    return w_.node("Add", "positions.add", {x, random("positions", {1, c_.tokens(), c_.width})});
  }

  std::string attention(const std::string& name, std::string x) {
    const int64_t head = c_.width / c_.heads;
    x = linear(name + ".qkv", x, c_.width, 3 * c_.width);
    x = w_.node("Reshape", name + ".split",
                {x, w_.integers(name + ".split.shape", {5}, {0, c_.tokens(), 3, c_.heads, head})});
    x = w_.node("Transpose", name + ".heads", {x}, {{"perm", std::vector<int64_t>{2, 0, 3, 1, 4}}});
    const auto part = [&](const std::string& which, int64_t index) {
      return w_.node("Gather", name + "." + which, {x, w_.integers(name + "." + which + ".index", {}, {index})},
                     {{"axis", int64_t{0}}});
    };
    const std::string q = part("q", 0), k = part("k", 1), v = part("v", 2);
    // 1 / sqrt(head): heads of the zoo are 16, 64, so this is exact.
    float root = 1;
    while (root * root < static_cast<float>(head)) root *= 2;
    const std::string scaled = w_.node("Mul", name + ".scale", {q, w_.scalar(name + ".scale.value", 1 / root)});
    const std::string kt =
        w_.node("Transpose", name + ".k_transposed", {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    const std::string scores = w_.node("MatMul", name + ".scores", {scaled, kt});
    const std::string weights = w_.node("Softmax", name + ".softmax", {scores}, {{"axis", int64_t{-1}}});
    x = w_.node("MatMul", name + ".context", {weights, v});
    x = w_.node("Transpose", name + ".tokens", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    x = w_.node("Reshape", name + ".merge", {x, w_.integers(name + ".merge.shape", {3}, {0, c_.tokens(), c_.width})});
    return linear(name + ".proj", x, c_.width, c_.width);
  }

  // gelu(x) = x (1 + erf(x / sqrt 2)) / 2
  std::string gelu(const std::string& name, const std::string& x) {
    const std::string inner = w_.node("Div", name + ".div", {x, w_.scalar(name + ".root2", 1.41421356f)});
    const std::string erf = w_.node("Erf", name + ".erf", {inner});
    const std::string sum = w_.node("Add", name + ".add", {erf, w_.scalar(name + ".one", 1)});
    const std::string product = w_.node("Mul", name + ".mul", {x, sum});
    return w_.node("Mul", name + ".half_mul", {product, w_.scalar(name + ".half", 0.5f)});
  }

  std::string block(const std::string& name, const std::string& x) {
    const std::string a = attention(name + ".attn", norm(name + ".norm1", x));
    const std::string middle = w_.node("Add", name + ".residual1", {x, a});
    std::string h = linear(name + ".mlp.fc1", norm(name + ".norm2", middle), c_.width, c_.mlp);
    h = linear(name + ".mlp.fc2", gelu(name + ".mlp.gelu", h), c_.mlp, c_.width);
    return w_.node("Add", name + ".residual2", {middle, h});
  }

  const VitConfig& c_;
  const uint64_t seed_;
  OnnxWriter w_;
};

std::vector<ZooEntry> entries() {
  std::vector<ZooEntry> out;
  for (const VitConfig& c : vit_configs()) {
    char what[160];
    std::snprintf(what, sizeof(what), "%d px, patch %d, %d tokens%s, width %d, depth %d, %d heads, %.1f M parameters",
                  static_cast<int>(c.image), static_cast<int>(c.patch), static_cast<int>(c.tokens()),
                  c.class_token ? "" : " (mean)", static_cast<int>(c.width), static_cast<int>(c.depth),
                  static_cast<int>(c.heads), static_cast<double>(c.parameters()) * 1e-6);
    out.push_back({c.name, what});
  }
  return out;
}

Result<std::string> onnx(const std::string& name, uint64_t seed, const ZooSizes& sizes, const std::string& data) {
  constexpr int64_t kMostBytes = int64_t{2000} << 20;  // what a protobuf message holds, with some room
  for (VitConfig c : vit_configs()) {
    if (c.name != name) continue;
    if (sizes.image != 0) {
      if (sizes.image < c.patch || sizes.image % c.patch != 0)
        return usage_error(
            cat("--image ", sizes.image, ": ", name, " has patches of ", c.patch, " pixels; give a multiple of that"));
      c.image = sizes.image;
      c.name += cat("-", c.image, "px");
    }
    if (sizes.depth != 0) {
      c.depth = sizes.depth;
      c.name += cat("-depth", c.depth);
    }
    if (c.parameters() * 4 <= kMostBytes) return VitBuilder(c, seed, nullptr).build();
    if (data.empty())
      return usage_error(
          cat(c.name, " has ", c.parameters() / 1000000, " M parameters in f32, more than one ONNX file holds"));
    TS_ASSIGN(ExternalWeights weights, ExternalWeights::create(data + ".data"));
    TS_ASSIGN(std::string model, VitBuilder(c, seed, &weights).build());
    TS_TRY(weights.commit());
    return model;
  }
  return std::string();
}

}  // namespace

int64_t VitConfig::parameters() const {
  const int64_t block =
      4 * width + (width + 1) * 3 * width + (width + 1) * width + (width + 1) * mlp + (mlp + 1) * width;
  return width * (channels * patch * patch + 1) + (class_token ? width : 0) + tokens() * width + depth * block +
         2 * width + (width + 1) * classes;
}

const std::vector<VitConfig>& vit_configs() {
  static const std::vector<VitConfig> kConfigs = {
      {.name = "vit-ti-16", .image = 224, .patch = 16, .width = 192, .depth = 12, .heads = 3, .mlp = 768},
      {.name = "vit-s-16", .image = 224, .patch = 16, .width = 384, .depth = 12, .heads = 6, .mlp = 1536},
      {.name = "vit-b-16", .image = 224, .patch = 16, .width = 768, .depth = 12, .heads = 12, .mlp = 3072},
      {.name = "vit-l-16", .image = 224, .patch = 16, .width = 1024, .depth = 24, .heads = 16, .mlp = 4096},
      // 256 tokens, a multiple of every tile and block size: the shape that low-precision kernels like best.
      {.name = "vit-b-256",
       .image = 256,
       .patch = 16,
       .width = 768,
       .depth = 12,
       .heads = 12,
       .mlp = 3072,
       .class_token = false},
      {.name = "vit-tiny-test",
       .image = 32,
       .patch = 8,
       .width = 64,
       .depth = 2,
       .heads = 4,
       .mlp = 128,
       .classes = 10},
  };
  return kConfigs;
}

extern const Family vit_family;
const Family vit_family{entries, onnx, vit_graph, vit_harmless};

}  // namespace tessera
