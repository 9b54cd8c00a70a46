//! How fast writes go to an SSD that clients read from, too.

use engine::effect::WriteMode;
use engine::units::{BLOCK_BYTES, Nanos, VolumeIndex};
use forebay_lab::long::{
    Answer, Contents, Disk, Load, LoadOptions, LongRun, Next, Setup, Trouble, Until, VolumeSetup, Workload,
};
use forebay_lab::workload::fio::{FioLoad, parse};

const GIB: u64 = 1 << 30;
/// The writers' jobs have numbers from here on.
const WRITERS: u32 = 100;

/// Readers and writers who do not wait for each other.
struct Beside {
    readers: Load,
    writers: Load,
}

impl Workload for Beside {
    fn next(&mut self, now: Nanos) -> Next {
        let reads = self.readers.next(now);
        if let Next::Demand(_) = reads {
            return reads;
        }
        match (reads, self.writers.next(now)) {
            (_, Next::Demand(mut demand)) => {
                demand.job += WRITERS;
                Next::Demand(demand)
            }
            (Next::At(one), Next::At(other)) => Next::At(one.min(other)),
            (Next::At(at), _) | (_, Next::At(at)) => Next::At(at),
            _ => Next::OnAnswer,
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let mut answer = *answer;
        if answer.demand.job < WRITERS {
            return self.readers.answered(&answer);
        }
        answer.demand.job -= WRITERS;
        self.writers.answered(&answer);
    }
}

/// Goal: a write waits for no pace where reads wait for the origin's disk, and the SSD has little to do. Method: fio's clients, each
/// with one request at a time, of which one in five is a write, before a hard disk; and the time of the slowest writes.
#[test]
fn writes_beside_readers_of_a_disk_are_not_held_back() -> Result<(), Trouble> {
    let job = "[job]\nfilename=volume\nfilesize=8g\nioengine=libaio\nruntime=60\ntime_based\nnorandommap\n\
        rw=randrw\nrwmixread=80\nbs=4k\nnumjobs=16\nrandom_distribution=zipf:1.1\n";
    let mut load =
        FioLoad::new(&parse(job).expect("a job file"), VolumeIndex(0)).expect("a job that can be run");
    let model = |name| models::find(name).expect("a disk that is built in");
    let origin = Disk::modelled(&model("hdd"), load.volume_bytes(), 2);
    let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
    let cache = Disk::modelled(&model("ssd"), GIB, 1);
    let mut run = LongRun::new(Setup { cache, volumes, contents: Contents::Nothing }, |_| ())?;
    run.idle(Nanos::SECOND)?;
    run.begin_measuring();
    run.run(&mut load, Until::End)?;
    let writes = &run.statistics().writes;
    assert!(writes.count > 1000, "{} writes", writes.count);
    let p99_us = writes.latency_ns.value_at_quantile(0.99) / 1000;
    assert!(p99_us < 2000, "one write in a hundred takes {p99_us} us or more");
    Ok(())
}

/// Goal: who reads is not held up by who writes more than the SSD takes, and who writes goes on. Method: two readers and two writers
/// on an SSD whose reads wait behind its programs, with seconds to learn in.
#[test]
fn readers_are_served_beside_writers() -> Result<(), Trouble> {
    let model = |name| models::find(name).expect("a disk that is built in");
    let origin = Disk::modelled(&model("hdd"), 16 * GIB, 2);
    let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
    let cache = Disk::modelled(&model("iozone-2014-ssd"), 32 * GIB, 1);
    let mut run = LongRun::new(Setup { cache, volumes, contents: Contents::Nothing }, |_| ())?;
    let blocks = GIB / BLOCK_BYTES;
    let warm = LoadOptions { read_permille: 0, ..LoadOptions::once(2 * blocks) };
    run.run(&mut Load::new(warm), Until::End)?;
    run.idle(2 * Nanos::SECOND)?;
    let load = LoadOptions {
        volume: VolumeIndex(0),
        request_bytes: 32 << 10,
        depth: 2,
        ..LoadOptions::reads(blocks)
    };
    let mut both = Beside {
        readers: Load::new(load),
        writers: Load::new(LoadOptions { first_block: blocks, read_permille: 0, ..load }),
    };
    run.run(&mut both, Until::Time(run.now().plus(10 * Nanos::SECOND)))?;
    run.begin_measuring();
    run.run(&mut both, Until::Time(run.now().plus(20 * Nanos::SECOND)))?;
    let statistics = run.statistics();
    let (reads, writes) = (statistics.reads.count, statistics.writes.count);
    assert!(reads * 2 > writes, "{reads} reads beside {writes} writes");
    assert!(writes * 2 > reads, "{writes} writes beside {reads} reads");
    Ok(())
}
