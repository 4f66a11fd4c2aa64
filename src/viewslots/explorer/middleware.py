"""The middleware before the web server: who may ask, for what, how much, and what an answer allows the browser.

The page needs a dozen addresses. All others that the web framework offers, such as reading files, fetching from other
sites and calling functions without the page, are closed here, and stay closed whatever a later version adds.
"""

import json
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UPLOAD, JOIN = "/gradio_api/upload", "/gradio_api/queue/join"
OPEN_TO_READ = re.compile(
    r"/|/config/?|/theme\.css|/gradio_api/theme\.css|/favicon\.ico|/robots\.txt"
    r"|/(assets|static|svelte)/[\w./@-]+"
    r"|/gradio_api/(queue/data|startup-events|app_id|upload_progress|heartbeat/\w+)"
)
OPEN_TO_WRITE = frozenset([UPLOAD, JOIN, "/gradio_api/cancel", "/gradio_api/reset", "/gradio_api/reset/"])
BURST, PER_SECOND = 30, 60.0
"""Questions of one tab: a drag of the pad asks again as soon as it is answered."""
MOST_QUESTION = 64 * 1024
"""Bytes of a request that is no upload: settings of the page, never pictures."""
MOST_TABS = 4096
LEFT_OVER = 600.0
"""Seconds after which an upload that nobody has read is thrown away."""
LOOPBACK = frozenset(["127.0.0.1", "localhost", "::1", "[::1]"])
HEADERS = {
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""Scripts as the framework needs them; nothing from other sites, and no other site may frame the page."""


class RateLimit:
    """How often one tab may ask: enough for quick hands, too little to keep everybody else waiting. A bucket of permits
    for each tab: `burst` at first, and `rate` new ones a second."""

    def __init__(
        self, burst: int, rate: float, most: int = MOST_TABS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._rate, self._most, self._clock = burst, rate, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, tab: str) -> bool:
        """Takes a permit if there is one."""
        now = self._clock()
        left, since = self._left.pop(tab, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._left[tab] = (left - allowed, now)
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        return allowed


class Refusal(Exception):
    """An answer instead of the page's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(frozen=True)
class AccessMiddleware:
    """An ASGI application around another one."""

    app: App
    host: str
    """The address that the server is bound to."""
    folder: Path
    """Where uploads wait until they are read."""
    most_upload: int
    """Bytes of one upload, all its files together."""
    most_waiting: int
    """Bytes of all files in the folder."""
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(BURST, PER_SECOND))
    """Of the questions of one tab."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        try:
            receive = await self.checked(scope, receive)
        except Refusal as refusal:
            return await refuse(send, refusal)
        await self.app(scope, receive, with_headers(send))

    async def checked(self, scope: Scope, receive: Receive) -> Receive:
        """Passes the request on, or raises."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.check_host(headers.get("host", ""))
        check_address(scope["method"], scope["path"])
        if scope["method"] != "POST":
            return receive
        check_origin(headers)
        length = body_length(headers, self.most_upload if scope["path"] == UPLOAD else MOST_QUESTION)
        if scope["path"] == UPLOAD and waiting_bytes(self.folder) + length > self.most_waiting:
            raise Refusal(503, "too many uploads are waiting; try again in a minute")
        if scope["path"] != JOIN:
            return receive
        body = await whole_body(receive, length)
        if not self.rate_limit.allows(asking_tab(body)):
            raise Refusal(503, '{"detail": "too many clicks at once; try again"}')
        return replayed(body, receive)

    def check_host(self, host: str) -> None:
        """Another site whose name is made to point at this machine must not read the page (DNS rebinding)."""
        name = host.rsplit(":", 1)[0] if re.search(r":\d+$", host) else host
        if self.host in LOOPBACK and name not in LOOPBACK:
            raise Refusal(421, "this page answers to 127.0.0.1 and localhost alone")


def check_origin(headers: dict[str, str]) -> None:
    """A form of another site may send here without being able to read the answer; it shall not send either."""
    origin = headers.get("origin")
    if origin is not None and origin.split("://", 1)[-1] != headers.get("host", ""):
        raise Refusal(403, "this page takes nothing from other sites")


def check_address(method: str, path: str) -> None:
    reads = method in ("GET", "HEAD") and OPEN_TO_READ.fullmatch(path) and ".." not in path
    if not reads and not (method == "POST" and path in OPEN_TO_WRITE):
        raise Refusal(404, "not here")


def body_length(headers: dict[str, str], most: int) -> int:
    """The declared length, which the server holds a client to."""
    declared = headers.get("content-length", "")
    if "transfer-encoding" in headers or not re.fullmatch(r"\d{1,15}", declared):
        raise Refusal(411, "say how long the request is")
    if int(declared) > most:
        raise Refusal(413, f"larger than {most // 1024} KiB")
    return int(declared)


def waiting_bytes(folder: Path) -> int:
    """Files may vanish while they are counted: they are read and removed all the time.

    What nobody has read for ten minutes is left over from an upload that broke off, and goes.
    """
    total, old = 0, time.time() - LEFT_OVER
    for path in folder.rglob("*"):
        with suppress(OSError):
            entry = path.lstat()
            if stat.S_ISREG(entry.st_mode) and entry.st_mtime < old:
                path.unlink()
            else:
                total += entry.st_size
    return total


async def whole_body(receive: Receive, length: int) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "cut off")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
        if sum(map(len, parts)) > length:
            raise Refusal(413, "longer than it said")
    return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for the application behind: the body once more, then whatever comes after it."""
    waiting = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": waiting.pop(), "more_body": False} if waiting else await receive()

    return again


def asking_tab(body: bytes) -> str:
    """The key of the tab that asks a question, if that is a sound one."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "no JSON") from error
    tab = content.get("session_hash") if isinstance(content, dict) else None
    if not isinstance(tab, str) or not re.fullmatch(r"\w{1,64}", tab):
        raise Refusal(400, "no key of a tab")
    check_files(content)
    return tab


def check_files(content: Any) -> None:
    """The framework fetches what a file's `path` names where that is a web address: nobody shall send us there."""
    todo = [content]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            path = item.get("path")
            if path is not None and not (isinstance(path, str) and "://" not in path and "\0" not in path):
                raise Refusal(400, "a file is named by the place it was uploaded to")
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *ours]}
        await send(message)

    return sent


async def refuse(send: Send, refusal: Refusal) -> None:
    text = refusal.text.encode()
    kind = b"application/json" if refusal.text.startswith("{") else b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", str(len(text)).encode())]
    headers += [(b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
