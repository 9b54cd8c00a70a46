# Words of the tests in the virtual machine. /dev/vda is the origin, /dev/vdb the cache.
set -eu
export FOREBAY_STATE_DIR=/run/state FOREBAY_RUN_DIR=/run/forebay
kills=$(sed -n 's/.*kills=\([0-9]*\).*/\1/p' /proc/cmdline)
origin=/dev/vda cache=/dev/vdb daemon=

step() { echo "guest: [$(cut -d' ' -f1 /proc/uptime)] $*"; }

fail() {
    echo "guest: $*"
    [ ! -e /run/serve.log ] || sed 's/^/guest: daemon: /' /run/serve.log
    exit 1
}

# Starts the daemon and waits for its line.
serve() {
    : >/run/serve.log
    forebay serve $cache "$@" >/run/serve.log 2>&1 &
    daemon=$!
    tries=0
    until grep -q '^ready' /run/serve.log; do
        kill -0 $daemon 2>/dev/null || fail "the daemon did not start"
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the daemon is not ready after a minute"
        sleep 0.1
    done
}

# Ends the daemon as a crash would.
crash() {
    kill -9 $daemon
    wait $daemon 2>/dev/null || true
}

# Ends the daemon properly.
stop() {
    kill $daemon
    wait $daemon || fail "the daemon did not stop cleanly"
}

# A command that must fail, and say this.
refused() {
    words=$1
    shift
    if "$@" >/run/said 2>&1; then fail "not refused: $*"; fi
    grep -q "$words" /run/said || fail "$* said: $(cat /run/said)"
    [ "$(wc -l </run/said)" = 1 ] || fail "more than one line: $(cat /run/said)"
    step "refused: $(cat /run/said)"
}

no_kernel_errors() {
    if dmesg | grep -E 'I/O error|EXT4-fs (error|warning)|JBD2.*(error|abort)|XFS.*(error|shutdown|corrupt)|BUG|Oops|hung task'; then
        fail "the kernel saw errors"
    fi
}
