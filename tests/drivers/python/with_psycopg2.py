"""psycopg2, which puts parameters into the text and speaks the simple protocol only."""

import io
import threading
import time

import psycopg2
from psycopg2 import errors, extras

from story import *


def connect(**parameters):
    # It needs a DSN, be it empty, to look into the environment.
    connection = psycopg2.connect("", **parameters)
    connection.autocommit = True
    return connection


def rows(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def do(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def must_raise(what, error, attempt):
    try:
        seen = attempt()
    except error as raised:
        return raised
    except psycopg2.Error as raised:
        seen = repr(raised)
    fail(what, error, seen)


def first_steps(connection):
    expect("who and where", [("app", "shop")], rows(connection, "SELECT current_user, current_database()"))
    ok("connect")

    wrong = "SELECT * FROM nowhere"
    must_raise("an unknown table", errors.UndefinedTable, lambda: do(connection, wrong))
    expect("the next answer", [(2,)], rows(connection, "SELECT 1 + %s", (1,)))
    ok("an error and on")

    do(connection, "DROP TABLE IF EXISTS psycopg2_story")
    do(connection, "CREATE TABLE psycopg2_story (n int, text text)")
    insert = "INSERT INTO psycopg2_story VALUES (%s, 'x')"
    connection.autocommit = False
    do(connection, insert, (1,))
    connection.commit()
    do(connection, insert, (2,))
    connection.rollback()
    do(connection, insert, (3,))
    must_raise("an unknown table", errors.UndefinedTable, lambda: do(connection, wrong))
    must_raise("a failed transaction", errors.InFailedSqlTransaction, lambda: do(connection, "SELECT 1"))
    connection.rollback()
    do(connection, insert, (4,))
    do(connection, "SAVEPOINT here")
    must_raise("an unknown table", errors.UndefinedTable, lambda: do(connection, wrong))
    do(connection, "ROLLBACK TO here")
    connection.commit()
    connection.autocommit = True
    expect("what was committed", [(1,), (4,)], rows(connection, "SELECT n FROM psycopg2_story ORDER BY n"))
    ok("commit, rollback, savepoint")


def prepared():
    pids = []

    def client(number):
        base = number * 1_000_000
        connection = connect()
        for i in range(1000):
            # SQL PREPARE belongs to the server, so in transaction mode it is good for a transaction.
            if i % 20 == 0:
                connection.autocommit = False
                do(connection, f"PREPARE sum AS SELECT {base} + $1::int, pg_backend_pid()")
                row = rows(connection, "EXECUTE sum(%s)", (i,))[0]
                do(connection, "DEALLOCATE sum")
                connection.commit()
                connection.autocommit = True
            else:
                row = rows(connection, f"SELECT {base} + %s, pg_backend_pid()", (i,))[0]
            expect("a statement's answer", base + i, row[0])
            pids.append(row[1])
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("answers", 3000, len(pids))
    several_servers(pids)
    ok("a statement 1,000 times on three connections, SQL PREPARE in transactions")


def batch(connection):
    with connection.cursor() as cursor:
        many = [(i, "batch") for i in range(500)]
        extras.execute_values(cursor, "INSERT INTO psycopg2_story VALUES %s", many)
        extras.execute_batch(cursor, "INSERT INTO psycopg2_story VALUES (%s, %s)", many)
    seen = rows(connection, "SELECT count(*) FROM psycopg2_story WHERE text = 'batch'")
    expect("rows by batches", [(1000,)], seen)
    ok("batches")


def copy(connection):
    do(connection, "TRUNCATE psycopg2_story")
    text = "".join(f"{i}\trow {i}\n" for i in range(20000))
    out = io.StringIO()
    with connection.cursor() as cursor:
        cursor.copy_expert("COPY psycopg2_story FROM STDIN", io.StringIO(text))
        cursor.copy_expert("COPY (SELECT * FROM psycopg2_story ORDER BY n) TO STDOUT", out)
        expect("what COPY gave back", True, out.getvalue() == text)
        wrong = io.StringIO("no number\tx\n")
        must_raise(
            "COPY of what is no number",
            errors.InvalidTextRepresentation,
            lambda: cursor.copy_expert("COPY psycopg2_story FROM STDIN", wrong),
        )
    expect("rows after a failed COPY", [(20000,)], rows(connection, "SELECT count(*) FROM psycopg2_story"))
    ok("COPY in and out")


def cancel(connection, direct):
    def strike():
        patience = time.monotonic() + 10
        while rows(direct, SLEEPERS) == [(0,)] and time.monotonic() < patience:
            time.sleep(0.05)
        connection.cancel()

    thread = threading.Thread(target=strike)
    began = time.monotonic()
    thread.start()
    must_raise("a cancelled statement", errors.QueryCanceled, lambda: do(connection, "SELECT pg_sleep(30)"))
    thread.join()
    if time.monotonic() - began > 15:
        fail("seconds until the cancel", "few", time.monotonic() - began)
    expect("the next answer", [(3,)], rows(connection, "SELECT %s", (3,)))
    ok("cancel")


def large(connection, direct_sum):
    expect("the checksum of 50 MB", direct_sum, checksum(rows(connection, BIG)))
    connection.autocommit = False
    with connection.cursor("slow") as cursor:
        cursor.itersize = 1000
        cursor.execute(BIG)
        expect("the checksum by a cursor", direct_sum, checksum(cursor))
    connection.commit()
    connection.autocommit = True
    ok("a large result")


def reconnect(idle, direct):
    do(idle, "SELECT 1")
    connection = connect()
    connection.autocommit = False
    do(connection, "SELECT 1")
    do(direct, KILL)
    lost = (psycopg2.OperationalError, psycopg2.InterfaceError)
    must_raise("a query on a dead server", lost, lambda: do(connection, "SELECT 2"))
    if connection.closed == 0:
        fail("the dead connection", "closed", "open")
    again = lambda: rows(connect(), "SELECT 42")
    expect("a new connection's answer", [(42,)], patiently(again, lost))
    if POOLED:
        expect("the answer on a client that was idle", [(43,)], rows(idle, "SELECT 43"))
    ok("reconnect after the servers were killed")


def console():
    connection = connect(**CONSOLE)
    with connection.cursor(cursor_factory=extras.RealDictCursor) as cursor:
        cursor.execute("SHOW POOLS")
        modes = [pool["pool_mode"] for pool in cursor.fetchall() if pool["database"] == "shop"]
        expect("pool_mode in SHOW POOLS", ["transaction"], modes)
    must_raise("an unknown view", psycopg2.Error, lambda: do(connection, "SHOW NONSENSE"))
    expect("rows of SHOW VERSION", 1, len(rows(connection, "SHOW VERSION")))
    ok("the console")


def main():
    direct = connect(**DIRECT)
    connection = connect()
    first_steps(connection)
    prepared()
    batch(connection)
    copy(connection)
    cancel(connection, direct)
    large(connection, rows(direct, BIG_SUM)[0][0])
    reconnect(connection, direct)
    if POOLED:
        console()


main()
