#!/bin/sh
# psql: what a person at a terminal does.
set -eu
ok() { echo "ok psql $1"; }
say() { psql -X -At -v ON_ERROR_STOP=1 "$@"; }

[ "$(say -c 'SELECT 1')" = 1 ] && ok connect
say -c 'SELECT nonsense' 2>&1 | grep -q 'column "nonsense" does not exist' && ok error
[ "$(printf 'BEGIN;\nCREATE TABLE psql_t (n int);\nINSERT INTO psql_t VALUES (1);\nSELECT n FROM psql_t;\nROLLBACK;\n' | say -q)" = 1 ]
say -c "SELECT count(*) FROM pg_class WHERE relname = 'psql_t'" | grep -qx 0 && ok transaction
for i in $(seq 20); do echo "SELECT $i;"; done | say -q | tail -1 | grep -qx 20 && ok 'many statements'
say -q -c 'DROP TABLE IF EXISTS psql_copy' -c 'CREATE TABLE psql_copy (n int, words text)'
seq 1000 | sed 's/$/,word/' | say -q -c 'COPY psql_copy FROM STDIN WITH (FORMAT csv)'
[ "$(say -c 'COPY psql_copy TO STDOUT' | wc -l)" = 1000 ] && ok copy
seq 3 | sed 's/$/,word/; 2s/^/bad/' | say -q -c 'COPY psql_copy FROM STDIN WITH (FORMAT csv)' 2>&1 | grep -q 'invalid input syntax' && ok 'copy error'
# psql sends a cancel request when it is interrupted.
status=0
timeout --signal=INT --kill-after=20 1 psql -X -c 'SELECT pg_sleep(15)' >/dev/null 2>"${TMPDIR:-/tmp}/psql_cancel.$$" || status=$?
grep -q 'canceling statement due to user request' "${TMPDIR:-/tmp}/psql_cancel.$$" && ok cancel
rm -f "${TMPDIR:-/tmp}/psql_cancel.$$"
[ "$(say -c "SELECT repeat('x', 5000000)" | wc -c)" = 5000001 ] && ok '5 MB'
printf '\\set VERBOSITY verbose\n\\d psql_copy\n\\l\n\\du\n\\conninfo\n' | say >/dev/null && ok 'backslash commands'
say -q -c 'DROP TABLE psql_copy'
