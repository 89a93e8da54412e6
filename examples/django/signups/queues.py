"""The store of this process, opened when it is first used."""

import functools
import os

import rota

URL = os.environ.get("ROTA_URL", "sqlite:///jobs.db")


@functools.cache
def store() -> rota.Store:
    return rota.open(URL)


def mails() -> rota.Queue:
    return store().queue("mails", max_attempts=8)
