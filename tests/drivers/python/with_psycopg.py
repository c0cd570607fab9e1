"""psycopg 3, which prepares what it has seen five times."""

import logging
import threading
import time

import psycopg
from psycopg import errors

from story import *


def connect(**parameters):
    parameters.setdefault("autocommit", True)
    if "database" in parameters:
        parameters["dbname"] = parameters.pop("database")
    return psycopg.connect(**parameters)


def value(connection, sql, *parameters, **how):
    return connection.execute(sql, parameters or None, **how).fetchone()[0]


def must_raise(what, error, attempt):
    try:
        seen = attempt()
    except error as raised:
        return raised
    except psycopg.Error as raised:
        seen = repr(raised)
    fail(what, error.__name__, seen)


def first_steps(connection):
    row = connection.execute("SELECT current_user::text, current_database()::text").fetchone()
    expect("who and where", ("app", "shop"), row)
    ok("connect")

    wrong = "SELECT * FROM nowhere"
    must_raise("an unknown table", errors.UndefinedTable, lambda: connection.execute(wrong))
    must_raise(
        "an unknown table, prepared",
        errors.UndefinedTable,
        lambda: connection.execute(wrong, prepare=True),
    )
    expect("the next answer", 2, value(connection, "SELECT 1 + %s::int", 1))
    ok("an error and on")

    connection.execute("DROP TABLE IF EXISTS psycopg_story")
    connection.execute("CREATE TABLE psycopg_story (n int, text text)")
    insert = "INSERT INTO psycopg_story VALUES (%s, 'x')"
    with connection.transaction():
        connection.execute(insert, (1,))
    with connection.transaction():
        connection.execute(insert, (2,))
        raise psycopg.Rollback()
    with connection.transaction():
        connection.execute(insert, (3,))
        try:
            with connection.transaction():  # a savepoint
                connection.execute(insert, (4,))
                connection.execute(wrong)
        except errors.UndefinedTable:
            pass
    with connect(autocommit=False) as other:
        other.execute(insert, (5,))
        must_raise("an unknown table", errors.UndefinedTable, lambda: other.execute(wrong))
        must_raise("a failed transaction", errors.InFailedSqlTransaction, lambda: value(other, "SELECT 1"))
        other.rollback()
        expect("after the rollback", 1, value(other, "SELECT 1"))
    seen = connection.execute("SELECT n FROM psycopg_story ORDER BY n").fetchall()
    expect("what was committed", [(1,), (3,)], seen)
    ok("commit and rollback")


def at_once(work):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def prepared():
    pids = []

    def client(number):
        # Each of them calls its statements _pg3_0, _pg3_1.
        base = number * 1_000_000
        sql = f"SELECT {base} + %s::int, pg_backend_pid(), 'client {number}'"
        with connect() as connection:
            for i in range(1000):
                if i % 20 == 0:
                    with connection.transaction():
                        row = connection.execute(sql, (i,)).fetchone()
                        connection.execute("SELECT pg_sleep(0.002)")
                else:
                    row = connection.execute(sql, (i,)).fetchone()
                expect("a prepared statement's answer", (base + i, f"client {number}"), (row[0], row[2]))
                pids.append(row[1])

    at_once(client)
    expect("answers", 3000, len(pids))
    several_servers(pids)
    ok("a prepared statement 1,000 times on three connections")

    def collector(number):
        with connect() as connection:
            for turn in range(2):
                for i in range(MANY):
                    sql = f"SELECT {i} + %s::int AS of_{number}"
                    expect("one of many", i + turn, value(connection, sql, turn, prepare=True))

    at_once(collector)
    ok(f"{MANY} prepared statements, twice around")


def pipeline(connection):
    with connection.pipeline():
        cursors = [connection.execute("SELECT %s::int * 2", (i,)) for i in range(200)]
    expect("a pipeline's answers", [i * 2 for i in range(200)], [c.fetchone()[0] for c in cursors])
    try:
        with connection.pipeline() as pipe:
            connection.execute("INSERT INTO psycopg_story VALUES (100, 'x')")
            pipe.sync()
            connection.execute("INSERT INTO psycopg_story VALUES (101, 'x')")
            connection.execute("SELECT * FROM nowhere")
            connection.execute("INSERT INTO psycopg_story VALUES (102, 'x')")
            pipe.sync()
        fail("a pipeline with an error", "UndefinedTable", "nothing")
    except errors.UndefinedTable:
        pass
    seen = connection.execute("SELECT n FROM psycopg_story WHERE n >= 100").fetchall()
    expect("what the pipeline committed", [(100,)], seen)
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO psycopg_story VALUES (%s, 'y')", [(i,) for i in range(500)])
    expect("rows by executemany", 500, value(connection, "SELECT count(*) FROM psycopg_story WHERE text = 'y'"))
    ok("pipeline")


def copy(connection):
    connection.execute("TRUNCATE psycopg_story")
    rows = [(i, f"row {i}") for i in range(20000)]
    with connection.cursor() as cursor:
        with cursor.copy("COPY psycopg_story FROM STDIN") as into:
            for row in rows:
                into.write_row(row)
        with cursor.copy("COPY (SELECT * FROM psycopg_story ORDER BY n) TO STDOUT") as out:
            out.set_types(["int4", "text"])
            expect("what COPY gave back", True, list(out.rows()) == rows)
        with cursor.copy("COPY psycopg_story FROM STDIN (FORMAT binary)") as into:
            into.set_types(["int4", "text"])
            for row in rows:
                into.write_row(row)
    expect("rows by two COPYs", 40000, value(connection, "SELECT count(*) FROM psycopg_story"))

    def broken():
        with connection.cursor() as cursor, cursor.copy("COPY psycopg_story FROM STDIN") as into:
            into.write("no number\tx\n")

    def given_up():
        with connection.cursor() as cursor, cursor.copy("COPY psycopg_story FROM STDIN") as into:
            into.write("1\tx\n")
            raise ZeroDivisionError

    must_raise("COPY of what is no number", errors.InvalidTextRepresentation, broken)
    must_raise("COPY that its client gives up", ZeroDivisionError, given_up)
    expect("rows after failed COPYs", 40000, value(connection, "SELECT count(*) FROM psycopg_story"))
    ok("COPY in and out")


def cancel(connection, direct):
    for prepare in (False, True):

        def strike():
            patience = time.monotonic() + 10
            while value(direct, SLEEPERS) == 0 and time.monotonic() < patience:
                time.sleep(0.05)
            connection.cancel_safe()

        thread = threading.Thread(target=strike)
        began = time.monotonic()
        thread.start()
        sleep = "SELECT pg_sleep(30)"
        must_raise("a cancelled statement", errors.QueryCanceled, lambda: connection.execute(sleep, prepare=prepare))
        thread.join()
        if time.monotonic() - began > 15:
            fail("seconds until the cancel", "few", time.monotonic() - began)
        expect("the next answer", 3, value(connection, "SELECT %s::int", 3))
    ok("cancel")


def large(connection, direct_sum):
    expect("the checksum of 50 MB", direct_sum, checksum(connection.execute(BIG).fetchall()))
    expect("the checksum, binary", direct_sum, checksum(connection.execute(BIG, binary=True).fetchall()))
    with connection.transaction(), connection.cursor("slow") as cursor:
        cursor.itersize = 1000
        cursor.execute(BIG)
        expect("the checksum by a cursor", direct_sum, checksum(cursor))
    ok("a large result")


def reconnect(idle, direct):
    idle.execute("SELECT 1")
    connection = connect(autocommit=False)
    connection.execute("SELECT 1")
    direct.execute(KILL)
    must_raise("a query on a dead server", psycopg.OperationalError, lambda: connection.execute("SELECT 2"))
    expect("the dead connection is closed", True, connection.closed)

    def again():
        with connect() as fresh:
            return value(fresh, "SELECT 42")

    expect("a new connection's answer", 42, patiently(again, psycopg.OperationalError))
    if POOLED:
        expect("the answer on a client that was idle", 43, value(idle, "SELECT %s::int", 43))
    ok("reconnect after the servers were killed")


def console():
    with connect(**CONSOLE) as connection:
        for how in ({}, {"prepare": True}, {"prepare": True}):
            cursor = connection.execute("SHOW POOLS", **how)
            names = [column.name for column in cursor.description]
            pools = [dict(zip(names, row)) for row in cursor.fetchall()]
            modes = [pool["pool_mode"] for pool in pools if pool["database"] == "shop"]
            expect("pool_mode in SHOW POOLS", ["transaction"], modes)
        must_raise("an unknown view", psycopg.Error, lambda: connection.execute("SHOW NONSENSE", prepare=True))
        expect("rows of SHOW VERSION", 1, len(connection.execute("SHOW VERSION", prepare=True).fetchall()))
    ok("the console")


def main():
    # It warns that the pipeline with an error was aborted.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    direct = connect(**DIRECT)
    connection = connect()
    first_steps(connection)
    prepared()
    pipeline(connection)
    copy(connection)
    cancel(connection, direct)
    large(connection, value(direct, BIG_SUM))
    reconnect(connection, direct)
    if POOLED:
        console()


main()
