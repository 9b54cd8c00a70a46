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

# Waits for something, a tenth of a second at a time and a minute at the most.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "in vain: $*"
        sleep 0.1
    done
}

has_written_since() { [ "$(wc -l </run/sums)" -gt $(($1 + 1)) ]; }

# Writes files and syncs them, until there is /run/enough.
writer() {
    i=0
    while [ ! -e /run/enough ]; do
        dd if=/dev/urandom of=/mnt/f$i bs=16k count=4 conv=fsync 2>/dev/null || { echo "guest: a write failed"; return 1; }
        md5sum /mnt/f$i >>/run/sums
        i=$((i + 1))
    done
    echo "guest: $i files written and synced"
}

# A file system of this kind on /dev/forebay/data, under a writer that syncs while the daemon is killed and started
# again, and stopped and started at the end.
outlives() {
    kind=$1
    disk=$(readlink -f /dev/forebay/data)
    case $kind in
        ext4) mkfs.ext4 -q -F $disk && mount -t ext4 -o discard $disk /mnt ;;
        xfs) mkfs.xfs -q -f $disk && mount -t xfs $disk /mnt ;;
    esac || fail "no file system on $disk"
    refused "mounted at /mnt" forebay unattach $cache
    : >/run/sums
    rm -f /run/enough
    writer &
    writer=$!
    longest=0
    for kill in $(seq 1 $kills); do
        sleep 2
        crash
        [ -e /dev/forebay/data ] || fail "the link is gone"
        sleep 0.5
        before=$(wc -l </run/sums)
        serve
        await has_written_since $before
        [ $tries -le $longest ] || longest=$tries
        step "$kind, kill $kill: writes go on $tries tenths of a second after the daemon is ready"
    done
    step "$kind: $kills kills, writes went on after $longest tenths of a second at the most"
    step "an upgrade: a clean stop under the mounted file system"
    stop
    grep -q "waits for the next daemon" /run/serve.log || fail "the stop says nothing of the device in use"
    serve
    sleep 3
    touch /run/enough
    wait $writer || fail "the writer failed"
    rm /mnt/f0
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sed -i '/f0$/d' /run/sums
    md5sum -c /run/sums >/run/checked || fail "content is wrong: $(grep -v OK /run/checked)"
    umount /mnt
    case $kind in
        ext4) e2fsck -fn $disk >/run/fsck 2>&1 ;;
        xfs) xfs_repair -n $disk >/run/fsck 2>&1 ;;
    esac || fail "the file system is not in order: $(cat /run/fsck)"
    no_kernel_errors
}
