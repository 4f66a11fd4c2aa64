"""Models in folders: config.json with a format version, and model.safetensors. Never pickle."""

import json
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import torch
from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from viewslots.errors import UserError
from viewslots.files import read_json, shown
from viewslots.methods.names import OLD_NAMES
from viewslots.types import Extent

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@runtime_checkable
class Config(Protocol):
    """What fixes the networks of a method."""

    @property
    def image_size(self) -> Extent:
        """Of the pictures it takes. A method may know squares alone."""
        ...

    @property
    def slots(self) -> int:
        """K while training; any call may use another."""
        ...

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self: ...


C = TypeVar("C", bound=Config)


class Pretrained(PyTorchModelHubMixin, Generic[C]):
    """`save_pretrained` and `from_pretrained` for a module that is built from one config."""

    name: ClassVar[str]
    config_class: ClassVar[type[Any]]
    config: C

    def _save_pretrained(self, save_directory: Path) -> None:
        """Called by `save_pretrained`, which also writes a model card."""
        assert isinstance(self, torch.nn.Module)
        settings = {"format_version": FORMAT_VERSION, "method": self.name, "config": self.config.to_json()}
        state = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        save_file(state, save_directory / WEIGHTS_FILE, metadata={"format": "pt"})
        (save_directory / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n")

    @classmethod
    def from_pretrained(cls, source: str | Path, *, expect: C | None = None, **hub: Any) -> Self:  # type: ignore[override]
        """Load from a folder, or from the Hugging Face Hub by name; `hub` goes to hf_hub_download (revision, ...).

        With `expect`, a model of another configuration is refused. The model is in evaluation mode, on the CPU.
        """
        method, values = read_settings(find_file(source, CONFIG_FILE, hub))
        if method != cls.name:
            raise UserError(f"{source} holds a model of method {method!r}, not {cls.name!r}")
        config = cls.config_class.from_json(values)
        if expect is not None and config != expect:
            raise UserError(f"{source} holds a model of another configuration: {differences(config, expect)}")
        return cls.assemble(config, find_file(source, WEIGHTS_FILE, hub))

    @classmethod
    def assemble(cls, config: C, weights: Path) -> Self:
        """The networks take memory only once the weights are known to fit them."""
        try:
            with torch.device("meta"):
                sketch = cls(config)
        except RuntimeError as error:
            raise UserError(f"{weights.parent}: no network can be of its configuration ({error})") from error
        assert isinstance(sketch, torch.nn.Module)
        state = read_weights(weights, sketch.state_dict())
        model = cls(config)
        assert isinstance(model, torch.nn.Module)
        model.load_state_dict(state)
        model.eval()
        return model


def differences(config: Config, expect: Config) -> str:
    found, wanted = config.to_json(), expect.to_json()
    return ", ".join(f"{key} is {found[key]}, expected {wanted[key]}" for key in wanted if found[key] != wanted[key])


def find_file(source: str | Path, name: str, hub: dict[str, Any]) -> Path:
    """The file of a local folder (no network then), or of a repository on the Hub."""
    folder = Path(source)
    if folder.is_dir():
        if (folder / name).is_file():
            return folder / name
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern))
        refusal = f"; {pickles[0]} is a pickle, which can run code and is not read" if pickles else ""
        raise UserError(f"{folder} has no {name}{refusal}. Folders written by save_pretrained hold one")
    try:
        return Path(hf_hub_download(str(source), name, **hub))
    except (HFValidationError, EntryNotFoundError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise UserError(f"{source} is no folder, and no {name} of that name came from the Hub ({error})") from error


def read_settings(path: Path) -> tuple[str, dict[str, Any]]:
    """Method and model config of a config.json, of this format version or an older one."""
    settings = read_json(path)
    try:
        version, method, values = settings["format_version"], str(settings["method"]), dict(settings["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not the configuration of a viewslots model ({error!r})") from error
    if type(version) is not int or version < 1:
        raise UserError(f"{path} is not the configuration of a viewslots model (format version {version!r})")
    if version > FORMAT_VERSION:
        raise UserError(f"{path} has format version {version}, newer than {FORMAT_VERSION}: please update viewslots")
    return OLD_NAMES.get(method, method), values


def read_weights(path: Path, expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file, with the expected names and shapes; floats may be stored in any precision.

    Its header is compared before anything else is read. What is not finite is refused.
    """
    try:
        with safe_open(path, "pt") as file:
            found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        if odd := sorted(set(found) ^ set(expected)):
            names = shown(", ".join(odd[:4]), 200)
            raise UserError(f"{path} does not fit its configuration: missing or unknown tensors {names}")
        for name, value in expected.items():
            if found[name] != (wanted := list(value.shape)):
                raise UserError(
                    f"{path} does not fit its configuration: {name} has shape {found[name]}, expected {wanted}"
                )
        state = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file ({error})") from error
    for name, value in expected.items():
        given = state[name]
        if given.dtype != value.dtype and not (given.dtype in FLOATS and value.dtype in FLOATS):
            raise UserError(f"{path} does not fit its configuration: {name} is {given.dtype}, expected {value.dtype}")
        if not given.isfinite().all():
            raise UserError(f"{path}: {name} holds numbers that are not finite; the model is damaged")
    return state
