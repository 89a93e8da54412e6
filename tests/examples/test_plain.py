"""The plain script."""

from __future__ import annotations

from collections.abc import Callable

from .programs import Example, until

MAILS = {f"mail to user-{n}@example.org" for n in range(3)}
ORDERS = [f"order-{number} {event}" for number in (1, 2) for event in ("created", "paid", "sent")]


def test_all_is_worked_off_in_order_of_each_group(example: Callable[[str], Example]) -> None:
    plain = example("plain")
    plain.run("python shop.py fill")
    work = plain.start("python shop.py work")

    def said() -> list[str]:
        return [line.removeprefix("INFO:shop:") for line in work.lines() if line.startswith("INFO:shop:")]

    until(lambda: len(said()) >= len(MAILS) + len(ORDERS))
    assert work.stop() == 0
    lines = said()
    assert sorted(lines) == sorted([*MAILS, *ORDERS])
    for number in (1, 2):
        assert [line for line in lines if line.startswith(f"order-{number}")] == ORDERS[number * 3 - 3 : number * 3]
    # The failed tries are in the log.
    assert work.output.count("handler_failed") == 2
    assert "worker_stopped" in work.output


def test_it_is_told_how_to_be_used(example: Callable[[str], Example]) -> None:
    program = example("plain").start("python shop.py fill", instead="nonsense")
    assert program.process.wait(30) == 1
    assert "usage: shop.py fill | work" in program.output
