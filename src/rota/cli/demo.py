"""``rota demo``: work off the standard library's files with processes, kill one on the way, then verify everything."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rota.cli.demo_check import Verdict, verify
from rota.cli.demo_files import package_of, source_files, standard_library
from rota.cli.exits import FAILED, OK, USAGE, CommandError
from rota.cli.output import counted, escape, print_json
from rota.cli.progress import progress
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota import Queue, Transport

_LOOK = 0.1
# Until the kill, so that a short run does not end before it.
_LOOK_CLOSELY = 0.02
# The first worker is killed when so much of the jobs is done.
_KILL_AT = 0.3
# Without any progress for so long something is wrong.
_PATIENCE = 60.0
_LINES_EVERY = 2.0
_DAY = 86_400
_TOLD = 10
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def demo(arguments: argparse.Namespace, session: Session) -> int:
    """Run the demo; exit 1 if the verification finds a difference."""
    place = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    # Not ROTA_URL: the demo goes into somebody's own database only where they say so.
    session.url = session.explicit_url or f"sqlite:///{place / 'demo.db'}"
    if session.url.startswith("memory:"):
        raise CommandError(USAGE, "the demo works with several processes, which memory:// cannot be shared by")
    root = standard_library()
    files = source_files(root, arguments.limit)
    if not files:
        raise CommandError(FAILED, f"there are no source files in {root}")
    store = session.open(create=True)
    queue = store.queue(_free_name("demo-files", store.queues()), keep_done=_DAY, max_attempts=5)
    transport = store.transport(_free_name("demo-packages", store.transports()))
    published = _put_in(session, queue, transport, root, files)
    crew = Crew(session.url, queue.name, transport.name, root, place)
    start = time.monotonic()
    with _ended_by_signals() as check:
        try:
            for _ in range(arguments.workers):
                check()
                crew.start()
            killed = _watch(session, queue, transport, crew, len(files), check)
        finally:
            crew.end()
    took = time.monotonic() - start
    done = f"{len(files)} jobs and {len(files)} messages with {counted(arguments.workers, 'worker')} in {took:.1f} s"
    _say(session, f"worked off {done}: {len(files) / took:.0f} jobs/s and as many messages/s")
    with progress("verifying", len(files), quiet=session.quiet) as bar:
        verdict = verify(queue, transport, root, published, crew.logs, killed, bar.update)
    if session.json:
        print_json(
            {
                "url": session.shown_url,
                "queue": queue.name,
                "transport": transport.name,
                "logs": str(place),
                "files": len(files),
                "groups": len({package_of(path) for path in files}),
                "seconds": took,
                "killed": sorted(killed),
                "delivered_again": verdict.repeated,
                "problems": verdict.problems,
            }
        )
    code = _tell(session, verdict, files, bool(killed))
    _tell_where(session, queue, place)
    return code


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], None]]:
    """While inside, SIGTERM and SIGHUP are noted; the check that is given ends the demo then, workers and all.

    Not at once: an exception in the middle of starting a worker would lose sight of it.
    """
    told: list[int] = []

    def check() -> None:
        if told:
            sys.exit(128 + told[0])

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = {number: signal.signal(number, note) for number in _ENDING if signal.getsignal(number) == signal.SIG_DFL}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_name(name: str, taken: list[str]) -> str:
    """The name, or the first of name-2, name-3, … that an earlier demo left free."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _put_in(session: Session, queue: Queue, transport: Transport, root: Path, files: list[str]) -> dict[str, int]:
    """A job for each file, and a message in the group of its package; the seq of each path."""
    start = time.monotonic()
    queue.enqueue_many({"path": path} for path in files)
    seqs = transport.publish_many((package_of(path), {"path": path}) for path in files)
    groups = len({package_of(path) for path in files})
    took = time.monotonic() - start
    _say(session, f"{len(files)} files of {root}: enqueued, and published in {groups} groups, in {took:.2f} s")
    return dict(zip(files, seqs, strict=True))


def _watch(
    session: Session, queue: Queue, transport: Transport, crew: Crew, total: int, check: Callable[[], None]
) -> set[str]:
    """Show how it goes until every worker has ended; kill one of them on the way. Returns whom."""
    killed: set[str] = set()
    last, last_change = -1, time.monotonic()
    with progress("working", 2 * total, lines_every=_LINES_EVERY, quiet=session.quiet) as bar:
        while crew.working():
            check()
            jobs, messages = queue.stats(), transport.stats()
            done = jobs.done + total - min(messages.messages, total)
            bar.update(done, f"{len(crew.running)} workers" + (", one killed" if killed else ""))
            if done != last:
                last, last_change = done, time.monotonic()
            elif time.monotonic() - last_change > _PATIENCE:
                raise CommandError(FAILED, f"nothing moved for {_PATIENCE:g} s, {done} of {2 * total} are done")
            if not killed and jobs.done >= _KILL_AT * total:
                victim = _busy_worker(queue, crew)
                if victim is not None:
                    crew.kill(victim)
                    killed.add(victim)
                    crew.start()
            time.sleep(_LOOK if killed else _LOOK_CLOSELY)
    for name in sorted(killed):
        _say(session, f"killed {name} with SIGKILL on the way, while it held work, and started another in its place")
    return killed


def _busy_worker(queue: Queue, crew: Crew) -> str | None:
    """A worker that holds jobs now."""
    for job in queue.jobs("processing", 100):
        if job.worker_id in crew.running:
            return job.worker_id
    return None


class Crew:
    """The worker processes."""

    def __init__(self, url: str, queue: str, transport: str, root: Path, place: Path) -> None:
        # By the environment, not the command line: a URL may have a password.
        self._environment = os.environ | {"ROTA_URL": url}
        self._arguments = (queue, transport, str(root))
        self._place = place
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}

    def start(self) -> None:
        """Start one more."""
        name = f"worker-{len(self.logs) + 1}"
        self.logs[name] = self._place / f"{name}.log"
        command = [sys.executable, "-m", "rota.cli.demo_worker", name, *self._arguments, str(self.logs[name])]
        self.running[name] = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        """Kill one without a chance to clean up."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def working(self) -> bool:
        """Whether any still works; one that failed ends the demo."""
        for name, process in list(self.running.items()):
            status = process.poll()
            if status is None:
                continue
            del self.running[name]
            if status:
                raise CommandError(FAILED, f"{name} ended with status {status}")
        return bool(self.running)

    def end(self) -> None:
        """End those that still run."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()


# -- Telling ---------------------------------------------------------------------------------------------------------


def _tell(session: Session, verdict: Verdict, files: list[str], killed: bool) -> int:
    if verdict.problems:
        for problem in verdict.problems[:_TOLD]:
            print(f"PROBLEM: {escape(problem)}", file=sys.stderr)
        print(f"verification FAILED: {len(verdict.problems)} problems", file=sys.stderr)
        return FAILED
    groups = len({package_of(path) for path in files})
    again = (
        f"; {verdict.repeated} delivered again after the kill" if killed else "; no worker was killed, it was too quick"
    )
    done = f"{len(files)} files once each, {groups} groups in order"
    _say(session, f"verified against a direct walk: {done}, nothing lost{again}")
    return OK


def _tell_where(session: Session, queue: Queue, place: Path) -> None:
    url = shlex.quote(session.shown_url)
    _say(session, f"the workers' logs are in {place}, the database is {session.shown_url}; look around:")
    for words in (
        "stats",
        f"jobs queue:{queue.name} --state done --limit 5",
        f"jobs queue:{queue.name} --limit 5 --json",
        f"dead queue:{queue.name}",
        "doctor",
    ):
        _say(session, f"  rota --url {url} {words}")


def _say(session: Session, text: str) -> None:
    """For people; beside a JSON document it is a remark."""
    if session.json:
        session.note(escape(text))
    else:
        print(escape(text), flush=True)
