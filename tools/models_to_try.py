# SPDX-License-Identifier: Apache-2.0
"""What try_models.py exports: names of timm and transformers, with what makes each small.

TIMM: timm's name -> "size" of the picture, the rest is given to timm.
TRANSFORMERS: name -> class, its configuration (given the module), its inputs (a shape, or a dict of shapes and of
`ids(...)`), the outputs that count ("": what forward gives). Random weights make any of them meaningless; only the
structure counts."""

import dataclasses


@dataclasses.dataclass
class Ids:
    """Whole numbers from `least` on, below `below`."""

    shape: tuple
    least: int
    below: int


@dataclasses.dataclass
class Fixed:
    """Not an input: whole numbers, or a word of forward, that the export holds as they are."""

    values: object


def ids(*shape, least=3, below=90):
    return Ids(shape, least, below)


ONES = {"depths": (1, 1, 1, 1)}
DEEP = {"img_size": 64, "size": 64, "depth": 2}

TIMM = {
    # Convolutions.
    "resnet18": {"size": 64},
    "resnext50_32x4d": {"size": 64, "layers": (1, 1, 1, 1)},
    "resnetv2_50x1_bit": {"size": 64},
    "regnetx_002": {"size": 64},
    "regnety_002": {"size": 64},
    "seresnext26d_32x4d": {"size": 64, "layers": (1, 1, 1, 1)},
    "resnest14d": {"size": 64},
    "res2net50_26w_4s": {"size": 64, "layers": (1, 1, 1, 1)},
    "skresnet18": {"size": 64},
    "ecaresnet26t": {"size": 64, "layers": (1, 1, 1, 1)},
    "convnext_atto": {"size": 64, "depths": (1, 1, 2, 1)},
    "convnextv2_atto": {"size": 64, "depths": (1, 1, 2, 1)},
    "mobilenetv3_small_050": {"size": 64},
    "mobilenetv4_conv_small_035": {"size": 64},
    "mobilenetv4_hybrid_medium": {"size": 64},
    "efficientnet_b0": {"size": 64},
    "tf_efficientnetv2_b0": {"size": 64},
    "mobileone_s0": {"size": 64},
    "repvgg_a0": {"size": 64},
    "ghostnet_050": {"size": 64},
    "hgnetv2_b0": {"size": 64},
    "densenet121": {"size": 64, "block_config": (2, 2, 2, 2)},
    "dla34": {"size": 64},
    "hrnet_w18_small": {"size": 64},
    "dm_nfnet_f0": {"size": 64},
    "cspdarknet53": {"size": 64},
    "inception_next_atto": {"size": 64},
    "starnet_s1": {"size": 64},
    "mambaout_femto": {"size": 64, "depths": (1, 1, 1, 1)},
    # Both.
    "efficientvit_b0": {"size": 64},
    "efficientvit_m0": {"size": 128, "img_size": 128},
    "mobilevit_xxs": {"size": 64},
    "mobilevitv2_050": {"size": 64},
    "fastvit_t8": {"size": 64},
    "repvit_m0_9": {"size": 64},
    "edgenext_xx_small": {"size": 64},
    "poolformer_s12": {"size": 64},
    "poolformerv2_s12": {"size": 64},
    "caformer_s18": {"size": 64},
    "efficientformer_l1": {"size": 224, "depths": (1, 1, 1, 2)},
    "efficientformerv2_s0": {"size": 224, "depths": (1, 1, 2, 2)},
    "swiftformer_xs": {"size": 64},
    "shvit_s1": {"size": 128},
    "nextvit_small": {"size": 64},
    "visformer_tiny": {"size": 64, "img_size": 64, "depth": (1, 1, 1)},
    "botnet26t_256": {"size": 256},
    "halonet26t": {"size": 256},
    "lambda_resnet26t": {"size": 256},
    "sebotnet33ts_256": {"size": 256},
    "levit_128s": {"size": 224, "depth": (1, 1, 1)},
    "levit_conv_128s": {"size": 224, "depth": (1, 1, 1)},
    "tiny_vit_5m_224": {"size": 224, "depths": (1, 1, 2, 1)},
    "maxvit_tiny_tf_224": {"size": 224, **ONES},
    "maxxvit_rmlp_nano_rw_256": {"size": 256, **ONES},
    "coatnet_0_rw_224": {"size": 224, **ONES},
    "coatnet_rmlp_nano_rw_224": {"size": 224, **ONES},
    "coat_tiny": {"size": 64, "img_size": 64, "serial_depths": (1, 1, 1, 1), "parallel_depth": 1},
    "coat_lite_tiny": {"size": 64, "img_size": 64},
    "vit_tiny_r_s16_p8_224": {"size": 64, "img_size": 64, "depth": 2},
    # Windows and pyramids.
    "swin_tiny_patch4_window7_224": {"size": 112, "img_size": 112, "depths": (2, 2, 2, 2)},
    "swin_s3_tiny_224": {"size": 112, "img_size": 112, "depths": (2, 2, 2, 2), "window_size": (7, 7, 7, 3)},
    "swinv2_tiny_window8_256": {"size": 128, "img_size": 128, "depths": (2, 2, 2, 2)},
    "swinv2_cr_tiny_224": {"size": 224, "depths": (2, 2, 2, 2)},
    "mvitv2_tiny": {"size": 64, "img_size": 64},
    "hiera_tiny_224": {"size": 224, "stages": (1, 1, 1, 1)},
    "sam2_hiera_tiny": {"size": 256, "stages": (1, 1, 2, 1), "global_att_blocks": (3,)},
    "pvt_v2_b0": {"size": 64},
    "twins_svt_small": {"size": 64, "img_size": 64, "depths": (1, 1, 2, 1)},
    "twins_pcpvt_small": {"size": 64, "img_size": 64, **ONES},
    "davit_tiny": {"size": 64, **ONES},
    "gcvit_xxtiny": {"size": 224},
    "focalnet_tiny_srf": {"size": 64},
    "focalnet_tiny_lrf": {"size": 64},
    "nest_tiny_jx": {"size": 224},
    "pit_ti_distilled_224": {"size": 224, "depth": (1, 1, 1)},
    "crossvit_9_dagger_240": {"size": 240},
    "rdnet_tiny": {"size": 64},
    # Plain, or nearly so.
    "vit_tiny_patch16_224": DEEP,
    "vit_small_patch14_dinov2": {"size": 56, "img_size": 56, "depth": 2},
    "vit_small_patch14_reg4_dinov2": {"size": 56, "img_size": 56, "depth": 2},
    "vit_small_patch16_dinov3": DEEP,
    "vit_base_patch16_siglip_224": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "vit_base_patch16_clip_224": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "vit_relpos_small_patch16_224": DEEP,
    "vit_srelpos_small_patch16_224": DEEP,
    "vit_little_patch16_reg4_gap_256": DEEP,
    "vit_base_patch16_xp_224": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "vit_small_patch16_rope_mixed_224": DEEP,
    "flexivit_small": DEEP,
    "naflexvit_base_patch16_gap": {"size": 64, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "beit_base_patch16_224": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "beitv2_base_patch16_224": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "deit_tiny_distilled_patch16_224": DEEP,
    "deit3_small_patch16_224": DEEP,
    "eva02_tiny_patch14_224": {"size": 56, "img_size": 56, "depth": 2},
    "vit_pe_core_tiny_patch16_384": {**DEEP},
    "aimv2_large_patch14_224": {"size": 56, "img_size": 56, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "cait_xxs24_224": DEEP,
    "convit_tiny": {"size": 64, "img_size": 64, "depth": 3, "local_up_to_layer": 2},
    "xcit_nano_12_p16_224": {"size": 64, "depth": 2},
    "tnt_s_patch16_224": DEEP,
    "volo_d1_224": {"size": 64, "img_size": 64},
    "samvit_base_patch16": {
        "size": 256,
        "img_size": 256,
        "depth": 3,
        "embed_dim": 96,
        "num_heads": 3,
        "global_attn_indexes": (2,),
    },
    "vitamin_small_224": {"size": 64, "img_size": 64, "depth": 2},
    "mixer_s32_224": {"size": 64, "img_size": 64},
    "gmlp_ti16_224": {"size": 64, "img_size": 64},
    "resmlp_12_224": {"size": 64, "img_size": 64},
    "convmixer_768_32": {"size": 64},
}


def width(**more):
    sizes = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 192}
    return {**sizes, **more}


def vit(**more):
    return width(**{"image_size": 64, "patch_size": 16, **more})


def text(**more):
    return width(**{"vocab_size": 100, "max_position_embeddings": 64, **more})


def resnet(t, *stages):
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    return t.ResNetConfig(out_features=list(stages or ["stage4"]), **sizes)


def own_backbone(t, *stages):
    return {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": resnet(t, *stages),
    }


def detector(**more):
    sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    return {**sizes, "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, **more}


def dinov2(t, **more):
    return t.Dinov2Config(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=3,
        image_size=56,
        patch_size=14,
        out_indices=[1, 2, 3, 4],
        **more,
    )


def small_swin(**more):
    sizes = {"image_size": 128, "patch_size": 4, "embed_dim": 24, "depths": [2, 2, 2, 2], "num_heads": [1, 2, 3, 4]}
    return {**sizes, "window_size": 4, **more}


def rt_detr(t):
    backbone = t.RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    return {
        "backbone_config": backbone,
        "use_pretrained_backbone": False,
        "encoder_hidden_dim": 64,
        "encoder_in_channels": [32, 48, 64],
        "feat_strides": [8, 16, 32],
        "encoder_ffn_dim": 128,
        "encoder_attention_heads": 4,
        "d_model": 64,
        "num_queries": 10,
        "decoder_in_channels": [64, 64, 64],
        "decoder_ffn_dim": 128,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "anchor_image_size": None,
        "num_denoising": 0,
    }


def mask_former(t, decoder):
    return {
        "backbone_config": t.SwinConfig(**small_swin(), out_features=["stage1", "stage2", "stage3", "stage4"]),
        "num_queries": 10,
        **decoder,
    }


IMAGE = (1, 3, 64, 64)
SWIN_IMAGE = (1, 3, 128, 128)
MASKED = {"input_ids": ids(1, 12), "attention_mask": ids(1, 12, least=1, below=2)}
LAST = ["last_hidden_state"]
BOXES = ["logits", "pred_boxes"]

TRANSFORMERS = {
    # Classes and features of pictures.
    "hf:vit": ("ViTModel", lambda t: t.ViTConfig(**vit()), IMAGE, LAST),
    "hf:deit": ("DeiTModel", lambda t: t.DeiTConfig(**vit()), IMAGE, LAST),
    "hf:beit": (
        "BeitModel",
        lambda t: t.BeitConfig(**vit(use_relative_position_bias=True, layer_scale_init_value=0.1)),
        IMAGE,
        LAST,
    ),
    "hf:data2vec_vision": (
        "Data2VecVisionModel",
        lambda t: t.Data2VecVisionConfig(**vit(use_shared_relative_position_bias=True)),
        IMAGE,
        LAST,
    ),
    "hf:dinov2": ("Dinov2Model", lambda t: dinov2(t), (1, 3, 70, 56), LAST),
    "hf:dinov2_registers": (
        "Dinov2WithRegistersModel",
        lambda t: t.Dinov2WithRegistersConfig(
            hidden_size=96, num_hidden_layers=2, num_attention_heads=3, image_size=56, patch_size=14
        ),
        (1, 3, 56, 56),
        LAST,
    ),
    "hf:dinov3": ("DINOv3ViTModel", lambda t: t.DINOv3ViTConfig(**vit()), IMAGE, LAST),
    "hf:dinov3_convnext": (
        "DINOv3ConvNextModel",
        lambda t: t.DINOv3ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:ijepa": ("IJepaModel", lambda t: t.IJepaConfig(**vit()), IMAGE, LAST),
    "hf:vit_msn": ("ViTMSNModel", lambda t: t.ViTMSNConfig(**vit()), IMAGE, LAST),
    "hf:swin": ("SwinModel", lambda t: t.SwinConfig(**small_swin()), SWIN_IMAGE, LAST),
    "hf:swinv2": ("Swinv2Model", lambda t: t.Swinv2Config(**small_swin()), SWIN_IMAGE, LAST),
    "hf:swin2sr": (
        "Swin2SRForImageSuperResolution",
        lambda t: t.Swin2SRConfig(
            embed_dim=24, depths=[2, 2], num_heads=[2, 2], image_size=32, window_size=8, upscale=2
        ),
        (1, 3, 32, 32),
        ["reconstruction"],
    ),
    "hf:donut_swin": ("DonutSwinModel", lambda t: t.DonutSwinConfig(**small_swin()), SWIN_IMAGE, LAST),
    "hf:convnext": (
        "ConvNextModel",
        lambda t: t.ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:convnextv2": (
        "ConvNextV2Model",
        lambda t: t.ConvNextV2Config(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:resnet": ("ResNetModel", lambda t: resnet(t), IMAGE, LAST),
    "hf:regnet": (
        "RegNetModel",
        lambda t: t.RegNetConfig(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], groups_width=8),
        IMAGE,
        LAST,
    ),
    "hf:bit": (
        "BitModel",
        lambda t: t.BitConfig(depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:focalnet": (
        "FocalNetModel",
        lambda t: t.FocalNetConfig(image_size=64, embed_dim=24, hidden_sizes=[24, 48, 96, 192], depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:poolformer": (
        "PoolFormerModel",
        lambda t: t.PoolFormerConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:pvt": (
        "PvtModel",
        lambda t: t.PvtConfig(
            image_size=64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4]
        ),
        IMAGE,
        LAST,
    ),
    "hf:pvt_v2": (
        "PvtV2Model",
        lambda t: t.PvtV2Config(
            image_size=64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4]
        ),
        IMAGE,
        LAST,
    ),
    "hf:cvt": (
        "CvtModel",
        lambda t: t.CvtConfig(embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 2, 3]),
        IMAGE,
        LAST,
    ),
    "hf:levit": (
        "LevitModel",
        lambda t: t.LevitConfig(
            image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8]
        ),
        IMAGE,
        LAST,
    ),
    "hf:mobilevit": (
        "MobileViTModel",
        lambda t: t.MobileViTConfig(
            image_size=64, hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64]
        ),
        IMAGE,
        LAST,
    ),
    "hf:mobilevitv2": ("MobileViTV2Model", lambda t: t.MobileViTV2Config(width_multiplier=0.5), IMAGE, LAST),
    "hf:mobilenet_v2": ("MobileNetV2Model", lambda t: t.MobileNetV2Config(depth_multiplier=0.35), IMAGE, LAST),
    "hf:efficientnet": (
        "EfficientNetModel",
        lambda t: t.EfficientNetConfig(width_coefficient=0.5, depth_coefficient=0.3, hidden_dim=640),
        IMAGE,
        LAST,
    ),
    "hf:swiftformer": (
        "SwiftFormerModel",
        lambda t: t.SwiftFormerConfig(embed_dims=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        IMAGE,
        LAST,
    ),
    "hf:hiera": (
        "HieraModel",
        lambda t: t.HieraConfig(
            image_size=[64, 64], embed_dim=24, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8], mlp_ratio=2.0
        ),
        IMAGE,
        LAST,
    ),
    "hf:hgnet_v2": (
        "HGNetV2ForImageClassification",
        lambda t: t.HGNetV2Config(),
        IMAGE,
        ["logits"],
    ),
    # Pictures and texts.
    "hf:clip_vision": ("CLIPVisionModel", lambda t: t.CLIPVisionConfig(**vit()), IMAGE, LAST),
    "hf:clip_text": ("CLIPTextModel", lambda t: t.CLIPTextConfig(**text()), {"input_ids": ids(1, 12)}, LAST),
    "hf:siglip_vision": ("SiglipVisionModel", lambda t: t.SiglipVisionConfig(**vit()), IMAGE, LAST),
    "hf:siglip_text": ("SiglipTextModel", lambda t: t.SiglipTextConfig(**text()), {"input_ids": ids(1, 64)}, LAST),
    "hf:blip_vision": ("BlipVisionModel", lambda t: t.BlipVisionConfig(**vit()), IMAGE, LAST),
    "hf:blip_text": (
        "BlipTextModel",
        lambda t: t.BlipTextConfig(**text(encoder_hidden_size=96, is_decoder=False)),
        {"input_ids": ids(1, 12)},
        LAST,
    ),
    "hf:blip2_vision": ("Blip2VisionModel", lambda t: t.Blip2VisionConfig(**vit()), IMAGE, LAST),
    "hf:groupvit": (
        "GroupViTVisionModel",
        lambda t: t.GroupViTVisionConfig(
            hidden_size=96,
            intermediate_size=192,
            image_size=64,
            depths=[1, 1, 1],
            num_hidden_layers=3,
            num_attention_heads=3,
            num_group_tokens=[16, 8, 0],
            num_output_groups=[16, 8, 0],
        ),
        IMAGE,
        LAST,
    ),
    "hf:owlvit": (
        "OwlViTForObjectDetection",
        lambda t: t.OwlViTConfig(text_config=text(hidden_act="quick_gelu"), vision_config=vit(), projection_dim=96),
        {"input_ids": ids(1, 12), "pixel_values": IMAGE},
        BOXES,
    ),
    "hf:owlv2": ("Owlv2VisionModel", lambda t: t.Owlv2VisionConfig(**vit()), IMAGE, LAST),
    "hf:clipseg": (
        "CLIPSegForImageSegmentation",
        lambda t: t.CLIPSegConfig(
            text_config=text(),
            vision_config=vit(num_hidden_layers=4),
            projection_dim=64,
            extract_layers=[1, 2, 3],
            reduce_dim=32,
            decoder_intermediate_size=64,
        ),
        {"input_ids": ids(1, 12), "pixel_values": IMAGE},
        ["logits"],
    ),
    "hf:perceiver": (
        "PerceiverForImageClassificationLearned",
        lambda t: t.PerceiverConfig(
            image_size=16, num_latents=16, d_latents=64, num_self_attends_per_block=2, num_self_attention_heads=4
        ),
        (1, 3, 16, 16),
        ["logits"],
    ),
    # Boxes.
    "hf:detr": (
        "DetrForObjectDetection",
        lambda t: t.DetrConfig(**own_backbone(t), **detector(num_queries=10)),
        IMAGE,
        BOXES,
    ),
    "hf:conditional_detr": (
        "ConditionalDetrForObjectDetection",
        lambda t: t.ConditionalDetrConfig(**own_backbone(t), **detector(num_queries=10)),
        IMAGE,
        BOXES,
    ),
    "hf:deformable_detr": (
        "DeformableDetrForObjectDetection",
        lambda t: t.DeformableDetrConfig(**own_backbone(t, "stage2", "stage3", "stage4"), **detector(num_queries=10)),
        SWIN_IMAGE,
        BOXES,
    ),
    "hf:deformable_detr_two_stage": (
        "DeformableDetrForObjectDetection",
        lambda t: t.DeformableDetrConfig(
            **own_backbone(t, "stage2", "stage3", "stage4"),
            **detector(num_queries=10, two_stage=True, with_box_refine=True, two_stage_num_proposals=10),
        ),
        SWIN_IMAGE,
        BOXES,
    ),
    "hf:table_transformer": (
        "TableTransformerForObjectDetection",
        lambda t: t.TableTransformerConfig(**own_backbone(t), **detector(num_queries=10)),
        IMAGE,
        BOXES,
    ),
    "hf:rt_detr": ("RTDetrForObjectDetection", lambda t: t.RTDetrConfig(**rt_detr(t)), (1, 3, 96, 96), BOXES),
    "hf:rt_detr_v2": ("RTDetrV2ForObjectDetection", lambda t: t.RTDetrV2Config(**rt_detr(t)), (1, 3, 96, 96), BOXES),
    "hf:d_fine": ("DFineForObjectDetection", lambda t: t.DFineConfig(**rt_detr(t), eval_idx=-1), (1, 3, 96, 96), BOXES),
    "hf:yolos": (
        "YolosForObjectDetection",
        lambda t: t.YolosConfig(**width(image_size=[64, 64], num_detection_tokens=10)),
        (1, 3, 96, 64),
        BOXES,
    ),
    # Masks and depths.
    "hf:segformer": (
        "SegformerForSemanticSegmentation",
        lambda t: t.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], decoder_hidden_size=64),
        IMAGE,
        ["logits"],
    ),
    "hf:maskformer": (
        "MaskFormerForInstanceSegmentation",
        lambda t: t.MaskFormerConfig(
            **mask_former(t, {}),
            fpn_feature_size=32,
            mask_feature_size=32,
            decoder_config=t.DetrConfig(**detector(num_queries=10)),
        ),
        SWIN_IMAGE,
        ["class_queries_logits", "masks_queries_logits"],
    ),
    "hf:mask2former": (
        "Mask2FormerForUniversalSegmentation",
        lambda t: t.Mask2FormerConfig(
            **mask_former(t, {}),
            feature_size=32,
            mask_feature_size=32,
            hidden_dim=32,
            encoder_feedforward_dim=64,
            encoder_layers=2,
            decoder_layers=3,
            num_attention_heads=4,
            dim_feedforward=64,
        ),
        SWIN_IMAGE,
        ["class_queries_logits", "masks_queries_logits"],
    ),
    "hf:upernet_swin": (
        "UperNetForSemanticSegmentation",
        lambda t: t.UperNetConfig(
            backbone_config=t.SwinConfig(**small_swin(), out_features=["stage1", "stage2", "stage3", "stage4"]),
            hidden_size=32,
            auxiliary_in_channels=96,
            auxiliary_channels=32,
            pool_scales=[1, 2],
        ),
        SWIN_IMAGE,
        ["logits"],
    ),
    "hf:upernet_convnext": (
        "UperNetForSemanticSegmentation",
        lambda t: t.UperNetConfig(
            backbone_config=t.ConvNextConfig(
                hidden_sizes=[16, 32, 48, 64],
                depths=[1, 1, 1, 1],
                out_features=["stage1", "stage2", "stage3", "stage4"],
            ),
            hidden_size=32,
            auxiliary_in_channels=48,
            auxiliary_channels=32,
            pool_scales=[1, 2],
        ),
        IMAGE,
        ["logits"],
    ),
    "hf:sam_encoder": (
        "SamVisionModel",
        lambda t: t.SamVisionConfig(
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=3,
            image_size=256,
            window_size=5,
            output_channels=32,
            global_attn_indexes=[1],
        ),
        (1, 3, 256, 256),
        LAST,
    ),
    "hf:sam": (
        "SamModel",
        lambda t: t.SamConfig(
            vision_config={
                "hidden_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 3,
                "image_size": 128,
                "window_size": 5,
                "output_channels": 32,
                "global_attn_indexes": [1],
                "num_pos_feats": 16,
            },
            prompt_encoder_config={"hidden_size": 32, "image_size": 128, "image_embedding_size": 8},
            mask_decoder_config={
                "hidden_size": 32,
                "mlp_dim": 64,
                "iou_head_hidden_dim": 32,
                "num_attention_heads": 4,
            },
        ),
        {"pixel_values": (1, 3, 128, 128), "input_points": (1, 1, 2, 2)},
        ["pred_masks", "iou_scores"],
    ),
    "hf:vitmatte": (
        "VitMatteForImageMatting",
        lambda t: t.VitMatteConfig(
            backbone_config=t.VitDetConfig(
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=3,
                num_channels=4,
                image_size=64,
                pretrain_image_size=64,
                patch_size=16,
                out_features=["stage2"],
                window_block_indices=[0],
                window_size=3,
                use_relative_position_embeddings=True,
            ),
            hidden_size=48,
            fusion_hidden_sizes=[32, 24, 16, 8],
        ),
        (1, 4, 64, 64),
        ["alphas"],
    ),
    "hf:dpt": (
        "DPTForDepthEstimation",
        lambda t: t.DPTConfig(
            **vit(num_hidden_layers=4),
            backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[16, 32, 48, 64],
            fusion_hidden_size=32,
            is_hybrid=False,
        ),
        IMAGE,
        ["predicted_depth"],
    ),
    "hf:depth_anything": (
        "DepthAnythingForDepthEstimation",
        lambda t: t.DepthAnythingConfig(
            backbone_config=dinov2(t, reshape_hidden_states=False, apply_layernorm=True),
            patch_size=14,
            reassemble_hidden_size=96,
            neck_hidden_sizes=[16, 32, 48, 64],
            fusion_hidden_size=32,
        ),
        (1, 3, 70, 56),
        ["predicted_depth"],
    ),
    "hf:zoedepth": (
        "ZoeDepthForDepthEstimation",
        lambda t: t.ZoeDepthConfig(
            backbone_config=t.BeitConfig(
                **vit(num_hidden_layers=4),
                out_indices=[1, 2, 3, 4],
                reshape_hidden_states=False,
                use_relative_position_bias=True,
            ),
            neck_hidden_sizes=[16, 32, 48, 64],
            fusion_hidden_size=32,
            bottleneck_features=32,
            num_relative_features=8,
            bin_embedding_dim=16,
            num_attractors=[4, 2, 2, 1],
        ),
        IMAGE,
        ["predicted_depth"],
    ),
    "hf:glpn": (
        "GLPNForDepthEstimation",
        lambda t: t.GLPNConfig(
            depths=[1, 1, 1, 1],
            hidden_sizes=[16, 32, 48, 64],
            num_attention_heads=[1, 2, 3, 4],
            decoder_hidden_size=32,
        ),
        IMAGE,
        ["predicted_depth"],
    ),
    "hf:vitpose": (
        "VitPoseForPoseEstimation",
        lambda t: t.VitPoseConfig(
            backbone_config=t.VitPoseBackboneConfig(
                hidden_size=96,
                num_hidden_layers=2,
                num_attention_heads=3,
                image_size=[64, 48],
                patch_size=[16, 16],
                out_indices=[2],
            )
        ),
        (1, 3, 64, 48),
        ["heatmaps"],
    ),
    # Films, sound, texts.
    "hf:videomae": (
        "VideoMAEModel",
        lambda t: t.VideoMAEConfig(**vit(num_frames=4)),
        (1, 4, 3, 64, 64),
        LAST,
    ),
    "hf:timesformer": (
        "TimesformerModel",
        lambda t: t.TimesformerConfig(**vit(num_frames=4)),
        (1, 4, 3, 64, 64),
        LAST,
    ),
    "hf:vivit": (
        "VivitModel",
        lambda t: t.VivitConfig(**width(image_size=64, num_frames=4, tubelet_size=[2, 16, 16])),
        (1, 4, 3, 64, 64),
        LAST,
    ),
    "hf:ast": (
        "ASTModel",
        lambda t: t.ASTConfig(**width(max_length=64, num_mel_bins=32)),
        (1, 64, 32),
        LAST,
    ),
    "hf:whisper_encoder": (
        "models.whisper.modeling_whisper.WhisperEncoder",
        lambda t: t.WhisperConfig(
            **detector(d_model=96, encoder_attention_heads=3), max_source_positions=50, num_mel_bins=80
        ),
        (1, 80, 100),
        LAST,
    ),
    "hf:whisper": (
        "WhisperModel",
        lambda t: t.WhisperConfig(
            **detector(), max_source_positions=50, num_mel_bins=80, vocab_size=100, pad_token_id=0, use_cache=False
        ),
        {
            "input_features": (1, 80, 100),
            "decoder_input_ids": ids(1, 8),
            "decoder_attention_mask": ids(1, 8, least=1, below=2),
        },
        LAST,
    ),
    "hf:wav2vec2": (
        "Wav2Vec2Model",
        lambda t: t.Wav2Vec2Config(
            **width(), conv_dim=[32, 32], conv_kernel=[10, 3], conv_stride=[5, 2], num_conv_pos_embeddings=16
        ),
        (1, 800),
        LAST,
    ),
    "hf:bert": ("BertModel", lambda t: t.BertConfig(**text()), {"input_ids": ids(1, 12)}, LAST),
    "hf:deberta": (
        "DebertaModel",
        lambda t: t.DebertaConfig(**text(relative_attention=True, pos_att_type=["c2p", "p2c"])),
        {"input_ids": ids(1, 12)},
        LAST,
    ),
    "hf:deberta_v2": (
        "DebertaV2Model",
        lambda t: t.DebertaV2Config(
            **text(
                relative_attention=True,
                pos_att_type=["c2p", "p2c"],
                position_buckets=8,
                norm_rel_ebd="layer_norm",
                share_att_key=True,
            )
        ),
        {"input_ids": ids(1, 12)},
        LAST,
    ),
    "hf:gemma2": (
        "Gemma2Model",
        lambda t: t.Gemma2Config(
            **text(num_attention_heads=4, num_key_value_heads=2, head_dim=24, sliding_window=8, use_cache=False)
        ),
        MASKED,
        LAST,
    ),
    "hf:gemma3_text": (
        "Gemma3TextModel",
        lambda t: t.Gemma3TextConfig(
            **text(num_attention_heads=4, num_key_value_heads=2, head_dim=24, sliding_window=8, use_cache=False)
        ),
        MASKED,
        LAST,
    ),
    "hf:t5_encoder": (
        "T5EncoderModel",
        lambda t: t.T5Config(vocab_size=100, d_model=96, d_kv=24, d_ff=192, num_layers=2, num_heads=4),
        {"input_ids": ids(1, 12)},
        LAST,
    ),
    "hf:qwen2": (
        "Qwen2Model",
        lambda t: t.Qwen2Config(**text(num_key_value_heads=1, use_cache=False)),
        MASKED,
        LAST,
    ),
}
