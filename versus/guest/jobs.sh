# What every system is asked for, in this order: what one job leaves is what the next one finds. Regions of 256 MiB; one
# begins at $read and is read until it is cached, the others are new to the system.
# Times are those of the modelled disks: the guest sees them $slow times as long.

# What has been done so far: bytes read and written of the SSD and of the hard disk, then the nanoseconds that the
# processor was busy, and that our daemon had of them. A nanosecond is an instruction.
so_far() {
    for disk in model-ssd model-hdd; do awk '{ printf "%.0f,%.0f,", $3 * 512, $7 * 512 }' /sys/block/$disk/stat; done
    # The idle time of /proc/uptime stands still here; that of /proc/stat is right, in hundredths of a second.
    awk 'NR == FNR { up = $1; next } $1 == "cpu" { printf "%.0f,", (up - ($5 + $6) / 100) * 1e9 }' /proc/uptime /proc/stat
    cat /proc/${daemon:-none}/task/*/schedstat 2>/dev/null | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

# job NAME OPTION...: runs fio, and writes one line of JSON.
job() {
    name=$1
    shift
    before=$(so_far)
    fio --name=job --filename=$device --size=256m --direct=1 --ioengine=io_uring --norandommap --group_reporting \
        --output-format=json --output=/run/fio.json "$@" >/run/fio.log 2>&1 || cat /run/fio.log >/dev/console
    echo "{\"job\":\"$name\",\"before\":[$before],\"after\":[$(so_far)],\"fio\":$(tr -d '\n' </run/fio.json)}"
    echo "versus: [$(cut -d' ' -f1 /proc/uptime)] $system $name" >/dev/console
}

pause() { sleep $(($1 * slow)); }
at_most() { echo --runtime=$(($1 * slow)); }

run_jobs() {
    read=1024 written=3072 small=5120 skewed=6656
    # The SSD alone is not that large.
    [ "$(sectors $device)" -gt 4194304 ] || read=0 written=256 small=512 skewed=768
    one=--iodepth=1
    many=--iodepth=32
    for pass in 1 2 3; do
        job "seq read 128K, pass $pass" --offset=${read}m --rw=read --bs=128k $one
    done
    job "rand read 64K QD8" --offset=${read}m --rw=randread --bs=64k --iodepth=8 --io_size=500m $(at_most 20)
    pause 5
    job "rand read 4K QD1, warm" --offset=${read}m --rw=randread --bs=4k $one --io_size=40m $(at_most 6)
    job "rand read 4K QD32, warm" --offset=${read}m --rw=randread --bs=4k $many --io_size=120m $(at_most 6)
    job "seq write 128K, new" --offset=${written}m --rw=write --bs=128k $one
    pause 5
    job "8K 67/33 QD32, warm" --offset=${read}m --rw=randrw --rwmixread=67 --bs=8k $many --io_size=160m $(at_most 6)
    pause 5
    job "rand write 4K QD1, new" --offset=${small}m --rw=randwrite --bs=4k $one --io_size=40m $(at_most 6)
    pause 5
    job "rand write 4K QD32, new" --offset=${small}m --rw=randwrite --bs=4k $many --io_size=120m --randseed=7 $(at_most 6)
    pause 20
    mix="--offset=${skewed}m --rw=randrw --rwmixread=90 --bs=4k --iodepth=8 --numjobs=4 --io_size=40m"
    mix="$mix --random_distribution=zipf:1.2:0.5"
    job "zipf 1.2 90/10 4xQD8, warming" $mix --randseed=5 $(at_most 15)
    pause 2
    job "zipf 1.2 90/10 4xQD8, warm" $mix --randseed=99 $(at_most 10)
}
