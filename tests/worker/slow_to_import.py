"""A handler whose module takes its time to be imported, in a worker's child."""

import multiprocessing
import time

if multiprocessing.current_process().name != "MainProcess":
    time.sleep(1.5)


def handle(payload: object) -> object:
    return payload
