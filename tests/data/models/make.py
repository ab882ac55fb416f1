# SPDX-License-Identifier: Apache-2.0
"""Exports tiny transformers of timm and transformers with seeded random weights through both PyTorch exporters.

Every model is built from its library's own classes and a small config: nothing is downloaded. Files of one export:
<model>_<exporter>.onnx, whose batch is open (text: in some files the sequence, too), and <model>_<exporter>.npz with the
inputs by name and, per output, `expected_<output>` by ONNX Runtime (fp32, graph optimisations off), which agrees with
PyTorch to 1e-4. Files in 16 bits (vit_half, llama_bf16) are run widened to fp32. Exporters: ts14, ts17 (TorchScript, at these opsets), dyn18, dyn20, dyn23 (dynamo; from 23 on it writes
attention and RMSNorm as one node each).

What cannot be exported: torch.nn.RMSNorm (rmsvit) and antialiased bicubic resizing (dinov2_hf) by the TorchScript exporter,
nor a decoder without attention_mask (llama_eager; aten::diff); timm's BEiT with fused attention and a position bias by
the dynamo exporter, which trips over a view (beit_plain exports without fused attention).

    python tests/data/models/make.py [name ...]      made with torch 2.12, timm 1.0.22, transformers 5.22, onnx 1.23
"""

import collections
import io
import os
import pathlib
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch

from families import FAMILIES

FOLDER = pathlib.Path(__file__).parent
LIMIT_BYTES = 300_000
BATCH = 2
EXPORTERS = {
    "ts14": dict(dynamo=False, opset_version=14),
    "ts17": dict(dynamo=False, opset_version=17),
    "dyn18": dict(dynamo=True, opset_version=18),
    "dyn20": dict(dynamo=True, opset_version=20),
    "dyn23": dict(dynamo=True, opset_version=23),
}


def take_positions(model, family):
    """Makes forward take its inputs by position and return plain tensors, as ONNX has them, without a module around the
    model, which would show in every name."""
    forward = model.forward

    def plain(*values):
        result = forward(**dict(zip(family.inputs, values)), **family.options)
        return tuple(getattr(result, name) for name in family.outputs)

    model.forward = plain


def build(family, seed):
    """Every parameter is random, norms and biases too: a gain of one or a shift of zero would hide a lost operand."""
    torch.manual_seed(seed)
    model = family.make().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = "norm" in path.lower() and path.endswith("weight")
            fan_in = parameter[0].numel() if path.endswith("weight") and parameter.ndim > 1 else 25
            parameter.copy_(1 + 0.2 * noise if is_gain else noise * fan_in**-0.5)
    if family.outputs:
        take_positions(model, family)
    return model.to(family.dtype)


def export(model, family, feeds, exporter):
    inputs, outputs = list(feeds), family.output_names
    options = dict(EXPORTERS[exporter], input_names=inputs, output_names=outputs, verbose=False)
    values = tuple(as_tensor(array, family.dtype) for array in feeds.values())
    axes = {0: "batch"} | ({1: "sequence"} if exporter in family.open_sequence else {})
    with warnings.catch_warnings():  # the TorchScript exporter announces its own retirement
        warnings.simplefilter("ignore")
        if options["dynamo"]:
            dims = {axis: torch.export.Dim(name) for axis, name in axes.items()}
            shapes = tuple(dims for _ in values)
            shapes = (shapes,) if family.outputs else shapes
            exported = torch.onnx.export(model, values, **options, dynamic_shapes=shapes).model_proto
        else:
            buffer = io.BytesIO()
            torch.onnx.export(model, values, buffer, **options, dynamic_axes={n: axes for n in inputs})
            exported = onnx.load_from_string(buffer.getvalue())
    strip_notes(exported)
    assert not exported.functions
    onnx.checker.check_model(exported, full_check=True)
    return exported


def strip_notes(exported):
    """Of the dynamo exporter's notes only the module paths stay: stack traces hold paths of the exporting machine."""
    for entry in [*exported.graph.node, *exported.graph.value_info]:
        kept = [note for note in entry.metadata_props if note.key.endswith(".name_scopes")]
        del entry.metadata_props[:]
        entry.metadata_props.extend(kept)


def as_tensor(array, dtype):
    return torch.from_numpy(array).to(dtype) if array.dtype == np.float32 else torch.from_numpy(array)


def widened(exported):
    """The model with every 16-bit float, weights and values alike, as FLOAT: what the file says, computed in fp32."""
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    narrow = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    constants = [a.t for node in model.graph.node for a in node.attribute if a.HasField("t")]
    for tensor in [*model.graph.initializer, *constants]:
        if tensor.data_type in narrow:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if value.type.tensor_type.elem_type in narrow:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in narrow:
                attribute.i = onnx.TensorProto.FLOAT
    return model


def run(model_bytes, feeds, outputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])
    return session.run(outputs, feeds)


def write(path, data):
    assert len(data) < LIMIT_BYTES, f"{path.name}: {len(data)} bytes"
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def make(name, seed):
    family = FAMILIES[name]
    model = build(family, seed)
    feeds = {key: fill(np.random.default_rng(seed), BATCH) for key, fill in family.inputs.items()}
    feeds = {key: as_tensor(array, family.dtype).float().numpy() if array.dtype == np.float32 else array for key, array in feeds.items()}
    tolerance = 1e-4 if family.dtype == torch.float32 else 0.1
    with torch.no_grad():
        want = model(*(as_tensor(array, family.dtype) for array in feeds.values()))
    want = [t.float().numpy() for t in (want if isinstance(want, tuple) else (want,))]
    for exporter in family.exporters:
        exported = export(model, family, feeds, exporter)
        model_bytes = exported.SerializeToString()
        have = run(widened(exported).SerializeToString(), feeds, family.output_names)
        for h, w in zip(have, want, strict=True):
            # What padding computes is anybody's: exporters spell minus infinity in two ways.
            seen = feeds["attention_mask"] != 0 if "attention_mask" in feeds and h.ndim == 3 else ...
            np.testing.assert_allclose(h[seen], w[seen], rtol=tolerance, atol=tolerance)
        arrays = io.BytesIO()
        np.savez_compressed(arrays, **feeds, **{f"expected_{n}": h for n, h in zip(family.output_names, have)})
        write(FOLDER / f"{name}_{exporter}.onnx", model_bytes)
        write(FOLDER / f"{name}_{exporter}.npz", arrays.getvalue())
        ops = collections.Counter(node.op_type for node in exported.graph.node)
        print(f"{name}_{exporter}  {len(model_bytes)} bytes ", *(f"{op}:{count}" for op, count in sorted(ops.items())), flush=True)


def main():
    for seed, name in enumerate(FAMILIES, start=1):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, seed)


if __name__ == "__main__":
    main()
