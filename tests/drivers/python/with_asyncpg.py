"""asyncpg, which prepares everything, in binary, and keeps a hundred statements."""

import asyncio
import io
import time

import asyncpg

from story import *


async def must_raise(what, error, attempt):
    try:
        seen = await attempt
    except error as raised:
        return raised
    except asyncpg.PostgresError as raised:
        seen = repr(raised)
    fail(what, error, seen)


async def first_steps(connection):
    row = await connection.fetchrow("SELECT current_user::text, current_database()::text")
    expect("who and where", ("app", "shop"), tuple(row))
    # A type it has to look up.
    await connection.execute("DROP TYPE IF EXISTS asyncpg_mood; CREATE TYPE asyncpg_mood AS ENUM ('calm', 'gay')")
    expect("an enum of our own", ["gay"], await connection.fetchval("SELECT ARRAY['gay'::asyncpg_mood]"))
    ok("connect")

    wrong = "SELECT * FROM nowhere"
    await must_raise("an unknown table", asyncpg.UndefinedTableError, connection.fetch(wrong))
    await must_raise("an unknown table, simple", asyncpg.UndefinedTableError, connection.execute(wrong))
    expect("the next answer", 2, await connection.fetchval("SELECT 1 + $1::int", 1))
    ok("an error and on")

    await connection.execute("DROP TABLE IF EXISTS asyncpg_story; CREATE TABLE asyncpg_story (n int, text text)")
    insert = "INSERT INTO asyncpg_story VALUES ($1, 'x')"
    async with connection.transaction():
        await connection.execute(insert, 1)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(insert, 2)
    await transaction.rollback()
    async with connection.transaction():
        await connection.execute(insert, 3)
        try:
            async with connection.transaction():  # a savepoint
                await connection.execute(insert, 4)
                await connection.fetch(wrong)
        except asyncpg.UndefinedTableError:
            pass
    seen = [row["n"] for row in await connection.fetch("SELECT n FROM asyncpg_story ORDER BY n")]
    expect("what was committed", [1, 3], seen)
    ok("commit and rollback")


async def prepared():
    pids = []

    async def client(number):
        connection = await asyncpg.connect()
        base = number * 1_000_000
        sql = f"SELECT {base} + $1::int, pg_backend_pid()"
        named = await connection.prepare(f"SELECT {base} - $1::int, pg_backend_pid()", name="same")
        for i in range(1000):
            if i % 20 == 0:
                async with connection.transaction():
                    row = await connection.fetchrow(sql, i)
                    await connection.execute("SELECT pg_sleep(0.002)")
            else:
                row = await connection.fetchrow(sql, i)
            expect("a cached statement's answer", base + i, row[0])
            row = await named.fetchrow(i)
            expect("a named statement's answer", base - i, row[0])
            pids.append(row[1])
        await connection.close()

    await asyncio.gather(*(client(number) for number in range(3)))
    several_servers(pids)
    ok("a prepared statement 1,000 times on three connections")

    async def collector(number):
        connection = await asyncpg.connect()
        for turn in range(2):
            for i in range(MANY):
                seen = await connection.fetchval(f"SELECT {i} + $1::int AS of_{number}", turn)
                expect("one of many", i + turn, seen)
        await connection.close()

    await asyncio.gather(*(collector(number) for number in range(3)))
    ok(f"{MANY} prepared statements, twice around")

    async def borrower(pool, number):
        for i in range(30):
            async with pool.acquire() as connection:
                expect("an answer of its pool", number + i, await connection.fetchval("SELECT $1::int + $2::int", number, i))

    # Its own reset, at each release: unlock all, close all, unlisten, reset all.
    async with asyncpg.create_pool(min_size=2, max_size=4) as pool:
        await asyncio.gather(*(borrower(pool, number) for number in range(6)))
    ok("its own pool")


async def batch(connection):
    insert = "INSERT INTO asyncpg_story VALUES ($1, 'batch')"
    await connection.executemany(insert, [(i,) for i in range(2000)])
    wrong = connection.executemany("INSERT INTO asyncpg_story VALUES (10 / $1, 'wrong')", [(1,), (0,), (2,)])
    await must_raise("a batch with an error", asyncpg.DivisionByZeroError, wrong)
    counts = await connection.fetch("SELECT text, count(*) FROM asyncpg_story WHERE text <> 'x' GROUP BY 1")
    expect("rows by batches", [("batch", 2000)], [tuple(row) for row in counts])
    ok("batch")


async def copy(connection):
    await connection.execute("TRUNCATE asyncpg_story")
    rows = [(i, f"row {i}") for i in range(20000)]
    await connection.copy_records_to_table("asyncpg_story", records=rows)
    out = io.BytesIO()
    await connection.copy_from_query("SELECT * FROM asyncpg_story ORDER BY n", output=out)
    expect("what COPY gave back", True, out.getvalue().decode() == "".join(f"{n}\t{text}\n" for n, text in rows))
    wrong = io.BytesIO(b"no number\tx\n")
    await must_raise(
        "COPY of what is no number",
        asyncpg.InvalidTextRepresentationError,
        connection.copy_to_table("asyncpg_story", source=wrong),
    )
    expect("rows after a failed COPY", 20000, await connection.fetchval("SELECT count(*) FROM asyncpg_story"))
    ok("COPY in and out")


async def cancel(connection, direct):
    for ask in (connection.fetch, connection.execute):
        began = time.monotonic()
        task = asyncio.create_task(ask("SELECT pg_sleep(30)"))
        while await direct.fetchval(SLEEPERS) == 0 and time.monotonic() < began + 10:
            await asyncio.sleep(0.05)
        # It sends a CancelRequest and waits for what becomes of it.
        task.cancel()
        await must_raise("a cancelled statement", asyncio.CancelledError, task)
        expect("the next answer", 3, await connection.fetchval("SELECT $1::int", 3))
        if time.monotonic() - began > 15:
            fail("seconds until the cancel", "few", time.monotonic() - began)
    expect("what still sleeps", 0, await direct.fetchval(SLEEPERS))
    await must_raise("a timeout", asyncio.TimeoutError, connection.fetch("SELECT pg_sleep(30)", timeout=0.3))
    expect("the next answer", 4, await connection.fetchval("SELECT $1::int", 4))
    ok("cancel")


async def large(connection, direct_sum):
    expect("the checksum of 50 MB", direct_sum, checksum(await connection.fetch(BIG)))
    rows = []
    async with connection.transaction():
        async for row in connection.cursor(BIG, prefetch=1000):
            rows.append(row)
    expect("the checksum by a cursor", direct_sum, checksum(rows))
    ok("a large result")


async def reconnect(idle, direct):
    await idle.fetchval("SELECT 1")
    connection = await asyncpg.connect()
    await connection.transaction().start()
    await connection.fetchval("SELECT 1")
    await direct.execute(KILL)
    lost = (asyncpg.AdminShutdownError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, ConnectionError)
    await must_raise("a query on a dead server", lost, connection.fetchval("SELECT 2"))
    expect("the dead connection is closed", True, connection.is_closed())
    end = time.monotonic() + 5
    while True:
        try:
            connection = await asyncpg.connect()
            expect("a new connection's answer", 42, await connection.fetchval("SELECT 42"))
            break
        except lost as error:
            if time.monotonic() > end:
                fail("reconnect", "success within some seconds", error)
            await asyncio.sleep(0.1)
    if POOLED:
        expect("the answer on a client that was idle", 43, await idle.fetchval("SELECT $1::int", 43))
    ok("reconnect after the servers were killed")


async def console():
    connection = await asyncpg.connect(**CONSOLE)
    for _ in range(2):
        pools = await connection.fetch("SHOW POOLS")
        modes = [pool["pool_mode"] for pool in pools if pool["database"] == "shop"]
        expect("pool_mode in SHOW POOLS", ["transaction"], modes)
    expect("the pool's clients are a number", True, isinstance(pools[0]["cl_active"], int))
    expect("SHOW POOLS, simple", "SHOW", await connection.execute("SHOW POOLS"))
    await must_raise("an unknown view", asyncpg.PostgresError, connection.fetch("SHOW NONSENSE"))
    expect("rows of SHOW VERSION", 1, len(await connection.fetch("SHOW VERSION")))
    await connection.close()
    ok("the console")


async def main():
    direct = await asyncpg.connect(**DIRECT)
    connection = await asyncpg.connect()
    await first_steps(connection)
    await prepared()
    await batch(connection)
    await copy(connection)
    await cancel(connection, direct)
    await large(connection, await direct.fetchval(BIG_SUM))
    await reconnect(connection, direct)
    if POOLED:
        await console()


asyncio.run(main())
