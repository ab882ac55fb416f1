# SPDX-License-Identifier: Apache-2.0
"""Small models of windows and pyramids, detectors and segmenters, exported as TorchScript writes them, with seeded weights.

Files as make.py's: <model>_ts17.onnx and <model>_ts17.npz with the input and, per output, `expected_<output>` by ONNX
Runtime (fp32, graph optimisations off). Norms and layer scales, which start as one number, are random around it.

    python tests/data/models/pyramids.py [name ...]      made with torch 2.15.0, timm 1.0.31, transformers 5.23
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
LARGEST = 200_000  # bytes of a file


class Picked(torch.nn.Module):
    """The outputs of a model of transformers that count."""

    def __init__(self, inner, *outputs):
        super().__init__()
        self.inner, self.outputs = inner, outputs

    def forward(self, x):
        result = self.inner(x)
        return tuple(getattr(result, name) for name in self.outputs)


def swin():
    return timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=32, window_size=2, embed_dim=8, depths=(2, 1), num_heads=(1, 2), num_classes=10
    )


def tinyvit():
    return timm.create_model(
        "tiny_vit_5m_224", embed_dims=(8, 8, 16, 16), depths=(1, 1, 2, 1), num_heads=(1, 1, 2, 2), window_sizes=(2, 2, 2, 1), num_classes=10
    )


def mvit():
    cfg = timm.models.mvitv2.MultiScaleVitCfg(depths=(1, 1), embed_dim=16, num_heads=1, stride_q=((1, 1), (2, 2)), stride_kv=((2, 2), (1, 1)), stride_kv_adaptive=None)
    return timm.models.mvitv2.MultiScaleVit(cfg, img_size=(32, 32), num_classes=10)


def detr():
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=4,
        num_labels=5,
    )
    return Picked(transformers.DetrForObjectDetection(config), "logits", "pred_boxes")


def sam():
    config = transformers.SamVisionConfig(
        hidden_size=24,
        mlp_dim=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=64,
        patch_size=8,
        window_size=3,
        output_channels=8,
        global_attn_indexes=[1],
    )
    return Picked(transformers.SamVisionModel(config), "last_hidden_state")


MODELS = {"swin": (swin, 32), "tinyvit": (tinyvit, 64), "mvit": (mvit, 32), "detr": (detr, 64), "sam": (sam, 64)}


def make_random(model):
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not value.is_floating_point() or value.numel() < 2 or value.min() != value.max():
                continue
            if name.endswith("running_var"):
                value.copy_(0.5 + torch.rand(value.shape, generator=noise))
            else:
                value.add_(0.1 * torch.randn(value.shape, generator=noise))


def make(name):
    build, size = MODELS[name]
    torch.manual_seed(1)
    timm.layers.set_fused_attn(False)
    model = build().eval()
    make_random(model)
    image = np.random.default_rng(2).standard_normal((1, 3, size, size), dtype=np.float32)
    path = FOLDER / f"{name}_ts17.onnx"
    torch.onnx.export(model, torch.from_numpy(image), str(path), dynamo=False, opset_version=17, input_names=["x"])
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.ClearField("doc_string")
    onnx.save(proto, path)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = {f"expected_{n}": v for n, v in zip(names, session.run(names, {"x": image}))}
    np.savez(path.with_suffix(".npz"), x=image, **expected)
    for file in (path, path.with_suffix(".npz")):
        assert file.stat().st_size <= LARGEST, (file, file.stat().st_size)
    print(name, path.stat().st_size, path.with_suffix(".npz").stat().st_size)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
