"""A sandbox that runs nothing: it answers requests with records made beforehand. For tests and rehearsals."""

from collections.abc import Callable

from headroom.records.run import RunRecord
from headroom.sandbox.protocol import RunRequest, Terminal


class ScriptedSandbox:
    """Answers each request by a function of it, and keeps the requests in order.

    Args:
        answer: Makes the record; may write artifacts into the request's folder, or raise.
    """

    def __init__(self, answer: Callable[[RunRequest], RunRecord]) -> None:
        self._answer = answer
        self.requests: list[RunRequest] = []

    def run(self, request: RunRequest, terminal: Terminal) -> RunRecord:
        """See `Sandbox.run`."""
        self.requests.append(request)
        return self._answer(request).model_copy(
            update={"run_id": request.run_id, "purpose": request.purpose}
        )

    def describe(self, *, network: bool) -> str:
        """See `Sandbox.describe`."""
        return "no sandbox: a script answers"
