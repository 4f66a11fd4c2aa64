"""From a page to a server: local unless told otherwise, nothing shared, nothing left behind."""

import fcntl
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from viewslots.errors import UserError
from viewslots.explorer.middleware import LOOPBACK, AccessMiddleware
from viewslots.explorer.opened import NumberedScenes
from viewslots.explorer.uploads import MOST_OF_ONE, MOST_UPLOAD, MOST_WAITING, Waiting
from viewslots.viewpoints.photos import MOST_BYTES
from viewslots.viewpoints.scene import Reader

INSTALL = "the explorer needs gradio: pip install 'viewslots[ui]'"
THREADS = 24
"""Some wait in the line of openings, and must not keep others from moving the camera."""
PREFIX = "viewslots-explore-"
STARTING = 60.0
"""Seconds for which an empty folder may belong to a server that is about to lock it."""
LOCAL = "127.0.0.1"
PORTS_TRIED = 16
"""Of free ports, how many may turn out to be taken at the second address."""
STATES = 256
"""Tabs of which the framework remembers the controls."""


def serve(reader: Reader, world: NumberedScenes | None, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until the process is told to stop. `ready` is called with its address."""
    require_gradio()
    host = host.strip("[]")
    port = free_port(host, port)
    token = None if host in LOOPBACK else secrets.token_urlsafe(16)
    clear_leftovers()
    with own_folder() as folder, stop_signals() as stopped:
        blocks = launched(reader, world, host, port, folder, token)
        try:
            ready(address_of(host, port, token))
            stopped.wait()
        finally:
            blocks.close(verbose=False)


def address_of(host: str, port: int, token: str | None) -> str:
    name = "127.0.0.1" if host == "localhost" else in_address(host)
    return f"http://{name}:{port}" + ("" if token is None else f"/?token={token}")


def in_address(host: str) -> str:
    """IPv6 has brackets there."""
    return f"[{host}]" if ":" in host else host


@contextmanager
def own_folder() -> Iterator[Path]:
    """For uploads. It is locked as long as this process lives, whichever way that ends."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, locked(Path(name)):
        yield Path(name)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError if a living process has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def clear_leftovers() -> None:
    """Folders of servers that were killed, with whatever pictures lie in them. Those of other users stay."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and not newborn(folder):
                with locked(folder):
                    shutil.rmtree(folder)


def newborn(folder: Path) -> bool:
    """Perhaps of a server that starts at this moment, which would find its folder taken if so much as a lock was
    tried."""
    return time.time() - folder.lstat().st_mtime < STARTING and not any(folder.iterdir())


def launched(
    reader: Reader, world: NumberedScenes | None, host: str, port: int, folder: Path, token: str | None = None
) -> Any:
    """The page, running in threads of its own."""
    os.environ |= {"GRADIO_TEMP_DIR": str(folder), "GRADIO_ANALYTICS_ENABLED": "False"}  # read when gradio is imported
    from starlette.middleware import Middleware

    from viewslots.explorer.app import Explorer, build
    from viewslots.explorer.connections import connection_limits
    from viewslots.explorer.controls import asset, theme

    blocks = build(Explorer(reader, world, folder))
    waiting = Waiting(folder, MOST_WAITING, MOST_OF_ONE)
    access: dict[str, Any] = {"host": host, "folder": folder, "waiting": waiting, "token": token}
    with connection_limits():
        blocks.launch(
            server_name=in_address(host),
            server_port=port,
            share=False,
            inbrowser=False,
            prevent_thread_lock=True,
            quiet=True,
            show_error=False,
            max_threads=THREADS,
            max_file_size=MOST_BYTES,
            state_session_capacity=STATES,
            allowed_paths=[],
            app_kwargs={
                "middleware": [Middleware(AccessMiddleware, most_upload=MOST_UPLOAD, **access)],
                "docs_url": None,
                "redoc_url": None,
            },
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            enable_monitoring=False,
            run_history=False,
            footer_links=[],
            theme=theme(),
            css=asset("page.css"),
        )
    return blocks


def require_gradio() -> None:
    """Without importing it yet, which makes a folder."""
    if importlib.util.find_spec("gradio") is None:
        raise UserError(INSTALL)


def free_port(host: str, port: int) -> int:
    """The port itself if nobody has it, or for 0 one that is free. At 127.0.0.1 as well, where the framework tries it,
    whatever the host is."""
    if not 0 <= port < 2**16:
        raise UserError(f"--port: {port} is none; choose one from 1024 to 65535, or 0 for any that is free")
    for _ in range(PORTS_TRIED - 1):
        found = bound_port(host, port)
        with suppress(UserError):
            return bound_port(LOCAL, found)
    return bound_port(LOCAL, bound_port(host, port))


def bound_port(name: str, port: int) -> int:
    """The port that a server gets there; it is given back at once."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(found[4])
            return int(trial.getsockname()[1])
    except OSError as error:
        reason = error.strerror or str(error)
        other = "--port" if name == LOCAL else "--port or --host"  # a page on any host needs LOCAL too
        raise UserError(f"cannot use {name}, port {port} ({reason}); choose another {other}") from error


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Ctrl-C, SIGTERM and a closed terminal end the wait, so that the temporary folder goes away in every ordinary
    end."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            with suppress(ValueError, TypeError):
                signal.signal(number, handler)
