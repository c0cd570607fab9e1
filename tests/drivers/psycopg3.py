"""psycopg 3: server-side prepared statements, pipelines, copy, asyncio."""

import asyncio
import threading
import time

import psycopg
from psycopg import errors


def ok(what):
    print("ok psycopg3", what, flush=True)


with psycopg.connect("", autocommit=True) as conn:
    assert conn.execute("SELECT 1").fetchone() == (1,)
    ok("connect")

    try:
        conn.execute("SELECT nonsense")
        raise SystemExit("no error")
    except errors.UndefinedColumn:
        ok("error")

    conn.execute("DROP TABLE IF EXISTS psycopg3_t")
    conn.execute("CREATE TABLE psycopg3_t (n int PRIMARY KEY, words text)")
    with conn.transaction():
        conn.execute("INSERT INTO psycopg3_t VALUES (%s, %s)", (1, "kept"))
        try:
            with conn.transaction():
                conn.execute("INSERT INTO psycopg3_t VALUES (2, 'lost')")
                conn.execute("INSERT INTO psycopg3_t VALUES (1, 'twice')")
        except errors.UniqueViolation:
            pass
    assert conn.execute("SELECT n FROM psycopg3_t").fetchall() == [(1,)]
    ok("transaction")

    for n in range(200):
        assert conn.execute("SELECT %s::int + 1", (n,), prepare=True).fetchone() == (n + 1,)
    for n in range(150):  # More statements than the driver keeps: it deallocates.
        assert conn.execute(f"SELECT %s::int + {n}", (n,), prepare=True).fetchone() == (2 * n,)
    ok("prepared statement 200 times")

    with conn.pipeline() as pipeline:
        cursors = [conn.execute("SELECT %s::int", (n,)) for n in range(100)]
        pipeline.sync()
        assert [c.fetchone()[0] for c in cursors] == list(range(100))
    try:
        with conn.pipeline():
            conn.execute("SELECT 1")
            conn.execute("SELECT nonsense")
            conn.execute("SELECT 2")
        raise SystemExit("no error")
    except errors.UndefinedColumn:
        pass
    assert conn.execute("SELECT 3").fetchone() == (3,)
    ok("pipeline")

    with conn.cursor() as cur:
        with cur.copy("COPY psycopg3_t FROM STDIN") as copy:
            for n in range(10, 1010):
                copy.write_row((n, "copied"))
        with cur.copy("COPY psycopg3_t TO STDOUT") as copy:
            assert sum(1 for _ in copy.rows()) == 1001
        try:
            with cur.copy("COPY psycopg3_t FROM STDIN") as copy:
                copy.write("not a number\tx\n")
                for _ in range(1000):
                    copy.write("1\tx\n")
        except errors.InvalidTextRepresentation:
            pass
        try:
            with cur.copy("COPY psycopg3_t FROM STDIN") as copy:
                copy.write_row((5000, "x"))
                raise ValueError("the client gives up")
        except ValueError:
            pass
    assert conn.execute("SELECT count(*) FROM psycopg3_t").fetchone() == (1001,)
    ok("copy")

    threading.Timer(0.5, conn.cancel).start()
    start = time.monotonic()
    try:
        conn.execute("SELECT pg_sleep(15)")
        raise SystemExit("not cancelled")
    except errors.QueryCanceled:
        assert time.monotonic() - start < 10
    assert conn.execute("SELECT 4").fetchone() == (4,)
    ok("cancel")

    assert len(conn.execute("SELECT repeat('x', 5000000)").fetchone()[0]) == 5_000_000
    ok("5 MB")

    with conn.transaction(), conn.cursor("named") as cur:
        cur.itersize = 100
        cur.execute("SELECT generate_series(1, 1000)")
        assert sum(row[0] for row in cur) == 500_500
    ok("server-side cursor")
    conn.execute("DROP TABLE psycopg3_t")


async def several():
    conns = [await psycopg.AsyncConnection.connect("", autocommit=True) for _ in range(20)]

    async def work(conn, n):
        for i in range(20):
            cur = await conn.execute("SELECT %s::int * %s::int", (n, i), prepare=True)
            assert await cur.fetchone() == (n * i,)
        await conn.close()

    await asyncio.gather(*(work(conn, n) for n, conn in enumerate(conns)))
    ok("asyncio, 20 connections")


asyncio.run(several())
