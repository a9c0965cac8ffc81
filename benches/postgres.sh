# What benches/table and benches/peers/run share: databases of the PostgreSQL that tests/with-postgres has started, servers
# on them, and medians. Whoever sources it has `say`, `fail` and a directory of its own, `dir`; sets a trap that calls
# stop_servers; and then calls far_checkpoints.
# shellcheck shell=bash

servers=() # process ids

end() { # end PID...: SIGTERM, and what has not ended in the time that a drain may take is killed
    [ $# -gt 0 ] || return 0
    kill "$@" 2>/dev/null || true
    local pid tries
    for pid in "$@"; do
        for ((tries = 0; tries < 250; tries++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}
stop_servers() { end ${servers[@]+"${servers[@]}"}; servers=(); }

PSQL=$RUNLEDGER_TEST_PG_BIN/psql
[ -x "$PSQL" ] || PSQL=$(command -v psql) || fail "needs psql"
dsn_of() { echo "${RUNLEDGER_TEST_POSTGRES%/*}/$1"; }
sql() { "$PSQL" "$(dsn_of "$1")" -XAtq -v ON_ERROR_STOP=1 -c "$2"; }

restart() { # with what was set; as the user who may, and as slow as before
    local data as=()
    data=$(sql postgres "show data_directory")
    [ -z "$RUNLEDGER_TEST_PG_USER" ] || as=(setpriv "--reuid=$RUNLEDGER_TEST_PG_USER" \
        "--regid=$(id -g "$RUNLEDGER_TEST_PG_USER")" --clear-groups --)
    (cd "$data" && ${as[@]+"${as[@]}"} env LC_ALL=C ${SLOW_LIBRARY:+LD_PRELOAD="$SLOW_LIBRARY"} \
        "$RUNLEDGER_TEST_PG_BIN/pg_ctl" restart -D "$data" -l "${data%/*}/main.log" -w -t 60 >/dev/null)
}

# A checkpoint in one round and none in the other would decide a ratio: each row begins with one, and the next is far off.
far_checkpoints() {
    sql postgres "alter system set max_wal_size = '32GB'"
    sql postgres "alter system set checkpoint_timeout = '1h'"
    sql postgres "alter system set shared_buffers = '${SHARED_BUFFERS:-1GB}'"
    restart
}

flush_us() { # what a flush of this disk takes
    "$RUNLEDGER_TEST_PG_BIN/pg_test_fsync" -s 1 -f "$dir/flush" | awk '$1 == "fdatasync" { print $4; exit }'
}

database=
fresh() { # fresh NAME: an empty database for a row, after a checkpoint
    [ -z "$database" ] || sql postgres "drop database if exists $database with (force)"
    database=$1
    sql postgres "create database $database"
    sql postgres checkpoint
}

serve() { # serve STORE [FLAG...]: starts a server and sets address and pid
    local log=$dir/server-${#servers[@]}.log out=$dir/server-${#servers[@]}.out tries
    local slow=()
    : >"$out"
    case $1 in sqlite:*)
        # SQLite flushes by fsync.
        [ -z "${SLOW_LIBRARY:-}" ] || slow=("LD_PRELOAD=$SLOW_LIBRARY" "SLOW_FSYNC_US=$SLOW_FDATASYNC_US") ;;
    esac
    env ${slow[@]+"${slow[@]}"} "$RUNLEDGER" serve --listen 127.0.0.1:0 --store "$@" >"$out" 2>"$log" &
    pid=$!
    servers+=("$pid")
    for ((tries = 0; tries < 300; tries++)); do
        address=$(sed -nE '1s/^Runledger .* listens on ([^ ]+)$/\1/p' "$out")
        # Listening is not yet serving: the store is opened behind it.
        if [ -n "$address" ] && "$RUNLEDGER" health --server "$address" --service readiness >/dev/null 2>&1; then return; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log" >&2
    fail "the server on $1 did not start"
}

median() { # numbers on stdin: "MEDIAN LEAST GREATEST"
    sort -g | awk '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; print m, v[1], v[NR] }'
}
shown() { # shown FORMAT, numbers on stdin: "MEDIAN (LEAST to GREATEST)"
    median | awk -v f="$1" '{ printf f " (" f " to " f ")", $1, $2, $3 }'
}
