// Drizzle over pg: its queries, and its own names for prepared statements.
'use strict';

const crypto = require('crypto');
const { Client, Pool } = require('pg');
const { asc, eq, gte, sql } = require('drizzle-orm');
const { drizzle } = require('drizzle-orm/node-postgres');
const { integer, pgTable, text } = require('drizzle-orm/pg-core');

const POOLED = process.env.THROUGH === 'howdah';
const TLS = process.env.PGSSLMODE === 'require' ? { rejectUnauthorized: false } : false;
const KILL = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
const SLEEPERS =
  "SELECT count(*)::int AS seen FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
const BIG = 'SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i';
// What PostgreSQL says the checksum of BIG is.
const BIG_SUM = `SELECT md5(string_agg(i || text, '' ORDER BY i)) AS seen FROM (${BIG}) big`;

const goods = pgTable('drizzle_story', { n: integer('n').primaryKey(), text: text('text') });

const ok = (what) => console.log(`ok drizzle: ${what}`);
const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

function fail(what, wanted, seen) {
  console.error(`FAILED drizzle: ${what}\n  expected: ${wanted}\n  seen:     ${seen}`);
  process.exit(1);
}

function expect(what, wanted, seen) {
  if (String(wanted) !== String(seen)) fail(what, wanted, seen);
}

async function mustFail(what, sqlstate, answer) {
  const seen = await answer.then(() => 'no error', (error) => error.cause?.code || error.code || error.message);
  if (sqlstate && seen !== sqlstate) fail(what, sqlstate, seen);
  if (!sqlstate && seen === 'no error') fail(what, 'an error', seen);
}

const one = async (db, query) => Object.values((await db.execute(query)).rows[0])[0];

async function firstSteps(db) {
  expect('who and where', 'app shop', await one(db, sql`SELECT current_user || ' ' || current_database()`));
  ok('connect');

  await mustFail('an unknown table', '42P01', db.execute(sql`SELECT * FROM nowhere`));
  expect('the next answer', 2, await one(db, sql`SELECT 1 + ${1}::int`));
  ok('an error and on');

  await db.execute(sql`DROP TABLE IF EXISTS drizzle_story`);
  await db.execute(sql`CREATE TABLE drizzle_story (n int PRIMARY KEY, text text)`);
  await db.transaction((tx) => tx.insert(goods).values({ n: 1, text: 'x' }));
  await mustFail('a transaction given up', undefined, db.transaction(async (tx) => {
    await tx.insert(goods).values({ n: 2, text: 'x' });
    tx.rollback();
  }));
  await db.transaction(async (tx) => {
    await tx.insert(goods).values({ n: 3, text: 'x' });
    await mustFail('a savepoint', '23505', tx.transaction(async (inner) => {
      await inner.insert(goods).values({ n: 4, text: 'x' });
      await inner.insert(goods).values({ n: 3, text: 'x' });
    }));
  });
  expect('what was committed', '1,3', (await db.select().from(goods).orderBy(asc(goods.n))).map((row) => row.n));
  ok('commit, rollback, savepoint');
}

async function prepared(db) {
  const pids = new Set();
  const named = db.select({ seen: sql`${sql.placeholder('i')}::int + 1`, pid: sql`pg_backend_pid()` }).from(goods).where(eq(goods.n, 1)).prepare('same');
  await Promise.all([0, 1, 2].map(async (number) => {
    for (let i = 0; i < 1000; i += 1) {
      if (i % 20 === 0) {
        await db.transaction(async (tx) => {
          await tx.execute(sql`SELECT pg_sleep(0.002)`);
          expect("a statement's answer", i + number, await one(tx, sql`SELECT ${i}::int + ${number}::int`));
        });
      }
      const [row] = await named.execute({ i });
      expect("a named statement's answer", i + 1, row.seen);
      pids.add(row.pid);
    }
  }));
  if (POOLED && pids.size < 2) fail('servers that served three clients', 'two or three', [...pids]);
  ok('a prepared statement 1,000 times by each of three');
}

async function batch(db) {
  const rows = Array.from({ length: 1000 }, (_, i) => ({ n: 100 + i, text: 'batch' }));
  const inserted = await db.insert(goods).values(rows).returning({ n: goods.n });
  expect('rows of a batch', 1000, inserted.length);
  await db.insert(goods).values(rows).onConflictDoUpdate({ target: goods.n, set: { text: 'again' } });
  expect('rows by batches', 1000, (await db.select().from(goods).where(gte(goods.n, 100))).filter((row) => row.text === 'again').length);
  ok('batch');
}

async function cancel(db, pool, direct) {
  const began = Date.now();
  const client = await pool.connect();
  const told = mustFail('a cancelled statement', '57014', drizzle({ client }).execute(sql`SELECT pg_sleep(30)`));
  while ((await direct.query(SLEEPERS)).rows[0].seen === 0 && Date.now() - began < 10000) await pause(50);
  const striker = new Client({ ssl: TLS });
  striker.on('error', () => {});
  striker.cancel(client, client._activeQuery || client.activeQuery);
  await told;
  if (Date.now() - began > 15000) fail('milliseconds until the cancel', 'few', Date.now() - began);
  client.release();
  expect('the next answer', 3, await one(db, sql`SELECT ${3}::int`));
  ok('cancel');
}

async function large(db, wanted) {
  const sum = crypto.createHash('md5');
  for (const row of (await db.execute(sql.raw(BIG))).rows) sum.update(`${row.i}${row.text}`);
  expect('the checksum of 50 MB', wanted, sum.digest('hex'));
  ok('a large result');
}

async function reconnect(db, direct) {
  await mustFail('a query on a dead server', undefined, db.transaction(async (tx) => {
    await tx.execute(sql`SELECT 1`);
    await direct.query(KILL);
    await tx.execute(sql`SELECT 2`);
  }));
  // A pooler may learn of a server's death only by using it.
  for (const end = Date.now() + 5000; ; await pause(100)) {
    try {
      expect('the answer after that', 42, await one(db, sql`SELECT 42`));
      break;
    } catch (error) {
      if (Date.now() > end) fail('reconnect', 'success within some seconds', error);
    }
  }
  ok('reconnect after the servers were killed');
}

async function main() {
  const direct = new Pool({ port: Number(process.env.DIRECT_PORT), database: 'postgres', max: 1, ssl: TLS });
  const pool = new Pool({ max: 3, ssl: TLS });
  // Told again by the query at hand.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  const db = drizzle({ client: pool });
  await firstSteps(db);
  await prepared(db);
  await batch(db);
  await cancel(db, pool, direct);
  await large(db, (await direct.query(BIG_SUM)).rows[0].seen);
  await reconnect(db, direct);
  process.exit(0);
}

main().catch((error) => fail('the story', 'no surprise', error.stack));
