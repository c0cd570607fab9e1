// pg for Node, with named statements, and its companion for COPY.
'use strict';

const crypto = require('crypto');
const { Readable } = require('stream');
const { pipeline } = require('stream/promises');
const { Client, Pool } = require('pg');
const { from: copyFrom, to: copyTo } = require('pg-copy-streams');

const POOLED = process.env.THROUGH === 'howdah';
// It would ask who vouches for the certificate, which PGSSLMODE=require of others does not.
const TLS = process.env.PGSSLMODE === 'require' ? { rejectUnauthorized: false } : false;
const DIRECT = { port: Number(process.env.DIRECT_PORT), database: 'postgres' };
const CONSOLE = { user: process.env.CONSOLE_USER, database: 'pgbouncer' };
const WRONG = 'SELECT * FROM nowhere';
const KILL = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
const SLEEPERS =
  "SELECT count(*)::int FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
const BIG = 'SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i';
// What PostgreSQL says the checksum of BIG is.
const BIG_SUM = `SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (${BIG}) big`;
const MANY = 250;

const ok = (what) => console.log(`ok node: ${what}`);
const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

function fail(what, wanted, seen) {
  console.error(`FAILED node: ${what}\n  expected: ${wanted}\n  seen:     ${seen}`);
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

async function connect(parameters) {
  const client = new Client({ ssl: TLS, ...parameters });
  // Told again by the query at hand.
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function value(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: 'array' });
  return rows[0][0];
}

async function firstSteps(client) {
  expect('who and where', 'app shop', await value(client, "SELECT current_user || ' ' || current_database()"));
  ok('connect');

  await mustFail('an unknown table', '42P01', client.query(WRONG));
  await mustFail('an unknown table, named', '42P01', client.query({ name: 'wrong', text: WRONG }));
  await mustFail('a division by zero', '22012', client.query('SELECT 1 / $1::int', [0]));
  expect('the next answer', 2, await value(client, 'SELECT 1 + $1::int', [1]));
  ok('an error and on');

  await client.query('DROP TABLE IF EXISTS node_story; CREATE TABLE node_story (n int, text text)');
  for (const [n, end] of [[1, 'COMMIT'], [2, 'ROLLBACK'], [3, WRONG]]) {
    await client.query('BEGIN');
    await client.query("INSERT INTO node_story VALUES ($1, 'x')", [n]);
    if (end !== WRONG) {
      await client.query(end);
      continue;
    }
    await mustFail('an unknown table', '42P01', client.query(WRONG));
    await mustFail('a failed transaction', '25P02', client.query('SELECT 1'));
    await client.query('ROLLBACK');
  }
  await client.query('BEGIN');
  await client.query('SAVEPOINT here');
  await mustFail('an unknown table', '42P01', client.query(WRONG));
  await client.query('ROLLBACK TO here');
  await client.query("INSERT INTO node_story VALUES ($1, 'x')", [4]);
  await client.query('COMMIT');
  expect('what was committed', '{1,4}', await value(client, 'SELECT array_agg(n)::text FROM node_story'));
  ok('commit, rollback, savepoint');
}

async function prepared() {
  const pids = new Set();
  const each = (work) => Promise.all([0, 1, 2].map(async (number) => {
    const client = await connect();
    await work(client, number);
    await client.end();
  }));

  await each(async (client, number) => {
    const base = number * 1000000;
    // The same name on each, for different statements.
    const query = { name: 'same', text: `SELECT ${base} + $1::int AS seen, pg_backend_pid() AS pid` };
    for (let i = 0; i < 1000; i += 1) {
      const apart = i % 20 === 0;
      if (apart) await client.query('BEGIN');
      const { rows: [row] } = await client.query({ ...query, values: [i] });
      if (apart) {
        await client.query('SELECT pg_sleep(0.002)');
        await client.query('COMMIT');
      }
      expect("a named statement's answer", base + i, row.seen);
      expect("an unnamed statement's answer", base - i, await value(client, 'SELECT $1::int - $2::int', [base, i]));
      pids.add(row.pid);
    }
  });
  if (POOLED && pids.size < 2) fail('servers that served three clients', 'two or three', [...pids]);
  ok('a prepared statement 1,000 times on three connections');

  await each(async (client, number) => {
    for (let turn = 0; turn < 2; turn += 1) {
      for (let i = 0; i < MANY; i += 1) {
        const query = { name: `s${i}`, text: `SELECT ${i} + $1::int AS seen, ${number}`, values: [turn] };
        const { rows: [row] } = await client.query(query);
        expect('one of many', i + turn, row.seen);
      }
    }
  });
  ok(`${MANY} prepared statements, twice around`);

  const pool = new Pool({ max: 3, ssl: TLS });
  const borrow = async (number) => expect('an answer of its pool', number + 1, (await pool.query('SELECT $1::int + 1 AS seen', [number])).rows[0].seen);
  await Promise.all(Array.from({ length: 100 }, (_, number) => borrow(number)));
  await pool.end();
  ok('its own pool');
}

// It has no pipeline: it sends what is queued one by one. Several statements in a message are its batch.
async function batch(client) {
  const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => value(client, 'SELECT $1::int * 2', [i])));
  expect('the answers of a queue', Array.from({ length: 100 }, (_, i) => i * 2), answers);
  const results = await client.query("SELECT 1 AS a; INSERT INTO node_story VALUES (7, 'batch'); SELECT 3 AS a");
  expect('the answers of one message', 'SELECT INSERT SELECT', results.map((result) => result.command).join(' '));
  await mustFail('one message with an error', '22012', client.query("INSERT INTO node_story VALUES (8, 'batch'); SELECT 1 / 0"));
  expect('rows by batches', 1, await value(client, "SELECT count(*) FROM node_story WHERE text = 'batch'"));
  ok('batch');
}

async function copy(client) {
  await client.query('TRUNCATE node_story');
  const lines = Array.from({ length: 20000 }, (_, i) => `${i}\trow ${i}\n`);
  await pipeline(Readable.from(lines), client.query(copyFrom('COPY node_story FROM STDIN')));
  let out = '';
  for await (const chunk of client.query(copyTo('COPY (SELECT * FROM node_story ORDER BY n) TO STDOUT'))) out += chunk;
  expect('what COPY gave back', true, out === lines.join(''));
  const wrong = pipeline(Readable.from(['no number\tx\n']), client.query(copyFrom('COPY node_story FROM STDIN')));
  await mustFail('COPY of what is no number', '22P02', wrong);
  expect('rows after a failed COPY', 20000, await value(client, 'SELECT count(*) FROM node_story'));
  ok('COPY in and out');
}

async function cancel(client, direct) {
  for (const values of [undefined, []]) {
    const began = Date.now();
    const sleep = client.query({ text: 'SELECT pg_sleep(30)', values, name: values && 'sleep' });
    const told = mustFail('a cancelled statement', '57014', sleep);
    while ((await value(direct, SLEEPERS)) === 0 && Date.now() - began < 10000) await pause(50);
    const striker = new Client({ ssl: TLS });
    striker.on('error', () => {});
    striker.cancel(client, client._activeQuery || client.activeQuery);
    await told;
    if (Date.now() - began > 15000) fail('milliseconds until the cancel', 'few', Date.now() - began);
    expect('the next answer', 3, await value(client, 'SELECT $1::int', [3]));
  }
  ok('cancel');
}

async function large(client, wanted) {
  for (const query of [BIG, { name: 'big', text: BIG }]) {
    const sum = crypto.createHash('md5');
    for (const row of (await client.query(query)).rows) sum.update(`${row.i}${row.text}`);
    expect('the checksum of 50 MB', wanted, sum.digest('hex'));
  }
  ok('a large result');
}

async function reconnect(idle, direct) {
  await idle.query('SELECT 1');
  const client = await connect();
  await client.query('BEGIN');
  await direct.query(KILL);
  await mustFail('a query on a dead server', undefined, client.query('SELECT 2'));
  // A pooler may learn of a server's death only by using it.
  for (const end = Date.now() + 5000; ; await pause(100)) {
    try {
      const fresh = await connect();
      expect("a new connection's answer", 42, await value(fresh, 'SELECT 42'));
      break;
    } catch (error) {
      if (Date.now() > end) fail('reconnect', 'success within some seconds', error);
    }
  }
  if (POOLED) expect('the answer on a client that was idle', 43, await value(idle, 'SELECT $1::int', [43]));
  ok('reconnect after the servers were killed');
}

async function admin() {
  const client = await connect(CONSOLE);
  for (const query of ['SHOW POOLS', { name: 'pools', text: 'SHOW POOLS' }, { name: 'pools', text: 'SHOW POOLS' }]) {
    const { rows } = await client.query(query);
    expect('pool_mode in SHOW POOLS', 'transaction', rows.filter((pool) => pool.database === 'shop').map((pool) => pool.pool_mode));
  }
  await mustFail('an unknown view', undefined, client.query({ name: 'nonsense', text: 'SHOW NONSENSE' }));
  expect('rows of SHOW VERSION', 1, (await client.query('SHOW VERSION')).rows.length);
  ok('the console');
}

async function main() {
  const direct = await connect(DIRECT);
  const client = await connect();
  await firstSteps(client);
  await prepared();
  await batch(client);
  await copy(client);
  await cancel(client, direct);
  await large(client, await value(direct, BIG_SUM));
  await reconnect(client, direct);
  if (POOLED) await admin();
  process.exit(0);
}

main().catch((error) => fail('the story', 'no surprise', error.stack));
