# SPDX-License-Identifier: Apache-2.0
"""More of models_to_try.py: the families that came later. The tables have its form."""

from models_to_try import BOXES, DEEP, IMAGE, LAST, MASKED, Fixed, detector, ids, own_backbone, text, vit, width

MORE_TIMM = {
    # Convolutions.
    "bat_resnext26ts": {"size": 256},
    "cs3darknet_focus_s": {"size": 64},
    "dpn48b": {"size": 64},
    "ese_vovnet19b_dw": {"size": 64},
    "fasternet_t0": {"size": 64},
    "fbnetv3_b": {"size": 64},
    "gcresnext26ts": {"size": 64},
    "ghostnetv2_100": {"size": 64},
    "ghostnetv3_050": {"size": 64},
    "hardcorenas_a": {"size": 64},
    "hgnet_tiny": {"size": 64},
    "inception_v4": {"size": 96},
    "lcnet_050": {"size": 64},
    "lcnetv2_small": {"size": 64},
    "legacy_xception": {"size": 64},
    "mixnet_s": {"size": 64},
    "mnasnet_050": {"size": 64},
    "mobilenetv1_100": {"size": 64},
    "mobilenetv2_035": {"size": 64},
    "mobilenet_edgetpu_v2_xs": {"size": 64},
    "mobilenetv4_conv_aa_medium": {"size": 64},
    "regnetz_005": {"size": 64},
    "repghostnet_050": {"size": 64},
    "resnetblur18": {"size": 64},
    "resnetaa34d": {"size": 64, "layers": (1, 1, 1, 1)},
    "resnetrs50": {"size": 64, "layers": (1, 1, 1, 1)},
    "resnet51q": {"size": 64},
    "rexnet_100": {"size": 64},
    "selecsls42": {"size": 64},
    "tinynet_e": {"size": 64},
    "tresnet_m": {"size": 64, "layers": (1, 1, 1, 1)},
    "vgg11_bn": {"size": 224},
    "vovnet39a": {"size": 64},
    "xception41": {"size": 64},
    "convnext_zepto_rms_ols": {"size": 64},
    # Both.
    "convformer_s18": {"size": 64},
    "coatnext_nano_rw_224": {"size": 224, "depths": (1, 1, 1, 1)},
    "cpubone_t0": {"size": 64},
    "eca_botnext26ts_256": {"size": 256},
    "efficientvim_m1": {"size": 64},
    "fastvit_mci0": {"size": 64},
    "hieradet_small": {"size": 256, "stages": (1, 1, 2, 1), "global_att_blocks": (3,)},
    "iformer_t": {"size": 64},
    "lowformer_b0": {"size": 64},
    "maxxvitv2_nano_rw_256": {"size": 256, "depths": (1, 1, 1, 1)},
    "mobilenetv5_base": {"size": 64},
    "resnet50_clip": {"size": 64, "img_size": 64},
    "sequencer2d_s": {"size": 64, "layers": (1, 1, 1, 1)},
    "vit_base_mci_224": {"size": 64, "img_size": 64, "depth": 2},
    "vit_base_resnet26d_224": {"size": 64, "img_size": 64, "depth": 2},
    # Plain, or nearly so.
    "beit3_base_patch16_224": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "deepseek_vit_412m_enc": {"size": 56, "img_size": 56, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "eva_giant_patch14_224": {"size": 56, "img_size": 56, "depth": 2, "embed_dim": 176, "num_heads": 2},
    "gemma4_vit_167m_enc": {"size": 96, "img_size": 96, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "gmixer_12_224": {"size": 64, "img_size": 64},
    "qwen3_vit_88m": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "vit_base_patch16_rope_reg1_gap_256": {**DEEP, "embed_dim": 192, "num_heads": 3},
    "vit_dpwee_patch16_reg1_gap_256": DEEP,
    "vit_intern300m_patch14_448": {"size": 56, "img_size": 56, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "vit_so400m_patch14_siglip_gap_224": {"size": 56, "img_size": 56, "depth": 2, "embed_dim": 144, "num_heads": 2},
    "vit_small_patch16_18x2_224": DEEP,
    "vit_pe_spatial_tiny_patch16_512": DEEP,
    "vit_wee_patch16_reg1_gap_256": DEEP,
}


GRID = {"grid_thw": Fixed([[1, 4, 4]])}


def decoder(**more):
    return text(**{"use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more})


def gpt(**more):
    sizes = {"vocab_size": 100, "n_positions": 64, "n_embd": 96, "n_layer": 2, "n_head": 3, "use_cache": False}
    return {**sizes, "bos_token_id": 1, "eos_token_id": 2, **more}


def sound(**more):
    return width(conv_dim=[32, 32], conv_kernel=[10, 3], conv_stride=[5, 2], num_conv_pos_embeddings=16, **more)


def seq2seq(**more):
    sizes = {"vocab_size": 100, "max_position_embeddings": 64, "use_cache": False, "pad_token_id": 0}
    return detector(**{**sizes, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, **more})


WORDS = {"input_ids": ids(1, 12)}
BOTH_WORDS = {"input_ids": ids(1, 12), "decoder_input_ids": ids(1, 8)}
SOUND = (1, 800)
FILM = (1, 4, 3, 64, 64)

MORE_TRANSFORMERS = {
    # Towers of models that see.
    "hf:siglip2_vision": (
        "Siglip2VisionModel",
        lambda t: t.Siglip2VisionConfig(**width(num_patches=16, patch_size=16)),
        {
            "pixel_values": (1, 16, 768),
            "pixel_attention_mask": Fixed([[1] * 16]),
            "spatial_shapes": Fixed([[4, 4]]),
        },
        LAST,
    ),
    "hf:internvl_vision": (
        "InternVLVisionModel",
        lambda t: t.InternVLVisionConfig(**vit(image_size=[64, 64], patch_size=[16, 16], use_qk_norm=True)),
        IMAGE,
        LAST,
    ),
    "hf:florence2_vision": (
        "models.florence2.modeling_florence2.Florence2VisionBackbone",
        lambda t: t.Florence2VisionConfig(
            depths=(1, 1, 1, 1),
            embed_dim=(32, 48, 64, 96),
            num_heads=(1, 2, 2, 3),
            num_groups=(1, 2, 2, 3),
            window_size=4,
            drop_path_rate=0.0,
        ),
        (1, 3, 128, 128),
        LAST,
    ),
    "hf:idefics2_vision": (
        "models.idefics2.modeling_idefics2.Idefics2VisionTransformer",
        lambda t: t.Idefics2VisionConfig(**vit()),
        IMAGE,
        LAST,
    ),
    "hf:idefics3_vision": ("Idefics3VisionTransformer", lambda t: t.Idefics3VisionConfig(**vit()), IMAGE, LAST),
    "hf:smolvlm_vision": ("SmolVLMVisionTransformer", lambda t: t.SmolVLMVisionConfig(**vit()), IMAGE, LAST),
    "hf:qwen2_vl_vision": (
        "models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel",
        lambda t: t.Qwen2VLVisionConfig(depth=2, embed_dim=96, hidden_size=96, num_heads=3, mlp_ratio=2),
        {"hidden_states": (16, 1176), **GRID},
        ["last_hidden_state", "pooler_output"],
    ),
    "hf:qwen2_5_vl_vision": (
        "models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel",
        lambda t: t.Qwen2_5_VLVisionConfig(
            depth=2, hidden_size=96, out_hidden_size=96, intermediate_size=192, num_heads=3, fullatt_block_indexes=[1]
        ),
        {"hidden_states": (16, 1176), **GRID},
        ["last_hidden_state", "pooler_output"],
    ),
    "hf:qwen3_vl_vision": (
        "models.qwen3_vl.modeling_qwen3_vl.Qwen3VLVisionModel",
        lambda t: t.Qwen3VLVisionConfig(
            depth=2,
            hidden_size=96,
            out_hidden_size=96,
            intermediate_size=192,
            num_heads=3,
            num_position_embeddings=64,
            deepstack_visual_indexes=[0],
        ),
        {"hidden_states": (16, 1536), **GRID},
        ["last_hidden_state", "pooler_output"],
    ),
    "hf:pixtral_vision": (
        "PixtralVisionModel",
        lambda t: t.PixtralVisionConfig(**vit(head_dim=32)),
        IMAGE,
        LAST,
    ),
    "hf:kosmos2_vision": (
        "models.kosmos2.modeling_kosmos2.Kosmos2VisionModel",
        lambda t: t.Kosmos2VisionConfig(**vit()),
        IMAGE,
        LAST,
    ),
    "hf:git_vision": ("GitVisionModel", lambda t: t.GitVisionConfig(**vit()), IMAGE, LAST),
    "hf:mlcd_vision": ("MLCDVisionModel", lambda t: t.MLCDVisionConfig(**vit()), IMAGE, LAST),
    "hf:aimv2_vision": ("Aimv2VisionModel", lambda t: t.Aimv2VisionConfig(**vit()), IMAGE, LAST),
    "hf:metaclip2_vision": ("MetaClip2VisionModel", lambda t: t.MetaClip2VisionConfig(**vit()), IMAGE, LAST),
    "hf:instructblip_vision": ("InstructBlipVisionModel", lambda t: t.InstructBlipVisionConfig(**vit()), IMAGE, LAST),
    "hf:flava_image": ("FlavaImageModel", lambda t: t.FlavaImageConfig(**vit()), IMAGE, LAST),
    "hf:vitdet": (
        "VitDetModel",
        lambda t: t.VitDetConfig(
            **vit(
                pretrain_image_size=64, window_block_indices=[0], window_size=3, use_relative_position_embeddings=True
            )
        ),
        IMAGE,
        LAST,
    ),
    "hf:janus_vision": ("JanusVisionModel", lambda t: t.JanusVisionConfig(**vit()), IMAGE, LAST),
    "hf:pixio": ("PixioModel", lambda t: t.PixioConfig(**vit()), IMAGE, LAST),
    "hf:mobilenet_v1": ("MobileNetV1Model", lambda t: t.MobileNetV1Config(depth_multiplier=0.5), IMAGE, LAST),
    "hf:textnet": ("TextNetModel", lambda t: t.TextNetConfig(), IMAGE, LAST),
    "hf:layoutlmv3": (
        "LayoutLMv3Model",
        lambda t: t.LayoutLMv3Config(
            **text(input_size=64, coordinate_size=16, shape_size=16, max_2d_position_embeddings=64)
        ),
        {"input_ids": ids(1, 12), "bbox": ids(1, 12, 4, least=1, below=2), "pixel_values": IMAGE},
        LAST,
    ),
    "hf:xclip_vision": (
        "XCLIPVisionModel",
        lambda t: t.XCLIPVisionConfig(**vit(num_frames=4, mit_hidden_size=96, mit_intermediate_size=192)),
        (4, 3, 64, 64),
        LAST,
    ),
    "hf:mgp_str": (
        "MgpstrModel",
        lambda t: t.MgpstrConfig(
            image_size=[32, 64],
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=3,
            max_token_length=9,
            num_bpe_labels=40,
            num_wordpiece_labels=40,
        ),
        (1, 3, 32, 64),
        LAST,
    ),
    # Boxes, masks, depths.
    "hf:lw_detr": (
        "LwDetrForObjectDetection",
        lambda t: t.LwDetrConfig(
            backbone_config=t.LwDetrViTConfig(
                hidden_size=96,
                num_hidden_layers=2,
                num_attention_heads=3,
                image_size=64,
                pretrain_image_size=64,
                patch_size=16,
                window_block_indices=[0],
                num_windows=4,
                out_indices=[2],
            ),
            d_model=64,
            decoder_ffn_dim=128,
            decoder_layers=2,
            decoder_self_attention_heads=4,
            decoder_cross_attention_heads=4,
            num_queries=10,
            group_detr=1,
            projector_scale_factors=[1.0],
        ),
        IMAGE,
        BOXES,
    ),
    "hf:dab_detr": (
        "DabDetrForObjectDetection",
        lambda t: t.DabDetrConfig(**own_backbone(t), **detector(hidden_size=64, num_queries=10)),
        IMAGE,
        BOXES,
    ),
    "hf:grounding_dino": (
        "GroundingDinoForObjectDetection",
        lambda t: t.GroundingDinoConfig(
            backbone_config=t.SwinConfig(
                image_size=128,
                embed_dim=24,
                depths=[1, 1, 1, 1],
                num_heads=[1, 2, 3, 4],
                window_size=4,
                out_features=["stage2", "stage3", "stage4"],
            ),
            text_config=t.BertConfig(**text()),
            **detector(num_queries=10, max_text_len=12),
        ),
        {"pixel_values": (1, 3, 128, 128), "input_ids": ids(1, 12)},
        BOXES,
    ),
    "hf:sam2_vision": (
        "Sam2VisionModel",
        lambda t: t.Sam2VisionConfig(
            backbone_config=t.Sam2HieraDetConfig(
                hidden_size=24,
                embed_dim_per_stage=[24, 48, 96, 192],
                num_attention_heads_per_stage=[1, 2, 4, 8],
                blocks_per_stage=[1, 2, 3, 1],
                global_attention_blocks=[4],
                image_size=[128, 128],
                window_positional_embedding_background_size=[4, 4],
            ),
            backbone_channel_list=[192, 96, 48, 24],
            backbone_feature_sizes=[[32, 32], [16, 16], [8, 8]],
            fpn_hidden_size=64,
        ),
        (1, 3, 128, 128),
        LAST,
    ),
    "hf:sam_hq_vision": (
        "SamHQVisionModel",
        lambda t: t.SamHQVisionConfig(
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
    "hf:seggpt": (
        "SegGptModel",
        lambda t: t.SegGptConfig(
            **width(
                image_size=[64, 32],
                patch_size=16,
                pretrain_image_size=32,
                merge_index=0,
                intermediate_hidden_state_indices=[1],
                decoder_hidden_size=32,
            )
        ),
        {"pixel_values": (1, 3, 32, 32), "prompt_pixel_values": (1, 3, 32, 32), "prompt_masks": (1, 3, 32, 32)},
        LAST,
    ),
    "hf:depth_pro": (
        "DepthProModel",
        lambda t: t.DepthProConfig(
            patch_size=32,
            fusion_hidden_size=32,
            intermediate_hook_ids=[1, 0],
            intermediate_feature_dims=[32, 32],
            scaled_images_ratios=[0.5, 1.0],
            scaled_images_overlap_ratios=[0.0, 0.25],
            scaled_images_feature_dims=[32, 32],
            use_fov_model=False,
            **{
                k: t.Dinov2Config(
                    hidden_size=48,
                    num_hidden_layers=2,
                    num_attention_heads=3,
                    image_size=32,
                    patch_size=8,
                    use_mask_token=False,
                )
                for k in ("image_model_config", "patch_model_config", "fov_model_config")
            },
        ),
        (1, 3, 64, 64),
        LAST,
    ),
    "hf:prompt_depth_anything": (
        "PromptDepthAnythingForDepthEstimation",
        lambda t: t.PromptDepthAnythingConfig(
            backbone_config=t.Dinov2Config(
                hidden_size=96,
                num_hidden_layers=4,
                num_attention_heads=3,
                image_size=56,
                patch_size=14,
                out_indices=[1, 2, 3, 4],
                reshape_hidden_states=False,
                apply_layernorm=True,
            ),
            patch_size=14,
            reassemble_hidden_size=96,
            neck_hidden_sizes=[16, 32, 48, 64],
            fusion_hidden_size=32,
        ),
        (1, 3, 56, 56),
        ["predicted_depth"],
    ),
    # Films and sound.
    "hf:vjepa2": (
        "VJEPA2Model",
        lambda t: t.VJEPA2Config(
            crop_size=64,
            frames_per_clip=4,
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=3,
            mlp_ratio=2,
            pred_hidden_size=48,
            pred_num_hidden_layers=1,
            pred_num_attention_heads=2,
            pred_num_mask_tokens=2,
        ),
        {"pixel_values_videos": FILM, "skip_predictor": Fixed(True)},
        LAST,
    ),
    "hf:clap_audio": (
        "ClapAudioModel",
        lambda t: t.ClapAudioConfig(
            hidden_size=192,
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 3, 4],
            patch_embeds_hidden_size=24,
            window_size=4,
            spec_size=128,
            num_mel_bins=32,
            enable_fusion=False,
            enable_patch_fusion=False,
        ),
        {"input_features": (1, 1, 64, 32)},
        LAST,
    ),
    "hf:hubert": ("HubertModel", lambda t: t.HubertConfig(**sound()), SOUND, LAST),
    "hf:wavlm": ("WavLMModel", lambda t: t.WavLMConfig(**sound()), SOUND, LAST),
    "hf:wav2vec2_conformer": (
        "Wav2Vec2ConformerModel",
        lambda t: t.Wav2Vec2ConformerConfig(**sound(conv_depthwise_kernel_size=7)),
        SOUND,
        LAST,
    ),
    "hf:data2vec_audio": ("Data2VecAudioModel", lambda t: t.Data2VecAudioConfig(**sound()), SOUND, LAST),
    "hf:sew": ("SEWModel", lambda t: t.SEWConfig(**sound(squeeze_factor=2)), SOUND, LAST),
    "hf:parakeet_encoder": (
        "ParakeetEncoder",
        lambda t: t.ParakeetEncoderConfig(**width(num_mel_bins=32, subsampling_conv_channels=32)),
        {"input_features": (1, 64, 32)},
        LAST,
    ),
    # Texts.
    "hf:roberta": ("RobertaModel", lambda t: t.RobertaConfig(**text()), WORDS, LAST),
    "hf:albert": ("AlbertModel", lambda t: t.AlbertConfig(**text(embedding_size=32)), WORDS, LAST),
    "hf:distilbert": (
        "DistilBertModel",
        lambda t: t.DistilBertConfig(vocab_size=100, dim=96, n_layers=2, n_heads=3, hidden_dim=192),
        WORDS,
        LAST,
    ),
    "hf:electra": ("ElectraModel", lambda t: t.ElectraConfig(**text(embedding_size=32)), WORDS, LAST),
    "hf:mpnet": ("MPNetModel", lambda t: t.MPNetConfig(**text()), WORDS, LAST),
    "hf:roformer": ("RoFormerModel", lambda t: t.RoFormerConfig(**text(embedding_size=96)), WORDS, LAST),
    "hf:convbert": (
        "ConvBertModel",
        lambda t: t.ConvBertConfig(**text(embedding_size=96, num_attention_heads=4)),
        WORDS,
        LAST,
    ),
    "hf:squeezebert": (
        "SqueezeBertModel",
        lambda t: t.SqueezeBertConfig(**text(embedding_size=96, num_attention_heads=4)),
        WORDS,
        LAST,
    ),
    "hf:mobilebert": (
        "MobileBertModel",
        lambda t: t.MobileBertConfig(**text(embedding_size=32, intra_bottleneck_size=48, true_hidden_size=48)),
        WORDS,
        LAST,
    ),
    "hf:fnet": ("FNetModel", lambda t: t.FNetConfig(**text()), WORDS, LAST),
    "hf:nomic_bert": ("NomicBertModel", lambda t: t.NomicBertConfig(**text(pad_token_id=0)), WORDS, LAST),
    "hf:esm": (
        "EsmModel",
        lambda t: t.EsmConfig(**text(position_embedding_type="rotary", pad_token_id=0, mask_token_id=2)),
        WORDS,
        LAST,
    ),
    "hf:modernbert": (
        "ModernBertModel",
        lambda t: t.ModernBertConfig(
            **text(
                num_hidden_layers=3,
                local_attention=8,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                cls_token_id=1,
                sep_token_id=2,
            )
        ),
        WORDS,
        LAST,
    ),
    "hf:layoutlm": (
        "LayoutLMModel",
        lambda t: t.LayoutLMConfig(**text(max_2d_position_embeddings=64)),
        {"input_ids": ids(1, 12), "bbox": ids(1, 12, 4, least=1, below=2)},
        LAST,
    ),
    "hf:xlnet": (
        "XLNetModel",
        lambda t: t.XLNetConfig(vocab_size=100, d_model=96, n_layer=2, n_head=3, d_inner=192),
        WORDS,
        LAST,
    ),
    "hf:gpt2": ("GPT2Model", lambda t: t.GPT2Config(**gpt()), MASKED, LAST),
    "hf:gpt_neo": (
        "GPTNeoModel",
        lambda t: t.GPTNeoConfig(
            vocab_size=100,
            max_position_embeddings=64,
            hidden_size=96,
            num_layers=2,
            num_heads=3,
            attention_types=[[["global", "local"], 1]],
            window_size=8,
            use_cache=False,
        ),
        MASKED,
        LAST,
    ),
    "hf:gpt_neox": ("GPTNeoXModel", lambda t: t.GPTNeoXConfig(**decoder()), MASKED, LAST),
    "hf:gptj": ("GPTJModel", lambda t: t.GPTJConfig(**gpt(rotary_dim=16)), MASKED, LAST),
    "hf:bloom": (
        "BloomModel",
        lambda t: t.BloomConfig(vocab_size=100, hidden_size=96, n_layer=2, n_head=3, use_cache=False),
        MASKED,
        LAST,
    ),
    "hf:opt": (
        "OPTModel",
        lambda t: t.OPTConfig(**decoder(ffn_dim=192, word_embed_proj_dim=96)),
        MASKED,
        LAST,
    ),
    "hf:falcon": ("FalconModel", lambda t: t.FalconConfig(**decoder(num_kv_heads=1)), MASKED, LAST),
    "hf:llama": ("LlamaModel", lambda t: t.LlamaConfig(**decoder(num_key_value_heads=1)), MASKED, LAST),
    "hf:mistral": (
        "MistralModel",
        lambda t: t.MistralConfig(**decoder(num_key_value_heads=1, sliding_window=6)),
        MASKED,
        LAST,
    ),
    "hf:qwen3": (
        "Qwen3Model",
        lambda t: t.Qwen3Config(**decoder(num_key_value_heads=1, head_dim=40)),
        MASKED,
        LAST,
    ),
    "hf:phi": ("PhiModel", lambda t: t.PhiConfig(**decoder(partial_rotary_factor=0.5)), MASKED, LAST),
    "hf:phi3": ("Phi3Model", lambda t: t.Phi3Config(**decoder()), MASKED, LAST),
    "hf:smollm3": (
        "SmolLM3Model",
        lambda t: t.SmolLM3Config(**decoder(num_key_value_heads=1, num_hidden_layers=4)),
        MASKED,
        LAST,
    ),
    "hf:olmo2": ("Olmo2Model", lambda t: t.Olmo2Config(**decoder()), MASKED, LAST),
    "hf:gemma": ("GemmaModel", lambda t: t.GemmaConfig(**decoder(num_key_value_heads=1, head_dim=40)), MASKED, LAST),
    "hf:stablelm": ("StableLmModel", lambda t: t.StableLmConfig(**decoder(num_key_value_heads=3)), MASKED, LAST),
    "hf:cohere": ("CohereModel", lambda t: t.CohereConfig(**decoder()), MASKED, LAST),
    "hf:starcoder2": ("Starcoder2Model", lambda t: t.Starcoder2Config(**decoder(num_key_value_heads=1)), MASKED, LAST),
    "hf:granite": ("GraniteModel", lambda t: t.GraniteConfig(**decoder()), MASKED, LAST),
    "hf:helium": ("HeliumModel", lambda t: t.HeliumConfig(**decoder(num_key_value_heads=3, head_dim=32)), MASKED, LAST),
    "hf:t5": (
        "T5Model",
        lambda t: t.T5Config(vocab_size=100, d_model=96, d_kv=24, d_ff=192, num_layers=2, num_heads=4, use_cache=False),
        BOTH_WORDS,
        LAST,
    ),
    "hf:bart": ("BartModel", lambda t: t.BartConfig(**seq2seq()), BOTH_WORDS, LAST),
    "hf:pegasus": ("PegasusModel", lambda t: t.PegasusConfig(**seq2seq()), BOTH_WORDS, LAST),
    "hf:m2m100": ("M2M100Model", lambda t: t.M2M100Config(**seq2seq()), BOTH_WORDS, LAST),
    "hf:blip2_qformer": (
        "Blip2QFormerModel",
        lambda t: t.Blip2QFormerConfig(**text(encoder_hidden_size=64)),
        {"query_embeds": (1, 8, 96), "encoder_hidden_states": (1, 17, 64)},
        LAST,
    ),
    "hf:image_gpt": ("ImageGPTModel", lambda t: t.ImageGPTConfig(**gpt()), WORDS, LAST),
    "hf:patchtst": (
        "PatchTSTModel",
        lambda t: t.PatchTSTConfig(
            num_input_channels=3,
            context_length=64,
            patch_length=8,
            patch_stride=8,
            d_model=96,
            num_hidden_layers=2,
            num_attention_heads=3,
            ffn_dim=192,
        ),
        {"past_values": (1, 64, 3)},
        LAST,
    ),
    "hf:patchtsmixer": (
        "PatchTSMixerModel",
        lambda t: t.PatchTSMixerConfig(
            num_input_channels=3, context_length=64, patch_length=8, patch_stride=8, d_model=48, num_layers=2
        ),
        {"past_values": (1, 64, 3)},
        LAST,
    ),
}
