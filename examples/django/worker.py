"""The worker: ``rota run worker:worker``."""

import functools
from collections.abc import Callable
from typing import Any

import conf  # noqa: F401
from django.core.mail import send_mail
from django.db import close_old_connections
from django.utils import timezone
from signups.models import Signup
from signups.queues import URL

import rota

worker = rota.Worker(URL)


def with_django(function: Callable[..., Any]) -> Callable[..., Any]:
    """What Django does around a request: connections of this thread that are too old or broken are closed."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return wrapped


@worker.task("mails", name="welcome", concurrency=4)
@with_django
def welcome(pk: int) -> None:
    signup = Signup.objects.filter(pk=pk).first()
    if signup is None or signup.welcomed_at is not None:
        return  # deleted meanwhile, or done by a delivery before this one
    send_mail("Welcome", "Good to have you here.", "shop@example.org", [signup.address])
    Signup.objects.filter(pk=pk).update(welcomed_at=timezone.now())
