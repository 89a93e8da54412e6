"""A worker's numbers in Prometheus' text format 0.0.4. PURE: what is shown are the arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rota.worker.figures import Figures
    from rota.worker.health import SourceHealth, WorkerHealth

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Type = Literal["counter", "gauge", "histogram"]
Labels = dict[str, str]

_STATES = ("opening", "working", "stopping", "idle")


class _Page:
    """Lines of the page; all samples of one name stand together under its HELP and TYPE."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, type_: Type, help_: str, samples: Iterable[tuple[Labels, float]]) -> None:
        """A counter's or gauge's samples; without any, nothing is said of it."""
        self._family(name, type_, help_, [("", labels, value) for labels, value in samples])

    def histogram(self, name: str, help_: str, sources: Iterable[SourceHealth]) -> None:
        """The spread of handlers' seconds."""
        samples: list[tuple[str, Labels, float]] = []
        for source in sources:
            labels = of_source(source)
            samples += [("_bucket", labels | {"le": number(bound)}, count) for bound, count in source.handled_within]
            samples.append(("_sum", labels, source.handler_seconds))
            samples.append(("_count", labels, source.handled_within[-1][1]))
        self._family(name, "histogram", help_, samples)

    def _family(self, name: str, type_: Type, help_: str, samples: list[tuple[str, Labels, float]]) -> None:
        if not samples:
            return
        self._lines.append(f"# HELP {name} {_escaped(help_)}")
        self._lines.append(f"# TYPE {name} {type_}")
        for suffix, labels, value in samples:
            inner = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
            self._lines.append(f"{name}{suffix}{{{inner}}} {number(value)}" if inner else f"{name} {number(value)}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def of_source(source: Any) -> Labels:
    """The labels that name a queue or transport."""
    return {"kind": source.kind, "name": source.name}


def number(value: float) -> str:
    """A value as the format writes it."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def page(health: WorkerHealth, figures: Figures | None, *, version: str, store_up: bool, now: float) -> str:
    """The whole page. ``figures``: what the store said last, None when it says nothing; ``now``: monotonic seconds."""
    made = _Page()
    _worker(made, health, version, store_up)
    _sources(made, health.sources)
    if figures is not None:
        made.family(
            "rota_store_figures_age_seconds",
            "gauge",
            "How old the figures of the store on this page are.",
            [({}, max(0.0, now - figures.at))],
        )
        _store(made, figures)
    return made.text()


def _worker(made: _Page, health: WorkerHealth, version: str, store_up: bool) -> None:
    made.family("rota_worker_info", "gauge", "Always 1.", [({"worker_id": health.worker_id, "version": version}, 1)])
    made.family(
        "rota_worker_state",
        "gauge",
        "1 for the state the worker is in.",
        [({"state": state}, state == health.state) for state in _STATES],
    )
    if health.started_at is not None:
        made.family(
            "rota_worker_start_time_seconds",
            "gauge",
            "When its run began, in POSIX seconds.",
            [({}, health.started_at)],
        )
    made.family("rota_worker_store_up", "gauge", "Whether the store answers.", [({}, store_up)])
    made.family(
        "rota_worker_items_unsettled",
        "gauge",
        "Items whose handlers ended and whose outcome is not recorded yet.",
        [({}, health.unsettled)],
    )


def _sources(made: _Page, sources: tuple[SourceHealth, ...]) -> None:
    def each(name: str, type_: Type, help_: str, field: str) -> None:
        made.family(name, type_, help_, [(of_source(source), getattr(source, field)) for source in sources])

    each("rota_worker_concurrency", "gauge", "How many items are handled at once at most.", "concurrency")
    each("rota_worker_items_in_flight", "gauge", "Handlers running now.", "running")
    each("rota_worker_items_waiting", "gauge", "Items claimed that wait for a free slot.", "waiting")
    each(
        "rota_worker_longest_running_seconds",
        "gauge",
        "How long the longest running handler has been running.",
        "longest_running",
    )
    each("rota_worker_items_claimed_total", "counter", "Items claimed.", "claimed")
    made.family(
        "rota_worker_items_settled_total",
        "counter",
        "Items by the outcome recorded in the store.",
        [
            (of_source(source) | {"outcome": outcome}, getattr(source, outcome))
            for source in sources
            for outcome in ("acked", "retried", "failed", "released")
        ],
    )
    each("rota_worker_claims_lost_total", "counter", "Claims lost before their outcome was recorded.", "lost")
    each("rota_worker_handlers_timed_out_total", "counter", "Handlers whose time was over.", "timed_out")
    each(
        "rota_worker_heartbeats_failed_total",
        "counter",
        "Heartbeats that the store did not answer; each is tried again soon.",
        "beats_failed",
    )
    made.histogram("rota_worker_handler_duration_seconds", "How long handlers took, however they ended.", sources)


def _store(made: _Page, figures: Figures) -> None:
    queues: list[tuple[Labels, Any]] = [
        ({"queue": one.name}, one.stats) for one in figures.sources if one.kind == "queue"
    ]
    transports: list[tuple[Labels, Any]] = [
        ({"transport": one.name}, one.stats) for one in figures.sources if one.kind == "transport"
    ]
    made.family(
        "rota_queue_jobs",
        "gauge",
        "Jobs by state; 10000 stands for that many or more.",
        [
            (labels | {"state": state}, getattr(stats, state))
            for labels, stats in queues
            for state in ("pending", "processing", "done", "dead")
        ],
    )
    _common(made, "queue", "a job", queues)
    for field, help_ in (
        ("messages", "Messages; 10000 stands for that many or more."),
        ("dead", "Dead letters; 10000 stands for that many or more."),
    ):
        name = "rota_transport_messages" if field == "messages" else "rota_transport_dead_messages"
        made.family(name, "gauge", help_, [(labels, getattr(stats, field)) for labels, stats in transports])
    made.family(
        "rota_transport_groups",
        "gauge",
        "Groups that have messages, by state; 10000 stands for that many or more.",
        [
            (labels | {"state": state}, getattr(stats, "suspended_groups" if state == "suspended" else state))
            for labels, stats in transports
            for state in ("ready", "leased", "parked", "suspended")
        ],
    )
    _common(made, "transport", "a message", transports)
    made.family(
        "rota_transport_group_lag_seconds",
        "gauge",
        "Age of the oldest message of the groups that lag most, whatever their state.",
        [
            ({"transport": one.name, "group": lag.group_id}, max(0.0, figures.now - lag.oldest_at))
            for one in figures.sources
            for lag in (one.worst if figures.now else ())
        ],
    )


def _common(made: _Page, kind: str, item: str, sources: list[tuple[Labels, Any]]) -> None:
    made.family(
        f"rota_{kind}_oldest_ready_age_seconds",
        "gauge",
        f"For how long {item} has been ready that nobody claimed, the one that waits longest; 0 when none is ready.",
        [(labels, stats.oldest_ready_age or 0) for labels, stats in sources],
    )
    made.family(
        f"rota_{kind}_suspended",
        "gauge",
        f"Whether the {kind} is suspended as a whole.",
        [(labels, stats.suspended) for labels, stats in sources],
    )
