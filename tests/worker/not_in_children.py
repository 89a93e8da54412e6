"""A handler whose module cannot be imported in a worker's child."""

import multiprocessing

if multiprocessing.current_process().name != "MainProcess":
    raise ImportError("not here")


def handle(payload: object) -> None: ...
