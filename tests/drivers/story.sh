# What the shell's drivers share: how a step is told, and a second way to the server.
# shellcheck shell=bash

: "${THROUGH:?run-all sets it}"
driver=$(basename "$0")

ok() { printf 'ok %s: %s\n' "$driver" "$*"; }
fail() { # what, wanted, seen
    printf 'FAILED %s: %s\n  expected: %s\n  seen:     %s\n' "$driver" "$1" "$2" "$3" >&2
    exit 1
}
expect() { [ "$2" = "$3" ] || fail "$@"; }
contains() { [[ $3 == *"$2"* ]] || fail "$1" "… $2 …" "$3"; }

directly() { command psql -XAtq -p "$DIRECT_PORT" -d postgres -c "$1"; }
sleepers() {
    directly "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'"
}
await_sleepers() { # how many
    local patience=100
    until [ "$(sleepers)" = "$1" ]; do
        [ $((patience--)) -gt 0 ] || fail 'statements that sleep' "$1" "$(sleepers)"
        sleep 0.05
    done
}
await_sleeper() { await_sleepers 1; }
await_no_sleeper() { await_sleepers 0; }

kill_all() {
    directly "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'" >/dev/null
}
# Once more for a while: a pooler may learn of a server's death only by using it.
patiently() {
    local patience=20
    until "$@" 2>/dev/null; do
        [ $((patience--)) -gt 0 ] || fail "$*" 'success within some seconds' "$("$@" 2>&1 || :)"
        sleep 0.2
    done
}
