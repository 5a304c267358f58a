"""`python -m headroom` is the `headroom` command."""

from headroom.cli.entry import main

if __name__ == "__main__":
    main()
