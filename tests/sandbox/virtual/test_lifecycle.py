"""Leaving waits for the engine's threads, which the operating system names."""

import atexit
import os
import threading
import time
from pathlib import Path

import pytest

from headroom.sandbox.virtual import lifecycle


def test_a_busy_engine_thread_is_waited_for() -> None:
    named, finished, stop = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(f"{lifecycle.ENGINE_THREADS}_0")
        named.set()
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        finished.set()
        stop.wait()

    thread = threading.Thread(target=work)
    thread.start()
    named.wait()
    try:
        lifecycle.wait_for_engine()
        assert finished.is_set()
    finally:
        stop.set()
        thread.join()


def test_other_threads_are_not() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        start = time.monotonic()
        lifecycle.wait_for_engine()
        assert time.monotonic() - start < lifecycle.PATIENCE_S
    finally:
        stop.set()
        thread.join()


def test_both_ends_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[object] = []
    at_fork: list[object] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(
        os, "register_at_fork", lambda after_in_child: at_fork.append(after_in_child)
    )

    def lose() -> None: ...

    lifecycle.follow(lose)

    assert at_exit == [lifecycle.wait_for_engine] and at_fork == [lose]
