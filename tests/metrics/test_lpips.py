"""LPIPS against a slow twin in numpy, with random weights under the names of torchvision and of the package lpips."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from viewslots.errors import UserError
from viewslots.metrics.extras import perceived
from viewslots.metrics.lpips import ENVIRONMENT, Lpips, find_lpips
from viewslots.types import SceneBatch

# Written from the published descriptions: (features.N, in, out, kernel, stride, padding), or the pooling before.
ALEXNET = [
    (0, 3, 64, 11, 4, 2),
    "pool 3",
    (3, 64, 192, 5, 1, 2),
    "pool 3",
    (6, 192, 384, 3, 1, 1),
    (8, 384, 256, 3, 1, 1),
    (10, 256, 256, 3, 1, 1),
]
VGG16 = [(n, i, o, 3, 1, 1) for n, i, o in [(0, 3, 64), (2, 64, 64)]] + ["pool 2"]
VGG16 += [(n, i, o, 3, 1, 1) for n, i, o in [(5, 64, 128), (7, 128, 128)]] + ["pool 2"]
VGG16 += [(n, i, o, 3, 1, 1) for n, i, o in [(10, 128, 256), (12, 256, 256), (14, 256, 256)]] + ["pool 2"]
VGG16 += [(n, i, o, 3, 1, 1) for n, i, o in [(17, 256, 512), (19, 512, 512), (21, 512, 512)]] + ["pool 2"]
VGG16 += [(n, i, o, 3, 1, 1) for n, i, o in [(24, 512, 512), (26, 512, 512), (28, 512, 512)]]
NETWORKS = {"alex": (ALEXNET, (0, 3, 6, 8, 10)), "vgg": (VGG16, (2, 7, 14, 21, 28))}
SLICES = {"alex": {0: 1, 3: 2, 6: 3, 8: 4, 10: 5}}


def weights(network: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The backbone, with a classifier that nobody asks for, and the linear layers."""
    layers, taps = NETWORKS[network]
    draw = torch.Generator().manual_seed(3)
    backbone = {"classifier.6.bias": torch.zeros(5)}
    for layer in layers:
        if isinstance(layer, tuple):
            number, into, out, kernel, *_ = layer
            size = (out, into, kernel, kernel)
            backbone[f"features.{number}.weight"] = torch.randn(size, generator=draw) * (2 / (into * kernel**2)) ** 0.5
            backbone[f"features.{number}.bias"] = 0.1 * torch.randn(out, generator=draw)
    channels = [backbone[f"features.{tap}.bias"].numel() for tap in taps]
    linear = {f"lin{k}.model.1.weight": torch.rand(1, c, 1, 1, generator=draw) for k, c in enumerate(channels)}
    return backbone, linear


def slow_features(picture: np.ndarray, network: str, backbone: dict[str, torch.Tensor]) -> list[np.ndarray]:
    layers, taps = NETWORKS[network]
    shift, scale = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    values = ((2 * picture.astype(np.float64) - 1) - shift[:, None, None]) / scale[:, None, None]
    found = []
    for layer in layers:
        if isinstance(layer, str):
            size = int(layer[-1])
            rows, columns = ((side - size) // 2 + 1 for side in values.shape[1:])
            cells = [
                [values[:, 2 * i : 2 * i + size, 2 * j : 2 * j + size] for j in range(columns)] for i in range(rows)
            ]
            values = np.array([[cell.max((1, 2)) for cell in row] for row in cells]).transpose(2, 0, 1)
            continue
        number, _, out, kernel, stride, padding = layer
        padded = np.pad(values, ((0, 0), (padding, padding), (padding, padding)))
        weight, bias = (backbone[f"features.{number}.{part}"].numpy().astype(np.float64) for part in ("weight", "bias"))
        rows, columns = (side - kernel + 1 for side in padded.shape[1:])
        sums = np.zeros((out, rows, columns))
        for y in range(kernel):
            for x in range(kernel):
                sums += np.tensordot(weight[:, :, y, x], padded[:, y : y + rows, x : x + columns], 1)
        values = np.maximum(sums[:, ::stride, ::stride] + bias[:, None, None], 0)
        if number in taps:
            found.append(values)
    return found


def slow_lpips(first: np.ndarray, second: np.ndarray, network: str, backbone: dict, linear: dict) -> float:
    total = 0.0
    pairs = zip(slow_features(first, network, backbone), slow_features(second, network, backbone), strict=True)
    for place, (one, other) in enumerate(pairs):
        channel = linear[f"lin{place}.model.1.weight"].numpy().ravel().astype(np.float64)
        values = []
        for row in range(one.shape[1]):
            for column in range(one.shape[2]):
                a, b = one[:, row, column], other[:, row, column]
                a, b = a / (np.linalg.norm(a) + 1e-10), b / (np.linalg.norm(b) + 1e-10)
                values.append((channel * (a - b) ** 2).sum())
        total += np.mean(values)
    return total


@pytest.mark.parametrize(("network", "size"), [("alex", (37, 44)), ("vgg", (17, 16))])
def test_against_the_slow_twin(tmp_path: Path, network: str, size: tuple[int, int]) -> None:
    backbone, linear = weights(network)
    torch.save(backbone, tmp_path / "backbone.pth")
    torch.save(linear, tmp_path / "linear.pth")
    lpips = Lpips.load(tmp_path)
    assert lpips.network == network
    draw = np.random.default_rng(5)
    first, second = draw.random((2, 2, 3, *size), dtype=np.float32)
    second[1] = np.clip(first[1] + 0.05 * second[1], 0, 1)  # a near one
    found = lpips(torch.from_numpy(first), torch.from_numpy(second))
    expected = [slow_lpips(a, b, network, backbone, linear) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)
    assert found[1] < found[0]
    assert lpips(torch.from_numpy(first), torch.from_numpy(first)).tolist() == [0, 0]
    wide = lpips(torch.from_numpy(first).double(), torch.from_numpy(second).half())  # as arrays of anybody may be
    np.testing.assert_allclose(wide.numpy(), found.numpy(), rtol=2e-2)


def test_one_file_as_the_package_saves_itself_and_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, linear = weights("alex")
    named = {f"scaling_layer.{name}": torch.zeros(1, 3, 1, 1) for name in ("shift", "scale")} | linear
    named |= {name.replace("lin", "lins.").replace(".model", ".model"): one.clone() for name, one in linear.items()}
    for number, part in SLICES["alex"].items():
        for kind in ("weight", "bias"):
            named[f"net.slice{part}.{number}.{kind}"] = backbone[f"features.{number}.{kind}"]
    torch.save(named, tmp_path / "whole.pth")
    save_file(backbone | linear, tmp_path / "ours.safetensors")
    pictures = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found = [Lpips.load(tmp_path / name)(pictures, pictures.flip(0)) for name in ("whole.pth", "ours.safetensors")]
    assert torch.equal(*found)
    said: list[str] = []
    assert find_lpips(None, "cpu", (32, 48), said.append) is None
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "whole.pth"))
    assert find_lpips(None, "cpu", (32, 48), said.append).network == "alex"
    assert said == []


def test_pictures_that_are_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by the user it is an error; by the environment, which counts for all data sets, a word."""
    backbone, linear = weights("alex")
    save_file(backbone | linear, tmp_path / "ours.safetensors")
    with pytest.raises(UserError, match=r"^--lpips: LPIPS by alex needs pictures of 31 pixels a side at least"):
        find_lpips(tmp_path / "ours.safetensors", "cpu", (48, 30))
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "ours.safetensors"))
    said: list[str] = []
    assert find_lpips(None, "cpu", (48, 30), said.append) is None
    assert len(said) == 1
    assert said[0].endswith("31 pixels a side at least, not 48x30, so there is no LPIPS")
    assert find_lpips(None, "cpu", (31, 31), said.append) is not None


def test_padded_views_and_means(tmp_path: Path) -> None:
    backbone, linear = weights("alex")
    lpips = Lpips("alex", backbone | linear)
    image = torch.rand(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[True, True], [True, False]])
    shown = (image + 0.3).flip(0)
    found = perceived("lpips", lpips, shown, SceneBatch(image, mask))["lpips"]
    each = [[float(lpips(shown[s, m].clamp(0, 1)[None], image[s, m][None])) for m in range(2)] for s in range(2)]
    np.testing.assert_allclose(found.numerator, [sum(each[0]), each[1][0]], rtol=1e-5)
    assert found.denominator.tolist() == [2, 1]
    assert perceived("lpips", None, shown, SceneBatch(image, mask)) == {}


def test_what_is_refused(tmp_path: Path) -> None:
    backbone, linear = weights("alex")
    with pytest.raises(UserError, match=r"LPIPS needs two files: alexnet-owt.*package lpips"):
        Lpips.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no weights"):
        Lpips.load(tmp_path)
    torch.save(backbone, tmp_path / "a.pth")
    with pytest.raises(UserError, match=r"see lin0\.model\.1\.weight.*LPIPS needs two files"):
        Lpips.load(tmp_path)
    (tmp_path / "b.pth").write_bytes(b"not a file of weights")
    with pytest.raises(UserError, match=r"b\.pth: not a file of weights"):
        Lpips.load(tmp_path)
    torch.save({"lin0": [1, 2]}, tmp_path / "b.pth")
    with pytest.raises(UserError, match="not a dictionary of weights"):
        Lpips.load(tmp_path)
    torch.save({"run": Path}, tmp_path / "b.pth")  # code is never run
    with pytest.raises(UserError, match="not a file of weights"):
        Lpips.load(tmp_path)
    with pytest.raises(UserError, match="31 pixels a side at least, not 16x16"):
        Lpips("alex", backbone | linear)(*torch.rand(2, 1, 3, 16, 16))
