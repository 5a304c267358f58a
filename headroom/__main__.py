"""`python -m headroom` is the `headroom` command."""

from headroom.cli.main import main

if __name__ == "__main__":
    main()
