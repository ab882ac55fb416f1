#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which models of timm and transformers build, and whether they are right.

  python3 tools/try_models.py --tessera build/release/bin/tessera              # every name below
  python3 tools/try_models.py resnet18 swin_tiny_patch4_window7_224 hf:detr    # these; any name of timm is known
  python3 tools/try_models.py --exporters torchscript --keep DIR swin_tiny_patch4_window7_224

Exports each model with both exporters of torch, small and with seeded random weights, builds it in fp32, runs it, and
compares its outputs with those of ONNX Runtime. Prints a table: the model, the exporter, the error (largest over the
outputs: the length of the difference, relative to that of the output), or what the export or the build says. A random
model may have outputs that hardly depend on its input: a wrong layer would not show. So the input is also changed, and
a row is "blind", not "yes", where some output moves by less than a hundredth of its length.
Weights and statistics that start as one number (norms, layer scales, running means) are made random too, else whole
branches would add nothing. Needs torch, timm, transformers, onnx, onnxruntime and onnxscript; no network."""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings

TARGET_ERROR = 1e-5
LEAST_MOVE = 1e-2

# timm's name -> what makes it small; "size" is that of the picture, the rest is given to timm.
TIMM = {
    "resnet18": {"size": 64},
    "resnext50_32x4d": {"size": 64, "layers": (1, 1, 1, 1)},
    "convnext_atto": {"size": 64, "depths": (1, 1, 2, 1)},
    "convnextv2_atto": {"size": 64, "depths": (1, 1, 2, 1)},
    "mobilenetv3_small_050": {"size": 64},
    "efficientnet_b0": {"size": 64},
    "efficientvit_b0": {"size": 64},
    "efficientvit_m0": {"size": 128, "img_size": 128},
    "mobilevit_xxs": {"size": 64},
    "mobilevitv2_050": {"size": 64},
    "fastvit_t8": {"size": 64},
    "repvit_m0_9": {"size": 64},
    "edgenext_xx_small": {"size": 64},
    "poolformer_s12": {"size": 64, "depths": (1, 1, 1, 1)},
    "swin_tiny_patch4_window7_224": {"size": 112, "img_size": 112, "depths": (2, 2, 2, 2)},
    "swinv2_tiny_window8_256": {"size": 128, "img_size": 128, "depths": (2, 2, 2, 2)},
    "tiny_vit_5m_224": {"size": 224, "depths": (1, 1, 2, 1)},
    "levit_128s": {"size": 224, "depth": (1, 1, 1)},
    "xcit_nano_12_p16_224": {"size": 64, "depth": 2},
    "cait_xxs24_224": {"size": 64, "img_size": 64, "depth": 2},
    "convit_tiny": {"size": 64, "img_size": 64, "depth": 3, "local_up_to_layer": 2},
    "mvitv2_tiny": {"size": 64, "img_size": 64},
    "hiera_tiny_224": {"size": 224, "stages": (1, 1, 1, 1)},
    "maxvit_tiny_tf_224": {"size": 224, "depths": (1, 1, 1, 1)},
    "coatnet_0_rw_224": {"size": 224, "depths": (1, 1, 1, 1)},
    "pvt_v2_b0": {"size": 64},
    "twins_svt_small": {"size": 64, "img_size": 64, "depths": (1, 1, 2, 1)},
    "twins_pcpvt_small": {"size": 64, "img_size": 64, "depths": (1, 1, 1, 1)},
    "coat_lite_tiny": {"size": 64, "img_size": 64},
    "davit_tiny": {"size": 64, "depths": (1, 1, 1, 1)},
    "volo_d1_224": {"size": 64, "img_size": 64},
    "beit_base_patch16_224": {"size": 64, "img_size": 64, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "deit_tiny_distilled_patch16_224": {"size": 64, "img_size": 64, "depth": 2},
    "eva02_tiny_patch14_224": {"size": 56, "img_size": 56, "depth": 2},
    "vit_small_patch14_dinov2": {"size": 56, "img_size": 56, "depth": 2},
    "vit_small_patch16_dinov3": {"size": 64, "img_size": 64, "depth": 2},
    "naflexvit_base_patch16_gap": {"size": 64, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "samvit_base_patch16": {
        "size": 256,
        "img_size": 256,
        "depth": 3,
        "embed_dim": 96,
        "num_heads": 3,
        "global_attn_indexes": (2,),
    },
}


def detr_config(t):
    backbone = t.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    return t.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_queries=10,
    )


def depth_backbone(t, **more):
    return t.Dinov2Config(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=3,
        image_size=56,
        patch_size=14,
        out_indices=[1, 2, 3, 4],
        **more,
    )


def small_vit():
    return {
        "hidden_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "intermediate_size": 192,
        "image_size": 64,
        "patch_size": 16,
    }


# name -> class, its configuration, the shape of its input, the outputs that count
TRANSFORMERS = {
    "hf:segformer": (
        "SegformerForSemanticSegmentation",
        lambda t: t.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], decoder_hidden_size=64),
        (1, 3, 64, 64),
        ["logits"],
    ),
    "hf:detr": ("DetrForObjectDetection", detr_config, (1, 3, 64, 64), ["logits", "pred_boxes"]),
    "hf:yolos": (
        "YolosForObjectDetection",
        lambda t: t.YolosConfig(
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=192,
            image_size=[64, 64],
            num_detection_tokens=10,
        ),
        (1, 3, 96, 64),
        ["logits", "pred_boxes"],
    ),
    "hf:dpt": (
        "DPTForDepthEstimation",
        lambda t: t.DPTConfig(
            **small_vit(),
            backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[16, 32, 48, 64],
            fusion_hidden_size=32,
            is_hybrid=False,
        ),
        (1, 3, 64, 64),
        ["predicted_depth"],
    ),
    "hf:depth_anything": (
        "DepthAnythingForDepthEstimation",
        lambda t: t.DepthAnythingConfig(
            backbone_config=depth_backbone(t, reshape_hidden_states=False, apply_layernorm=True),
            patch_size=14,
            reassemble_hidden_size=96,
            neck_hidden_sizes=[16, 32, 48, 64],
            fusion_hidden_size=32,
        ),
        (1, 3, 70, 56),
        ["predicted_depth"],
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
        ["last_hidden_state"],
    ),
    "hf:whisper_encoder": (
        "WhisperEncoder",
        lambda t: t.WhisperConfig(
            d_model=96,
            encoder_layers=2,
            encoder_attention_heads=3,
            encoder_ffn_dim=192,
            max_source_positions=50,
            num_mel_bins=80,
        ),
        (1, 80, 100),
        ["last_hidden_state"],
    ),
    "hf:dinov2": (
        "Dinov2Model",
        lambda t: t.Dinov2Config(
            hidden_size=96, num_hidden_layers=2, num_attention_heads=3, image_size=56, patch_size=14
        ),
        (1, 3, 70, 56),
        ["last_hidden_state"],
    ),
    "hf:swin2sr": (
        "Swin2SRForImageSuperResolution",
        lambda t: t.Swin2SRConfig(
            embed_dim=24, depths=[2, 2], num_heads=[2, 2], image_size=32, window_size=8, upscale=2
        ),
        (1, 3, 32, 32),
        ["reconstruction"],
    ),
}


def make_random(model, torch):
    """Weights and statistics that start as one number become random around it."""
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in list(model.named_parameters()) + list(model.named_buffers()):
            if not value.is_floating_point() or value.numel() < 2 or value.min() != value.max():
                continue
            if name.endswith("running_var"):
                value.copy_(0.5 + torch.rand(value.shape, generator=noise))
            elif value.flatten()[0].isfinite() and ("." in name or value.dim() > 1):
                value.add_(0.1 * torch.randn(value.shape, generator=noise))
        # Matrices that start so small that a layer passes next to nothing on: as long as their fan-in asks for.
        for value in model.parameters():
            wanted = (value[0].numel() if value.dim() > 1 else 1) ** -0.5
            if value.dim() > 1 and 0 < value.std() < 0.5 * wanted:
                value.mul_(wanted / value.std())


def load(name):
    """The model, in eval mode, and an input for it."""
    import torch

    torch.manual_seed(1)
    if name.startswith("hf:"):
        import transformers

        kind, config, shape, outputs = TRANSFORMERS[name]
        if not hasattr(transformers, kind):
            from transformers.models.whisper import modeling_whisper as more
        else:
            more = transformers
        config = config(transformers)
        inner = getattr(more, kind)(config)

        class Picked(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                result = self.inner(x)
                return tuple(getattr(result, o) for o in outputs)

        model = Picked()
    else:
        import timm

        more = dict(TIMM.get(name, {"size": 0}))
        size = more.pop("size")
        model = timm.create_model(name, pretrained=False, **more)
        shape = (1, 3, size, size) if size else (1, *model.default_cfg["input_size"])
    model.eval()
    make_random(model, torch)
    return model, torch.randn(shape, generator=torch.Generator().manual_seed(2))


def export(name, exporter, path):
    import numpy as np
    import torch

    model, x = load(name)
    with torch.no_grad():
        expected = model(x)
        if exporter == "dynamo":
            torch.onnx.export(model, (x,), path, dynamo=True, input_names=["x"], verbose=False)
        else:
            torch.onnx.export(model, (x,), path, dynamo=False, input_names=["x"], opset_version=18)
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    np.savez(path + ".npz", x=x.numpy())
    np.savez(path + ".expected.npz", **{str(i): y.numpy() for i, y in enumerate(expected)})


def run_onnx_runtime(path):
    """The outputs, and how far another input moves the one that moves least."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    x = np.load(path + ".npz")["x"]
    outputs = dict(zip(names, session.run(None, {"x": x})))
    other = dict(zip(names, session.run(None, {"x": np.ascontiguousarray(x[..., ::-1])})))
    return outputs, min(relative_error(other[name], outputs[name]) for name in names)


def relative_error(got, expected):
    import numpy as np

    got, expected = got.astype(np.float64), expected.astype(np.float64)
    if got.shape != expected.shape:
        return float("inf")
    error = np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30)
    return float(error) if np.isfinite(error) else float("inf")


def run_tessera(tessera, path, target):
    """The outputs, or what the build or the run said."""
    import numpy as np

    engine, outputs = path + ".tess", path + ".out.npz"
    for words in (
        ["build", path, "-o", engine, "--precision", "fp32", "--target", target, "--golden-samples", "1"],
        ["run", engine, "-i", path + ".npz", "-o", outputs],
    ):
        done = subprocess.run([tessera, *words, "--json"], capture_output=True, text=True)
        if done.returncode:
            try:
                return None, json.loads(done.stdout)["error"]
            except (ValueError, KeyError):
                return None, done.stderr.strip() or "exit code %d" % done.returncode
    return dict(np.load(outputs)), ""


def first_sentence(text):
    text = text.strip() if isinstance(text, str) else text.get("message", str(text))
    return text.split("\n")[0].split(". ")[0][:230]


def try_model(name, exporter, tessera, target, folder):
    """One row of the table."""
    path = os.path.join(folder, "%s.%s.onnx" % (name.replace(":", "_"), exporter))
    if not os.path.exists(path + ".expected.npz"):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                export(name, exporter, path)
            except Exception as error:  # an exporter fails in many ways; each is a row
                return "not exported", "%s: %s" % (type(error).__name__, first_sentence(str(error)))
    got, message = run_tessera(tessera, path, target)
    if got is None:
        return "no", first_sentence(message)
    expected, move = run_onnx_runtime(path)
    if got.keys() != expected.keys():
        return "WRONG", "outputs %s instead of %s" % (sorted(got), sorted(expected))
    error = max(relative_error(got[o], expected[o]) for o in expected)
    if error > TARGET_ERROR:
        return "WRONG", "%.1e" % error
    return ("yes", "%.1e" % error) if move >= LEAST_MOVE else ("blind", "%.1e, outputs move by %.1e" % (error, move))


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", help="names of timm, or hf: names of this file (default: all of this file)")
    words.add_argument("--tessera", default="build/release/bin/tessera")
    words.add_argument("--target", default="cpu")
    words.add_argument("--exporters", default="torchscript,dynamo")
    words.add_argument("--keep", metavar="DIR", help="where exports stay; those that are there are not made again")
    args = words.parse_args()
    warnings.filterwarnings("ignore")
    counts = {}
    with contextlib.ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        print("| model | exporter | builds | error, or why not |\n|---|---|---|---|")
        for name in args.names or [*TIMM, *TRANSFORMERS]:
            for exporter in args.exporters.split(","):
                verdict, text = try_model(name, exporter, args.tessera, args.target, folder)
                counts[verdict] = counts.get(verdict, 0) + 1
                print("| %s | %s | %s | %s |" % (name, exporter, verdict, text), flush=True)
    print("\n" + ", ".join("%s: %d" % item for item in sorted(counts.items())))
    return 1 if "WRONG" in counts else 0


if __name__ == "__main__":
    sys.exit(main())
