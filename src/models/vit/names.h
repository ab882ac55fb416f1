// SPDX-License-Identifier: Apache-2.0
// How checkpoints call the modules of a ViT. `{}` stands for a block's number.
#pragma once

namespace tessera {

struct VitNames {
  const char* known_by;  // a tensor that only this naming has
  const char *patches, *class_token, *positions;
  const char *norm1, *attention, *qkv, *q, *k, *v, *attention_out;  // qkv: one layer; null: three
  const char *scale1, *norm2, *fc1, *fc2, *scale2;                  // scale: of a layer's result; null: none
  const char *norm, *pooled_norm, *head;
  bool timm;
};

constexpr VitNames kVitNames[] = {
    {.known_by = "vit.encoder.layer.0.attention.output.dense.bias",
     .patches = "vit.embeddings.patch_embeddings.projection",
     .class_token = "vit.embeddings.cls_token",
     .positions = "vit.embeddings.position_embeddings",
     .norm1 = "vit.encoder.layer.{}.layernorm_before",
     .attention = "vit.encoder.layer.{}.attention.attention",
     .qkv = nullptr,
     .q = "vit.encoder.layer.{}.attention.attention.query",
     .k = "vit.encoder.layer.{}.attention.attention.key",
     .v = "vit.encoder.layer.{}.attention.attention.value",
     .attention_out = "vit.encoder.layer.{}.attention.output.dense",
     .scale1 = nullptr,
     .norm2 = "vit.encoder.layer.{}.layernorm_after",
     .fc1 = "vit.encoder.layer.{}.intermediate.dense",
     .fc2 = "vit.encoder.layer.{}.output.dense",
     .scale2 = nullptr,
     .norm = "vit.layernorm",
     .pooled_norm = nullptr,
     .head = "classifier",
     .timm = false},
    // The same model as later releases of the library call it.
    {.known_by = "vit.layers.0.attention.o_proj.bias",
     .patches = "vit.embeddings.patch_embeddings.projection",
     .class_token = "vit.embeddings.cls_token",
     .positions = "vit.embeddings.position_embeddings",
     .norm1 = "vit.layers.{}.layernorm_before",
     .attention = "vit.layers.{}.attention",
     .qkv = nullptr,
     .q = "vit.layers.{}.attention.q_proj",
     .k = "vit.layers.{}.attention.k_proj",
     .v = "vit.layers.{}.attention.v_proj",
     .attention_out = "vit.layers.{}.attention.o_proj",
     .scale1 = nullptr,
     .norm2 = "vit.layers.{}.layernorm_after",
     .fc1 = "vit.layers.{}.mlp.fc1",
     .fc2 = "vit.layers.{}.mlp.fc2",
     .scale2 = nullptr,
     .norm = "vit.layernorm",
     .pooled_norm = nullptr,
     .head = "classifier",
     .timm = false},
    {.known_by = "blocks.0.attn.proj.bias",
     .patches = "patch_embed.proj",
     .class_token = "cls_token",
     .positions = "pos_embed",
     .norm1 = "blocks.{}.norm1",
     .attention = "blocks.{}.attn",
     .qkv = "blocks.{}.attn.qkv",
     .q = nullptr,
     .k = nullptr,
     .v = nullptr,
     .attention_out = "blocks.{}.attn.proj",
     .scale1 = "blocks.{}.ls1.gamma",
     .norm2 = "blocks.{}.norm2",
     .fc1 = "blocks.{}.mlp.fc1",
     .fc2 = "blocks.{}.mlp.fc2",
     .scale2 = "blocks.{}.ls2.gamma",
     .norm = "norm",
     .pooled_norm = "fc_norm",
     .head = "head",
     .timm = true},
};

}  // namespace tessera
