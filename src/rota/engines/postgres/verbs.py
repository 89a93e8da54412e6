"""Verbs: generator methods that run sync when called, and async through ``engine.acall(verb, …)``.

    class PostgresQueue:
        runner: Runner

        @verb
        def ack(self, claim: JobClaim, result: str | None) -> Op[bool]:
            rows = yield SQL.ack, (...)
            return bool(rows[0][0])

Without ``transaction`` every statement is a transaction of its own, one round trip, on a connection in autocommit. With
it they share one: READ COMMITTED for a verb, one read-only snapshot for a reading verb.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from rota.sql.drive import Op

P = ParamSpec("P")
T = TypeVar("T")


class Runs(Protocol):
    """What carries out verbs: the engine's runner, a transaction."""

    def run(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T: ...

    def arun(self, verb: BoundVerb[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[T]: ...


class Owner(Protocol):
    """What has verbs: a queue, a transport, the engine, a transaction."""

    @property
    def runner(self) -> Runs: ...


class BoundVerb(Generic[P, T]):
    """A verb of one object."""

    __slots__ = ("_make", "owner", "reading", "transaction")

    def __init__(self, make: Callable[..., Op[T]], owner: Owner, reading: bool, transaction: bool) -> None:
        self._make = make
        self.owner = owner
        self.reading = reading
        self.transaction = transaction

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.owner.runner.run(self, args, kwargs)

    def arun(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run it on the running event loop."""
        return self.owner.runner.arun(self, args, kwargs)

    def op(self, *args: P.args, **kwargs: P.kwargs) -> Op[T]:
        """The operation itself; nothing happens until it is driven."""
        return self._make(self.owner, *args, **kwargs)


class Verb(Generic[P, T]):
    """A verb of a class."""

    def __init__(self, make: Callable[Concatenate[Any, P], Op[T]], reading: bool, transaction: bool) -> None:
        self._make = make
        self._reading = reading
        self._transaction = transaction
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> Verb[P, T]: ...
    @overload
    def __get__(self, owner: Any, kind: type[Any] | None = None) -> BoundVerb[P, T]: ...
    def __get__(self, owner: Any, kind: type[Any] | None = None) -> Verb[P, T] | BoundVerb[P, T]:
        if owner is None:
            return self
        return BoundVerb(self._make, owner, self._reading, self._transaction)


@overload
def verb(make: Callable[Concatenate[Any, P], Op[T]], /) -> Verb[P, T]: ...
@overload
def verb(*, transaction: bool) -> Callable[[Callable[Concatenate[Any, P], Op[T]]], Verb[P, T]]: ...
def verb(make: Any = None, /, *, transaction: bool = False) -> Any:
    """A verb that may change something."""
    if make is None:
        return lambda method: Verb(method, False, transaction)
    return Verb(make, False, transaction)


@overload
def reading_verb(make: Callable[Concatenate[Any, P], Op[T]], /) -> Verb[P, T]: ...
@overload
def reading_verb(*, transaction: bool) -> Callable[[Callable[Concatenate[Any, P], Op[T]]], Verb[P, T]]: ...
def reading_verb(make: Any = None, /, *, transaction: bool = False) -> Any:
    """A verb that changes nothing: repeated once when its connection breaks."""
    if make is None:
        return lambda method: Verb(method, True, transaction)
    return Verb(make, True, transaction)
