# SPDX-License-Identifier: Apache-2.0
"""Small image models with convolutions, node by node as PyTorch's exporters write them, with seeded random weights.

Files as make.py's: <model>_hand.onnx, whose batch is open, and <model>_hand.npz with the input and, per output,
`expected_<output>` by ONNX Runtime (fp32, graph optimisations off).

    python tests/data/models/hybrids.py [name ...]      made with onnx 1.23, onnxruntime 1.31
"""

import io
import os
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent
IMAGE, BATCH, CLASSES = 16, 2, 10


class Net:
    """A graph under construction; every method adds nodes and gives the name of their result."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name, *shape):
        fan = int(np.prod(shape[1:])) or 1
        return self.constant(name, (self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def vector(self, name, size, around=0.0):
        return self.constant(name, (around + 0.3 * self.random.standard_normal(size)).astype(np.float32))

    def op(self, op, *inputs, **attrs):
        path = attrs.pop("path", "")
        out, name = f"v{len(self.nodes)}", f"/{path}/{op}" if path else ""
        same = sum(n.name == name or n.name.startswith(f"{name}_") for n in self.nodes) if path else 0
        self.nodes.append(helper.make_node(op, list(inputs), [out], name=f"{name}_{same}" if same else name, **attrs))
        return out

    def ints(self, *numbers):
        return self.constant(f"ints{len(self.constants)}", np.array(numbers, dtype=np.int64))

    def number(self, x):
        return self.constant(f"number{len(self.constants)}", np.float32(x))

    def conv(self, x, path, n, c, kernel, stride=1, groups=1, bias=True, pads=None):
        operands = [x, self.weight(f"{path}.weight", n, c // groups, kernel, kernel)]
        if bias:
            operands.append(self.vector(f"{path}.bias", n))
        pads = [kernel // 2] * 4 if pads is None else pads
        return self.op("Conv", *operands, path=path, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups, dilations=[1, 1])

    def batch_norm(self, x, path, n):
        parts = [self.vector(f"{path}.weight", n, 1), self.vector(f"{path}.bias", n), self.vector(f"{path}.running_mean", n)]
        variance = self.constant(f"{path}.running_var", (0.5 + self.random.random(n)).astype(np.float32))
        return self.op("BatchNormalization", x, *parts, variance, path=path, epsilon=1e-5, momentum=0.9)

    def layer_norm(self, x, path, n):
        return self.op("LayerNormalization", x, self.vector(f"{path}.weight", n, 1), self.vector(f"{path}.bias", n), path=path, axis=-1, epsilon=1e-6)

    def linear(self, x, path, n, k):
        product = self.op("MatMul", x, self.constant(f"{path}.weight", (self.random.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)), path=path)
        return self.op("Add", self.vector(f"{path}.bias", n), product, path=path)

    def gelu(self, x, path):
        half = self.op("Erf", self.op("Div", x, self.number(np.sqrt(2)), path=path), path=path)
        return self.op("Mul", self.op("Mul", x, self.op("Add", half, self.number(1), path=path), path=path), self.number(0.5), path=path)

    def head(self, x, n):
        flat = self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)
        return self.op("Gemm", flat, self.weight("fc.weight", CLASSES, n), self.vector("fc.bias", CLASSES), path="fc", transB=1)


def resnet(n):
    """A stem, a block, and one that halves the image."""
    x = n.op("Relu", n.batch_norm(n.conv("image", "conv1", 16, 3, 7, 2, bias=False), "bn1", 16))
    x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for i, (inner, stride) in enumerate(((16, 1), (32, 2))):
        path, width = f"layer{i + 1}.0", 16
        y = n.op("Relu", n.batch_norm(n.conv(x, f"{path}.conv1", inner, width, 3, stride, bias=False), f"{path}.bn1", inner))
        y = n.batch_norm(n.conv(y, f"{path}.conv2", inner, inner, 3, bias=False), f"{path}.bn2", inner)
        if stride > 1:
            x = n.batch_norm(n.conv(x, f"{path}.downsample.0", inner, width, 1, stride, bias=False, pads=[0] * 4), f"{path}.downsample.1", inner)
        x = n.op("Relu", n.op("Add", y, x))
    return n.head(x, 32)


def convnext(n):
    """Patches, a norm over channels, two blocks: depthwise 7x7, norm, MLP with the channels last, layer scale."""
    last, first = [0, 2, 3, 1], [0, 3, 1, 2]
    x = n.conv("image", "stem.0", 32, 3, 4, 4, pads=[0] * 4)
    x = n.op("Transpose", n.layer_norm(n.op("Transpose", x, perm=last), "stem.1", 32), perm=first)
    for i in range(2):
        path = f"stages.0.blocks.{i}"
        y = n.op("Transpose", n.conv(x, f"{path}.conv_dw", 32, 32, 7, groups=32), perm=last)
        y = n.linear(n.gelu(n.linear(n.layer_norm(y, f"{path}.norm", 32), f"{path}.mlp.fc1", 64, 32), f"{path}.mlp"), f"{path}.mlp.fc2", 32, 64)
        y = n.op("Mul", n.op("Transpose", y, perm=first), n.constant(f"{path}.gamma", (0.5 * n.random.standard_normal((1, 32, 1, 1))).astype(np.float32)))
        x = n.op("Add", y, x)
    return n.head(x, 32)


def mobilenet(n):
    """Inverted residuals: 1x1, depthwise with a squeeze and excitation, 1x1; hard swish."""
    x = n.op("HardSwish", n.batch_norm(n.conv("image", "conv_stem", 16, 3, 3, 2, bias=False), "bn1", 16))
    for i, stride in enumerate((1, 2)):
        path = f"blocks.{i}.0"
        y = n.op("HardSwish", n.batch_norm(n.conv(x, f"{path}.conv_pw", 32, 16, 1, bias=False), f"{path}.bn1", 32))
        y = n.op("HardSwish", n.batch_norm(n.conv(y, f"{path}.conv_dw", 32, 32, 3, stride, groups=32, bias=False), f"{path}.bn2", 32))
        s = n.op("ReduceMean", y, axes=[2, 3], keepdims=1)
        s = n.op("Relu", n.conv(s, f"{path}.se.conv_reduce", 8, 32, 1))
        s = n.op("HardSigmoid", n.conv(s, f"{path}.se.conv_expand", 32, 8, 1), alpha=1 / 6)
        y = n.batch_norm(n.conv(n.op("Mul", y, s), f"{path}.conv_pwl", 16, 32, 1, bias=False), f"{path}.bn3", 16)
        x = n.op("Add", y, x) if stride == 1 else y
    return n.head(x, 16)


def segformer(n):
    """Overlapping patches, attention whose keys a strided convolution makes fewer, an MLP with a depthwise convolution, and a
    head at two resolutions."""
    width, heads, side = 32, 2, IMAGE // 4
    tokens = side * side

    def to_image(t, size):
        return n.op("Reshape", n.op("Transpose", t, perm=[0, 2, 1]), n.ints(0, width, size, size))

    def to_tokens(x, channels, count):
        return n.op("Transpose", n.op("Reshape", x, n.ints(0, channels, count)), perm=[0, 2, 1])

    def split(t, count, perm):
        return n.op("Transpose", n.op("Reshape", t, n.ints(0, count, heads, width // heads)), perm=perm)

    t = n.layer_norm(to_tokens(n.conv("image", "patch_embed.proj", width, 3, 7, 4), width, tokens), "patch_embed.norm", width)
    early = t
    y = n.layer_norm(t, "block.norm1", width)
    fewer = to_tokens(n.conv(to_image(y, side), "block.attn.sr", width, width, 2, 2, pads=[0] * 4), width, tokens // 4)
    fewer = n.layer_norm(fewer, "block.attn.norm", width)
    q = split(n.linear(y, "block.attn.q", width, width), tokens, [0, 2, 1, 3])
    k = split(n.linear(fewer, "block.attn.k", width, width), tokens // 4, [0, 2, 3, 1])
    v = split(n.linear(fewer, "block.attn.v", width, width), tokens // 4, [0, 2, 1, 3])
    scores = n.op("Div", n.op("MatMul", q, k), n.number(np.sqrt(width // heads)))
    y = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    t = n.op("Add", n.linear(n.op("Reshape", y, n.ints(0, tokens, width)), "block.attn.proj", width, width), t)
    y = n.linear(n.layer_norm(t, "block.norm2", width), "block.mlp.fc1", width, width)
    y = to_tokens(n.conv(to_image(y, side), "block.mlp.dwconv", width, width, 3, groups=width), width, tokens)
    t = n.op("Add", n.linear(n.gelu(y, "block.mlp"), "block.mlp.fc2", width, width), t)
    small = n.conv(to_image(t, side), "down", width, width, 3, 2)
    large = n.op("Resize", small, "", n.constant("scales", np.array([1, 1, 2, 2], dtype=np.float32)), mode="linear", coordinate_transformation_mode="half_pixel")
    both = n.op("Concat", to_image(early, side), large, axis=1)
    fused = n.op("Relu", n.batch_norm(n.conv(both, "head.fuse", width, 2 * width, 1, bias=False), "head.bn", width))
    return n.conv(fused, "head.classify", CLASSES, width, 1)


def unet(n):
    """Down and up again: group norms, an average pool, a transposed convolution, a shortcut that is joined."""

    def group_norm(x, path, c):
        flat = n.op("InstanceNormalization", n.op("Reshape", x, n.ints(0, 4, -1)), n.constant(f"{path}.ones", np.ones(4, np.float32)), n.constant(f"{path}.zeros", np.zeros(4, np.float32)))
        y = n.op("Reshape", flat, n.op("Shape", x))
        scale = n.constant(f"{path}.weight", (1 + 0.3 * n.random.standard_normal((c, 1, 1))).astype(np.float32))
        shift = n.constant(f"{path}.bias", (0.3 * n.random.standard_normal((c, 1, 1))).astype(np.float32))
        return n.op("Add", n.op("Mul", y, scale), shift)

    def silu(x):
        return n.op("Mul", x, n.op("Sigmoid", x))

    top = silu(group_norm(n.conv("image", "down.0", 16, 3, 3), "down.norm", 16))
    low = n.op("AveragePool", top, kernel_shape=[2, 2], strides=[2, 2])
    low = silu(group_norm(n.conv(low, "mid", 32, 16, 3), "mid.norm", 32))
    up = n.op("ConvTranspose", low, n.weight("up.weight", 32, 16, 2, 2), n.vector("up.bias", 16), path="up", kernel_shape=[2, 2], strides=[2, 2])
    y = n.conv(n.op("Concat", up, top, axis=1), "last", 16, 32, 3)
    return n.conv(n.op("Relu", y), "out", 3, 16, 1)


def convmlp(n):
    """Norms over channels written out, and MLPs of 1 x 1 convolutions on both sides of a depthwise one: GELU, SiLU."""

    def channels_norm(x, path, c):
        centred = n.op("Sub", x, n.op("ReduceMean", x, axes=[1], keepdims=1, path=path), path=path)
        squares = n.op("Pow", centred, n.number(2), path=path)
        variance = n.op("ReduceMean", squares, axes=[1], keepdims=1, path=path)
        y = n.op("Div", centred, n.op("Sqrt", n.op("Add", variance, n.number(1e-6), path=path), path=path), path=path)
        scale = n.constant(f"{path}.weight", (1 + 0.3 * n.random.standard_normal((c, 1, 1))).astype(np.float32))
        shift = n.constant(f"{path}.bias", (0.3 * n.random.standard_normal((c, 1, 1))).astype(np.float32))
        return n.op("Add", n.op("Mul", scale, y, path=path), shift, path=path)

    def silu(x, path):
        return n.op("Mul", x, n.op("Sigmoid", x, path=path), path=path)

    x = channels_norm(n.conv("image", "stem.0", 16, 3, 4, 4, pads=[0] * 4), "stem.1", 16)
    y = channels_norm(n.conv(x, "block.conv_dw", 16, 16, 3, groups=16), "block.norm", 16)
    y = n.gelu(n.conv(y, "block.mlp.fc1", 32, 16, 1), "block.mlp")
    x = n.op("Add", n.conv(y, "block.mlp.fc2", 16, 32, 1), x)
    y = silu(n.conv(x, "inverted.expand", 32, 16, 1), "inverted.act1")
    y = silu(n.conv(y, "inverted.conv_dw", 32, 32, 3, groups=32), "inverted.act2")
    x = n.op("Add", n.conv(y, "inverted.project", 16, 32, 1), x)
    x = channels_norm(n.conv(x, "neck.0", 24, 16, 1), "neck.1", 24)
    return n.head(x, 24)


MODELS = {"resnet": resnet, "convnext": convnext, "mobilenet": mobilenet, "segformer": segformer, "unet": unet, "convmlp": convmlp}


def write(path, data):
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def main():
    for seed, (name, build) in enumerate(MODELS.items()):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        net = Net(seed)
        result = build(net)
        net.nodes.append(helper.make_node("Identity", [result], ["logits"]))
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, IMAGE, IMAGE])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
        graph = helper.make_graph(net.nodes, name, [image], [logits], net.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        feed = net.random.standard_normal((BATCH, 3, IMAGE, IMAGE)).astype(np.float32)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        expected = session.run(None, {"image": feed})[0]
        del model.graph.output[:]
        model.graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", *expected.shape[1:]]))
        onnx.checker.check_model(model, full_check=True)
        write(FOLDER / f"{name}_hand.onnx", model.SerializeToString())
        buffer = io.BytesIO()
        np.savez_compressed(buffer, image=feed, expected_logits=expected)
        write(FOLDER / f"{name}_hand.npz", buffer.getvalue())
        print(f"{name}: {len(net.nodes)} nodes, {model.ByteSize()} bytes, logits {expected.shape}, size {np.abs(expected).mean():.3f}")


if __name__ == "__main__":
    main()
