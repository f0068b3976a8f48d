"""`python -m probattn.cli`, where the command `probattn` is not on the path."""

from probattn.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
