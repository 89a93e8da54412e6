"""The worker runtime: ``python -m bench.worker [what]``; ``what``: rates, idle, threads, or engines; all by default.

A no-op async handler, one worker process, the default settings; the clock runs from ``run`` to its return, when every
ack is recorded. Peers: ``bench.peers postgres --measure work``, and huey here, its consumer in a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rota
from bench.measure import ROUNDS, Timed, at_least, at_most, heading

PAYLOAD = {"id": 12345, "email": "someone@example.org", "kind": "welcome"}
COUNT, GROUPS, CONCURRENCY = 60_000, 1_000, 100
IDLE = 300
ENGINES = ("memory", "sqlite", "postgresql")

# In another process: a job every 30 ms or so, with the instant just before it was enqueued.
PRODUCER = """
import random, sys, time, rota
with rota.open(sys.argv[1]) as store:
    queue = store.queue("idle")
    for _ in range(int(sys.argv[2])):
        time.sleep(random.uniform(0.02, 0.04))
        queue.enqueue(time.time())
"""

HUEY = """
import sys, time
from huey import SqliteHuey
huey = SqliteHuey("bench", filename=sys.argv[1], fsync=True, results=False)
count = int(sys.argv[2])
left = [count]
@huey.task()
def noop(payload):
    left[0] -= 1
for _ in range(count):
    noop({"id": 12345, "email": "someone@example.org", "kind": "welcome"})
consumer = huey.create_consumer(workers=1, periodic=False, initial_delay=0.001)
start = time.perf_counter()
consumer.start()
while left[0]:
    time.sleep(0.002)
print((time.perf_counter() - start) / count)
consumer.stop(graceful=True)
"""


@contextmanager
def urls() -> Iterator[Callable[[str], str]]:
    """Makes the URLs of fresh stores; the PostgreSQL server syncs every commit."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from postgres.server import Server

    server = Server(durable=True)
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        numbers = iter(range(1_000_000))

        def fresh(engine: str) -> str:
            if engine == "memory":
                return f"memory://bench-{next(numbers)}"
            if engine == "sqlite":
                return f"sqlite:////{folder.lstrip('/')}/{next(numbers)}.db"
            return server.dsn(server.create_database())

        try:
            yield fresh
        finally:
            server.close()


# -- Rates -------------------------------------------------------------------------------------------------------------


def queue_round(url: str, spent: dict[str, float] | None = None) -> float:
    """Seconds per job; what each thread took is added to ``spent``."""
    with rota.open(url, **_options(url)) as store:
        for start in range(0, COUNT, 10_000):
            store.queue("q").enqueue_many([PAYLOAD] * min(10_000, COUNT - start))
        worker = rota.Worker(store)
        left = COUNT
        before = time.thread_time()

        @worker.queue("q", concurrency=CONCURRENCY)
        async def noop(payload: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                if spent is not None:
                    _note_spent(spent, before)
                worker.stop()

        return _timed(worker, lambda: store.queue("q").stats().pending + store.queue("q").stats().processing)


def transport_round(url: str) -> float:
    """Seconds per message, of 1,000 groups."""
    with rota.open(url, **_options(url)) as store:
        transport = store.transport("t")
        items = [(f"group-{number % GROUPS}", PAYLOAD) for number in range(COUNT)]
        for start in range(0, COUNT, 10_000):
            transport.publish_many(items[start : start + 10_000])
        worker = rota.Worker(store)
        left = COUNT

        @worker.transport("t", concurrency=CONCURRENCY)
        async def noop(event: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                worker.stop()

        return _timed(worker, lambda: transport.stats().messages)


def _options(url: str) -> dict[str, bool]:
    return {"migrate": True, "prepare": True} if url.startswith("postgresql") else {}


def _timed(worker: rota.Worker, rest: Callable[[], int]) -> float:
    start = time.perf_counter()
    worker.run()
    seconds = time.perf_counter() - start
    assert rest() == 0, f"{rest()} left"
    return seconds / COUNT


def huey_round(python: str) -> float:
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        command = [python, "-c", HUEY, os.path.join(folder, "huey.db"), "5000"]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def bench_rates(fresh: Callable[[str], str], chosen: list[str]) -> None:
    rounds: dict[str, list[float]] = {}
    huey = _huey() if "sqlite" in chosen else None
    for _ in range(ROUNDS):
        for engine in chosen:
            rounds.setdefault(f"{engine} queue", []).append(queue_round(fresh(engine)))
            rounds.setdefault(f"{engine} transport", []).append(transport_round(fresh(engine)))
        if huey is not None:
            rounds.setdefault("huey", []).append(huey_round(huey))
    timed = {name: Timed(tuple(seconds)) for name, seconds in rounds.items()}
    for name, each in timed.items():
        print(f"{name:<24} {each.per_second()}")
    if "memory" in chosen:
        at_least("memory, jobs/s in thousands", 1 / timed["memory queue"].median / 1_000, 60, "")
    if huey is not None:
        at_least("SQLite full / huey", timed["huey"].median / timed["sqlite queue"].median, 8, "")
    for engine in chosen:
        ratio = timed[f"{engine} queue"].median / timed[f"{engine} transport"].median
        at_least(f"{engine}: transport of {GROUPS:,} groups / queue", ratio, 0.6, "")


def _huey() -> str | None:
    from bench.peers.environments import REQUIREMENTS, Missing, environment

    pin = next(line for line in (REQUIREMENTS / "sqlite.txt").read_text().split() if line.startswith("huey"))
    try:
        return environment(Path(tempfile.gettempdir()) / "rota-bench-peers" / "huey", sys.executable, [pin])
    except Missing as error:
        print(f"NOT MEASURED: huey: {error}")
        return None


# -- Idle latency ------------------------------------------------------------------------------------------------------


def idle_latencies(url: str) -> list[float]:
    """Milliseconds from just before an enqueue to the start of the handler, one job at a time, the worker idle."""
    latencies: list[float] = []
    with rota.open(url, **({"migrate": True} if url.startswith("postgresql") else {})) as store:
        worker = rota.Worker(store)

        @worker.queue("idle")
        async def handle(sent: float) -> None:
            latencies.append((time.time() - sent) * 1_000)
            if len(latencies) == IDLE:
                worker.stop()

        if url.startswith("memory"):
            namespace = ["-", url, str(IDLE)]
            code = compile(PRODUCER.replace("sys.argv", "argv"), "producer", "exec")
            thread = threading.Thread(target=exec, args=(code, {"argv": namespace}))
            thread.start()
            worker.run()
            thread.join()
        else:
            with subprocess.Popen([sys.executable, "-c", PRODUCER, url, str(IDLE)]):
                worker.run()
    return sorted(latencies)


def bench_idle(fresh: Callable[[str], str], chosen: list[str]) -> None:
    goals = {"memory": (0.3, None), "sqlite": (2.0, None), "postgresql": (3.0, 10.0)}
    for engine in chosen:
        runs = [idle_latencies(fresh(engine)) for _ in range(3)]
        half = statistics.median(run[len(run) // 2] for run in runs)
        last = statistics.median(run[int(len(run) * 0.99)] for run in runs)
        detail = f"p50 {half:.2f} ms, p99 {last:.2f} ms, max {max(run[-1] for run in runs):.2f} ms; 3 x {IDLE} jobs"
        p50, p99 = goals[engine]
        at_most(f"{engine}: idle latency p50, ms", half, p50, detail)
        if p99 is not None:
            at_most(f"{engine}: idle latency p99, ms", last, p99, detail)


# -- Where the time goes -----------------------------------------------------------------------------------------------


def bench_threads(fresh: Callable[[str], str], chosen: list[str]) -> None:
    """Microseconds of processor time per job, by thread; what the server's processes take is not among it."""
    for engine in chosen:
        spent: dict[str, float] = {}
        seconds = statistics.median(queue_round(fresh(engine), spent) for _ in range(ROUNDS))
        shares = ", ".join(f"{name} {each / ROUNDS / COUNT * 1e6:.1f}" for name, each in sorted(spent.items()))
        print(f"{engine:<12} {seconds * 1e6:.1f} µs per job; µs of processor time: {shares}")


def _note_spent(spent: dict[str, float], before: float) -> None:
    """Add up what each living thread has taken; the main thread since ``before``."""
    for thread in threading.enumerate():
        if thread.ident is not None:
            taken = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            loop = thread is threading.main_thread()
            name = "event loop" if loop else thread.name.split("-")[1] if "-" in thread.name else thread.name
            spent[name] = spent.get(name, 0.0) + (taken - before if loop else taken)


def main(arguments: list[str]) -> None:
    chosen = [engine for engine in ENGINES if engine in arguments] or list(ENGINES)
    what = [one for one in ("rates", "idle", "threads") if one in arguments] or ["rates", "idle", "threads"]
    heading("Worker")
    with urls() as fresh:
        if "rates" in what:
            bench_rates(fresh, chosen)
        if "idle" in what:
            bench_idle(fresh, chosen)
        if "threads" in what:
            bench_threads(fresh, chosen)


if __name__ == "__main__":
    main(sys.argv[1:])
