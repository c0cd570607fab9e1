#!/bin/bash
# Every driver through Howdah in transaction mode, against a real PostgreSQL.
#
#   run-all.sh [driver]…        psql pgbench psycopg3 psycopg2 asyncpg pgx pgjdbc node; all of them by default
#   DIRECT=1 run-all.sh         straight to PostgreSQL, which shows what a driver does with no pooler in between
#   STAGE_ARGS='--pool 2 …'     for the stage; see tests/it/src/bin/stage.rs
#
# What is missing is installed under target/drivers, from the usual registries. A driver whose language is not here is skipped.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
place=${CARGO_TARGET_DIR:-$root/target}/drivers
mkdir -p "$place"

have() { command -v "$1" >/dev/null 2>&1; }

stage=${STAGE:-}
if [ -z "$stage" ]; then
    (cd "$root" && cargo build --quiet -p howdah -p howdah-tests --bins) || exit 1
    stage=${CARGO_TARGET_DIR:-$root/target}/debug/stage
fi

# The stage is taken down at the end of its input: when we end, however we end.
coproc STAGE_PROCESS { "$stage" --mode transaction --set ignore_startup_parameters=extra_float_digits ${STAGE_ARGS:-}; }
while IFS= read -r line <&"${STAGE_PROCESS[0]}"; do
    case $line in
        READY=1) ready=1; break ;;
        *=*) export "${line?}" ;;
    esac
done
[ "${ready:-}" = 1 ] || { echo 'the stage was not set'; exit 1; }
export PGSSLMODE=disable PGGSSENCMODE=disable PGCONNECT_TIMEOUT=20
if [ -n "${DIRECT:-}" ]; then
    export PGPORT=$DIRECT_PORT PGDATABASE=$DIRECT_DATABASE
fi

python() {
    if [ ! -x "$place/venv/bin/python" ]; then
        python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet -r "$here/requirements.txt" || return 1
    fi
    "$place/venv/bin/python" "$here/$1"
}

drive() {
    case $1 in
        psql) have psql && sh "$here/psql.sh" ;;
        pgbench) PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1) sh "$here/pgbench.sh" ;;
        psycopg3) python psycopg3.py ;;
        psycopg2) python psycopg2_driver.py ;;
        asyncpg) python asyncpg_driver.py ;;
        pgx)
            have go || return 77
            mkdir -p "$place/pgx" && cp "$here"/pgx/* "$place/pgx/" && cd "$place/pgx" &&
                go mod tidy >/dev/null 2>&1 && go build -o drive . && ./drive
            ;;
        pgjdbc)
            have mvn && have java || return 77
            if [ ! -e "$place/pgjdbc/drive-1.jar" ] || [ "$here/pgjdbc/src/main/java/Drive.java" -nt "$place/pgjdbc/drive-1.jar" ]; then
                mvn --quiet --batch-mode --offline -f "$here/pgjdbc/pom.xml" -Dbuild.to="$place/pgjdbc" package >/dev/null 2>&1 ||
                    mvn --quiet --batch-mode -f "$here/pgjdbc/pom.xml" -Dbuild.to="$place/pgjdbc" package || return 1
            fi
            java -cp "$place/pgjdbc/drive-1.jar:$place/pgjdbc/lib/*" Drive
            ;;
        node)
            have node && have npm || return 77
            mkdir -p "$place/node" && cp "$here"/node/* "$place/node/" && cd "$place/node" || return 1
            [ -d node_modules/pg-copy-streams ] || npm install --silent --no-audit --no-fund 2>/dev/null || return 1
            node drive.mjs
            ;;
        *) echo "no driver $1"; return 1 ;;
    esac
}

failed=()
for driver in "${@:-psql pgbench psycopg3 psycopg2 asyncpg pgx pgjdbc node}"; do
    for driver in $driver; do
        (set -e; drive "$driver")
        status=$?
        case $status in
            0) ;;
            77) echo "skipped $driver: its language is not installed" ;;
            *) echo "FAILED $driver"; failed+=("$driver") ;;
        esac
    done
done
eval "exec ${STAGE_PROCESS[1]}>&-"
wait
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
echo 'all drivers passed'
