"""Two CPU processes under torchrun train as one process with the whole batch does."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from trainings import ENVIRONMENT, SLOWLY, SMALL, resume, rows, saved_steps, train, written

from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.per_view.model import PerView
from viewslots.ranks import is_loss_of_contact
from viewslots.training.distributed import Ranks
from viewslots.training.feed import NoiseSource, StoredFeed
from viewslots.training.stages import Call, train_stages

OPTIONS = SMALL | {"batch": 4, "checkpoint_every": 5}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(
    restarts: int = 0, slowly: bool = False, experiment: str = "tiny", **options: object
) -> subprocess.Popen[str]:
    """As in docs/training.md; `--` keeps torchrun from taking --run for its own."""
    program = ["--no-python", "--", sys.executable, "-c", SLOWLY] if slowly else ["-m", "--", "viewslots"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", str(restarts)]
    place = ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), *program]
    command = [*launcher, *place, "train", experiment, *written(OPTIONS | options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Process numbers of the children, in the order they were started."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return sorted(map(int, listed.split()))


def losses(run: Path, kind: str) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in rows(run) if row["kind"] == kind}


@pytest.fixture(scope="module")
def alone(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    train("tiny", data=shapes, run=run, **OPTIONS)
    return run


def check_curves(run: Path, alone: Path) -> None:
    for kind, count in (("train", 20), ("valid", 2)):
        ours, theirs = losses(run, kind), losses(alone, kind)
        assert len(ours) == count
        assert ours.keys() == theirs.keys()
        for step, value in theirs.items():
            assert ours[step] == pytest.approx(value, rel=1e-4), (kind, step)


def test_two_processes_train_as_one(alone: Path, shapes: Path, tmp_path: Path) -> None:
    process = torchrun(data=shapes, run=tmp_path / "run")
    output, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(output)["step"] == 20  # one of them prints
    check_curves(tmp_path / "run", alone)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_killed_worker_is_replaced_and_the_run_goes_on(alone: Path, shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(data=shapes, run=run, restarts=1, slowly=True)
    while not saved_steps(run):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(workers_of(process)[-1], signal.SIGKILL)
    output, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(output)["step"] == 20
    check_curves(run, alone)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_without_restarts_the_others_leave_and_the_run_resumes(alone: Path, shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(data=shapes, run=run, slowly=True)
    while not saved_steps(run):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    workers = workers_of(process)
    os.kill(workers[-1], signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == 1
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    resume(run)  # in one process: the number of ranks may change
    check_curves(run, alone)


def test_a_signal_stops_all_ranks_at_one_step(alone: Path, shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(data=shapes, run=run, checkpoint_every=1000, slowly=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("step 2/20"):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    [stopped] = saved_steps(run)
    assert f"stopped by SIGTERM at step {stopped}, all saved" in said
    resume(run)
    check_curves(run, alone)


class TalkingRanks(Ranks):
    """Two ranks, of which this is one; what rank 0 says goes through a list."""

    said: ClassVar[list[str]] = []

    def tell(self, text: str) -> str:
        if self.first:
            self.said.append(text)
        return self.said[-1]


def test_what_rank_0_refuses_it_alone_says(tmp_path: Path) -> None:
    given = {"preset": "tiny", "data": str(tmp_path / "nowhere")}
    call = Call(tmp_path / "run", given, torch.device("cpu"), True, False, pytest.fail, nullcontext)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not a data set"):
        train_stages(call, TalkingRanks(0, 2))
    with pytest.raises(SystemExit) as left:
        train_stages(call, TalkingRanks(1, 2))
    assert left.value.code == 1


def test_noise_of_the_ranks_is_that_of_the_whole_batch() -> None:
    model = Ocloc(experiment("tiny").model)
    whole = NoiseSource(model, seed=3, batch=4, ranks=Ranks())(5, 2)
    parts = [NoiseSource(model, seed=3, batch=4, ranks=Ranks(rank, 2))(5, 2) for rank in range(2)]
    for name, value in vars(whole).items():
        assert torch.equal(value, torch.cat([getattr(part, name) for part in parts])), name


def gradients(kind: type[Ocloc], shapes: Path, ranks: Ranks, gather: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Of one step in double precision, on the part of a rank."""
    preset = experiment("tiny")
    model = kind(preset.model).double().train()
    model.nvil.gather = gather
    split, annealing = Store.open(shapes).split("train"), preset.schedule.at(10)
    chosen = {"size": (32, 32), "camera": False, "device": torch.device("cpu"), "ranks": ranks}
    batch = StoredFeed(split, seed=0, batch=4, **chosen)(0, 2)
    noise = NoiseSource(kind(preset.model), seed=0, batch=4, ranks=ranks)(0, 2)
    doubled = replace(noise, **{name: value.double() for name, value in vars(noise).items()})
    model(replace(batch, image=batch.image.double()), annealing, doubled).minimised.mean().backward()
    return {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("kind", [Ocloc, PerView])
def test_gradients_of_the_parts_average_to_those_of_the_whole(kind: type[Ocloc], shapes: Path) -> None:
    signals: list[Tensor] = []
    whole = gradients(kind, shapes, Ranks(), lambda values: (signals.append(values.clone()), values)[1])
    everyone = {values.is_floating_point(): values for values in signals}
    parts = [
        gradients(kind, shapes, Ranks(rank, 2), lambda values: everyone[values.is_floating_point()])
        for rank in range(2)
    ]
    compared = 0
    for name, expected in whole.items():
        if expected.abs().max() > 1e-10:  # a few biases have no influence
            torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, expected, rtol=1e-9, atol=1e-11)
            compared += 1
    assert compared >= len(whole) - 3


def test_a_batch_must_divide() -> None:
    assert Ranks(1, 2).part(6) == slice(3, 6)
    with pytest.raises(UserError, match="change --batch"):
        Ranks(0, 4).part(6)


def test_statistics_are_those_of_all_ranks() -> None:
    """NVIL with a gather answers as one process that sees both halves."""
    torch.manual_seed(0)
    signal_values, views = torch.randn(8), torch.tensor([2, 2, 1, 2, 1, 1, 2, 2])
    whole, half = (Ocloc(experiment("tiny").model).nvil for _ in range(2))
    others = {"signal": signal_values[4:], "views": views[4:]}
    half.gather = lambda values: torch.cat([values, others["signal" if values.is_floating_point() else "views"]])
    whole.track(signal_values, views)
    half.track(signal_values[:4], views[:4])
    for name in ("mean", "variance", "weight"):
        assert torch.equal(getattr(whole, name), getattr(half, name))
        assert getattr(whole, name) != 0


def test_only_lost_contact_is_taken_for_it() -> None:
    assert is_loss_of_contact(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]"))
    assert not is_loss_of_contact(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
