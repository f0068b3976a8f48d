"""The command line, `probattn`."""

__all__ = ["main"]


def main() -> None:
    """Entry point."""
