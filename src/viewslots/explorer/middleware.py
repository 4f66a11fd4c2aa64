"""The middleware before the web server: who may ask, for what, how much, and what an answer allows the browser.

The page needs a dozen addresses. All others that the web framework offers, such as reading files, fetching from other
sites and calling functions without the page, are closed here, and stay closed whatever a later version adds. Uploads
are taken here, not by the framework. Where others than this machine can reach the page, whoever asks must know a token:
it is part of the address that is printed at the start, and then a cookie.
"""

import asyncio
import hashlib
import hmac
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from viewslots.errors import UserError
from viewslots.explorer.uploads import LEFT_OVER, TooBusy, Waiting, forget_uploads, owner_of, stored

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UPLOAD, JOIN, PROGRESS = "/gradio_api/upload", "/gradio_api/queue/join", "/gradio_api/upload_progress"
STARTUP = "/gradio_api/startup-events"
"""What the framework asks itself when it starts, without a cookie; it tells nothing."""
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
PATIENCE, UPLOAD_PATIENCE = 10.0, 120.0
"""Seconds within which a request, or an upload, must have arrived whole."""
UPLOADS_IN_A_ROW, UPLOADS_PER_SECOND = 12, 0.5
"""Of one address."""
JSON, PLAIN = "application/json", "text/plain; charset=utf-8"
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
    for each tab: `burst` at first, and `rate` new ones a second. Threads may ask at once."""

    def __init__(
        self, burst: int, rate: float, most: int = MOST_TABS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._rate, self._most, self._clock = burst, rate, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, tab: str) -> bool:
        """Takes a permit if there is one."""
        with self._lock:
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

    def __init__(self, status: int, text: str, kind: str = PLAIN) -> None:
        super().__init__(text)
        self.status, self.text, self.kind = status, text, kind


@dataclass(frozen=True)
class AccessMiddleware:
    """An ASGI application around another one."""

    app: App
    host: str
    """The address that the server is bound to."""
    folder: Path
    """Where uploads wait until they are read."""
    waiting: Waiting
    """How much room there is for them."""
    most_upload: int
    """Bytes of one upload, all its files together."""
    token: str | None = None
    """What whoever asks must know; None where this machine alone can ask."""
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(BURST, PER_SECOND))
    """Of the questions of one tab."""
    upload_limit: RateLimit = field(default_factory=lambda: RateLimit(UPLOADS_IN_A_ROW, UPLOADS_PER_SECOND))
    """Of the uploads of one address."""
    patience: tuple[float, float] = (PATIENCE, UPLOAD_PATIENCE)
    left_over: float = LEFT_OVER
    """Seconds after which an upload that nobody has read is thrown away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self.check_host(headers.get("host", ""))
            check_address(scope["method"], scope["path"])
            if self.token is not None and scope["path"] != STARTUP and not knows(self.token, headers):
                return await self.admit(scope, send)
            if scope["path"] == PROGRESS:  # of uploads that the framework takes: there are none
                return await reply(with_headers(send), 200, 'data: {"msg": "done"}\n\n', "text/event-stream")
            if scope["method"] != "POST":
                return await self.app(scope, receive, with_headers(send))
            check_origin(headers)
            if scope["path"] == UPLOAD:
                return await self.take_upload(scope, headers, receive, send)
            receive = await self.question(scope["path"], headers, receive)
        except Refusal as refusal:
            return await reply(send, refusal.status, refusal.text, refusal.kind)
        await self.app(scope, receive, with_headers(send))

    async def question(self, path: str, headers: dict[str, str], receive: Receive) -> Receive:
        """The whole of it, or it is refused: nobody is waited for who does not go on."""
        body = await self.in_time(whole_body(receive, body_length(headers, MOST_QUESTION)), self.patience[0])
        if path == JOIN and not self.rate_limit.allows(asking_tab(body)):
            raise Refusal(503, json.dumps({"detail": "too many clicks at once; try again"}), JSON)
        return replayed(body, receive)

    async def take_upload(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        """Answers with the places of the files, as the framework would."""
        from starlette.datastructures import Headers

        owner, length = owner_of(client_of(scope)), body_length(headers, self.most_upload)
        if not self.upload_limit.allows(owner):
            raise Refusal(503, "too many uploads in a row; try again in some seconds")
        try:
            with self.waiting.room(owner, length):
                stream = parts_of(receive, length)
                coming = stored(Headers(scope=scope), stream, self.folder, owner)
                places = await self.in_time(coming, self.patience[1])
        except TooBusy as error:
            raise Refusal(503, str(error)) from error
        except UserError as error:
            raise Refusal(400, str(error)) from error
        asyncio.get_running_loop().call_later(self.left_over, forget_uploads, places, self.folder)
        await reply(with_headers(send), 200, json.dumps(places), JSON)

    @staticmethod
    async def in_time(coming: Awaitable[T], seconds: float) -> T:
        try:
            return await asyncio.wait_for(coming, seconds)
        except TimeoutError as error:
            raise Refusal(408, "the request did not arrive in time") from error

    async def admit(self, scope: Scope, send: Send) -> None:
        """Whoever comes by the printed address gets the cookie, and an address without the token."""
        assert self.token is not None
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["path"] != "/" or not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refusal(401, "open the address that `viewslots explore` printed: it has a token")
        cookie = f"{cookie_name(self.token)}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def check_host(self, host: str) -> None:
        """Another site whose name is made to point at this machine must not read the page (DNS rebinding). Where there
        is a token, such a site has no cookie."""
        name = host.rsplit(":", 1)[0] if re.search(r":\d+$", host) else host
        if self.token is None and name not in LOOPBACK:
            raise Refusal(421, "this page answers to 127.0.0.1 and localhost alone")


def cookie_name(token: str) -> str:
    """By the token: a browser keeps one jar for all ports of a host, and each of them may have an explorer. Its own
    port tells a server nothing, as a container's may be published as another."""
    return f"viewslots-{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def knows(token: str, headers: dict[str, str]) -> bool:
    """Other cookies of the host may hold anything but a semicolon."""
    ours = f"{cookie_name(token)}={token}".encode()
    return any(hmac.compare_digest(one.strip().encode(), ours) for one in headers.get("cookie", "").split(";"))


def client_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


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


async def parts_of(receive: Receive, length: int) -> AsyncGenerator[bytes, None]:
    """A body as it comes, no longer than it said."""
    more, left = True, length
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "cut off")
        part = message.get("body", b"")
        left, more = left - len(part), message.get("more_body", False)
        if left < 0:
            raise Refusal(413, "longer than it said")
        yield part


async def whole_body(receive: Receive, length: int) -> bytes:
    return b"".join([part async for part in parts_of(receive, length)])


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


async def reply(send: Send, status: int, text: str, kind: str) -> None:
    """A whole answer, after which the connection ends."""
    body = text.encode()
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
