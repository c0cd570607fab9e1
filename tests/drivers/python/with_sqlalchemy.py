"""SQLAlchemy: its engine and its pool, over psycopg and over asyncpg, whose statements it prepares by name."""

import asyncio
import threading
import time

from sqlalchemy import URL, Column, Integer, MetaData, Table, Text, create_engine, exc, insert, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import create_async_engine

from story import *


def url(driver, **parameters):
    environment = os.environ
    parameters = {"database": environment["PGDATABASE"], "port": int(environment["PGPORT"])} | parameters
    name, word = environment["PGUSER"], environment["PGPASSWORD"]
    return URL.create(f"postgresql+{driver}", name, word, environment["PGHOST"], **parameters)


goods = Table("sqlalchemy_story", MetaData(), Column("n", Integer, primary_key=True), Column("text", Text))


def must_raise(what, sqlstate, attempt):
    try:
        seen = attempt()
    except exc.DBAPIError as raised:
        if raised.orig.sqlstate == sqlstate:
            return
        seen = repr(raised)
    fail(what, sqlstate, seen)


def first_steps(engine):
    with engine.connect() as connection:
        row = connection.execute(text("SELECT current_user::text, current_database()::text")).one()
        expect("who and where", ("app", "shop"), tuple(row))
    goods.metadata.drop_all(engine)
    goods.metadata.create_all(engine)
    ok("connect, and look into the catalog")

    wrong = text("SELECT * FROM nowhere")
    with engine.connect() as connection:
        must_raise("an unknown table", "42P01", lambda: connection.execute(wrong))
        must_raise("a failed transaction", "25P02", lambda: connection.execute(text("SELECT 1")))
        connection.rollback()
        expect("the next answer", 2, connection.scalar(text("SELECT 1 + :n"), {"n": 1}))
    ok("an error and on")

    with engine.begin() as connection:
        connection.execute(insert(goods), {"n": 1, "text": "x"})
        try:
            with connection.begin_nested():
                connection.execute(insert(goods), {"n": 2, "text": "x"})
                connection.execute(wrong)
        except exc.ProgrammingError:
            pass
        connection.execute(insert(goods), {"n": 3, "text": "x"})
    with engine.connect() as connection:
        connection.execute(insert(goods), {"n": 4, "text": "x"})
        connection.rollback()
        seen = connection.execute(select(goods.c.n).order_by(goods.c.n)).scalars().all()
    expect("what was committed", [1, 3], seen)
    ok("commit, rollback, savepoint")


def prepared(engine):
    pids = []

    def client(number):
        # A connection per transaction, from the engine's pool.
        for i in range(1000):
            with engine.connect() as connection:
                base = number * 1_000_000
                row = connection.execute(text("SELECT :base + CAST(:i AS int), pg_backend_pid()"), {"base": base, "i": i}).one()
                expect("a statement's answer", base + i, row[0])
                pids.append(row[1])

    threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("answers", 3000, len(pids))
    several_servers(pids)
    ok("a statement 1,000 times in each of three threads")


async def prepared_by_asyncpg():
    engine = create_async_engine(url("asyncpg"), pool_size=3)

    async def client(number):
        for i in range(1000):
            async with engine.connect() as connection:
                seen = await connection.scalar(text("SELECT CAST(:i AS int) + CAST(:n AS int)"), {"i": i, "n": number})
                expect("a prepared statement's answer", i + number, seen)

    await asyncio.gather(*(client(number) for number in range(3)))
    async with engine.begin() as connection:
        try:
            async with connection.begin_nested():
                await connection.execute(text("SELECT * FROM nowhere"))
        except exc.ProgrammingError as error:
            expect("an unknown table", "42P01", error.orig.sqlstate)
        expect("after the savepoint", 1, await connection.scalar(text("SELECT 1")))
    await engine.dispose()
    ok("a prepared statement 1,000 times by asyncpg on three connections")


def batch(engine):
    rows = [{"n": n, "text": "batch"} for n in range(100, 2100)]
    with engine.begin() as connection:
        seen = connection.execute(insert(goods).returning(goods.c.n), rows).scalars().all()
        expect("rows of a batch", list(range(100, 2100)), sorted(seen))
        again = upsert(goods).on_conflict_do_update(index_elements=["n"], set_={"text": "again"})
        connection.execute(again, rows)
    with engine.connect() as connection:
        expect("rows by batches", 2000, connection.scalar(text("SELECT count(*) FROM sqlalchemy_story WHERE text = 'again'")))
    ok("batches")


def copy(engine):
    lines = [(n, f"row {n}") for n in range(20000)]
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE sqlalchemy_story"))
        cursor = connection.connection.cursor()
        with cursor.copy("COPY sqlalchemy_story FROM STDIN") as into:
            for line in lines:
                into.write_row(line)
        with cursor.copy("COPY (SELECT * FROM sqlalchemy_story ORDER BY n) TO STDOUT") as out:
            out.set_types(["int4", "text"])
            expect("what COPY gave back", True, list(out.rows()) == lines)
    ok("COPY in and out, by its driver")


def cancel(engine, direct):
    with engine.connect() as connection:

        def strike():
            patience = time.monotonic() + 10
            while direct.scalar(text(SLEEPERS)) == 0 and time.monotonic() < patience:
                time.sleep(0.05)
            connection.connection.dbapi_connection.cancel_safe()

        thread = threading.Thread(target=strike)
        began = time.monotonic()
        thread.start()
        must_raise("a cancelled statement", "57014", lambda: connection.execute(text("SELECT pg_sleep(30)")))
        thread.join()
        if time.monotonic() - began > 15:
            fail("seconds until the cancel", "few", time.monotonic() - began)
        connection.rollback()
        expect("the next answer", 3, connection.scalar(text("SELECT 3")))
    ok("cancel")


def large(engine, direct_sum):
    with engine.connect() as connection:
        expect("the checksum of 50 MB", direct_sum, checksum(connection.execute(text(BIG))))
        # A cursor on the server's side.
        slow = connection.execution_options(stream_results=True, max_row_buffer=1000)
        expect("the checksum by a cursor", direct_sum, checksum(slow.execute(text(BIG))))
    ok("a large result")


def reconnect(engine, direct):
    with engine.connect() as connection:
        connection.scalar(text("SELECT 1"))
        direct.execute(text(KILL))
        try:
            connection.scalar(text("SELECT 2"))
            fail("a query on a dead server", "an error", "none")
        except exc.DBAPIError as error:
            expect("the engine knows that its connection is dead", True, error.connection_invalidated)

    def again():
        with engine.connect() as fresh:
            return fresh.scalar(text("SELECT 42"))

    expect("a new connection's answer", 42, patiently(again, exc.DBAPIError))
    ok("reconnect after the servers were killed")


def main():
    direct = create_engine(url("psycopg", **DIRECT), isolation_level="AUTOCOMMIT").connect()
    engine = create_engine(url("psycopg"), pool_size=3)
    first_steps(engine)
    prepared(engine)
    asyncio.run(prepared_by_asyncpg())
    batch(engine)
    copy(engine)
    cancel(engine, direct)
    large(engine, direct.scalar(text(BIG_SUM)))
    reconnect(engine, direct)


main()
