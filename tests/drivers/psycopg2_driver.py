"""psycopg2: the simple protocol only."""

import io
import threading
import time

import psycopg2
from psycopg2 import errors, extras


def ok(what):
    print("ok psycopg2", what, flush=True)


conn = psycopg2.connect("")
conn.autocommit = True
cur = conn.cursor()
cur.execute("SELECT 1")
assert cur.fetchone() == (1,)
ok("connect")

try:
    cur.execute("SELECT nonsense")
    raise SystemExit("no error")
except errors.UndefinedColumn:
    ok("error")

cur.execute("DROP TABLE IF EXISTS psycopg2_t")
cur.execute("CREATE TABLE psycopg2_t (n int PRIMARY KEY, words text)")
conn.autocommit = False
with conn:
    cur.execute("INSERT INTO psycopg2_t VALUES (1, 'kept')")
try:
    with conn:
        cur.execute("INSERT INTO psycopg2_t VALUES (2, 'lost')")
        cur.execute("INSERT INTO psycopg2_t VALUES (1, 'twice')")
except errors.UniqueViolation:
    pass
with conn:
    cur.execute("SELECT n FROM psycopg2_t")
    assert cur.fetchall() == [(1,)]
ok("transaction")
conn.autocommit = True

for n in range(200):
    cur.execute("SELECT %s + 1", (n,))
    assert cur.fetchone() == (n + 1,)
ok("parameters 200 times")

extras.execute_batch(cur, "INSERT INTO psycopg2_t VALUES (%s, 'batch')", [(n,) for n in range(10, 210)])
extras.execute_values(cur, "INSERT INTO psycopg2_t VALUES %s", [(n, "values") for n in range(1000, 1500)])
cur.execute("SELECT count(*) FROM psycopg2_t")
assert cur.fetchone() == (701,)
ok("batch")

cur.copy_expert("COPY psycopg2_t FROM STDIN", io.StringIO("".join(f"{n}\tcopied\n" for n in range(2000, 3000))))
out = io.StringIO()
cur.copy_expert("COPY psycopg2_t TO STDOUT", out)
assert out.getvalue().count("\n") == 1701
try:
    cur.copy_expert("COPY psycopg2_t FROM STDIN", io.StringIO("bad\tx\n" + "1\tx\n" * 10000))
except errors.InvalidTextRepresentation:
    pass
cur.execute("SELECT 2")
assert cur.fetchone() == (2,)
ok("copy")

threading.Timer(0.5, conn.cancel).start()
start = time.monotonic()
try:
    cur.execute("SELECT pg_sleep(15)")
    raise SystemExit("not cancelled")
except errors.QueryCanceled:
    assert time.monotonic() - start < 10
ok("cancel")

cur.execute("SELECT repeat('x', 5000000)")
assert len(cur.fetchone()[0]) == 5_000_000
ok("5 MB")
cur.execute("DROP TABLE psycopg2_t")
conn.close()
