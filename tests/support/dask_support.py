"""A Dask cluster of real processes, to be killed, frozen and thawed one by one."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, field

ROOT: Final = str(Path(__file__).parents[2])
KEY: Final = "a-secret-that-no-cluster-sees"
SECONDS: Final = 60.0


@define(eq=False)
class Cluster:
    """A scheduler, and workers with the key, and four threads each."""

    folder: Path
    scheduler: subprocess.Popen[bytes] = field(init=False)
    workers: list[subprocess.Popen[bytes]] = field(init=False, factory=list)
    _log: Path = field(init=False)
    _schedulers: int = field(init=False, default=0)

    @property
    def log(self) -> str:
        """What all of them have written since the scheduler was started."""
        return self._log.read_text()

    @property
    def address(self) -> str:
        line = next(one for one in self.log.splitlines() if "Scheduler at:" in one)
        return line.split()[-1]

    def start(self, workers: int) -> None:
        """Start a scheduler, and its workers."""
        self._log = self.folder / f"{self._schedulers}.log"
        self._log.write_text("")
        self._schedulers += 1
        self.scheduler = self._begin("scheduler", "--host", "127.0.0.1", "--port", "0")
        _until(lambda: "Scheduler at:" in self.log)
        for _ in range(workers):
            self.add_worker()
        _until(lambda: self.log.count("Registered to:") >= workers)

    def add_worker(self, **environment: str) -> None:
        """Start one more worker, which joins when it is ready."""
        worker = self._begin("worker", self.address, "--no-nanny", "--nthreads", "4", **environment)
        self.workers.append(worker)

    def _begin(self, what: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        command = f"distributed.cli.dask_{what}"
        settings = {
            "DASK_TEMPORARY_DIRECTORY": ".",
            "PYTHONPATH": ROOT,
            "INTEGRATION_SDK_API_KEY": KEY,
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", command, *arguments, "--no-dashboard"],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | settings | environment,
            )

    def send(self, what: signal.Signals) -> subprocess.Popen[bytes]:
        """Send a signal to the oldest worker, which is not counted among them any more."""
        worker = self.workers.pop(0)
        worker.send_signal(what)
        return worker

    def stop(self) -> None:
        """Kill all of them."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self.workers.clear()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster of two workers."""
    folder.mkdir(exist_ok=True)
    running = Cluster(folder)
    running.start(2)
    try:
        yield running
    finally:
        running.stop()


# Run by the cluster, which finds them in this module


def told_scheduler(dask_scheduler: Any = None) -> str:
    """What a scheduler holds of tasks, plugins and events."""
    tasks = [(key, pickle.dumps(task.run_spec)) for key, task in dask_scheduler.tasks.items()]
    return repr((tasks, dask_scheduler.worker_plugins, dask_scheduler.get_events()))


def told_worker(dask_worker: Any = None) -> str:
    """What a worker holds of tasks, and of runs."""
    tasks = [(key, repr(task.run_spec)) for key, task in dask_worker.state.tasks.items()]
    return repr((tasks, [vars(one) for one in dask_worker.plugins.values()]))
