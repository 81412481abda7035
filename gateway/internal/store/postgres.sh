#!/bin/sh
# A private PostgreSQL for the tests: its own cluster in a new directory, reached by a unix socket only, no password, no durability.
#
#   postgres.sh start        prints the directory and the DSN, one per line
#   postgres.sh stop DIR     ends the server and removes the directory
#
# As root it installs Debian's package where there is none and runs the server as the user postgres, as the server demands.
set -eu

die() { echo "postgres.sh: $1" >&2; exit 1; }

bindir() {
    for d in /usr/lib/postgresql/*/bin; do
        [ -x "$d/initdb" ] && found=$d
    done
    echo "${found:-}"
}

as_postgres() {
    if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

case "${1:-}" in
start)
    bin=$(bindir)
    if [ -z "$bin" ]; then
        [ "$(id -u)" = 0 ] || die "PostgreSQL is missing: apt-get install postgresql"
        # Without a cluster of its own that would start with the machine.
        mkdir -p /etc/postgresql-common
        [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql >/dev/null 2>&1 ||
            die "installing postgresql did not work: apt-get update && apt-get install postgresql"
        bin=$(bindir)
        [ -n "$bin" ] || die "the package postgresql brought no initdb"
    fi
    dir=$(mktemp -d /tmp/portreeve-pg.XXXXXX)
    [ "$(id -u)" != 0 ] || chown postgres "$dir"
    cd "$dir"
    as_postgres "$bin/initdb" -D "$dir/data" -U postgres --auth=trust --encoding=UTF8 --locale=C --no-sync >"$dir/log" 2>&1 ||
        { cat "$dir/log" >&2; die "initdb did not work"; }
    as_postgres "$bin/pg_ctl" -D "$dir/data" -w -t 60 -l "$dir/server.log" \
        -o "-k $dir -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200 -c timezone=Asia/Kathmandu" \
        start >"$dir/log" 2>&1 || { cat "$dir/log" "$dir/server.log" >&2; die "the server did not start"; }
    echo "$dir"
    echo "postgres:///postgres?host=$dir&user=postgres&sslmode=disable"
    ;;
stop)
    dir=${2:?directory}
    case "$dir" in /tmp/portreeve-pg.*) ;; *) die "not a directory of mine: $dir" ;; esac
    cd /
    as_postgres "$(bindir)/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$dir"
    ;;
*)
    die "usage: postgres.sh start | stop DIR"
    ;;
esac
