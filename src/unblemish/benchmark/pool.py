"""Many fits at once: one process a core, one thread a process."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # torch takes large tensors in large pages: processes hinder one another less


@contextmanager
def workers(processes: int, threads: int = 1) -> Iterator[ProcessPoolExecutor]:
    """Processes that each use so many threads; their jobs are cancelled when the block is left by an error."""
    settings = dict.fromkeys(THREADS, str(threads)) | {HUGE_PAGES: "1"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)  # libraries read it when they are loaded: before any start
    pool = ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=_start, initargs=(threads,)
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in (getattr(pool, "_processes", None) or {}).values():
            process.terminate()
        raise
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def results(pool: ProcessPoolExecutor, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """What `work` returns for each job, in the order in which they end."""
    for future in as_completed([pool.submit(work, job) for job in jobs]):
        yield future.result()


def _start(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed could not end its workers: they see to it themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
