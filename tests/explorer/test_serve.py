"""The command before there is a page: a missing package, ports, models."""

import ast
import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import viewslots.explorer
from viewslots.commands.explore import explore
from viewslots.errors import UserError
from viewslots.explorer import serve
from viewslots.explorer.opened import world_for
from viewslots.explorer.serve import PORTS_TRIED, free_port, require_gradio, stop_signals
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import DSPRITES
from viewslots.methods.umbra.model import Umbra
from viewslots.scenes.flat.sprites import SpriteWorld
from viewslots.scenes.world import World
from viewslots.training.run import RunFolder
from viewslots.viewpoints.scene import Reader


def refused(*words: str) -> str:
    """Exit 1, one line on stderr, nothing on stdout."""
    command = [sys.executable, "-m", "viewslots", "explore", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_without_gradio_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'viewslots\[ui\]'"):
        require_gradio()


def test_gradio_is_imported_by_the_page_alone() -> None:
    users = set()
    for path in Path(viewslots.explorer.__file__).parent.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "gradio" for name in names):
                users.add(path.name)
    assert users == {"app.py", "controls.py"}


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}"):
            free_port("127.0.0.1", port)
        assert f"port {port}" in refused("--port", str(port))
    assert free_port("127.0.0.1", port) == port


def test_a_free_port_is_found() -> None:
    """It can be had, it is the one that was asked about, and while somebody has it another one is found."""
    first = free_port("127.0.0.1", 0)
    assert 1024 <= first < 2**16
    with socket.create_server(("127.0.0.1", first)) as server:
        assert server.getsockname()[1] == first
        assert free_port("127.0.0.1", 0) != first


def test_the_address_that_is_taken_is_named() -> None:
    """All of 127.0.0.0/8 is this machine."""
    for taken in ("127.0.0.1", "127.0.0.2"):
        with socket.create_server((taken, 0)) as server:
            port = server.getsockname()[1]
            with pytest.raises(UserError, match=f"cannot use {taken}, port {port} "):
                free_port("127.0.0.2", port)


@pytest.mark.parametrize(("clashes", "found"), [(3, True), (PORTS_TRIED, False)])
def test_a_free_port_is_free_at_both_addresses(monkeypatch: pytest.MonkeyPatch, clashes: int, found: bool) -> None:
    """Somebody takes it at the second one, a few times or always."""
    bound, asked = serve.bound_port, []
    with contextlib.ExitStack() as stack:

        def clashing(name: str, port: int) -> int:
            port = bound(name, port)
            if name == "127.0.0.2":
                asked.append(port)
                if len(asked) <= clashes:
                    with contextlib.suppress(OSError):  # taken already
                        stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return port

        monkeypatch.setattr(serve, "bound_port", clashing)
        if found:
            assert free_port("127.0.0.2", 0) == asked[-1]
            assert clashes < len(asked) <= PORTS_TRIED
        else:
            with pytest.raises(UserError, match=r"cannot use 127\.0\.0\.1, port"):
                free_port("127.0.0.2", 0)
            assert len(asked) == PORTS_TRIED


@pytest.mark.parametrize("port", [-1, 2**16])
def test_ports_that_are_none(port: int) -> None:
    with pytest.raises(UserError, match="--port"):
        free_port("127.0.0.1", port)


def test_a_host_that_is_none() -> None:
    with pytest.raises(UserError, match="--host"):
        free_port("no-such-host.invalid", 0)


def test_a_model_that_is_none() -> None:
    assert "no-such-model" in refused("no-such-model")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_the_wait_and_are_given_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stopped:
        assert not stopped.is_set()
        signal.raise_signal(number)
        assert stopped.wait(10)
    assert signal.getsignal(number) is before


HOLDER = """
import sys, tempfile
from viewslots.explorer.serve import own_folder
tempfile.tempdir = sys.argv[1]
with own_folder() as folder:
    (folder / "upload").write_bytes(b"a picture")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_server_left_goes_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 leaves pictures behind; folders of servers that live, and of others, stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def holder() -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", HOLDER, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (living, kept), (killed, left) = holder(), holder()
    (tmp_path / "somebody-elses").mkdir()
    (tmp_path / f"{serve.PREFIX}link").symlink_to(tmp_path / "somebody-elses")
    killed.kill()
    killed.wait(60)
    assert (left / "upload").exists()
    serve.clear_leftovers()
    assert not left.exists()
    assert (kept / "upload").exists()
    assert (tmp_path / "somebody-elses").exists()
    living.communicate("", timeout=60)
    assert not kept.exists()


def test_a_server_that_starts_keeps_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one looks for leftovers between the making of the folder and its lock; old empty ones go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / f"{serve.PREFIX}killed"
    killed.mkdir()
    os.utime(killed, (0, 0))

    class Slow(tempfile.TemporaryDirectory[str]):
        def __enter__(self) -> str:
            other = threading.Thread(target=serve.clear_leftovers)
            other.start()
            other.join()
            return super().__enter__()

    monkeypatch.setattr(tempfile, "TemporaryDirectory", Slow)
    with serve.own_folder() as folder:
        assert folder.exists()
        assert list(tmp_path.iterdir()) == [folder]


def test_ipv6(tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without brackets; and where 127.0.0.1 has the port already, one line says so."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", "")  # and as before afterwards
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "")
    monkeypatch.setattr(serve, "own_folder", lambda: contextlib.nullcontext(tmp_path))
    monkeypatch.setattr(serve, "stop_signals", lambda: contextlib.nullcontext(stopped))
    monkeypatch.setattr(serve, "clear_leftovers", lambda: None)
    stopped, answers = threading.Event(), []

    def ready(address: str) -> None:
        stopped.set()
        straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        answers.append((address, straight.open(address).status))

    try:
        port = free_port("::1", 0)
    except UserError:
        pytest.skip("this machine has no IPv6")
    for host in ("::1", "[::1]"):
        serve.serve(reader, None, host, port, ready)
    assert answers == [(f"http://[::1]:{port}", 200)] * 2
    with socket.create_server(("127.0.0.1", port)), pytest.raises(UserError, match=f"127.0.0.1, port {port}"):
        free_port("::1", port)


def test_addresses() -> None:
    assert serve.address_of("localhost", 7, None) == "http://127.0.0.1:7"
    assert serve.address_of("127.0.0.1", 7, None) == "http://127.0.0.1:7"
    assert serve.address_of("::1", 7, None) == "http://[::1]:7"
    assert serve.address_of("0.0.0.0", 7, "abc") == "http://0.0.0.0:7/?token=abc"
    assert serve.address_of("fe80::1", 7, "abc") == "http://[fe80::1]:7/?token=abc"


def test_without_a_name_the_page_shows_the_model_that_knows_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[Reader, World | None]] = []
    monkeypatch.setattr(serve, "serve", lambda reader, world, *_: served.append((reader, world)))
    explore(device="cpu")
    ((reader, world),) = served
    assert isinstance(reader.model, Umbra)
    assert reader.name == "umbra-quick"
    assert world == world_for("clevr-mixed", 64)


def test_a_run_is_shown_scenes_of_its_own_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the data of its experiment, whether it trained on scenes from a disk or on live ones."""
    served: list[World | None] = []
    monkeypatch.setattr(serve, "serve", lambda reader, world, *_: served.append(world))
    for place, config in enumerate(({"preset": "ocloc/dsprites"}, {"preset": "tiny", "world": "dsprites"})):
        with RunFolder.create(tmp_path / str(place), config | {"seed": 0}) as folder:
            folder.keep_best(Ocloc(replace(DSPRITES, hidden=16)), 1, {"loss": 2.0})
        explore(str(folder.path), device="cpu")
    assert [type(world) for world in served] == [SpriteWorld] * 2
