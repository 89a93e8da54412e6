"""``rota.Worker``: what is worked on, by which handlers, and running them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import rota.sync.store as stores
from rota import forks, names, units
from rota.codecs import Codec
from rota.facade.outboxes import DELIVERY_TIMEOUT
from rota.facade.stores import declared
from rota.sync.store import Store
from rota.units import Duration
from rota.worker import loops
from rota.worker.endpoint import Address, parse_address
from rota.worker.health import WorkerHealth
from rota.worker.limits import Limits
from rota.worker.opening import opened
from rota.worker.registry import (
    HandlerOptions,
    Registry,
    TransportHandlerOptions,
    check_handling,
    check_name,
    split,
)
from rota.worker.runtime import Runtime
from rota.worker.signals import Ears, heard
from rota.worker.signature import SourceKind
from rota.worker.sources import Held
from rota.worker.stepping import MovableClock, Stepper

if TYPE_CHECKING:
    from rota.aio.store import AsyncStore
    from rota.worker.probes import Probes

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_GRACE = 25
_NO_HANDLERS = "this worker has no handlers: decorate some with worker.queue or worker.transport"


class Worker:
    """Handlers for queues and transports, and the runtime that feeds them.

    ``store``: a URL, which ``run`` opens and closes; an opened store of either facade, which stays open; or nothing,
    and ``bind`` says later. Making a worker opens nothing.

    ``grace``: seconds that running handlers get when the worker is told to stop, None: as long as they take.
    ``worker_id``: a name for its claims, by default one nobody else has. ``housekeeping=False``: this worker sweeps
    nothing (expired jobs, old dead letters); others may.
    """

    def __init__(
        self,
        store: str | Store | AsyncStore | None = None,
        *,
        grace: Duration | None = DEFAULT_GRACE,
        worker_id: str | None = None,
        housekeeping: bool = True,
    ) -> None:
        self._grace = None if grace is None else units.seconds(units.not_negative(grace, "grace"))
        self._worker_id = names.optional_name(worker_id, "worker_id") or names.new_worker_id()
        self._housekeeping = housekeeping
        self._registry = Registry()
        self._store: str | Store | None = None
        self._runtime: Runtime | None = None
        self._stepper: Stepper | None = None
        # Opened from a URL, by a run and by steps.
        self._run_store: Store | None = None
        self._step_store: Store | None = None
        self._lock = threading.Lock()
        self._opening = False
        self._stop_asked = threading.Event()
        self._probes: Probes | None = None
        # For `rota work`, see `rota.worker.commands`.
        self._limits: Limits | None = None
        self._on_settled: Callable[[Sequence[Held], int], None] | None = None
        self.stopped_by: tuple[int, ...] = ()
        """The numbers of the signals that stopped its last run; two or more: it was told twice."""
        self._held_to_fork = False
        forks.watch(self)
        if store is not None:
            self.bind(store)

    # -- What to work on ---------------------------------------------------------------------------------------------

    def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        visibility: Duration | None = None,
        **handling: Unpack[HandlerOptions],
    ) -> Callable[[F], F]:
        """Decorate the handler of a queue's jobs: all of them, or those no ``task`` is there for.

        An ``async def`` runs on the worker's event loop, a ``def`` in a thread, with ``processes=True`` in a process of
        its own. It takes the payload, or the job (a parameter named ``job`` or annotated with ``rota.Job`` or
        ``rota.AsyncJob``), or both. ``concurrency``: how many jobs of the queue at once (10); ``timeout``: seconds for
        one; ``visibility``: seconds a claim holds between heartbeats, by default what is stamped on the job (Q4).
        ``codec`` decodes the payloads; a dataclass, Struct or model in the payload's annotation needs none.
        ``cancel_on_lost=False``: an async handler whose claim is lost is told (``job.lost``) and not cancelled.
        ``transactional=True``: the handler runs in a transaction, which it takes as ``tx`` (or annotated with
        ``rota.Transaction``, ``rota.AsyncTransaction``); what it does there is committed together with its ack.

        Returns the function unchanged. Raises ``TypeError`` for a signature that cannot be called, ``ValueError`` for a
        second handler of the same jobs or options that differ from another handler's.
        """
        return self._register("queue", name, None, handling, {"concurrency": concurrency, "visibility": visibility})

    def outbox(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = DELIVERY_TIMEOUT,
        visibility: Duration | None = None,
        codec: Codec | None = None,
    ) -> Callable[[F], F]:
        """Decorate what delivers the jobs of an outbox (X5): ``queue``, with 30 s for one delivery.

        Their attempts and pauses are those of ``store.outbox(name)``, which stamped them when they were enqueued.
        """
        return self.queue(name, concurrency=concurrency, timeout=timeout, visibility=visibility, codec=codec)

    def task(
        self,
        queue: str,
        *,
        name: str | None = None,
        concurrency: int | None = None,
        visibility: Duration | None = None,
        **handling: Unpack[HandlerOptions],
    ) -> Callable[[F], F]:
        """Decorate the handler of those of a queue's jobs that have this ``name`` (by default the function's own).

        The other options are those of ``queue``; ``concurrency`` and ``visibility`` belong to the whole queue. A job
        whose name has no handler here, where the queue has no handler for all, is given back for a while: another
        worker may know it.
        """

        source = {"concurrency": concurrency, "visibility": visibility}
        check_name(queue, "queue")

        def decorate(function: F) -> F:
            task = names.name(getattr(function, "__name__", "") if name is None else name, "task name")
            return self._register("queue", queue, task, handling, source)(function)

        return decorate

    def transport(
        self,
        name: str = "default",
        *,
        concurrency: int | None = None,
        visibility: Duration | None = None,
        priority_share: float | None = None,
        min_priority: int | None = None,
        **options: Unpack[TransportHandlerOptions],
    ) -> Callable[[F], F]:
        """Decorate the handler of a transport's messages.

        It takes the event, or the lease (a parameter named ``lease`` or annotated with ``rota.Lease`` or
        ``rota.AsyncLease``), or both; for the rest see ``queue``. ``visibility``: seconds a lease holds between
        heartbeats (30). ``min_priority``: groups below it are left to others (T4); with ``priority_share`` they are
        not: that share of the claims, 0 to 1, tries the groups at or above it first, then any.

        The other ``options`` are those of ``store.transport`` (``max_deliveries``, ``poison``, …), which belong to the
        transport (T11).
        """
        handling, own = split(options)
        source = {
            "concurrency": concurrency,
            "visibility": visibility,
            "priority_share": priority_share,
            "min_priority": min_priority,
            "options": {option: own[option] for option in declared(**own)} or None,
        }
        return self._register("transport", name, None, handling, source)

    def _register(
        self, kind: SourceKind, name: str, task: str | None, handling: HandlerOptions, source: dict[str, Any]
    ) -> Callable[[F], F]:
        # Checked here: written without its name, as @worker.queue, the decorator is called with the function alone.
        check_name(name, kind)
        check_handling(kind, handling)

        def decorate(function: F) -> F:
            with self._lock:
                self._check_idle("name its handlers before")
                self._registry.add(kind, name, function, task, {**handling}, source)
            return function

        return decorate

    def bind(self, store: str | Store | AsyncStore) -> Worker:
        """Say, or say anew, which store to work on (a URL or an opened store); returns the worker itself."""
        with self._lock:
            self._check_idle("bind it to another store when it has ended")
            self._forget_stepper()
            if not isinstance(store, str) and not hasattr(store, "as_sync"):
                raise TypeError(f"a worker's store is a URL or an opened store, got {store!r}")
            self._store = store if isinstance(store, str) else store.as_sync()
        return self

    def configure(self, *, grace: Duration | None, worker_id: str | None) -> Worker:
        """Say anew what ``Worker(…)`` was told, as ``rota run`` does; no ``worker_id``: it stays. Returns itself."""
        with self._lock:
            self._check_idle("configure it when it has ended")
            self._grace = None if grace is None else units.seconds(units.not_negative(grace, "grace"))
            if worker_id is not None:
                self._worker_id = names.name(worker_id, "worker_id")
                self._forget_stepper()
        return self

    @property
    def grace(self) -> float | None:
        """Seconds that running handlers get when it is told to stop."""
        return self._grace

    @property
    def store(self) -> Store | None:
        """The opened store it works on: the one it was given, or, of a URL, the one it opened, while it runs or steps.

        Else None. So a handler can enqueue what follows: ``worker.store.queue(…)``, in an async one
        ``worker.store.as_async().queue(…)``.
        """
        return self._run_store or self._step_store if isinstance(self._store, str) else self._store

    @property
    def bound_to(self) -> str | Store | None:
        """The URL or store it is bound to, None when there is none yet."""
        return self._store

    @property
    def sources(self) -> list[str]:
        """What it has handlers for: ``queue:NAME``, ``transport:NAME``."""
        return [spec.label for spec in self._registry.sources.values()]

    # -- Running -----------------------------------------------------------------------------------------------------

    def run(self, *, signals: bool = True, health: int | str | None = None) -> None:
        """Work until told to stop, by ``stop`` or, in the main thread, by SIGTERM or SIGINT (``signals=False``: not).

        Told to stop, it claims no more, gives back what waits for a slot, and lets running handlers end for ``grace``
        seconds; then async ones are cancelled, processes killed, and everything still held is given back, its attempt
        with it. A second signal does that at once. Then it returns. Async handlers run on an event loop of its own,
        in this thread.

        ``health``: a port on the loopback interface, or ``"HOST:PORT"``, where a small HTTP server answers
        ``/healthz``, ``/readyz`` and ``/metrics`` (Prometheus) until the run ends; 0: any free port, which
        ``health_address`` tells. A port that is taken is logged and tried again.

        Raises ``RuntimeError`` when it runs already, has no store, or a process for ``processes=True`` cannot start;
        ``TypeError`` or ``ValueError`` for a ``health`` that is no address; ``StoreClosed`` when its store was closed
        meanwhile; ``SchemaMismatch``, ``ValueError`` and ``EngineUnavailable`` where the store cannot be worked on and
        waiting would not help (no such folder, not a database, no right). A store that is busy or cannot be reached is
        waited for.
        """
        loops.run(self.arun(signals=signals, health=health))

    async def arun(self, *, signals: bool = True, health: int | str | None = None) -> None:
        """``run`` on the running event loop, on which async handlers run too.

        When its task is cancelled, handlers are cancelled, everything is given back, and the cancellation goes on.
        """
        address = None if health is None else parse_address(health)
        loops.check_not_importing()
        with self._lock:
            self._check_idle("end that run before you begin another")
            if not self._registry.sources:
                raise RuntimeError(_NO_HANDLERS)
            if self._store is None:
                raise RuntimeError("this worker has no store: name one in Worker(…) or with worker.bind(…)")
            target = self._store
            self._opening = True
            self.stopped_by = ()
        store: Store | None = None
        try:
            with self._probed(address) as probes, self._heard(signals) as ears:
                store = await opened(target, lambda: self._told(ears)) if isinstance(target, str) else target
                if store is not None:
                    self._run_store = store if isinstance(target, str) else None
                    if probes is not None:
                        probes.bind(store)
                    await self._arun_on(store, ears)
        finally:
            with self._lock:
                self._opening = False
                self._run_store = None
                # Whatever was told until here was for this run.
                self._stop_asked.clear()
            if store is not None and isinstance(target, str):
                store.close()

    def _told(self, ears: Ears) -> bool:
        """Whether it was told to stop before it worked."""
        return self._stop_asked.is_set() or bool(ears.numbers)

    @contextmanager
    def _heard(self, wanted: bool) -> Iterator[Ears]:
        with heard(wanted) as ears:
            try:
                yield ears
            finally:
                self.stopped_by = tuple(ears.numbers)

    @contextmanager
    def _probed(self, address: Address | None) -> Iterator[Probes | None]:
        """Within this block the health server answers, if one is wanted."""
        if address is None:
            yield None
            return
        from rota.worker.probes import Probes

        with Probes(address, self._registry.sources, self.health) as self._probes:
            try:
                yield self._probes
            finally:
                self._probes = None

    async def _arun_on(self, store: Store, ears: Ears) -> None:
        task = asyncio.current_task()
        runtime = Runtime(
            self._registry,
            store,
            asyncio.get_running_loop(),
            worker_id=self._worker_id,
            grace=self._grace,
            housekeeping=self._housekeeping,
            limits=self._limits,
            on_settled=self._on_settled,
        )
        runtime.is_cancelled = lambda: task is not None and task.cancelling() > 0
        # A signal may come at any point: from here on the runtime hears of it.
        ears.tell(runtime)
        with self._lock:
            if self._told(ears):
                return
            self._runtime = runtime
        try:
            runtime.start()
            await runtime.until_ended()
        finally:
            ears.forget()
            with self._lock:
                self._runtime = None
        if runtime.broken is not None:
            raise runtime.broken

    def stop(self, *, now: bool = False) -> None:
        """Tell it to stop, as SIGTERM does; ``now``: without grace. From any thread.

        Told while it does not run, it is remembered for the next run, which then ends before it claims anything: a
        thread that is to run it may not have begun yet. The end of a run uses up what was told until then.
        """
        with self._lock:
            if self._runtime is None:
                self._stop_asked.set()
                return
            self._runtime.orders.put("now" if now else "stop")
            if now:
                self._runtime.orders.put("now")

    def finish(self) -> None:
        """Claim no more, handle what is claimed as long as it takes, then stop. ``stop`` may follow. Any thread.

        Told while it does not run, it is remembered as ``stop`` is.
        """
        with self._lock:
            if self._runtime is not None:
                self._runtime.orders.put("finish")
            else:
                self._stop_asked.set()

    def health(self) -> WorkerHealth:
        """Its numbers: what runs and waits, what became of the items, whether the store answers. From any thread."""
        runtime, stepper = self._runtime, self._stepper
        if runtime is not None:
            return runtime.health()
        if stepper is not None:
            return stepper.health()
        return WorkerHealth("opening" if self._opening else "idle", self._worker_id, None, 0, None, ())

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Host and port where ``run(health=…)`` answers, None while it does not."""
        probes = self._probes
        return None if probes is None else probes.address

    # -- One at a time -----------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Claim at most one item and handle it in this thread; whether there was one. Starts no thread.

        Sources take turns. What the store raises is raised; a handler's exception becomes its item's outcome as in
        ``run``. A timeout ends async handlers only, and ``processes=True`` is not obeyed. There are no heartbeats.
        """
        return self._stepping().step()

    def drain(self, *, advance: MovableClock | None = None, limit: int = 10_000) -> int:
        """``step`` until nothing is claimable; how many items were handled.

        ``advance``: the store's ``ManualClock``, moved to the next instant at which something is due, until nothing is
        left at all: delays, backoffs and lapsing claims take no time. Raises ``AssertionError`` after ``limit`` items,
        with ``advance`` also for a job whose name has no handler here, as soon as it comes again. ``ValueError`` when
        moving ``advance`` makes nothing due: it is not the store's clock.
        """
        return self._stepping().drain(advance, limit)

    def _check_idle(self, instead: str) -> None:
        # It runs from when it begins to open its store.
        if self._runtime is not None or self._opening:
            raise RuntimeError(f"this worker runs: {instead}")

    def _stepping(self) -> Stepper:
        with self._lock:
            self._check_idle("it is moved by step() or by run(), not by both")
            if self._stepper is None:
                if self._store is None:
                    raise RuntimeError("this worker has no store: name one in Worker(…) or with worker.bind(…)")
                if not self._registry.sources:
                    raise RuntimeError(_NO_HANDLERS)
                if isinstance(self._store, str):
                    self._step_store = stores.open(self._store)
                self._stepper = Stepper(self._registry, self._step_store or self._store, self._worker_id)  # type: ignore[arg-type]
            return self._stepper

    def close(self) -> None:
        """Close what ``step`` and ``drain`` opened: an event loop for async handlers, the store of a URL."""
        with self._lock:
            self._forget_stepper()

    def _forget_stepper(self) -> None:
        if self._stepper is not None:
            self._stepper.close()
            self._stepper = None
        if self._step_store is not None:
            self._step_store.close()
            self._step_store = None

    def before_fork(self, deadline: float) -> None:
        """Take the lock, so that no other thread is in the middle of what it guards."""
        self._held_to_fork = self._lock.acquire(timeout=forks.left(deadline))

    def after_fork(self, *, child: bool) -> None:
        """Give it back; in a child nothing runs, whatever its parent does."""
        held, self._held_to_fork = self._held_to_fork, False
        if not child:
            if held:
                self._lock.release()
            return
        self._lock = threading.Lock()
        if self._runtime is not None:
            self._runtime.forked()
        self._runtime = self._run_store = self._probes = None
        self._opening = False
        self._stop_asked = threading.Event()

    def __repr__(self) -> str:
        return f"<Worker {self._worker_id!r} {self.sources}>"
