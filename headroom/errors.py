"""What Headroom says when it cannot go on.

    HeadroomError
    ├── UserError            exit 2: what was typed, or the program itself, has to change first
    ├── PrerequisiteError    exit 3: something on this machine has to be installed or allowed first
    ├── BudgetError          exit 4: a budget of the contract ran out
    ├── SandboxError         exit 3: the sandbox could not start or keep the program
    ├── OwnError             exit 125: a bug of Headroom's own
    ├── SnapshotError        exit 2: a file is not an allocator snapshot that we can read
    └── PatchError           a patch does not apply (agents turn it into feedback; `apply` shows it)

Each carries one sentence and, for the user, the next command to type. A rejected patch is a result, not an error.
"""

from typing import ClassVar


class HeadroomError(Exception):
    """Base of every error that is shown to the user without a traceback.

    Args:
        message: One sentence: what is wrong.
        next_command: What to type next, if there is such a thing.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, next_command: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_command = next_command


class UserError(HeadroomError):
    """The command line, or the program it names, has to change first."""

    exit_code = 2


class PrerequisiteError(HeadroomError):
    """Something on this machine is missing or forbidden."""

    exit_code = 3


class SandboxError(HeadroomError):
    """The sandbox could not start the program or lost it for a reason of its own."""

    exit_code = 3


class BudgetError(HeadroomError):
    """A budget of the sealed contract ran out."""

    exit_code = 4


class OwnError(HeadroomError):
    """A bug of Headroom's own."""

    exit_code = 125


class SnapshotError(HeadroomError):
    """The file is not an allocator snapshot that can be read."""

    exit_code = 2

    def __init__(self, message: str, next_command: str | None = None) -> None:
        how = "headroom run --pass trace YOUR_PROGRAM.py      (records a snapshot that can be read)"
        super().__init__(message, next_command or how)


class PatchError(HeadroomError):
    """A patch does not apply; `code` is stable and machine-readable.

    Codes: `missing_file`, `hash_mismatch`, `no_match`, `ambiguous`, `overlap`, `no_change`, `syntax`.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, next_command: str | None = None) -> None:
        super().__init__(message, next_command)
        self.code = code
