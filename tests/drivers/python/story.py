"""What the three drivers share: how a step is told, and what they ask."""

import hashlib
import os
import sys
import time

POOLED = os.environ["THROUGH"] == "howdah"
DIRECT = {"port": int(os.environ["DIRECT_PORT"]), "database": "postgres"}
CONSOLE = {"user": os.environ["CONSOLE_USER"], "database": "pgbouncer"}
DRIVER = os.path.basename(sys.argv[0]).removeprefix("with_").removesuffix(".py")

KILL = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'"
SLEEPERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'"
)
BIG = "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i"
# What PostgreSQL says the checksum of BIG is.
BIG_SUM = f"SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM ({BIG}) big"
MANY = 250


def ok(what):
    print(f"ok {DRIVER}: {what}", flush=True)


def fail(what, wanted, seen):
    print(f"FAILED {DRIVER}: {what}\n  expected: {wanted}\n  seen:     {seen}", file=sys.stderr)
    # From a thread, too.
    sys.stderr.flush()
    os._exit(1)


def expect(what, wanted, seen):
    if wanted != seen:
        fail(what, wanted, seen)


def checksum(rows):
    """As BIG_SUM makes it."""
    sum_ = hashlib.md5()
    for number, text in rows:
        sum_.update(f"{number}{text}".encode())
    return sum_.hexdigest()


def several_servers(pids):
    if POOLED and len(set(pids)) < 2:
        fail("servers that served three clients", "two or three", set(pids))


def patiently(attempt, errors):
    """Once more for a while: a pooler may learn of a server's death only by using it."""
    end = time.monotonic() + 5
    while True:
        try:
            return attempt()
        except errors as error:
            if time.monotonic() > end:
                fail("reconnect", "success within some seconds", error)
            time.sleep(0.1)
