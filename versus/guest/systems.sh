# The systems that are compared, as they come up over the modelled disks: start_NAME leaves the block device in $device.
hdd=/dev/model-hdd ssd=/dev/model-ssd device= daemon=

sectors() { blockdev --getsz $1; }
about() { :; }

# Waits until something holds, for a minute of the guest at the most.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 0.1
    done
}

start_hdd() { device=$hdd; }
start_ssd() { device=$ssd; }

# Writeback, and everything is cached: without its cutoff for sequential requests and its limits for a busy cache.
start_bcache() {
    modprobe bcache && make-bcache -C $ssd -B $hdd >/run/bcache.log 2>&1 || return 1
    for part in $hdd $ssd; do echo $part >/sys/fs/bcache/register; done
    await [ -b /dev/bcache0 ] || return 1
    device=/dev/bcache0
    settings=/sys/block/bcache0/bcache
    echo writeback >$settings/cache_mode
    echo 0 >$settings/sequential_cutoff
    echo 0 >$settings/cache/congested_read_threshold_us
    echo 0 >$settings/cache/congested_write_threshold_us
}

mapped() { dmsetup create $1 --noudevrules --noudevsync --table "$2" >>/run/dm.log 2>&1 && dmsetup mknodes; }

# Writeback, blocks of 256 KiB, policy smq with its defaults; 16 MiB of the SSD are its metadata.
start_dm_cache() {
    modprobe dm-cache && modprobe dm-cache-smq || return 1
    metadata=32768
    mapped metadata "0 $metadata linear $ssd 0"
    mapped content "0 $(($(sectors $ssd) - metadata)) linear $ssd $metadata"
    dd if=/dev/zero of=/dev/mapper/metadata bs=4k count=1 oflag=direct 2>/dev/null
    mapped cached "0 $(sectors $hdd) cache /dev/mapper/metadata /dev/mapper/content $hdd 512 1 writeback smq 0"
    device=/dev/mapper/cached
    about() { dmsetup status cached; }
}

# It caches writes only.
start_dm_writecache() {
    modprobe dm-writecache || return 1
    mapped cached "0 $(sectors $hdd) writecache s $hdd $ssd 4096 0"
    device=/dev/mapper/cached
    about() { dmsetup status cached; }
}

# Our daemon with cache $1 before origin $2, as it comes, behind a door; the rest are options of create.
start_forebay() {
    cache=$1 origin=$2 door=$3
    shift 3
    modprobe nbd nbds_max=2
    modprobe ublk_drv
    forebay create --trial-seconds 0 --origin $origin --cache $cache --name data "$@" >/run/create.log 2>&1 || return 1
    forebay serve $cache --attach --door $door >/run/serve.log 2>&1 &
    daemon=$!
    await grep -q '^ready' /run/serve.log || return 1
    device=$(readlink -f /dev/forebay/data)
    about() { forebay status $cache; forebay stats $cache; cat /run/serve.log; }
}

start_forebay_ublk() { start_forebay $ssd $hdd ublk; }
start_forebay_nbd() { start_forebay $ssd $hdd nbd; }

# The profiles of two of the kernel's caches, set as those are.
start_as() { start_forebay $ssd $hdd ublk --unsafe --mode writeback --profile /tests/profiles/$1.toml; }
start_as_bcache() {
    sed -i 's/^\(cutoff_bytes\|congested_.*\) = .*/\1 = 0/' /tests/profiles/bcache.toml
    start_as bcache
}
start_as_dm_cache() { start_as dm-cache; }

# The doors alone: a volume of the SSD that nothing is cached of.
start_floor() {
    truncate -s 64M /dev/shm/cache
    start_forebay /dev/shm/cache $ssd $1 --mode passthrough
}
start_floor_ublk() { start_floor ublk; }
start_floor_nbd() { start_floor nbd; }
