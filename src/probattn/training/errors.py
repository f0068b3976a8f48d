"""Errors that end a run, and how the engine speaks to the terminal."""

import sys

from tqdm import tqdm

__all__ = ["CheckpointError", "OutputError", "TrainingFailure", "TrainingInterrupted", "say"]


class CheckpointError(RuntimeError):
    """A checkpoint is damaged, or belongs to another run."""


class OutputError(RuntimeError):
    """A file of the run could not be written: no space, no permission."""


class TrainingFailure(RuntimeError):
    """The loss or its gradient was not finite, or the loss exploded; the message says how to reproduce it."""


class TrainingInterrupted(SystemExit):
    """A signal ended the run after its state was saved; the exit code is 128 plus the signal's number."""


def say(message: str) -> None:
    """Print to stderr without tearing the progress bar."""
    tqdm.write(message, file=sys.stderr)
