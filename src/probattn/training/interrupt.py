"""Ctrl-C and SIGTERM as a wish to save and stop."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from probattn.training.errors import say

__all__ = ["Interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Inside a `with` block the first signal is only noted; a second Ctrl-C stops at once.

    Outside the main thread, where Python has no signal handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._noted_at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        # A launcher may pass on the Ctrl-C that the terminal has already sent to everyone.
        if self.signal is not None and number == signal.SIGINT and now - self._noted_at > 1.0:
            raise KeyboardInterrupt
        if self.signal is None:
            self.signal, self._noted_at = number, now
            say(f"{signal.Signals(number).name}: finishing this update, then saving. Ctrl-C again stops at once.")
