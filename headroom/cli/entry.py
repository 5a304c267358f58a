"""The console script: imports the command only when Ctrl-C can no longer show a traceback of ours."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the `headroom` command."""
    try:
        from headroom.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
