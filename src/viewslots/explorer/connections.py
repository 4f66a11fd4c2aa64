"""Connections that say nothing: closed after a while, so that they keep nobody else out."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""Within which the head of a request must have come, from the first moment of a connection or its last answer on."""
MOST_CONNECTIONS = 1024
"""At once; a tab has two or three."""


class ImpatientProtocol(H11Protocol):
    """HTTP, but nobody is waited for who opens a connection and does not ask."""

    head_seconds = HEAD_SECONDS
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _asks(self) -> bool:
        """A request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._asks():
            self._disarm()
        elif self._alarm is None and not self.transport.is_closing():
            self._alarm = self.loop.call_later(self.head_seconds, self._lose_patience)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _lose_patience(self) -> None:
        self._alarm = None
        if not self._asks():
            self.transport.abort()


@contextmanager
def connection_limits() -> Iterator[None]:
    """Servers that the framework starts meanwhile have these limits; it has no option for them."""
    plain = uvicorn.Config
    limited = partial(plain, http=ImpatientProtocol, limit_concurrency=MOST_CONNECTIONS)
    uvicorn.Config = limited  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        uvicorn.Config = plain  # type: ignore[misc]
