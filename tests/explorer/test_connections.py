"""Connections that say nothing are closed, and others are not, on a real server."""

import asyncio
from typing import Any

import uvicorn

import looped
from viewslots.explorer.connections import ImpatientProtocol, connection_limits

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Hasty(ImpatientProtocol):
    head_seconds = 0.2


async def slow_answer(scope: Any, receive: Any, send: Any) -> None:
    """Takes longer to answer than the server waits for questions."""
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def conversation(port: int, *said: bytes) -> bytes:
    """All that the server answers until it closes; nothing is closed from here."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in said:
        writer.write(part)
        await writer.drain()
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def talked() -> list[bytes]:
    config = uvicorn.Config(
        slow_answer, port=0, http=Hasty, lifespan="off", log_level="critical", timeout_keep_alive=30
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    answers = await asyncio.gather(
        conversation(port),
        conversation(port, ASK[:20]),
        conversation(port, ASK),
        conversation(port, ASK, ASK[:10]),
    )
    server.should_exit = True
    await task
    return list(answers)


def test_half_open_connections_are_closed_and_slow_answers_arrive() -> None:
    silent, half, whole, again = looped.run(talked())
    assert silent == half == b""
    assert whole.endswith(b"ok")  # and the connection was closed though it might be kept: nobody asked again
    assert again.endswith(b"ok")


def test_the_limits_hold_for_servers_that_are_started_meanwhile() -> None:
    plain = uvicorn.Config
    with connection_limits():
        limited = uvicorn.Config(slow_answer)
    assert uvicorn.Config is plain
    assert limited.http is ImpatientProtocol
    assert limited.limit_concurrency is not None
