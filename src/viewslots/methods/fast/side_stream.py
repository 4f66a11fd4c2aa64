"""Work beside the main work: small kernels on a stream of their own, while the large ones keep the device busy.

Only while a step is recorded as a CUDA graph: there the streams become branches of the graph, and nothing is launched
by hand. Autograd runs the backward pass of each part on the stream of its forward pass, so that overlaps too. Whatever
is made there may be used only after `join`, and must stay referenced until then.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class SideStream(AbstractContextManager["SideStream"]):
    """`with side:` puts its body on a side stream where a CUDA graph is recorded; elsewhere nothing changes."""

    def __init__(self, device: torch.device) -> None:
        recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self.stream = side_stream(device) if recording else None

    def __enter__(self) -> "SideStream":
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            self._inside = torch.cuda.stream(self.stream)
            self._inside.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            self._inside.__exit__(kind, error, trace)

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Work whose answer is asked for after `join`: begun at once on the side stream, or, where there is none, done
        when it is asked for."""
        if self.stream is None:
            return work
        with self:
            answer = work()
        return lambda: answer

    def lend(self, *tensors: Tensor) -> None:
        """Tensors of the main work that side work keeps for its backward pass: not to be reused before it is over."""
        if self.stream is not None:
            for tensor in tensors:
                tensor.record_stream(self.stream)

    def join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
