"""Jobs in processes of their own: what finished is kept whatever happens to the others.

- No job is begun before a process is free for it, so an interruption begins none; those that run are waited for.
- A process that is killed, e.g. for want of memory, costs its own job: that one is tried once more in a new process.
- Jobs end with the command that started them: a training run saves first.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

__all__ = ["run_jobs", "working"]

_TRIES = 2
_IS_BUSY = threading.Event()  # whether this process works on a job


def run_jobs(
    function: Callable[..., Any],
    jobs: Sequence[Sequence[Any]],
    keep: Callable[[int, Any], None],
    *,
    workers: int,
    title: str,
) -> None:
    """Call a function for every job, in the order they are given.

    Args:
        function: Of a module, run in another process; inside it, work is done under `working`.
        jobs: Its arguments.
        keep: Called here with the place of a job, as soon as it is done, and its result, or the error it ended with.
        workers: Processes.
        title: Of the progress bar.

    Raises:
        BaseException: A job's exit or interruption, or one of this process. Jobs that run then are waited for and
            kept; a second interruption gives them up.
    """
    if workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    pool = _Pool(function, jobs, keep=keep)
    slots = [_Slot() for _ in range(min(workers, len(jobs)))]
    waiting = list(range(len(jobs)))
    running: dict[Future[Any], tuple[int, _Slot]] = {}
    try:
        with tqdm(total=len(jobs), desc=title, file=sys.stderr) as progress:
            while waiting or running:
                while waiting and slots:
                    place, slot = waiting.pop(0), slots.pop()
                    running[pool.submit(slot, place)] = (place, slot)
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    place, slot = running.pop(future)
                    slots.append(slot)
                    if pool.take(place, future):
                        progress.update()
                    else:
                        slot.renew()
                        waiting.insert(0, place)
    finally:
        pool.take_rest(running)
        for slot in [*slots, *(one for _, one in running.values())]:
            slot.close()


class _Slot:
    """A place for one process, which serves one job after another."""

    def __init__(self) -> None:
        self.executor: ProcessPoolExecutor | None = None

    def submit(self, *call: Any) -> "Future[Any]":
        if self.executor is None:
            self.executor = ProcessPoolExecutor(
                max_workers=1,
                # fork would copy torch's thread pools, which then hang
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_end_with_parent,
                initargs=(os.getpid(),),
            )
        return self.executor.submit(*call)

    def renew(self) -> None:
        self.close()
        self.executor = None

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)


class _Pool:
    """The bookkeeping of `run_jobs`, whose arguments it has."""

    def __init__(
        self, function: Callable[..., Any], jobs: Sequence[Sequence[Any]], *, keep: Callable[[int, Any], None]
    ) -> None:
        self.function, self.jobs, self.keep = function, jobs, keep
        self.tries = [0] * len(jobs)

    def submit(self, slot: _Slot, place: int) -> "Future[Any]":
        self.tries[place] += 1
        try:
            return slot.submit(_call, self.function, *self.jobs[place])
        except BrokenProcessPool:  # it was lost while it had nothing to do
            slot.renew()
            return slot.submit(_call, self.function, *self.jobs[place])

    def take(self, place: int, future: "Future[Any]") -> bool:
        """Keep what became of a job; False where its process was lost and it is to be tried again."""
        try:
            outcome = future.result()
        except BrokenProcessPool:
            if self.tries[place] < _TRIES:
                print("a worker process was lost (killed, or out of memory?); its job is tried again", file=sys.stderr)
                return False
            outcome = RuntimeError(
                f"its process was lost {_TRIES} times, killed or crashed; if memory ran out, use fewer workers"
            )
        except Exception as error:  # of one job; the others go on
            outcome = error
        try:
            self.keep(place, outcome)
        except KeyboardInterrupt:  # in the middle of writing
            self.keep(place, outcome)
            raise
        return True

    def take_rest(self, running: "dict[Future[Any], tuple[int, _Slot]]") -> None:
        """On the way out: wait for the jobs that run, and keep those that come to an end."""
        for future, (place, _) in running.items():
            if future.exception() is not None:
                continue
            try:
                self.keep(place, future.result())
            except Exception as error:  # there is one on its way already
                print(f"a result could not be kept: {error}", file=sys.stderr)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, or its error as one that can be sent to another process."""
    try:
        return function(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise


@contextmanager
def working() -> Iterator[None]:
    """Around the work on a job: a process whose parent is gone ends behind it, if the job heeds SIGTERM itself."""
    _IS_BUSY.set()
    try:
        yield
    finally:
        _IS_BUSY.clear()


def _end_with_parent(parent: int) -> None:
    """Have this process save and stop when the command that started it, process `parent`, is gone, e.g. killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)  # a training run saves first
        while _IS_BUSY.is_set():
            time.sleep(0.2)
        os._exit(1)  # nobody is left to ask for more work or to hear of an error

    threading.Thread(target=watch, daemon=True).start()
