// SPDX-License-Identifier: Apache-2.0
#include "models/vit/settings.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "import/checkpoints/json_fields.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostBlocks = 1000, kMostPixels = 1 << 16;

struct Sizes {
  int64_t h, w;
};

// One number for both axes, or a list of height and width.
Result<Sizes> read_sizes(const Json& object, const char* key, Sizes fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  const auto fits = [](const Json& j) {
    return j.is_number_integer() && j.get<int64_t>() >= 1 && j.get<int64_t>() <= kMostPixels;
  };
  if (fits(*it)) return Sizes{it->get<int64_t>(), it->get<int64_t>()};
  if (it->is_array() && it->size() == 2 && fits((*it)[0]) && fits((*it)[1]))
    return Sizes{(*it)[0].get<int64_t>(), (*it)[1].get<int64_t>()};
  return bad_input(cat("'", key, "' is not a size from 1 to ", kMostPixels, ", or two of them"));
}

// The activations by the names that configurations use.
Result<std::string> activation(const std::string& name) {
  if (name == "gelu") return std::string("gelu_erf");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return std::string("gelu_tanh");
  if (name == "quick_gelu") return std::string("gelu_quick");
  if (name == "relu") return std::string("relu");
  if (name == "silu" || name == "swish") return std::string("silu");
  return bad_input(cat("hidden_act '", shown_name(name),
                       "' is not known; gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu and silu are"));
}

// The shape of a tensor whose sizes settle the model's; it must have so many axes, none of them empty.
Result<Shape> shape_of(const Checkpoint& c, const std::string& name, size_t rank) {
  const SafetensorsEntry* t = c.tensors().find(name);
  if (t == nullptr) return bad_input(cat("tensor '", name, "' is missing"));
  if (t->shape.size() != rank || elements(t->shape) == 0)
    return bad_input(cat("tensor '", name, "' has the shape ", to_string(t->shape), "; ", rank, " axes are wanted"));
  return t->shape;
}

// Blocks are counted by their norms: 0, 1, 2 ... without a gap (a tensor of a block beyond one is left over, and
// named).
int64_t count_blocks(const Checkpoint& c, const VitNames& names) {
  int64_t n = 0;
  while (n < kMostBlocks && c.tensors().has(name_in_block(names.norm1, n) + ".weight")) ++n;
  return n;
}

// What the configuration says about sizes that are read from the tensors; all of it must be so, or a checkpoint that
// lost some of its tensors would be a smaller model.
class Statements {
 public:
  // `where` goes before the key in messages: "model_args.".
  Statements(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && !it->is_null();
  }
  Status size(const char* key, int64_t found) const {
    TS_ASSIGN(const int64_t stated, json_integer(object_, key, found));
    return stated == found ? Status() : differs(key, cat(stated), cat(found));
  }
  Status sizes(const char* key, Sizes found) const {
    TS_ASSIGN(const Sizes stated, read_sizes(object_, key, found));
    if (stated.h == found.h && stated.w == found.w) return {};
    return differs(key, cat(stated.h, " x ", stated.w), cat(found.h, " x ", found.w));
  }
  Status differs(const char* key, const std::string& stated, const std::string& found) const {
    return bad_input(cat(where_, key, " is ", stated, ", the tensors are those of ", found));
  }

 private:
  const Json& object_;
  std::string where_;
};

Status read_hugging_face(const Json& config, VitSettings& s) {
  TS_ASSIGN(const std::string type, json_word(config, "model_type", "vit"));
  if (type != "vit") return bad_input(cat("model_type '", shown_name(type), "' is no plain ViT; 'vit' is read"));
  TS_ASSIGN(const std::vector<std::string> classes, json_words(config, "architectures"));
  constexpr const char* kClass = "ViTForImageClassification";
  if (!classes.empty() && std::find(classes.begin(), classes.end(), kClass) == classes.end())
    return bad_input(cat("architectures: '", shown_name(classes[0]), "' is not of this family; ", kClass, " is"));
  TS_ASSIGN(s.heads, json_integer(config, "num_attention_heads", 12));
  const Statements stated(config, "");
  TS_TRY(stated.size("num_hidden_layers", s.depth));
  TS_TRY(stated.size("hidden_size", s.width));
  TS_TRY(stated.size("intermediate_size", s.mlp));
  TS_TRY(stated.size("num_channels", s.channels));
  TS_TRY(stated.sizes("patch_size", {s.patch_h, s.patch_w}));
  TS_TRY(stated.size("num_labels", s.classes));
  if (const auto labels = config.find("id2label"); labels != config.end() && labels->is_object()) {
    const auto count = static_cast<int64_t>(labels->size());
    if (count != s.classes) return stated.differs("id2label", cat("a list of ", count), cat(s.classes, " classes"));
  }
  TS_ASSIGN(const Sizes image, read_sizes(config, "image_size", {224, 224}));
  s.image_h = image.h, s.image_w = image.w;
  TS_ASSIGN(s.qkv_bias, json_truth(config, "qkv_bias", true));
  TS_ASSIGN(s.eps, json_number(config, "layer_norm_eps", 1e-12));
  TS_ASSIGN(const std::string act, json_word(config, "hidden_act", "gelu"));
  TS_ASSIGN(s.act, activation(act));
  return {};
}

// timm's configurations name an architecture; those of the plain ViTs are so large, unless model_args say otherwise.
struct Size {
  const char* word;
  int64_t width, depth, heads;
};
constexpr Size kTimmSizes[] = {
    {"vit_tiny_", 192, 12, 3},    {"vit_small_", 384, 12, 6},     {"vit_base_", 768, 12, 12},
    {"vit_large_", 1024, 24, 16}, {"vit_huge_", 1280, 32, 16},    {"deit_tiny_", 192, 12, 3},
    {"deit_small_", 384, 12, 6},  {"deit_base_", 768, 12, 12},    {"deit3_small_", 384, 12, 6},
    {"deit3_base_", 768, 12, 12}, {"deit3_large_", 1024, 24, 16}, {"deit3_huge_", 1280, 32, 16}};

// What model_args and the entries beside them say; where they are silent, what the architecture's name does.
Status check_timm_sizes(const Checkpoint& c, const Json& args, const std::string& architecture, const VitSettings& s) {
  const Statements stated(args, "model_args."), beside(c.config(), "");
  TS_TRY(stated.size("depth", s.depth));
  TS_TRY(stated.size("embed_dim", s.width));
  TS_TRY(stated.size("in_chans", s.channels));
  TS_TRY(stated.size("num_classes", s.classes));
  TS_TRY(stated.sizes("patch_size", {s.patch_h, s.patch_w}));
  TS_TRY(beside.size("num_classes", s.classes));
  TS_TRY(beside.size("num_features", s.width));
  TS_ASSIGN(const double ratio, json_number(args, "mlp_ratio", 0));
  if (stated.has("mlp_ratio") && std::floor(ratio * static_cast<double>(s.width)) != static_cast<double>(s.mlp))
    return stated.differs("mlp_ratio", cat(ratio), cat(s.mlp, " / ", s.width));
  TS_ASSIGN(const bool token, json_truth(args, "class_token", s.class_token));
  if (token != s.class_token)
    return stated.differs("class_token", token ? "true" : "false", token ? "a model without one" : "a model with one");
  TS_ASSIGN(const double scale, json_number(args, "init_values", 0));
  if (const bool has = c.tensors().has(name_in_block(s.names->scale1, 0));
      stated.has("init_values") && has != (scale != 0))
    return stated.differs("init_values", cat(scale), has ? "a model with layer scale" : "a model without layer scale");
  for (const Size& size : kTimmSizes) {
    if (!architecture.starts_with(size.word)) continue;
    const auto named = [&](const char* what, int64_t n, int64_t found) {
      return bad_input(cat("architecture '", shown_name(architecture), "' has ", what, " ", n,
                           ", the tensors are those of ", found, "; another is stated by model_args.", what));
    };
    if (!stated.has("depth") && s.depth != size.depth) return named("depth", size.depth, s.depth);
    if (!stated.has("embed_dim") && s.width != size.width) return named("embed_dim", size.width, s.width);
  }
  return {};
}

Status read_timm(const Checkpoint& c, const Json& config, VitSettings& s) {
  static const Json kNone = Json::object();
  const auto object = [&](const char* key) -> const Json& {
    const auto it = config.find(key);
    return it != config.end() && it->is_object() ? *it : kNone;
  };
  const Json &args = object("model_args"), &pretrained = object("pretrained_cfg");
  static const std::set<std::string> kKnown = {
      "img_size",  "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth",
      "num_heads", "mlp_ratio",  "qkv_bias", "init_values", "class_token", "drop_rate", "drop_path_rate"};
  for (const auto& [key, value] : args.items()) {
    if (!kKnown.contains(key)) return bad_input(cat("model_args: '", shown_name(key), "' is not known to this family"));
  }
  TS_ASSIGN(const std::string architecture, json_word(config, "architecture", ""));
  if (!architecture.empty() && !architecture.starts_with("vit_") && !architecture.starts_with("deit"))
    return bad_input(cat("architecture '", shown_name(architecture),
                         "' is not of this family; those that begin with vit_ or deit are"));
  TS_TRY(check_timm_sizes(c, args, architecture, s));
  for (const Size& size : kTimmSizes) {
    if (architecture.starts_with(size.word)) s.heads = size.heads;
  }
  const bool given = Statements(config, "").has("num_heads") || Statements(args, "").has("num_heads");
  TS_ASSIGN(s.heads, json_integer(config, "num_heads", s.heads));
  TS_ASSIGN(s.heads, json_integer(args, "num_heads", s.heads));
  if (s.heads == 0 && !given)
    return bad_input(cat("architecture '", shown_name(architecture),
                         "' is not known, so the number of heads is not: give it as model_args.num_heads"));
  TS_ASSIGN(std::string pool, json_word(config, "global_pool", "token"));
  TS_ASSIGN(pool, json_word(args, "global_pool", pool));
  if (pool != "token" && pool != "avg")
    return bad_input(cat("global_pool '", shown_name(pool), "' is not known; token and avg are"));
  s.mean_of_tokens = pool == "avg";
  if (!s.class_token && !s.mean_of_tokens) return bad_input("global_pool is token, and there is no cls_token");
  TS_ASSIGN(s.qkv_bias, json_truth(args, "qkv_bias", true));
  // Square where nothing says otherwise.
  TS_ASSIGN(const Shape positions, shape_of(c, s.names->positions, 3));
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(positions[1] - (s.class_token ? 1 : 0))));
  Sizes image{side * s.patch_h, side * s.patch_w};
  if (const auto size = pretrained.find("input_size"); size != pretrained.end()) {
    if (!size->is_array() || size->size() != 3) return bad_input("pretrained_cfg: 'input_size' is not [c, h, w]");
    // What the weights were first trained as: model_args go before it.
    if (!Statements(args, "").has("in_chans")) {
      TS_TRY(Statements(Json{{"input_size[0]", (*size)[0]}}, "pretrained_cfg.").size("input_size[0]", s.channels));
    }
    TS_ASSIGN(image, read_sizes(Json{{"input_size", Json::array({(*size)[1], (*size)[2]})}}, "input_size", image));
  }
  TS_ASSIGN(image, read_sizes(args, "img_size", image));
  s.image_h = image.h, s.image_w = image.w;
  return {};
}

}  // namespace

std::string name_in_block(const char* pattern, int64_t block) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(block));
}

Result<VitSettings> read_vit_settings(const Checkpoint& c) {
  VitSettings s;
  for (const VitNames& n : kVitNames) {
    if (c.tensors().has(n.known_by)) s.names = &n;
  }
  if (s.names == nullptr) {
    std::string wanted;
    for (const VitNames& n : kVitNames) wanted += cat(wanted.empty() ? "'" : "' nor '", n.known_by);
    return bad_input(cat("is no ViT that this family knows: it has neither ", wanted, "'"));
  }
  TS_ASSIGN(const Shape kernel, shape_of(c, std::string(s.names->patches) + ".weight", 4));
  s.width = kernel[0], s.channels = kernel[1], s.patch_h = kernel[2], s.patch_w = kernel[3];
  s.depth = count_blocks(c, *s.names);
  if (s.depth == 0) return bad_input(cat("tensor '", name_in_block(s.names->norm1, 0), ".weight' is missing"));
  TS_ASSIGN(const Shape hidden, shape_of(c, name_in_block(s.names->fc1, 0) + ".bias", 1));
  TS_ASSIGN(const Shape classes, shape_of(c, std::string(s.names->head) + ".bias", 1));
  s.mlp = hidden[0], s.classes = classes[0];
  s.class_token = c.tensors().has(s.names->class_token);
  const Status read = s.names->timm ? read_timm(c, c.config(), s) : read_hugging_face(c.config(), s);
  if (!read.ok()) return read.at("config.json");
  if (s.heads < 1) return bad_input(cat("config.json: the number of heads is ", s.heads, "; a model has one at least"));
  if (s.width % s.heads != 0)
    return bad_input(cat("config.json: ", s.heads, " heads do not divide the width ", s.width));
  if (s.image_h % s.patch_h != 0 || s.image_w % s.patch_w != 0)
    return bad_input(cat("config.json: an image of ", s.image_h, " x ", s.image_w, " is no whole number of patches of ",
                         s.patch_h, " x ", s.patch_w));
  TS_ASSIGN(const Shape positions, shape_of(c, s.names->positions, 3));
  if (s.tokens() != positions[1])
    return bad_input(cat("config.json: an image of ", s.image_h, " x ", s.image_w, " makes ", s.tokens(),
                         " tokens, tensor '", s.names->positions, "' has the shape ", to_string(positions)));
  return s;
}

}  // namespace tessera
