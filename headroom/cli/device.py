"""Which device a program runs on."""

from dataclasses import dataclass

from headroom.cli.options import Choice
from headroom.errors import PrerequisiteError, UserError
from headroom.records.run import Device
from headroom.sandbox.interpreter import Interpreter
from headroom.sandbox.virtual.cards import CARDS
from headroom.units import parse_bytes

DEFAULT_CARD = "h200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The device, the simulated card (also for screening on a real one), its name, and a line to say about it."""

    device: Device
    card: str
    name: str
    note: str | None


def choose_device(choice: Choice, card: str | None, interpreter: Interpreter) -> Chosen:
    """Take the real device where there is one, else the virtual GPU, and say so.

    Raises:
        PrerequisiteError: CUDA was asked for and torch sees no device.
        UserError: There is no such card.
    """
    if card is not None and card.lower() not in CARDS:
        raise UserError(
            f"{card!r} is no card that can be simulated: {', '.join(CARDS)}",
            "headroom ... --gpu h200",
        )
    if choice == "cuda" and not interpreter.cuda_devices:
        raise PrerequisiteError(
            f"torch {interpreter.torch} under {interpreter.path} sees no CUDA device",
            "headroom ... --device virtual",
        )
    if choice != "virtual" and interpreter.cuda_devices:
        name = interpreter.cuda_devices[0].name
        return Chosen(device="cuda", card=card_of(name), name=name, note=None)
    card = (card or DEFAULT_CARD).lower()
    name = CARDS[card].name
    note = None
    if choice == "auto":
        note = f"no GPU here: using the virtual GPU ({name}); peaks are predictions, losses are not computed"
    return Chosen(device="virtual", card=card, name=name, note=note)


def card_of(name: str) -> str:
    """The simulated card that stands for a real device; the default where none has its name."""
    plain = name.lower().replace(" ", "").replace("-", "")
    for card in sorted(CARDS, key=len, reverse=True):
        if card.replace("-", "") in plain:
            return card
    return DEFAULT_CARD


def parse_capacity(text: str | None) -> int | None:
    """Read `--capacity`; see `_parse_size`."""
    return _parse_size("--capacity", text, "24GiB")


def parse_limit(text: str | None) -> int | None:
    """Read `--memory-limit`; see `_parse_size`."""
    return _parse_size("--memory-limit", text, "16GiB")


def _parse_size(option: str, text: str | None, example: str) -> int | None:
    """Read an option that is a size.

    Raises:
        UserError: It is none, or no bytes at all.
    """
    if text is None:
        return None
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}", f"headroom ... {option} {example}") from None
    if size_bytes <= 0:
        raise UserError(
            f"{option} of no bytes at all is impossible", f"headroom ... {option} {example}"
        )
    return size_bytes
