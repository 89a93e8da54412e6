"""Opening: URLs, versions, migrations, and passwords that are shown nowhere."""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import re
import socket
import time
import traceback
from typing import Any

import psycopg
import pytest

import rota
from postgres.databases import Databases
from postgres.server import Server
from rota.cli import exits, main
from rota.engines.postgres import connecting, migrating
from rota.errors import EngineUnavailable, SchemaMismatch

SENTINEL = "hunter2-sentinel"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "POSTGRESQL"])
def test_schemes(postgres_url: str, scheme: str) -> None:
    with rota.open(postgres_url.replace("postgresql", scheme, 1)) as store:
        job_id = store.queue("q").enqueue("x")
        assert store.queue("q").claim_one().id == job_id  # type: ignore[union-attr]


def test_both_colours_take_the_same_options() -> None:
    ours, theirs = inspect.signature(rota.open), inspect.signature(rota.aopen)
    assert {"schema", "migrate", "notify", "prepare", "pool_size", "connect_timeout", "listen_url"} <= set(
        ours.parameters
    )
    assert list(ours.parameters.values()) == list(theirs.parameters.values())


def test_an_empty_database_says_what_to_run(empty_postgres_url: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"no schema 'rota'.*rota --url \S+ migrate.*migrate=True"):
        rota.open(empty_postgres_url)
    with rota.open(empty_postgres_url, migrate=True) as store:
        assert store.engine_facts()["schema_version"] == migrating.NEWEST
    rota.open(empty_postgres_url).close()


def test_create_makes_a_missing_schema_and_leaves_an_old_one(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota.open(empty_postgres_url, create=True).close()
    old = migrating.NEWEST
    with rota.open(empty_postgres_url) as before:
        later = migrating.Migration(old + 1, "CREATE TABLE {schema}.later (x integer);")
        monkeypatch.setattr(migrating, "MIGRATIONS", (*migrating.MIGRATIONS, later))
        monkeypatch.setattr(migrating, "NEWEST", old + 1)
        with pytest.raises(SchemaMismatch, match=rf"version {old}, .*works with {old + 1}.*migrate"):
            rota.open(empty_postgres_url, create=True)
        with rota.open(empty_postgres_url, migrate=True) as after:
            assert after.engine_facts()["schema_version"] == old + 1
            # A process of the version before keeps working beside the new one.
            before.queue("q").enqueue("old")
            assert [job.payload for job in after.queue("q").claim_batch("w", 2)] == ["old"]


def test_a_newer_schema_works_as_far_as_it_says(postgres_url: str) -> None:
    _set_version(postgres_url, migrating.NEWEST + 1, migrating.NEWEST)
    with rota.open(postgres_url) as store:
        store.queue("q").enqueue(1)
    _set_version(postgres_url, migrating.NEWEST + 2, migrating.NEWEST + 1)
    with pytest.raises(SchemaMismatch, match="upgrade Rota here"):
        rota.open(postgres_url, migrate=True)


def _set_version(url: str, version: int, compatible_from: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE rota.meta SET schema_version = %s, compatible_from = %s", (version, compatible_from))


@pytest.mark.parametrize(
    "name", ["", "Rota", "a-b", 'a"b', "a b", "1a", "a" * 64, "pg_rota", "rota;drop", "ä", "a\0", "a%s", "a{b}"]
)
def test_schema_names_are_checked_before_any_statement(name: str) -> None:
    with pytest.raises(ValueError, match="schema must be"):
        rota.open("postgresql://nobody@192.0.2.1/nowhere", schema=name)


def test_schemas_are_apart_and_reserved_words_are_quoted(empty_postgres_url: str) -> None:
    names = ["rota", "select", "a" * 63]
    stores = [rota.open(empty_postgres_url, schema=name, migrate=True) for name in names]
    for store, name in zip(stores, names, strict=True):
        store.queue("q").enqueue(name)
        store.transport("t").publish("g", name)
    for store, name in zip(stores, names, strict=True):
        job, lease = store.queue("q").claim_one(), store.transport("t").claim()
        assert job is not None
        assert lease is not None
        assert (job.payload, lease.event) == (name, name)
        assert store.queue("q").claim_one() is None
        store.close()
    with rota.open(f"{empty_postgres_url}?schema=select") as store:
        assert store.url.endswith("schema=select")


def test_unknown_options_are_named() -> None:
    with pytest.raises(ValueError, match="'shema'"):
        rota.open("postgresql://h/db?shema=x")
    with pytest.raises(ValueError, match="durability"):
        rota.open("postgresql://h/db", durability="full")
    with pytest.raises(ValueError, match="pool_size"):
        rota.open("postgresql://h/db?pool_size=0")
    with pytest.raises(ValueError, match="notify"):
        rota.open("postgresql://h/db?notify=perhaps")


# -- Migrations ------------------------------------------------------------------------------------------------------


def test_ten_processes_migrate_at_once(empty_postgres_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(10) as pool:
        versions = pool.map(_migrate, [empty_postgres_url] * 10)
    assert versions == [migrating.NEWEST] * 10


def _migrate(url: str) -> int:
    with rota.open(url, migrate=True) as store:
        store.queue("q").enqueue(1)
        return int(store.engine_facts()["schema_version"])


def test_the_command_migrates_and_is_idempotent(empty_postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["--url", empty_postgres_url, "migrate"]) == exits.OK
        assert f"version {migrating.NEWEST}" in capsys.readouterr().out
    assert main(["--url", empty_postgres_url, "migrate", "--sql"]) == exits.OK
    assert "nothing to do" in capsys.readouterr().out
    assert main(["--url", "sqlite:///x.db", "migrate", "--sql"]) == exits.USAGE


def test_the_printed_sql_makes_the_same_schema(
    empty_postgres_url: str, postgres_server: Server, postgres_databases: Databases, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", empty_postgres_url, "migrate", "--sql"]) == exits.OK
    script = capsys.readouterr().out
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(script.encode())
    assert _catalogue(empty_postgres_url) == _catalogue(postgres_server.dsn(postgres_databases.template))
    with rota.open(empty_postgres_url) as store:
        store.queue("q").enqueue(1)
    assert main(["--url", "postgresql://u@192.0.2.1/nowhere", "migrate", "--sql", "--since", "0"]) == exits.OK
    assert capsys.readouterr().out == script


def _catalogue(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT 'c', table_name, column_name, data_type, column_default FROM information_schema.columns"
            " WHERE table_schema = 'rota' UNION ALL SELECT 'i', tablename, indexname, indexdef, NULL FROM pg_indexes"
            " WHERE schemaname = 'rota' UNION ALL SELECT 'f', proname, pg_get_function_identity_arguments(oid),"
            " prosrc, array_to_string(proconfig, ',') FROM pg_proc WHERE pronamespace = 'rota'::regnamespace"
            " ORDER BY 1, 2, 3, 4"
        ).fetchall()


def test_a_migration_that_fails_leaves_nothing(empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (*migrating.MIGRATIONS, migrating.Migration(migrating.NEWEST + 1, "SELECT 1/0;"))
    monkeypatch.setattr(migrating, "MIGRATIONS", broken)
    monkeypatch.setattr(migrating, "NEWEST", migrating.NEWEST + 1)
    with pytest.raises(EngineUnavailable, match="division by zero"):
        rota.open(empty_postgres_url, migrate=True)
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'rota'").fetchone() == (0,)


def test_an_old_server_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "OLDEST", 990000)
    with pytest.raises(EngineUnavailable, match=r"PostgreSQL \d+\.\d+ is too old: Rota needs 99"):
        rota.open(postgres_url)


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
def test_a_database_that_cannot_hold_all_text_is_refused(postgres_server: Server, encoding: str) -> None:
    name = "of_" + encoding.lower()
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    try:
        with pytest.raises(EngineUnavailable, match=f"'{name}' keeps text in {encoding}.*UTF8"):
            rota.open(postgres_server.dsn(name), migrate=True)
    finally:
        postgres_server.drop_database(name)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "UTF8"])
def test_text_is_the_same_whatever_the_url_says_of_its_encoding(postgres_server: Server, encoding: str) -> None:
    name = "of_" + encoding.lower()
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    try:
        for end in ("", "?client_encoding=latin1", "?client_encoding=SQL_ASCII"):
            with rota.open(postgres_server.dsn(name) + end, migrate=True) as store:
                queue = store.queue("日本")
                queue.enqueue("€ 😀", name="é")
                job = queue.claim_one("w")
                assert (job.payload, job.name) == ("€ 😀", "é")
                assert job.fail("日本")
                assert queue.dead_letters(9)[-1].last_error == "日本"
                assert store.queues() == ["日本"]
    finally:
        postgres_server.drop_database(name)


# -- Out of reach ----------------------------------------------------------------------------------------------------


def test_connection_refused_is_told_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"refused.*nothing was changed"):
        rota.open(f"postgresql://u@127.0.0.1:{port}/db")
    assert time.monotonic() - began < 1


def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(EngineUnavailable):
            rota.open(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db", connect_timeout=1)
        assert time.monotonic() - began < 5


# -- Passwords -------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded_url(postgres_url: str) -> str:
    """A URL with a password in it, which the server may not even ask for."""
    return postgres_url.replace("postgres@", f"postgres:{SENTINEL}@")


def test_a_password_is_shown_nowhere(
    guarded_url: str,
    postgres_server: Server,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    with rota.open(guarded_url) as store:
        engine = store._core.engine
        queue = store.queue("q")
        texts += [repr(store), store.url, repr(engine), repr(engine.address), str(store.engine_facts()), repr(queue)]  # type: ignore[attr-defined]
        listener = store.listen("c")
        database = guarded_url.rsplit("/", 1)[1]
        postgres_server.terminate_sessions(database)
        texts.append(_error(lambda: store.queue("q").ack_batch([1], "w")))
        listener.close()
        postgres_server.execute("DROP SCHEMA rota CASCADE", database)
        texts.append(_error(lambda: queue.enqueue(1)))
    texts.append(_error(lambda: rota.open(guarded_url)))
    texts.append(_error(lambda: rota.open(guarded_url.replace("127.0.0.1", "127.0.0.1.invalid"))))
    texts.append(_error(lambda: rota.open(re.sub(r":\d+/", ":1/", guarded_url))))
    texts.append(_error(lambda: rota.open(f"postgresql://u:{SENTINEL}%zz@h/db")))
    texts.append(_error(lambda: rota.open(f"postgresql://u:{SENTINEL}@x@h/db")))
    texts.append(_error(lambda: rota.open(f"postgresql://u:{SENTINEL}/x@h/db")))
    texts.append(_error(lambda: rota.open(f"postgresql://h/db?password={SENTINEL}&port=1")))
    texts.append(_error(lambda: rota.open(f"postgresql://h/db?listen_url=postgresql://u:{SENTINEL}@h", listen_url="x")))
    for words in (["doctor"], ["stats"], ["migrate", "--sql"], ["enqueue", "q", "1"], ["jobs", "q"]):
        main(["--url", guarded_url, *words])
        main(["--url", re.sub(r":\d+/", ":1/", guarded_url), *words])
    out, err = capsys.readouterr()
    assert "***" in err
    for text in (*texts, out, err, caplog.text):
        assert SENTINEL not in text


def _error(call: Any) -> str:
    """Everything an error shows, causes included."""
    try:
        call()
    except Exception as error:
        return f"{error!r} {error} " + "".join(traceback.format_exception(error))
    return ""


def test_a_wrong_password_is_unavailable_and_not_shown() -> None:
    server = Server(settings=("password_encryption=scram-sha-256",))
    try:
        server.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{SENTINEL}-right'")
        hba = server.data / "pg_hba.conf"
        hba.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
        server.execute("SELECT pg_reload_conf()")
        time.sleep(0.2)
        url = f"postgresql://guarded:{SENTINEL}@127.0.0.1:{server.port}/postgres"
        text = _error(lambda: rota.open(url))
        assert "EngineUnavailable" in text
        assert "authentication failed" in text
        assert SENTINEL not in text
    finally:
        server.close()
