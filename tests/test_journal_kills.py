"""Processes that write a journal are killed, and their system calls are watched."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


def child(*arguments: object, watch: tuple[str, ...] = ()) -> str:
    command = [*watch, sys.executable, "-m", "tests.journal_child", *map(str, arguments)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return done.stdout


def assert_nothing_lost(path: Path, kills: int, seed: int) -> None:
    found = json.loads(child("kill", path, kills, seed))

    assert found["kills"] == kills
    assert found["lost"] == 0
    assert found["reported"] > kills


def test_a_killed_process_loses_nothing_it_reported(path: Path) -> None:
    """40 writers killed with signal 9: what a commit returned for is there, and the lock free."""
    assert_nothing_lost(path, 40, seed=6)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_killed_processes_lose_nothing(path: Path) -> None:
    """600 kills of one journal."""
    assert_nothing_lost(path, 600, seed=7)


STRACE = shutil.which("strace")


def unsynced_sends(path: Path, commits: int, synchronous: str) -> tuple[int, int]:
    """Watch a writer; return how often it said SENT, and how often before the log was synced."""
    trace = path.with_name("trace")
    calls = "trace=write,pwrite64,fsync,fdatasync"
    child(
        "audit",
        path,
        commits,
        synchronous,
        watch=(str(STRACE), "-fy", "-e", calls, "-o", str(trace)),
    )
    sent = early = 0
    unsynced = False
    for line in trace.read_text().splitlines():
        if "-wal>" in line and "write" in line:
            unsynced = True
        elif re.search(r"f(data)?sync\(\d+<[^>]*-wal>\)?\s*(=|\))", line):
            unsynced = False
        elif "SENT" in line:
            sent += 1
            early += unsynced
    return sent, early


if STRACE:

    @pytest.mark.parametrize("commits", [100, pytest.param(1000, marks=pytest.mark.long)])
    def test_each_commit_is_synced_before_it_returns(path: Path, commits: int) -> None:
        """By the system calls: the log is on stable storage before the caller goes on."""
        assert unsynced_sends(path, commits, "FULL") == (commits, 0)

    def test_synchronous_normal_is_caught(path: Path) -> None:
        """With synchronous=NORMAL the caller would go on before the log is synced."""
        sent, early = unsynced_sends(path, 20, "NORMAL")

        assert sent == 20
        assert early >= 19
