# Starting and stopping daemons for the scripts beside this file; to be sourced by bash.
# Everything lives in one new directory ($work), which goes away with the script.

forebay=${FOREBAY:-$(dirname "${BASH_SOURCE[0]}")/../target/release/forebay}
if [ ! -x "$forebay" ]; then
    echo "no program at $forebay: run 'make build' first" >&2
    exit 1
fi

work=
servers=()

# Makes $work below directory $1, with a state and a run directory of its own for the daemons.
make_work() {
    work=$(mktemp -d "$1/forebay.XXXXXX")
    export FOREBAY_STATE_DIR=$work/state FOREBAY_RUN_DIR=$work/run
    mkdir -p -m 700 "$FOREBAY_STATE_DIR" "$FOREBAY_RUN_DIR"
    trap leave EXIT
    trap 'exit 130' INT TERM
}

leave() {
    local pid
    for pid in "${servers[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    [ -z "$work" ] || rm -rf "$work"
}

# Serves cache $1 on socket $2, waits for the doors to open, and leaves the process id in $server.
serve() {
    local log=$2.log
    : >"$log"
    "$forebay" serve "$1" --nbd "unix:$2" >"$log" 2>&1 &
    server=$!
    servers+=("$server")
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        grep -q '^ready' "$log" && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    echo "the daemon on $1 did not get ready:" >&2
    cat "$log" >&2
    exit 1
}

# Starts nbdkit's file plugin over file $1 on socket $2; its process id is in $server.
serve_by_nbdkit() {
    nbdkit --foreground --unix "$2" file "$1" &
    server=$!
    servers+=("$server")
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        [ -S "$2" ] && return
        sleep 0.05
    done
    echo "nbdkit did not start on $2" >&2
    exit 1
}

# Stops process $1 cleanly and waits for it.
stop() {
    kill -TERM "$1"
    wait "$1" || {
        echo "process $1 did not stop cleanly" >&2
        exit 1
    }
}
