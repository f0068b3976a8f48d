"""`python -m probattn`, where the command `probattn` is not on the path."""

from probattn.cli import main

if __name__ == "__main__":
    main()
