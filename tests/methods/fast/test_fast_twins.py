"""The fast view of a model against the model: the same terms and gradients, in float64, on any device."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from viewslots.experiments import experiment
from viewslots.methods.fast.broadcast import FoldedBroadcastDecoder, fold_broadcast
from viewslots.methods.fast.folding import FoldedConvolution, PairedConvolution, PlainConvolution, fold_stages
from viewslots.methods.fast.half import SumByProduct, with_half_weights
from viewslots.methods.layers import BroadcastDecoder
from viewslots.methods.ocloc.boxes import placed
from viewslots.methods.ocloc.config import DecoderConfig, OclocConfig
from viewslots.methods.ocloc.fast import placing
from viewslots.methods.ocloc.fast.accelerate import accelerated
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.networks import upsampling_stages
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Noise
from viewslots.methods.per_view.model import PerView
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

torch.set_num_threads(1)

PAPER_SHRUNK = replace(
    OclocConfig(),
    image_size=32,
    slots=3,
    hidden=16,
    feature_channels=8,
    slot_attr_dim=12,
    key_dim=10,
    value_dim=20,
    object_decoder=DecoderConfig(
        kind="dense", hidden=(16, 16), grid=8, grid_channels=6, stages=((2, 5, 6), (1, 5, 4), (2, 5, 4))
    ),
    background_decoder=DecoderConfig(
        kind="dense", hidden=(8,), grid=2, grid_channels=4, stages=((4, 5, 4), (1, 5, 4), (4, 5, 4))
    ),
)
COMPACT_SHRUNK = replace(
    PAPER_SHRUNK,
    feature_stride=2,
    feature_kernel=3,
    object_decoder=DecoderConfig(
        kind="compact", hidden=(16,), grid=8, grid_channels=6, stages=((1, 3, 6), (2, 3, 4)), final_scale=2
    ),
    background_decoder=DecoderConfig(
        kind="compact", hidden=(8,), grid=8, grid_channels=4, stages=((2, 3, 4),), final_scale=2
    ),
)
SINGLE_SHRUNK = replace(
    PAPER_SHRUNK,
    object_decoder=DecoderConfig(kind="broadcast", grid=16, stages=((2, 5, 4), (1, 5, 4))),
    background_decoder=DecoderConfig(kind="broadcast", grid=32, stages=((1, 5, 4),)),
)
BOXED = replace(
    COMPACT_SHRUNK,
    box_fit=30.0,
    object_decoder=DecoderConfig(
        kind="compact", hidden=(16,), grid=4, grid_channels=6, stages=((1, 3, 6),), final_scale=2
    ),
)
CONFIGS = {
    "boxes": BOXED,
    "boxes, wide": BOXED.sized(24, 44),
    "paper": PAPER_SHRUNK,
    "compact": COMPACT_SHRUNK,
    "single-view": SINGLE_SHRUNK,
    "tiny": experiment("tiny").model,
    "paper, wide": PAPER_SHRUNK.sized(16, 48),
    "compact, wide": COMPACT_SHRUNK.sized(24, 44),
    "single-view, high": SINGLE_SHRUNK.sized(38, 30),
}
ANNEALING = UmbraSchedule(mixture_until=1.0, costs_until=1.0).at(100_000)
assert 0 < ANNEALING.weight_mixture < 1
assert 0 < ANNEALING.weight_costs < 1


def with_shadows(config: OclocConfig) -> UmbraConfig:
    return UmbraConfig(**vars(config))


Trained = Ocloc | PerView


def double_model(kind: type[Trained], config: OclocConfig) -> Trained:
    """In float64, with biases and normalisations away from where they start, so that mistakes in them show."""
    model = kind(config, torch.Generator().manual_seed(1)).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator).double()
    return model


def double_inputs(model: Trained) -> tuple[SceneBatch, Noise]:
    size = model.image_size
    generator = torch.Generator().manual_seed(3)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    image = torch.rand(2, 3, 3, *size, generator=generator).double()
    batch = SceneBatch(torch.where(mask[:, :, None, None, None], image, 0.0), mask)
    noise = model.draw_noise(batch, generator)
    return batch, Noise(**{name: value.double() for name, value in vars(noise).items()})


def gradients(model: Trained, called: nn.Module, batch: SceneBatch, noise: Noise) -> dict[str, torch.Tensor]:
    model.zero_grad()
    called(batch, ANNEALING, noise).minimised.mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


CASES = [(kind, config) for kind in (Ocloc, PerView) for config in CONFIGS.values()]
CASES += [(Umbra, with_shadows(CONFIGS[name])) for name in ("paper", "compact", "compact, wide", "boxes")]


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_a_fast_view_gives_the_terms_and_gradients_of_its_model(kind: type[Trained], config: OclocConfig) -> None:
    model = double_model(kind, config).eval()
    fast = model.fast("fp32").module
    assert type(fast) is kind
    assert type(fast.inference) is not type(model.inference)
    batch, noise = double_inputs(model)
    plain_losses, fast_losses = model(batch, ANNEALING, noise), fast(batch, ANNEALING, noise)
    assert tuple(plain_losses.terms) == tuple(fast_losses.terms) == kind.terms
    for term in kind.terms:
        torch.testing.assert_close(fast_losses.terms[term], plain_losses.terms[term], rtol=1e-10, atol=1e-9)
    for name in ("minimised", "comparable"):
        torch.testing.assert_close(getattr(fast_losses, name), getattr(plain_losses, name), rtol=1e-10, atol=1e-9)
    plain, quick = gradients(model, model, batch, noise), gradients(model, fast, batch, noise)
    assert plain.keys() == quick.keys()
    assert set(plain) == {parameter for parameter, _ in model.named_parameters()}
    for parameter, value in plain.items():
        torch.testing.assert_close(quick[parameter], value, rtol=1e-8, atol=1e-8 * float(value.abs().max() + 1))


def tiny(kind: type[Trained]) -> Trained:
    config = CONFIGS["tiny"]
    return kind(with_shadows(config) if kind is Umbra else config, torch.Generator().manual_seed(0))


KINDS = pytest.mark.parametrize("kind", [Ocloc, PerView, Umbra])


@KINDS
def test_a_fast_view_shares_parameters_and_statistics(kind: type[Trained]) -> None:
    model = tiny(kind).train()
    fast = model.fast("fp32").module
    theirs = {id(parameter) for parameter in model.parameters()}
    assert {id(parameter) for parameter in fast.parameters()} == theirs
    if isinstance(fast, PerView):
        assert {id(parameter) for parameter in fast.single.parameters()} == theirs
        assert fast.single.inference is fast.inference
        assert fast.single is not model.single
    batch = SceneBatch(torch.rand(2, 2, 3, 32, 32), torch.ones(2, 2, dtype=torch.bool))
    fast(batch, Annealing(), model.draw_noise(batch, torch.Generator().manual_seed(0)))
    assert model.nvil.weight > 0


@KINDS
def test_a_fast_view_leaves_its_model_as_it_was(kind: type[Trained]) -> None:
    """The same bits before and after, and the classes of its parts."""
    model = tiny(kind).eval()
    batch = SceneBatch(torch.rand(2, 2, 3, 32, 32), torch.ones(2, 2, dtype=torch.bool))
    noise = model.draw_noise(batch, torch.Generator().manual_seed(0))
    parts, before = [type(part) for part in model.modules()], model(batch, ANNEALING, noise)
    model.fast("fp32").module(batch, ANNEALING, noise)
    after = model(batch, ANNEALING, noise)
    assert [type(part) for part in model.modules()] == parts
    assert all(torch.equal(after.terms[name], value) for name, value in before.terms.items())


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_a_folded_convolution_is_upsampling_and_convolution(scale: int, kernel: int) -> None:
    plain = upsampling_stages(3, [(scale, kernel, 5)], 2).double()
    maps = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    folded = fold_stages(list(plain))
    assert isinstance(folded[0], FoldedConvolution if scale > 1 else PlainConvolution)
    weights = torch.randn(plain(maps).shape, dtype=torch.float64)
    asked = [maps, *plain.parameters()]
    expected = torch.autograd.grad((plain(maps) * weights).sum(), asked)
    found = torch.autograd.grad((folded(maps) * weights).sum(), asked)
    torch.testing.assert_close(folded(maps), plain(maps), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(5, 2, 1), (5, 2, 2), (4, 2, 1), (3, 2, 0), (3, 2, 1), (6, 3, 1), (5, 3, 2)]
)
def test_a_folded_transposed_convolution_is_the_convolution(kernel: int, stride: int, padding: int) -> None:
    """Whatever it cuts in front: exactly `stride` pixels of each are kept."""
    transposed = nn.ConvTranspose2d(3, 5, kernel, stride, padding, output_padding=stride - 1).double()
    maps = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    expected = transposed(maps)[..., : 4 * stride, : 6 * stride].relu()
    assert expected.shape[2:] == (4 * stride, 6 * stride)
    [folded] = fold_stages([transposed, nn.ReLU()])
    weights = torch.randn(expected.shape, dtype=torch.float64)
    asked = [maps, *transposed.parameters()]
    torch.testing.assert_close(folded(maps), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad((folded(maps) * weights).sum(), asked),
        torch.autograd.grad((expected * weights).sum(), asked),
        rtol=1e-11,
        atol=1e-11,
    )


class Calls(TorchDispatchMode):
    """Names of the operations that run in it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kernel", "grid"), [(1, (4, 4)), (3, (4, 6)), (5, (7, 5)), (7, (9, 12))])
def test_a_folded_broadcast_is_the_decoder(kernel: int, grid: tuple[int, int]) -> None:
    """It knows the kinds of places beforehand, and does not find them anew there or back."""
    layers = [nn.Conv2d(6, 5, kernel, padding=kernel // 2), nn.ReLU(), nn.Conv2d(5, 4, 3, padding=1)]
    decoder = BroadcastDecoder(6, grid, nn.Sequential(*layers)).double()
    code = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    folded = fold_broadcast(decoder)
    assert isinstance(folded, FoldedBroadcastDecoder)
    weights = torch.randn(3, 4, *grid, dtype=torch.float64)
    asked = [code, *decoder.parameters()]
    with Calls() as calls:
        shown = folded(code)
        found = torch.autograd.grad((shown * weights).sum(), asked)
    assert "aten::mm" in calls.names
    assert "aten::arange" not in calls.names
    torch.testing.assert_close(shown, decoder(code), rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad((decoder(code) * weights).sum(), asked)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("width", [6, 7])
def test_a_convolution_of_pairs_is_the_convolution(kernel: int, relu: bool, width: int) -> None:
    convolution = nn.Conv2d(3, 5, kernel, padding=kernel // 2).double()
    maps = torch.randn(2, 3, 5, width, dtype=torch.float64, requires_grad=True)
    expected, found = convolution(maps), PairedConvolution(convolution, relu)(maps)
    expected = expected.relu() if relu else expected
    weights = torch.randn(expected.shape, dtype=torch.float64)
    asked = [maps, *convolution.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), asked),
        torch.autograd.grad((expected * weights).sum(), asked),
        rtol=1e-11,
        atol=1e-11,
    )


def test_half_weights_follow_the_weights_and_hand_back_their_gradients() -> None:
    model = Ocloc(CONFIGS["tiny"], torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # then a twin rounds nothing away
            parameter.copy_(parameter.bfloat16())
    view, half = with_half_weights(model, model.exact_layers())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    twinned = {names[id(master)] for master in half.masters}
    assert {"inference.g_obj.0.weight", "inference.g_upd.recurrent.weight_ih"} <= twinned
    assert not any("norm" in name or "g_key" in name or "hat" in name for name in twinned)
    batch = SceneBatch(torch.rand(2, 2, 3, 32, 32), torch.ones(2, 2, dtype=torch.bool))
    noise = model.draw_noise(batch, torch.Generator().manual_seed(0))
    quick, plain = {}, {}
    for gradients, called in ((plain, accelerated(model)), (quick, accelerated(view))):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            called(batch, ANNEALING, noise).minimised.mean().backward()
        if gradients is quick:
            half.collect()
        gradients |= {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    whole = [torch.cat([gradients[name].flatten() for name in sorted(plain)]) for gradients in (plain, quick)]
    assert torch.cosine_similarity(*whole, dim=0) > 0.99
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    half.refresh()
    for master, twin in zip(half.masters, half.twins, strict=True):
        torch.testing.assert_close(twin, master.bfloat16())


def test_a_sum_by_product_is_the_linear_layer() -> None:
    values = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    layer = nn.Linear(5, 4).double()
    given = (values, layer.weight, layer.bias)
    assert torch.autograd.gradcheck(SumByProduct.apply, given)
    torch.testing.assert_close(SumByProduct.apply(*given), layer(values))


def test_a_sum_by_product_asks_nothing_of_frozen_weights() -> None:
    given = (torch.randn(2, 3, 5), torch.randn(4, 5), torch.randn(4))
    weights = torch.randn(2, 3, 4)
    whole = [value.clone().requires_grad_() for value in given]
    expected = torch.autograd.grad((SumByProduct.apply(*whole) * weights).sum(), whole)
    for asked in list(product([False, True], repeat=3))[1:]:
        inputs = [value.clone().requires_grad_(wanted) for value, wanted in zip(given, asked, strict=True)]
        answers = SumByProduct.backward(SumByProduct.apply(*inputs).grad_fn, weights)
        for answer, theirs, wanted in zip(answers, expected, asked, strict=True):
            assert (answer is not None) == wanted
            assert answer is None or torch.equal(answer, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_fast_view_places_boxes_by_the_plain_code_where_there_is_no_gpu(dtype: torch.dtype) -> None:
    drawn, boxes = torch.randn(3, 5, 8, 8).to(dtype), torch.tensor([[0.4, 0.5, 0.1, -0.3]]).expand(3, -1)
    boxes = boxes.to(torch.promote_types(dtype, torch.float32))
    assert torch.equal(placing.place(drawn, boxes, (16, 20)), placed(drawn, boxes, (16, 20)))


@pytest.mark.parametrize(("cells", "kernel"), [((64, 64), True), ((65, 8), False), ((8, 65), False)])
def test_boxes_that_are_too_large_for_the_kernel(
    cells: tuple[int, int], kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "has_triton", lambda device: device == "cuda")
    drawn = SimpleNamespace(device="cuda", dtype=torch.bfloat16, shape=(1, 4, *cells))
    assert placing.has_kernel(drawn, SimpleNamespace(dtype=torch.float32)) == kernel  # type: ignore[arg-type]
    assert not placing.has_kernel(drawn, SimpleNamespace(dtype=torch.float64))  # type: ignore[arg-type]


def test_a_fast_view_places_boxes_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def watched(drawn: torch.Tensor, boxes: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        sizes.append(size)
        return placed(drawn, boxes, size)

    monkeypatch.setattr(placing, "place", watched)
    model = double_model(Ocloc, CONFIGS["boxes, wide"])
    batch, noise = double_inputs(model)
    model(batch, ANNEALING, noise)
    assert not sizes
    accelerated(model)(batch, ANNEALING, noise)
    assert sizes == [(24, 44)]
