//! fio's sequences: that they are those of the fio that is installed, and that its jobs run.

use engine::effect::WriteMode;
use engine::units::{Nanos, VolumeIndex};
use forebay_lab::long::{Contents, Disk, Latencies, LongRun, Setup, Trouble, Until, VolumeSetup};
use forebay_lab::workload::fio::{Ask, FioLoad, Job, Sequence, parse};
use std::path::PathBuf;
use std::process::Command;

/// Jobs of every kind that is known. Copies of a job run at the same time and write one log: theirs is so short
/// that it is written in one piece.
const JOBS: &str = "\
[global]
ioengine=null
size=4m
bs=4k
[copies]
rw=randread
numjobs=3
size=256k
[plain]
rw=randread
[again]
rw=randwrite
norandommap
bs=8k
[mixed]
rw=randrw
rwmixread=70
offset=64k
[mixed-seeded]
rw=randrw
rwmixwrite=10
randseed=77
[odd]
rw=randwrite
size=1000000
bs=3k
[part]
rw=randread
filesize=16m
size=1m
offset=1m
[longer]
rw=randread
io_size=10m
[longer-writes]
rw=randwrite
norandommap
io_size=10m
[loops]
rw=randread
loops=3
size=512k
[loops-seeded]
rw=randread
norandommap
loops=2
randseed=5
size=512k
[zipf]
rw=randread
random_distribution=zipf:1.2
[zipf-with-a-rather-long-name]
rw=randrw
rwmixread=90
random_distribution=zipf:0.6
offset=128k
[zipf-seeded]
rw=randwrite
random_distribution=zipf:1.1
randseed=99
[own-seed]
rw=randrw
randrepeat=0
randseed=3
[zipf-own-seed]
rw=randread
random_distribution=zipf:1.1
randrepeat=0
randseed=4
[straight]
rw=read
bs=128k
offset=256k
[straight-writes]
rw=write
bs=64k
loops=2
[straight-mixed]
rw=rw
rwmixread=30
[straight-odd]
rw=read
size=100000
";

/// A directory of the test's own, removed at the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // What is left is in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What fio asks for, by file: each thread of these jobs has its own.
fn asked_by_fio(jobs: &str, test: &str) -> Vec<(String, u64, Ask)> {
    let place = Place(std::env::temp_dir().join(format!("lab-fio-{}-{test}", std::process::id())));
    std::fs::create_dir_all(&place.0).expect("a directory for the test");
    let (file, log) = (place.0.join("jobs.fio"), place.0.join("log"));
    std::fs::write(&file, jobs).expect("a file for the test");
    let status = Command::new("fio")
        .current_dir(&place.0)
        .args(["--output=/dev/null", "--write_iolog=log"])
        .arg(&file)
        .status()
        .expect("fio is installed: make test looks for it");
    assert!(status.success());
    let log = std::fs::read_to_string(log).expect("fio's log");
    let asks = log.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // With the time in front since version 3 of the log.
        let [.., name, op @ ("read" | "write"), offset, len] = fields[..] else { return None };
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let ask = Ask { is_write: op == "write", offset_bytes: number(offset) };
        Some((name.to_owned(), number(len), ask))
    });
    asks.collect()
}

#[test]
fn every_job_asks_for_the_blocks_that_fio_asks_for() {
    let jobs = parse(JOBS).expect("they are known");
    // Jobs one after the other, so that the lines of one log do not mix.
    let theirs = asked_by_fio(&JOBS.replace("\nrw=", "\nstonewall\nrw="), "all");
    let (mut total, mut wrong) = (0, Vec::new());
    for job in &jobs {
        let theirs: Vec<_> = theirs.iter().filter(|(name, ..)| *name == job.file).collect();
        let ours: Vec<Ask> = Sequence::new(job).expect("it can be run").collect();
        let same = theirs.iter().zip(&ours).take_while(|((.., theirs), ours)| theirs == *ours).count();
        if (theirs.len(), ours.len()) != (same, same) || same == 0 {
            let lens = (theirs.len(), ours.len());
            wrong.push((
                &job.file,
                same,
                lens,
                theirs.get(same).map(|(.., ask)| ask),
                ours.get(same).copied(),
            ));
        }
        assert!(theirs.iter().all(|(_, len, _)| *len == job.block_bytes));
        total += same;
    }
    assert!(wrong.is_empty(), "file, same, requests of fio and ours, the first that differ: {wrong:#?}");
    assert_eq!(total, theirs.len(), "no job is missing");
}

#[test]
fn a_time_based_job_begins_again_as_fio_does() {
    for (name, options) in [
        ("map", "rw=randread\nsize=256k"),
        ("mixed", "rw=randrw\nsize=256k\nrwmixread=40"),
        ("straight", "rw=read\nsize=256k\noffset=1m"),
        ("free", "rw=randwrite\nsize=256k\nnorandommap"),
    ] {
        let text = format!("[{name}]\nioengine=null\nbs=4k\ntime_based\nruntime=1\n{options}\n");
        let jobs = parse(&text).expect("it is known");
        // With a pause after each request, or fio's log would have millions.
        let theirs = asked_by_fio(&format!("{text}thinktime=200\n"), name);
        assert!(theirs.len() > 3 * 64, "{name}: the file has 64 blocks: {}", theirs.len());
        let ours: Vec<Ask> = Sequence::new(&jobs[0]).expect("it can be run").take(theirs.len()).collect();
        let theirs: Vec<Ask> = theirs.into_iter().map(|(.., ask)| ask).collect();
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn the_order_is_pinned_where_there_is_no_fio() {
    let job = Job { is_random: true, size_bytes: 1 << 20, ..Job::new("a") };
    let first: Vec<u64> =
        Sequence::new(&job).expect("it can be run").take(5).map(|ask| ask.offset_bytes).collect();
    assert_eq!(first, [61_440, 774_144, 880_640, 491_520, 417_792]);
}

#[test]
fn jobs_run_beside_and_after_each_other() -> Result<(), Trouble> {
    let jobs = parse(
        "[global]\nioengine=libaio\niodepth=4\nsize=8m\n[a]\nrw=randread\n[b]\nrw=write\nfilename=a.0.0\n\
         [c]\nstonewall\nrw=randrw\ntime_based\nruntime=2\n",
    )
    .expect("they are known");
    let mut load = FioLoad::new(&jobs, VolumeIndex(0)).expect("they can be run");
    assert_eq!(load.volume_bytes(), 16 << 20, "two files");
    let origin =
        Disk::constant(load.volume_bytes(), Latencies { read_ns: 500_000, write_ns: 500_000, flush_ns: 1 });
    let cache = Disk::constant(32 << 20, Latencies { read_ns: 80_000, write_ns: 40_000, flush_ns: 200_000 });
    let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
    let mut run = LongRun::new(Setup { cache, volumes, contents: Contents::Tags }, |_| ())?;
    let began = run.now();
    run.run(&mut load, Until::End)?;
    let elapsed_ns = run.now().since(began);
    let statistics = run.statistics();
    assert!(statistics.reads.count > 2048 + 1000 && statistics.writes.count > 2048 + 1000);
    assert_eq!(statistics.reads.errors + statistics.writes.errors, 0);
    // What is read and written takes a while, and then the last job its two seconds.
    let least_ns = 2 * Nanos::SECOND + 10 * Nanos::MILLISECOND;
    assert!((least_ns..3 * Nanos::SECOND).contains(&elapsed_ns), "{elapsed_ns}");
    Ok(())
}
