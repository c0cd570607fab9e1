"""asyncpg: prepares everything, and describes before it executes."""

import asyncio
import io
import os

import asyncpg


def ok(what):
    print("ok asyncpg", what, flush=True)


def connect(**more):
    # asyncpg reads PGHOST and the others itself; it has no PGSSLMODE=disable that means GSS as well.
    return asyncpg.connect(ssl=False, **more)


async def main():
    conn = await connect()
    assert await conn.fetchval("SELECT 1") == 1
    ok("connect")

    try:
        await conn.fetchval("SELECT nonsense")
        raise SystemExit("no error")
    except asyncpg.UndefinedColumnError:
        ok("error")

    await conn.execute("DROP TABLE IF EXISTS asyncpg_t")
    await conn.execute("CREATE TABLE asyncpg_t (n int PRIMARY KEY, words text)")
    async with conn.transaction():
        await conn.execute("INSERT INTO asyncpg_t VALUES ($1, $2)", 1, "kept")
        try:
            async with conn.transaction():
                await conn.execute("INSERT INTO asyncpg_t VALUES (2, 'lost')")
                await conn.execute("INSERT INTO asyncpg_t VALUES (1, 'twice')")
        except asyncpg.UniqueViolationError:
            pass
    assert [r["n"] for r in await conn.fetch("SELECT n FROM asyncpg_t")] == [1]
    ok("transaction")

    statement = await conn.prepare("SELECT $1::int + 1")
    for n in range(200):
        assert await statement.fetchval(n) == n + 1
    for n in range(150):  # More than the driver's cache of 100.
        assert await conn.fetchval(f"SELECT $1::int + {n}", n) == 2 * n
    ok("prepared statement 200 times")

    await conn.executemany("INSERT INTO asyncpg_t VALUES ($1, 'many')", [(n,) for n in range(10, 510)])
    try:
        await conn.executemany("INSERT INTO asyncpg_t VALUES ($1, 'many')", [(n,) for n in (600, 601, 10, 602)])
        raise SystemExit("no error")
    except asyncpg.UniqueViolationError:
        pass
    assert await conn.fetchval("SELECT count(*) FROM asyncpg_t") == 501
    ok("batch")

    await conn.copy_records_to_table("asyncpg_t", records=[(n, "copied") for n in range(1000, 2000)])
    out = io.BytesIO()
    await conn.copy_from_query("SELECT * FROM asyncpg_t", output=out)
    assert out.getvalue().count(b"\n") == 1501
    try:
        await conn.copy_to_table("asyncpg_t", source=io.BytesIO(b"bad\tx\n"))
        raise SystemExit("no error")
    except asyncpg.InvalidTextRepresentationError:
        pass
    assert await conn.fetchval("SELECT 2") == 2
    ok("copy")

    try:  # A timeout makes the driver send a cancel request.
        await conn.fetchval("SELECT pg_sleep(15)", timeout=0.5)
        raise SystemExit("not cancelled")
    except asyncio.TimeoutError:
        pass
    assert await conn.fetchval("SELECT 3") == 3
    ok("cancel")

    assert len(await conn.fetchval("SELECT repeat('x', 5000000)")) == 5_000_000
    ok("5 MB")

    async with conn.transaction():
        total = 0
        async for record in conn.cursor("SELECT generate_series(1, 1000) AS n", prefetch=70):
            total += record["n"]
        assert total == 500_500
    ok("cursor in pages")

    async with asyncpg.create_pool(ssl=False, min_size=5, max_size=20) as pool:

        async def work(n):
            for i in range(20):
                assert await pool.fetchval("SELECT $1::int * $2::int", n, i) == n * i

        await asyncio.gather(*(work(n) for n in range(40)))
    ok("a pool of its own, with reset at release")
    await conn.execute("DROP TABLE asyncpg_t")
    await conn.close()


assert os.environ.get("PGHOST"), "PGHOST and the others say where to go"
asyncio.run(main())
