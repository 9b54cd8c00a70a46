# Starting and stopping daemons for the scripts beside this file; to be sourced by bash.
# Everything lives in one new directory ($work), which goes away with the script.

forebay=${FOREBAY:-$(dirname "${BASH_SOURCE[0]}")/../target/release/forebay}
if [ ! -x "$forebay" ]; then
    echo "no program at $forebay: run 'make build' first" >&2
    exit 1
fi

work=
servers=()
zrams=()

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
    local number
    for number in "${zrams[@]}"; do
        { echo 1 >"/sys/block/zram$number/reset" && echo "$number" >/sys/class/zram-control/hot_remove; } || true
    done
    [ -z "$work" ] || rm -rf "$work"
}

# Makes a block device in memory of $1 bytes, which goes away with the script; its path is in $zram.
make_zram() {
    [ -e /sys/class/zram-control/hot_add ] || modprobe zram num_devices=0 2>/dev/null || true
    local number
    number=$(cat /sys/class/zram-control/hot_add 2>/dev/null) || {
        echo "cannot make a block device in memory: needs root and the kernel's module zram" >&2
        exit 1
    }
    zrams+=("$number")
    echo "$1" >"/sys/block/zram$number/disksize"
    zram=/dev/zram$number
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

# Starts NBD server $2 with the arguments that follow, which listens on socket $1; its process id is in $server.
serve_by() {
    local socket=$1 tries
    shift
    "$@" &
    server=$!
    servers+=("$server")
    for ((tries = 0; tries < 200; tries++)); do
        [ -S "$socket" ] && return
        sleep 0.05
    done
    echo "$1 did not start on $socket" >&2
    exit 1
}

# Serves file or device $1 on socket $2 by nbdkit's file plugin.
serve_by_nbdkit() { serve_by "$2" nbdkit --foreground --unix "$2" file "$1"; }

# Serves device $1 on socket $2 by qemu-nbd, which goes to the device as we do.
serve_by_qemu() {
    serve_by "$2" qemu-nbd --format=raw --aio=io_uring --cache=none --discard=unmap --persistent --shared=16 \
        --socket="$2" "$1"
}

# Stops process $1 cleanly and waits for it.
stop() {
    kill -TERM "$1"
    wait "$1" || {
        echo "process $1 did not stop cleanly" >&2
        exit 1
    }
}
