# SPDX-License-Identifier: Apache-2.0
"""The models that make.py exports, each as small as its structure allows: width 32, depth 2, a few tokens.

Pictures are 3x16x16 in patches of 4 (16 tokens), texts are 8 tokens of a vocabulary of 64.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import timm.layers
import timm.models.beit
import timm.models.deit
import timm.models.eva
import timm.models.vision_transformer
import torch
import transformers
from torch import nn

IMAGE, PATCH, TOKENS, VOCABULARY = 16, 4, 8, 64
WIDTH, DEPTH, HEADS, MLP, CLASSES = 32, 2, 2, 64, 10
END_OF_TEXT = VOCABULARY - 1


def image(random, batch):
    return random.standard_normal((batch, 3, IMAGE, IMAGE), dtype=np.float32)


def ids(random, batch):
    """Token ids; in every row one end of text, at another place."""
    numbers = random.integers(3, END_OF_TEXT, (batch, TOKENS))
    numbers[np.arange(batch), TOKENS - 1 - np.arange(batch)] = END_OF_TEXT
    return numbers


def mask(random, batch):
    """Attention mask: the last tokens of every row but the first are padding."""
    return (np.arange(TOKENS) < TOKENS - 2 * np.arange(batch)[:, None]).astype(np.int64)


def left_mask(random, batch):
    """Attention mask of a decoder: padding comes first, and its queries see no key at all."""
    return np.flip(mask(random, batch), axis=1).copy()


def segments(random, batch):
    return random.integers(0, 2, (batch, TOKENS))


@dataclasses.dataclass
class Family:
    make: Callable
    inputs: dict
    exporters: tuple = ("ts17", "dyn20", "dyn23")
    outputs: tuple = ()  # fields of the result of a transformers model
    options: dict = dataclasses.field(default_factory=dict)  # further arguments of its forward
    open_sequence: tuple = ()  # exporters whose files leave the length of the text open, too
    dtype: torch.dtype = torch.float32  # of weights and values

    @property
    def output_names(self):
        return list(self.outputs) or ["logits"]


def timm_vit(**options):
    return timm.models.vision_transformer.VisionTransformer(
        img_size=IMAGE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, **{"mlp_ratio": MLP / WIDTH, "num_classes": CLASSES, **options}
    )


def deit_distilled():
    return timm.models.deit.VisionTransformerDistilled(
        img_size=IMAGE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, mlp_ratio=MLP / WIDTH, num_classes=CLASSES
    )


def eva02(**options):
    return timm.models.eva.Eva(
        img_size=IMAGE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, mlp_ratio=MLP / WIDTH, num_classes=CLASSES,
        swiglu_mlp=True, use_rot_pos_emb=True, ref_feat_shape=(IMAGE // PATCH, IMAGE // PATCH), **options,
    )  # fmt: skip


def beit(fused=True, **options):
    model = timm.models.beit.Beit(
        img_size=IMAGE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, mlp_ratio=MLP / WIDTH, num_classes=CLASSES,
        use_abs_pos_emb=False, init_values=0.1, **options,
    )  # fmt: skip
    for block in model.blocks:
        block.attn.fused_attn = fused
    return model


VISION = dict(hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=DEPTH, num_attention_heads=HEADS, image_size=IMAGE, patch_size=PATCH)
TEXT = dict(hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=DEPTH, num_attention_heads=HEADS, vocab_size=VOCABULARY, max_position_embeddings=TOKENS)
DECODER = dict(TEXT, num_attention_heads=4, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, use_cache=False)
PIXELS, TEXT_IDS = {"pixel_values": image}, {"input_ids": ids}
MASKED_IDS = {"input_ids": ids, "attention_mask": mask}
PADDED_IDS = {"input_ids": ids, "attention_mask": left_mask}


def of_config(model, config, attention="sdpa", **options):
    def make():
        return model._from_config(config(**options), attn_implementation=attention)

    return make


FAMILIES = {
    "vit": Family(timm_vit, {"image": image}, ("ts14", "ts17", "dyn18", "dyn20", "dyn23")),
    "deit": Family(deit_distilled, {"image": image}, ("ts17", "dyn18")),
    "rmsvit": Family(
        lambda: timm_vit(norm_layer=timm.layers.RmsNorm, qk_norm=True, act_layer=nn.SiLU, class_token=False, global_pool="avg"), {"image": image}, ("dyn18", "dyn23")
    ),
    "dinov2": Family(lambda: timm_vit(reg_tokens=4, no_embed_class=True, init_values=1e-5, global_pool="token"), {"image": image}, ("ts14", "dyn18", "dyn23")),
    "dinov2_swiglu": Family(
        lambda: timm_vit(reg_tokens=4, no_embed_class=True, init_values=1e-5, mlp_layer=timm.layers.SwiGLUPacked, act_layer=nn.SiLU, mlp_ratio=3),
        {"image": image}, ("ts17", "dyn20"),
    ),
    "dinov2_hf": Family(
        of_config(transformers.Dinov2WithRegistersModel, transformers.Dinov2WithRegistersConfig, **VISION, mlp_ratio=2, num_register_tokens=4),
        PIXELS, ("dyn20",), ("last_hidden_state", "pooler_output"),
    ),
    "siglip": Family(lambda: timm_vit(class_token=False, global_pool="map", act_layer="gelu_tanh"), {"image": image}, ("ts14", "ts17", "dyn18", "dyn23")),
    "siglip_hf": Family(
        of_config(transformers.SiglipVisionModel, transformers.SiglipVisionConfig, **VISION), PIXELS, ("ts17", "dyn20", "dyn23"), ("last_hidden_state", "pooler_output")
    ),
    "clip_vision": Family(
        of_config(transformers.CLIPVisionModelWithProjection, transformers.CLIPVisionConfig, **VISION, projection_dim=16),
        PIXELS, ("ts14", "dyn18", "dyn23"), ("image_embeds", "last_hidden_state"),
    ),
    "clip_text": Family(
        of_config(transformers.CLIPTextModelWithProjection, transformers.CLIPTextConfig, **TEXT, projection_dim=16, eos_token_id=END_OF_TEXT),
        TEXT_IDS, ("ts14", "dyn18", "dyn23"), ("text_embeds", "last_hidden_state"),
    ),
    "clip_text_eager": Family(
        of_config(transformers.CLIPTextModelWithProjection, transformers.CLIPTextConfig, "eager", **TEXT, projection_dim=16, eos_token_id=END_OF_TEXT),
        MASKED_IDS, ("ts17", "dyn20"), ("text_embeds",),
    ),
    "eva02": Family(lambda: eva02(qkv_fused=False, scale_mlp=True), {"image": image}, ("ts14", "ts17", "dyn18", "dyn23")),
    "eva02_fused": Family(lambda: eva02(qkv_fused=True), {"image": image}, ("ts17", "dyn20")),
    "beit": Family(lambda: beit(use_rel_pos_bias=True), {"image": image}, ("ts14", "ts17")),
    "beit_plain": Family(lambda: beit(False, use_rel_pos_bias=True), {"image": image}, ("ts17", "dyn18", "dyn23")),
    "beit_shared": Family(lambda: beit(use_shared_rel_pos_bias=True), {"image": image}, ("ts17", "dyn20")),
    "bert": Family(
        of_config(transformers.BertForSequenceClassification, transformers.BertConfig, **TEXT, num_labels=5),
        {**MASKED_IDS, "token_type_ids": segments}, ("ts14", "ts17", "dyn18", "dyn23"), ("logits",), open_sequence=("ts17",),
    ),
    "bert_eager": Family(
        of_config(transformers.BertModel, transformers.BertConfig, "eager", **TEXT), MASKED_IDS, ("ts17", "dyn20"), ("last_hidden_state", "pooler_output")
    ),
    "llama": Family(
        of_config(transformers.LlamaForCausalLM, transformers.LlamaConfig, **DECODER, num_key_value_heads=2),
        PADDED_IDS, ("ts17", "dyn18", "dyn23"), ("logits",), {"use_cache": False}, ("dyn18",),
    ),
    "llama_eager": Family(
        of_config(transformers.LlamaForCausalLM, transformers.LlamaConfig, "eager", **DECODER, num_key_value_heads=2),
        TEXT_IDS, ("dyn20",), ("logits",), {"use_cache": False},
    ),
    "gemma": Family(
        of_config(transformers.GemmaForCausalLM, transformers.GemmaConfig, **DECODER, num_key_value_heads=1, head_dim=16),
        PADDED_IDS, ("ts17", "dyn20", "dyn23"), ("logits",), {"use_cache": False},
    ),
    "gemma2": Family(
        of_config(transformers.Gemma2ForCausalLM, transformers.Gemma2Config, "eager", **DECODER, num_key_value_heads=2, head_dim=8, sliding_window=4, query_pre_attn_scalar=8),
        PADDED_IDS, ("ts17", "dyn20"), ("logits",), {"use_cache": False},
    ),
    "vit_half": Family(timm_vit, {"image": image}, ("ts17", "dyn20"), dtype=torch.float16),
    "llama_bf16": Family(
        of_config(transformers.LlamaForCausalLM, transformers.LlamaConfig, **DECODER, num_key_value_heads=2),
        PADDED_IDS, ("dyn20",), ("logits",), {"use_cache": False}, dtype=torch.bfloat16,
    ),
}  # fmt: skip
