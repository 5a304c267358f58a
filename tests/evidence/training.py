"""A pretend training loop on the reference allocator, with the recorder's labels or without, as a stranger's file."""

from dataclasses import dataclass, field

from headroom.evidence.account.account import Account, account_for
from headroom.evidence.account.names import NameWalk
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.programs import LINEAR, MAIN, SITE, WRAPPER, stack
from tests.evidence.reference_allocator import MIB, Allocator, Piece

TORCH = f"{SITE}/torch"
STEP = ("/srv/job/train.py", 41, "step")
FORWARD = ("/srv/job/model.py", 15, "forward")
CONSTRUCTOR = ("/srv/job/model.py", 7, "__init__")
MOVED = (f"{TORCH}/nn/modules/module.py", 965, "_apply")
BATCH = ("/srv/job/train.py", 30, "step")
LOSS = (f"{TORCH}/nn/functional.py", 3504, "cross_entropy")
EMBEDDING = (f"{TORCH}/nn/functional.py", 2567, "embedding")
ROOT_GRADIENT = (f"{TORCH}/autograd/__init__.py", 231, "_make_grads")
STATE = (f"{TORCH}/optim/adam.py", 178, "_init_group")
ADAM = (f"{TORCH}/optim/adam.py", 791, "_multi_tensor_adam")
ADAM_STEP = (f"{TORCH}/optim/optimizer.py", 533, "wrapper")
MODULE_CALL = (WRAPPER, FORWARD, WRAPPER, STEP, MAIN)

PARAMETERS = (4, 6)


@dataclass(slots=True)
class Training:
    """Updates of a model with two parameters; `labelled` writes the recorder's labels."""

    labelled: bool = True
    allocator: Allocator = field(default_factory=Allocator)
    update: int = 0
    call: int = 0
    batch: Piece | None = None
    gradients: list[Piece] = field(default_factory=list)
    losses: list[Piece] = field(default_factory=list)

    def at(self, phase: str, module: str = "", gradient: str = "", node: str = "") -> None:
        parts = [f"hr:u={self.update},c={self.call},p={phase}"]
        parts += [f"n={node}"] if node else []
        parts += [f"g={gradient}"] if gradient else []
        parts += [f"m={module}"] if module else []
        self.allocator.label = ",".join(parts) if self.labelled else ""

    def alloc(self, mebibytes: float, *frames: tuple[str, int, str]) -> Piece:
        self.allocator.frames = stack(*frames)
        return self.allocator.malloc(int(mebibytes * MIB))

    def free(self, *pieces: Piece) -> None:
        self.allocator.frames = []
        for piece in pieces:
            self.allocator.free(piece)

    def build(self) -> None:
        self.at("other")
        for size in PARAMETERS:
            self.alloc(size, MOVED, CONSTRUCTOR, MAIN)

    def forward(self, *, keep_loss: bool = False) -> list[Piece]:
        self.at("other")
        before, self.batch = self.batch, self.alloc(3, BATCH, MAIN)
        if before is not None:
            self.free(before)
        self.call += 1
        self.at("forward", "Net.embedding")
        saved = [self.alloc(2, EMBEDDING, *MODULE_CALL)]
        for _ in range(3):
            self.at("forward", "Net.blocks.0")
            scratch = self.alloc(1.5, LINEAR, *MODULE_CALL)
            saved.append(self.alloc(5, LINEAR, *MODULE_CALL))
            self.free(scratch)
        self.at("other")
        loss = self.alloc(1.25, LOSS, STEP, MAIN)
        if self.losses and not keep_loss:
            self.free(self.losses.pop())
        self.losses.append(loss)
        return saved

    def backward(self, saved: list[Piece]) -> None:
        self.at("backward")
        root = self.alloc(1.125, ROOT_GRADIENT, STEP, MAIN)
        for piece in reversed(saved):
            self.at("backward", node="AddmmBackward0")
            flow = self.alloc(7)
            self.free(piece, flow)
        for number, size in enumerate(PARAMETERS):
            self.at("backward", gradient=f"weight{number}", node="AccumulateGrad")
            self.gradients.append(self.alloc(size))
        self.free(root)

    def step(self) -> None:
        self.at("optimizer")
        if self.update == 0:
            for size in PARAMETERS:
                self.alloc(size, STATE, ADAM_STEP, STEP, MAIN)
        scratch = self.alloc(8, ADAM, ADAM_STEP, STEP, MAIN)
        self.free(scratch)
        self.update += 1
        self.at("other")
        self.free(*self.gradients)
        self.gradients = []

    def run(self, updates: int, *, keep_losses: bool = False) -> "Training":
        self.build()
        for _ in range(updates):
            saved = self.forward(keep_loss=keep_losses)
            self.backward(saved)
            self.step()
        return self

    def account(self, dropped: int = 0, walks: tuple[NameWalk, ...] = ()) -> Account:
        return account_for(parse_snapshot(self.allocator.snapshot(dropped)), 0, walks=walks)
