"""The environment that the program gets: the user's own, without secrets."""

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(
    r"""(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?|APIKEY|KEY|AUTH|COOKIE|SESSION|DSN|PAT)(_|$)
      | ^(AWS|AZURE|GCP|GOOGLE|GITHUB|GITLAB|OPENAI|ANTHROPIC|WANDB|HF|HUGGINGFACE|NEPTUNE|COMET)_.*
        (TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL)
      | _API_?KEY | CONNECTION_STRING | (^|_)(DATABASE|REDIS|MONGO)(_URL|_URI)$ | ^SSH_AUTH_SOCK$ | ^KUBECONFIG$
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOT_SECRET: Final = frozenset(
    {"PWD", "OLDPWD", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "DESKTOP_SESSION"}
)
_URL_WITH_PASSWORD: Final = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@", re.IGNORECASE)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret: by its name, or a URL that carries a password."""
    if name in _NOT_SECRET:
        return False
    return bool(_SECRET.search(name) or _URL_WITH_PASSWORD.match(value))


def scrub(
    environment: Mapping[str, str], keep: tuple[str, ...]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Split an environment into what the program gets and the names that were held back."""
    removed = tuple(
        sorted(
            name
            for name, value in environment.items()
            if name not in keep and is_secret(name, value)
        )
    )
    return {name: value for name, value in environment.items() if name not in removed}, removed


def program_environment(
    environment: Mapping[str, str], keep: tuple[str, ...], *, virtual: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What the program's process gets, and the names that were held back.

    `PYTHONHASHSEED` is fixed (unless the user has) so that sets iterate alike in two runs, output is unbuffered so
    that it is seen while the program runs, and a virtual GPU hides the real ones: it must never initialise them.
    """
    kept, removed = scrub(environment, keep)
    kept.setdefault("PYTHONHASHSEED", "0")
    kept.setdefault("PYTHONUNBUFFERED", "1")
    if virtual:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    return kept, removed
