# SPDX-License-Identifier: Apache-2.0
"""Any number of samples, as numpy arrays by the names of the inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from ._errors import BadInputError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._tessera import Context, Port


class Runner:
    """A context of any number of samples, with what is known of its ports."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._inputs = [(p.name, p, _numpy_type(p)) for p in context.inputs]
        self._outputs = [(p.name, tuple(p.shape[1:]), _numpy_type(p)) for p in context.outputs]
        self._shapes = [tuple(p.shape[1:]) for p in context.inputs]
        self._names = {p.name for p in context.inputs}

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if inputs.keys() != self._names:
            self._refuse_names(inputs)
        arrays = [converted(inputs[name], port, dtype) for name, port, dtype in self._inputs]
        if all(array.shape[1:] == shape for array, shape in zip(arrays, self._shapes)):
            samples = arrays[0].shape[0] if arrays and arrays[0].ndim else 0
            results = {name: numpy.empty((samples, *shape), dtype) for name, shape, dtype in self._outputs}
        else:  # other lengths, or a mistake that the run names
            shapes = self._context.output_shapes(arrays)
            results = {name: numpy.empty(shape, dtype) for (name, _, dtype), shape in zip(self._outputs, shapes)}
        self._context.run_samples(arrays, list(results.values()))
        return results

    def _refuse_names(self, inputs: Mapping[str, Any]) -> None:
        names = [name for name, _, _ in self._inputs]
        unknown = sorted(map(str, set(inputs) - self._names))
        missing = [name for name in names if name not in inputs]
        what = f"no array for {', '.join(missing)}" if missing else f"no input is called {', '.join(unknown)}"
        raise BadInputError(3, f"{what}; the inputs are {', '.join(names)}")


def _numpy_type(port: Port) -> numpy.dtype[Any]:
    code, bits, _ = port.dtype
    if code > 2 or bits % 8:
        raise UsageError(2, f"numpy has no {port.element}, which '{port.name}' is: call a context with torch tensors")
    return numpy.dtype(f"{'iuf'[code]}{bits // 8}")


def _takes_images(port: Port) -> bool:
    return port.element == "u8" and len(port.shape) == 4 and port.shape[-1] in (1, 3, 4)


def converted(given: Any, port: Port, dtype: numpy.dtype[Any]) -> Any:
    """Dense rows of the port's type. Only numbers become numbers, and an integer port gets no other integers."""
    array = given if type(given) is numpy.ndarray else _as_array(given, port)
    if array.dtype == dtype:
        return numpy.asarray(array, order="C")
    if array.dtype.kind not in "biuf":
        raise BadInputError(3, f"input '{port.name}' holds {array.dtype}; real numbers are wanted, as {port.element}")
    if _takes_images(port) and array.dtype.kind in "bf":
        raise BadInputError(3, f"input '{port.name}' holds {array.dtype}; it takes images as bytes, uint8 "
                               f"{list(port.shape)}, and normalises them itself")  # fmt: skip
    if dtype.kind != "f" and array.dtype.kind != "b":
        bounds = numpy.iinfo(dtype)
        if array.dtype.kind == "f":  # the largest integer may be no float: the next one, a power of two, is
            wide = array.astype(numpy.promote_types(array.dtype, "f8"), copy=False)
            inside = (wide >= float(bounds.min)) & (wide < float(bounds.max + 1)) & (wide == numpy.trunc(wide))
        else:
            inside = (array >= bounds.min) & (array <= bounds.max)
        if not inside.all():
            wrong = array[~inside].flat[0]
            raise BadInputError(3, f"input '{port.name}' holds {wrong}, which is no number of its type, {port.element}")
    return numpy.asarray(array, dtype, order="C")


def _as_array(given: Any, port: Port) -> Any:
    """Lists, tensors of torch's wherever they lie, and whatever else numpy takes."""
    try:
        if hasattr(type(given), "detach"):
            given = given.detach().cpu()
            if str(given.dtype) == "torch.bfloat16":  # numpy has no such type; float32 holds each of its numbers
                given = given.float()
        return numpy.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInputError(3, f"input '{port.name}' is no array: {error}") from error
