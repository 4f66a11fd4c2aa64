"""Work in processes that may be killed, starved or stripped of rights without harm to the tests."""

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

NOBODY = 65534


def begin(work: Callable[[], object]) -> int:
    """Start a forked process and answer its id; it ends with code 0, or 99 after an exception."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    return pid


def end(pid: int) -> int:
    """The exit code, or minus the signal that ended the process."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def in_child(work: Callable[[], object]) -> int:
    return end(begin(work))


def killed_after(work: Callable[[], object], seconds: float) -> None:
    """Cut off by kill -9 while at work."""
    pid = begin(work)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    assert end(pid) == -signal.SIGKILL


def fatal_at(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wraps dealings with the disk so that the given one of all of them kills this process."""
    seen = iter(range(10**9))

    def fatal(deal: Callable[..., Any]) -> Callable[..., Any]:
        def dealing(*args: Any, **kwargs: Any) -> Any:
            if next(seen) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return deal(*args, **kwargs)

        return dealing

    return fatal


def limit_files(size: int) -> None:
    """From now on no file of this process can grow beyond `size`: writing fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def give_up_rights() -> None:
    """Root ignores permissions; nobody does not."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
