"""The middleware before the server, asked as a web server asks it."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import looped
from viewslots.explorer.middleware import BURST, MOST_QUESTION, AccessMiddleware, RateLimit
from viewslots.explorer.uploads import SMALLEST, Waiting, forget_uploads
from viewslots.viewpoints.photos import MOST_BYTES

JOIN, UPLOAD = "/gradio_api/queue/join", "/gradio_api/upload"


def question(content: dict[str, Any]) -> bytes:
    return json.dumps({"session_hash": "abc123"} | content).encode()


def form(*files: bytes, name: str = "same.png") -> bytes:
    """A form with files, as browsers send them."""
    head = f'--edge\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
    return b"".join(head + file + b"\r\n" for file in files) + b"--edge--\r\n"


FORM = {"content_type": "multipart/form-data; boundary=edge"}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with the body it was sent."""
    body = (await receive())["body"] if scope["method"] == "POST" else b"page"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": body})


def asked(
    guard: AccessMiddleware,
    method: str,
    path: str,
    body: bytes = b"",
    host: str = "127.0.0.1:7860",
    client: str = "127.0.0.1",
    wait: float = 0.0,
    **headers: str,
) -> tuple[int, bytes, dict[str, str]]:
    """`wait`: how long the server goes on after the answer."""
    given = {"host": host, "content-length": str(len(body))} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    pairs = [(name.encode(), text.encode()) for name, text in given.items() if text]
    step = max(1000, len(body) // 10)
    parts = [body[start : start + step] for start in range(0, len(body), step)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": place + 1 < len(parts)} for place, part in enumerate(parts)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": pairs}

    async def answered() -> None:
        await guard({**scope, "client": (client, 1), "server": ("127.0.0.1", 7860)}, receive, send)
        await asyncio.sleep(wait)

    looped.run(answered())
    replied = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
    return sent[0]["status"], sent[1]["body"], replied


def guarding(folder: Path, **settings: Any) -> AccessMiddleware:
    waiting = Waiting(folder, most=3 * SMALLEST, each=2 * SMALLEST)
    return AccessMiddleware(echo, "127.0.0.1", folder, waiting, **{"most_upload": 10_000} | settings)


@pytest.fixture
def guard(tmp_path: Path) -> AccessMiddleware:
    return guarding(tmp_path)


@pytest.mark.parametrize("path", ["/", "/config", "/assets/index-1.js", "/theme.css", "/gradio_api/queue/data"])
def test_what_the_page_needs_is_open(guard: AccessMiddleware, path: str) -> None:
    assert asked(guard, "GET", path)[:2] == (200, b"page")


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/file=/etc/passwd",
        "/gradio_api/proxy=http://example.com",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/gradio_api/runs",
        "/gradio_api/call/load/1",
        "/monitoring",
        "/docs",
        "/openapi.json",
        "/assets/../../secret",
        "/static/..",
        "/gradio_api/stream/a/b/c/playlist.m3u8",
    ],
)
def test_everything_else_is_closed(guard: AccessMiddleware, path: str) -> None:
    assert asked(guard, "GET", path)[0] == 404
    assert asked(guard, "POST", path, b"{}")[0] == 404


@pytest.mark.parametrize(
    "path", ["/gradio_api/run/predict", "/gradio_api/api/predict", "/gradio_api/component_server", "/login"]
)
def test_functions_cannot_be_called_past_the_page(guard: AccessMiddleware, path: str) -> None:
    assert asked(guard, "POST", path, b"{}")[0] == 404
    assert asked(guard, "DELETE", JOIN, b"{}")[0] == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7860", 200),
        ("127.0.0.1", 200),
        ("[::1]:7860", 200),
        ("evil.example:7860", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_foreign_name_for_this_machine_is_no_way_in(guard: AccessMiddleware, host: str, status: int) -> None:
    assert asked(guard, "GET", "/", host=host)[0] == status


def test_a_server_for_all_asks_for_a_token(tmp_path: Path) -> None:
    """By any name; the printed address gives the cookie, and nothing else does."""
    guard, host = guarding(tmp_path, token="s3cret"), "my-machine.lan:7860"
    for path in ("/", "/config", "/?token=", "/?token=s3cre", "/config?token=s3cret", "/?token=%ff"):
        assert asked(guard, "GET", path, host=host)[0] == 401
    assert asked(guard, "POST", JOIN, question({}), host=host)[0] == 401
    assert asked(guard, "POST", UPLOAD, form(b"x"), host=host, **FORM)[0] == 401
    assert asked(guard, "GET", "/gradio_api/startup-events", host=host)[0] == 200  # the framework asks itself
    status, _, headers = asked(guard, "GET", "/?token=s3cret", host=host)
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    known = cookie.split(";")[0]
    assert asked(guard, "GET", "/", host=host, cookie=f"other=1; {known}")[0] == 200
    assert asked(guard, "POST", JOIN, question({}), host=host, cookie=known)[0] == 200
    for beside in ('prefs={"a":1}', "a=hello world", "\u00e9=[", ";;=,\x01"):  # cookies of other programs
        for both in (f"{beside}; {known}", f"{known};{beside}"):
            assert asked(guard, "GET", "/", host=host, cookie=both)[0] == 200
    for wrong in (known[:-1], known.partition("=")[0], f"{known}x", f"x{known}", "s3cret", ";;=,\x01"):
        assert asked(guard, "GET", "/", host=host, cookie=wrong)[0] == 401


def test_two_servers_of_one_host_do_not_lock_each_other_out(tmp_path: Path) -> None:
    """A browser sends the cookies of a host to all of its ports; one of the same name replaces another. In containers
    both servers have the same port, which is published as two."""
    jar: dict[str, str] = {}
    servers = {token: guarding(tmp_path, token=token) for token in ("first", "second")}
    for token, guard in servers.items():
        _, _, headers = asked(guard, "GET", f"/?token={token}")
        name, _, value = headers["set-cookie"].split(";")[0].partition("=")
        assert token not in name
        jar[name] = value
    cookies = [f"{name}={value}" for name, value in jar.items()]
    for guard, own in zip(servers.values(), cookies, strict=True):
        assert asked(guard, "GET", "/", cookie="; ".join(cookies))[0] == 200
        assert [asked(guard, "GET", "/", cookie=one)[0] == 200 for one in cookies] == [one == own for one in cookies]


def test_a_question_arrives_whole(guard: AccessMiddleware) -> None:
    body = question({"data": ["x" * 5000, {"path": "/tmp/a/b.png", "url": "http://127.0.0.1/file"}]})
    assert asked(guard, "POST", JOIN, body)[:2] == (200, body)


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"path": "http://example.com/x.png", "meta": {"_type": "gradio.FileData"}}]},
        {"data": [{"deep": [{"path": "https://example.com"}]}]},
        {"data": [{"path": "file:///etc/passwd"}]},
        {"data": [{"path": {"path": 1}}]},
        {"data": [{"path": "a\0b"}]},
    ],
)
def test_the_server_is_not_sent_elsewhere(guard: AccessMiddleware, body: Any) -> None:
    assert asked(guard, "POST", JOIN, question(body))[0] == 400
    escaped = question(body).replace(b"http", b"\\u0068ttp")
    assert asked(guard, "POST", JOIN, escaped)[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"\xff\xfe",
        b"[" * 50_000,
        b"[]",
        b"{}",
        b'{"session_hash": "a b"}',
        b'{"session_hash": {"path": "x"}}',
    ],
)
def test_questions_that_are_none(guard: AccessMiddleware, body: bytes) -> None:
    assert asked(guard, "POST", JOIN, body)[0] == 400


def test_sizes_are_bounded(guard: AccessMiddleware) -> None:
    assert asked(guard, "POST", JOIN, b" " * (MOST_QUESTION + 1))[0] == 413
    assert asked(guard, "POST", JOIN, b"{}  ", content_length="2")[0] == 413
    assert asked(guard, "POST", UPLOAD, form(b"x" * 10_001), **FORM)[0] == 413
    assert asked(guard, "POST", UPLOAD, form(b"x" * 9_000), content_length="500", **FORM)[0] == 413
    for length in ("", "-1", "1e3", "9" * 20):
        assert asked(guard, "POST", UPLOAD, b"x", content_length=length)[0] == 411
    assert asked(guard, "POST", UPLOAD, b"x", transfer_encoding="chunked")[0] == 411


def test_equal_files_of_two_users_are_two_files(guard: AccessMiddleware, tmp_path: Path) -> None:
    """One of them is read and removed; the other stays."""
    mine, theirs = (
        json.loads(asked(guard, "POST", UPLOAD, form(b"the same"), client=who, **FORM)[1])
        for who in ("1.1.1.1", "2.2.2.2")
    )
    assert mine != theirs
    assert [Path(place).read_bytes() for place in (*mine, *theirs)] == [b"the same"] * 2
    assert all(Path(place).parent == tmp_path and "same.png" not in place for place in (*mine, *theirs))
    forget_uploads(mine, tmp_path)
    assert Path(theirs[0]).exists()


def test_a_form_has_a_few_files(guard: AccessMiddleware, tmp_path: Path) -> None:
    status, body, _ = asked(guard, "POST", UPLOAD, form(*[b"x"] * 999)[:9999], **FORM)
    assert status == 400
    assert b"at most 16 files" in body
    assert asked(guard, "POST", UPLOAD, b"no form at all", **FORM)[0] in (200, 400)
    assert asked(guard, "POST", UPLOAD, b"no form at all")[0] == 400
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_too_large_is_not_kept_in_part(tmp_path: Path) -> None:
    guard = replace(guarding(tmp_path, most_upload=2 * MOST_BYTES), waiting=Waiting(tmp_path, 10**9, 10**9))
    most = b"\0" * MOST_BYTES
    status, body, _ = asked(guard, "POST", UPLOAD, form(b"x", most + b"\0"), **FORM)
    assert (status, body) == (400, b"file 2: larger than 20 MB; save it smaller")
    assert list(tmp_path.iterdir()) == []
    places = json.loads(asked(guard, "POST", UPLOAD, form(b"x", most), **FORM)[1])
    assert [Path(place).stat().st_size for place in places] == [1, MOST_BYTES]


def test_uploads_that_nobody_reads_go_by_themselves(guard: AccessMiddleware, tmp_path: Path) -> None:
    assert asked(guard, "POST", UPLOAD, form(b"x", b"y"), **FORM)[0] == 200
    assert len(list(tmp_path.iterdir())) == 2
    forget_uploads(list(tmp_path.iterdir()), tmp_path)
    guard = replace(guard, left_over=0.05)
    assert asked(guard, "POST", UPLOAD, form(b"x", b"y"), wait=0.2, **FORM)[0] == 200
    assert list(tmp_path.iterdir()) == []


def test_waiting_uploads_of_one_do_not_keep_others_out(guard: AccessMiddleware, tmp_path: Path) -> None:
    sent = [asked(guard, "POST", UPLOAD, form(b"x"), client="1.1.1.1", **FORM)[0] for _ in range(4)]
    assert sent == [200, 200, 503, 503]
    assert asked(guard, "POST", UPLOAD, form(b"x"), client="2.2.2.2", **FORM)[0] == 200


def test_one_address_may_not_upload_all_the_time(guard: AccessMiddleware) -> None:
    guard = replace(guard, upload_limit=RateLimit(2, 1, clock=lambda: 0.0))
    answers = [asked(guard, "POST", UPLOAD, form(), client="1.1.1.1", **FORM)[0] for _ in range(3)]
    assert answers == [200, 200, 503]
    assert asked(guard, "POST", UPLOAD, form(), client="2.2.2.2", **FORM)[0] == 200


@pytest.mark.parametrize("path", [JOIN, UPLOAD, "/gradio_api/cancel"])
def test_nobody_is_waited_for_who_does_not_go_on(tmp_path: Path, path: str) -> None:
    guard, sent = guarding(tmp_path, patience=(0.05, 0.05)), []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {"host": "localhost", "content-length": "100", "content-type": FORM["content_type"]}
    pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": pairs, "client": ("1.1.1.1", 1)}
    looped.run(guard(scope, receive, send))
    assert sent[0]["status"] == 408
    assert guard.waiting.taken("any") == (0, 0)  # its room is free again


def test_one_tab_may_not_ask_all_the_time(guard: AccessMiddleware) -> None:
    guard = replace(guard, rate_limit=RateLimit(BURST, 1, clock=lambda: 0.0))
    answers = [asked(guard, "POST", JOIN, question({})) for _ in range(100)]
    assert [status for status, _, _ in answers] == [200] * BURST + [503] * (100 - BURST)
    assert "too many clicks" in json.loads(answers[-1][1])["detail"]
    assert answers[-1][2]["content-type"] == "application/json"
    assert asked(guard, "POST", JOIN, json.dumps({"session_hash": "another"}).encode())[0] == 200


def test_threads_share_the_permits_of_a_tab() -> None:
    limit, before = RateLimit(burst=4, rate=0), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            allowed = sum(pool.map(lambda _: sum(limit.allows("one") for _ in range(2000)), range(8)))
    finally:
        sys.setswitchinterval(before)
    assert allowed == 4


def test_permits_come_back_with_time() -> None:
    now = [0.0]
    limit = RateLimit(burst=3, rate=2, most=2, clock=lambda: now[0])
    assert [limit.allows("a") for _ in range(4)] == [True, True, True, False]
    now[0] = 0.4
    assert not limit.allows("a")
    now[0] = 0.5
    assert [limit.allows("a") for _ in range(2)] == [True, False]
    now[0] = 100
    assert [limit.allows("a") for _ in range(4)] == [True, True, True, False]
    limit.allows("b")
    limit.allows("c")
    assert len(limit._left) == 2


def test_answers_keep_browsers_from_other_sites(guard: AccessMiddleware) -> None:
    _, _, headers = asked(guard, "GET", "/")
    assert headers["x-own"] == "1"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:7860", 200), ("", 200), ("https://evil.example", 403), ("null", 403)],
)
def test_other_sites_cannot_send(guard: AccessMiddleware, origin: str, status: int) -> None:
    assert asked(guard, "POST", UPLOAD, form(b"picture"), origin=origin, **FORM)[0] == status
