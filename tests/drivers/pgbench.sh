#!/bin/sh
# pgbench: every protocol. With -M prepared each client needs a thread of its own: pgbench prepares in a blocking call, and
# would wait for a server that another client of the same thread holds.
set -eu
ok() { echo "ok pgbench $1"; }
pgbench -i -q -s 1 >/dev/null 2>&1
ok initialise
run() {
    said=$(pgbench -n "$@" 2>&1) || { echo "$said"; exit 1; }
    case $said in *aborted*) echo "$said"; exit 1 ;; esac
}
for mode in simple extended prepared; do
    run -M $mode -c 8 -j 8 -t 50
    run -M $mode -c 8 -j 8 -t 200 -S
    run -M $mode -c 4 -j 4 -t 10 -S -C
    ok "$mode"
done
