// node-postgres: named statements, cursors by Flush, streams.
import assert from 'node:assert/strict';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import Cursor from 'pg-cursor';
import copy from 'pg-copy-streams';
import pg from 'pg';

const ok = (what) => console.log('ok node-postgres', what);
const code = (wanted) => (error) => error.code === wanted;

const client = new pg.Client();
await client.connect();
const value = async (...query) => Object.values((await client.query(...query)).rows[0])[0];
assert.equal(await value('SELECT 1'), 1);
ok('connect');

await assert.rejects(client.query('SELECT nonsense'), code('42703'));
await assert.rejects(client.query('SELECT nonsense WHERE $1', ['x']), code('42703'));
ok('error');

await client.query('DROP TABLE IF EXISTS node_t');
await client.query('CREATE TABLE node_t (n int PRIMARY KEY, words text)');
await client.query('BEGIN');
await client.query('INSERT INTO node_t VALUES ($1, $2)', [1, 'lost']);
await assert.rejects(client.query('INSERT INTO node_t VALUES (1)'), code('23505'));
await client.query('ROLLBACK');
assert.equal(await value('SELECT count(*)::int FROM node_t'), 0);
ok('transaction');

for (let n = 0; n < 200; n++) {
  assert.equal(await value({ name: 'plus', text: 'SELECT $1::int + 1', values: [n] }), n + 1);
}
ok('prepared statement 200 times');

const many = await Promise.all(Array.from({ length: 100 }, (_, n) => value('SELECT $1::int * 2', [n])));
assert.deepEqual(many, Array.from({ length: 100 }, (_, n) => n * 2));
ok('a hundred at once');

await pipeline(
  Readable.from(Array.from({ length: 1000 }, (_, n) => `${n}\tcopied\n`)),
  client.query(copy.from('COPY node_t FROM STDIN')),
);
let lines = 0;
await pipeline(
  client.query(copy.to('COPY node_t TO STDOUT')),
  new Writable({ write(chunk, _, done) { lines += chunk.toString().split('\n').length - 1; done(); } }),
);
assert.equal(lines, 1000);
await assert.rejects(
  pipeline(Readable.from(['bad\tx\n']), client.query(copy.from('COPY node_t FROM STDIN'))),
  code('22P02'),
);
assert.equal(await value('SELECT 2'), 2);
ok('copy');

const sleeping = new pg.Query('SELECT pg_sleep(15)');
const ended = new Promise((resolve) => sleeping.on('error', resolve).on('end', resolve));
client.query(sleeping);
setTimeout(() => new pg.Client().cancel(client, sleeping), 500);
assert.equal((await ended)?.code, '57014');
assert.equal(await value('SELECT 3'), 3);
ok('cancel');

assert.equal((await value("SELECT repeat('x', 5000000)")).length, 5_000_000);
ok('5 MB');

const cursor = client.query(new Cursor('SELECT generate_series(1, 1000) AS n'));
let total = 0;
for (let rows = await cursor.read(70); rows.length > 0; rows = await cursor.read(70)) {
  for (const { n } of rows) total += n;
}
await cursor.close();
assert.equal(total, 500_500);
ok('cursor in pages');

const pool = new pg.Pool({ max: 20 });
await Promise.all(Array.from({ length: 400 }, async (_, n) => {
  const { rows } = await pool.query({ name: 'times', text: 'SELECT $1::int * 2 AS twice', values: [n] });
  assert.equal(rows[0].twice, n * 2);
}));
await pool.end();
ok('a pool of its own');

await client.query('DROP TABLE node_t');
await client.end();
