"""``rota migrate``: bring the store's schema to this version, or print the SQL that does."""

from __future__ import annotations

import argparse

from rota import engines
from rota.cli.exits import OK, USAGE, CommandError
from rota.cli.output import escape, print_json
from rota.cli.session import Session


def migrate(arguments: argparse.Namespace, session: Session) -> int:
    """Nothing to do is success: it may be run before every start, by many at once."""
    if arguments.sql or arguments.since is not None:
        try:
            print(engines.migration_sql(session.url, arguments.since), end="")
        except engines.NoMigrations as error:
            raise CommandError(USAGE, str(error)) from None
        return OK
    store = session.open(create=True, migrate=True)
    facts = store.engine_facts()
    version = facts.get("schema_version")
    if session.json:
        print_json({"url": store.url, "schema_version": version})
    elif version is None:
        print(f"{escape(store.url)} keeps no schema")
    else:
        print(f"{escape(store.url)} has schema version {version}")
    return OK
