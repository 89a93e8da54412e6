"""``python manage.py rota_worker``: run the tasks of a backend until told to stop."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

import rota
from rota.contrib.django.framework import DEFAULT_TASK_BACKEND_ALIAS
from rota.contrib.django.running import worker
from rota.contrib.django.stores import NO_TABLES


class Command(BaseCommand):
    """The command."""

    help = "Runs tasks of a rota.contrib.django.RotaBackend until it gets SIGTERM or SIGINT."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="alias in TASKS (default)")
        parser.add_argument("--queue", action="append", metavar="NAME", help="only this queue; may be repeated")
        parser.add_argument("--concurrency", type=int, default=10, metavar="N", help="of each queue at once (10)")
        parser.add_argument("--timeout", type=float, metavar="S", help="seconds for one task, by default no limit")
        parser.add_argument(
            "--grace", type=float, default=25, metavar="S", help="seconds that running tasks get to end"
        )
        parser.add_argument("--worker-id", metavar="ID", help="a name for its claims, by default one nobody else has")
        parser.add_argument("--health", metavar="[HOST:]PORT", help="answer /healthz, /readyz and /metrics there")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it."""
        try:
            made = worker(
                options["backend"],
                queues=options["queue"],
                concurrency=options["concurrency"],
                timeout=options["timeout"],
                grace=options["grace"],
                worker_id=options["worker_id"],
            )
        except (ImproperlyConfigured, TypeError, ValueError) as error:
            raise CommandError(str(error)) from error
        self._set_up_logging(options["verbosity"])
        try:
            made.run(health=options["health"])
        except (rota.RotaError, ValueError) as error:
            hint = f"\n{NO_TABLES}" if isinstance(error, rota.SchemaMismatch) else ""
            raise CommandError(f"{type(error).__name__}: {error}{hint}") from error
        if len(made.stopped_by) > 1:
            # Told twice, as a shell would say it.
            sys.exit(128 + made.stopped_by[-1])

    def _set_up_logging(self, verbosity: int) -> None:
        """Lines on stderr for whoever has no handler in LOGGING."""
        level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
        for name in ("rota", "django.tasks", "django_tasks"):
            logger = logging.getLogger(name)
            if not logger.hasHandlers():
                handler = logging.StreamHandler(self.stderr._out)  # type: ignore[attr-defined,unused-ignore]
                handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
                logger.addHandler(handler)
                logger.setLevel(level)
