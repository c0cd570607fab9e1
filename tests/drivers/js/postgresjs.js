// postgres.js, which prepares everything, sends without waiting for answers, and connects again by itself.
'use strict';

const crypto = require('crypto');
const { Readable } = require('stream');
const { pipeline } = require('stream/promises');
const postgres = require('postgres');

const POOLED = process.env.THROUGH === 'howdah';
const TLS = process.env.PGSSLMODE === 'require' ? 'require' : false;
const WRONG = 'SELECT * FROM nowhere';
const KILL = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
const SLEEPERS =
  "SELECT count(*)::int AS seen FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
const BIG = 'SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i';
// What PostgreSQL says the checksum of BIG is.
const BIG_SUM = `SELECT md5(string_agg(i || text, '' ORDER BY i)) AS seen FROM (${BIG}) big`;

const ok = (what) => console.log(`ok postgresjs: ${what}`);
const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

function fail(what, wanted, seen) {
  console.error(`FAILED postgresjs: ${what}\n  expected: ${wanted}\n  seen:     ${seen}`);
  process.exit(1);
}

function expect(what, wanted, seen) {
  if (String(wanted) !== String(seen)) fail(what, wanted, seen);
}

async function mustFail(what, sqlstate, answer) {
  const seen = await answer.then(() => 'no error', (error) => error.code || error.message);
  if (sqlstate && seen !== sqlstate) fail(what, sqlstate, seen);
  if (!sqlstate && seen === 'no error') fail(what, 'an error', seen);
}

// It takes the rest from the environment.
const open = (parameters) => postgres({ ssl: TLS, onnotice: () => {}, ...parameters });

async function firstSteps(sql) {
  const [row] = await sql`SELECT current_user::text AS who, current_database()::text AS what, ARRAY[1, 2] AS list`;
  expect('who and where', 'app shop 1,2', `${row.who} ${row.what} ${row.list}`);
  ok('connect, and look types up');

  await mustFail('an unknown table', '42P01', sql.unsafe(WRONG));
  await mustFail('an unknown table, prepared', '42P01', sql`SELECT * FROM nowhere WHERE ${1}::int = 1`);
  await mustFail('a division by zero', '22012', sql`SELECT 1 / ${0}::int`);
  expect('the next answer', 2, (await sql`SELECT 1 + ${1}::int AS seen`)[0].seen);
  ok('an error and on');

  await sql.unsafe('DROP TABLE IF EXISTS postgresjs_story; CREATE TABLE postgresjs_story (n int, text text)');
  await sql.begin((tx) => tx`INSERT INTO postgresjs_story VALUES (1, 'x')`);
  await mustFail('a transaction given up', undefined, sql.begin(async (tx) => {
    await tx`INSERT INTO postgresjs_story VALUES (2, 'x')`;
    throw new Error('no');
  }));
  await sql.begin(async (tx) => {
    await tx`INSERT INTO postgresjs_story VALUES (3, 'x')`;
    await mustFail('a savepoint', '42P01', tx.savepoint(async (inner) => {
      await inner`INSERT INTO postgresjs_story VALUES (4, 'x')`;
      await inner.unsafe(WRONG);
    }));
  });
  expect('what was committed', '1,3', (await sql`SELECT n FROM postgresjs_story ORDER BY n`).map((row) => row.n));
  ok('commit, rollback, savepoint');
}

async function prepared(sql) {
  const pids = new Set();
  await Promise.all([0, 1, 2].map(async (number) => {
    for (let i = 0; i < 1000; i += 1) {
      if (i % 20 === 0) {
        await sql.begin(async (tx) => {
          await tx`SELECT pg_sleep(0.002)`;
          const [row] = await tx`SELECT ${i}::int + ${number}::int AS seen`;
          expect("a statement's answer", i + number, row.seen);
        });
      }
      const [row] = await sql`SELECT ${i}::int - ${number}::int AS seen, pg_backend_pid() AS pid`;
      expect("a statement's answer", i - number, row.seen);
      pids.add(row.pid);
    }
  }));
  if (POOLED && pids.size < 2) fail('servers that served three clients', 'two or three', [...pids]);
  ok('a prepared statement 1,000 times by each of three');
}

async function pipelined(sql) {
  const answers = await Promise.all(Array.from({ length: 1000 }, (_, i) => sql`SELECT ${i}::int * 2 AS seen`));
  expect('the answers of a pipeline', Array.from({ length: 1000 }, (_, i) => i * 2), answers.map(([row]) => row.seen));
  const mixed = await Promise.allSettled([1, 0, 2].map((i) => sql`SELECT 10 / ${i}::int AS seen`));
  expect('a pipeline with an error', 'fulfilled rejected fulfilled', mixed.map((one) => one.status).join(' '));
  await sql.begin((tx) => [tx`INSERT INTO postgresjs_story VALUES (10, 'batch')`, tx`INSERT INTO postgresjs_story VALUES (11, 'batch')`]);
  await sql`INSERT INTO postgresjs_story ${sql(Array.from({ length: 1000 }, (_, n) => ({ n, text: 'batch' })))}`;
  expect('rows by batches', 1002, (await sql`SELECT count(*)::int AS seen FROM postgresjs_story WHERE text = 'batch'`)[0].seen);
  ok('pipeline');
}

// On a connection of its own: its stream of COPY out may leave the socket paused for ever, with PostgreSQL as well.
async function copy() {
  const sql = open({ max: 1 });
  await sql`TRUNCATE postgresjs_story`;
  const lines = Array.from({ length: 20000 }, (_, i) => `${i}\trow ${i}\n`);
  await pipeline(Readable.from(lines), await sql`COPY postgresjs_story FROM STDIN`.writable());
  let out = '';
  for await (const chunk of await sql`COPY (SELECT * FROM postgresjs_story ORDER BY n) TO STDOUT`.readable()) out += chunk;
  expect('what COPY gave back', true, out === lines.join(''));
  ok('COPY in and out');
}

async function cancel(sql, direct) {
  const began = Date.now();
  const sleep = sql`SELECT pg_sleep(30)`;
  const told = mustFail('a cancelled statement', '57014', sleep);
  while ((await direct.unsafe(SLEEPERS))[0].seen === 0 && Date.now() - began < 10000) await pause(50);
  sleep.cancel();
  await told;
  if (Date.now() - began > 15000) fail('milliseconds until the cancel', 'few', Date.now() - began);
  expect('the next answer', 3, (await sql`SELECT ${3}::int AS seen`)[0].seen);
  ok('cancel');
}

async function large(sql, wanted) {
  let sum = crypto.createHash('md5');
  for (const row of await sql.unsafe(BIG)) sum.update(`${row.i}${row.text}`);
  expect('the checksum of 50 MB', wanted, sum.digest('hex'));
  sum = crypto.createHash('md5');
  // Portals of a thousand rows, in one transaction by itself.
  await sql`SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i`.cursor(1000, (rows) => rows.forEach((row) => sum.update(`${row.i}${row.text}`)));
  expect('the checksum by a cursor', wanted, sum.digest('hex'));
  ok('a large result');
}

async function reconnect(sql, direct) {
  await mustFail('a query on a dead server', undefined, sql.begin(async (tx) => {
    await tx`SELECT 1`;
    await direct.unsafe(KILL);
    // The driver itself dies where it writes to a connection in the moment of its end.
    await pause(200);
    await tx`SELECT 2`;
  }));
  // A pooler may learn of a server's death only by using it.
  for (const end = Date.now() + 5000; ; await pause(100)) {
    try {
      expect('the answer after that', 42, (await sql`SELECT 42 AS seen`)[0].seen);
      break;
    } catch (error) {
      if (Date.now() > end) fail('reconnect', 'success within some seconds', error);
    }
  }
  ok('reconnect after the servers were killed');
}

async function main() {
  const direct = open({ port: Number(process.env.DIRECT_PORT), database: 'postgres', max: 1 });
  const sql = open({ max: 3 });
  await firstSteps(sql);
  await prepared(sql);
  await pipelined(sql);
  await copy();
  await cancel(sql, direct);
  await large(sql, (await direct.unsafe(BIG_SUM))[0].seen);
  await reconnect(sql, direct);
  process.exit(0);
}

main().catch((error) => fail('the story', 'no surprise', error.stack));
