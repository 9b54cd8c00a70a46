//! A client of a modelled disk: keeps a number of operations under way and takes the times.

use forebay_models::{Completion, Disk, Op, Parameters, Submit, Value};
use std::collections::HashMap;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// A seeded generator; the numbers are the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut mixed = self.0 ^ (self.0 >> 33);
        mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ (mixed >> 33)) % end
    }
}

/// What a load took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub operations: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub latency_ns_mean: u64,
    pub latency_ns_max: u64,
}

impl Report {
    pub fn iops(&self) -> u64 {
        self.operations * 1_000_000_000 / self.elapsed_ns
    }

    pub fn mb_per_s(&self) -> u64 {
        self.bytes * 1000 / self.elapsed_ns
    }
}

/// A disk and its time.
pub struct Client {
    pub disk: Disk,
    pub now_ns: u64,
    tokens: u64,
}

impl Client {
    pub fn new(parameters: &Parameters, size_bytes: u64) -> Client {
        Client { disk: Disk::new(parameters, size_bytes, 3), now_ns: 0, tokens: 0 }
    }

    pub fn named(name: &str, size_bytes: u64) -> Client {
        Client::new(&forebay_models::find(name).unwrap(), size_bytes)
    }

    pub fn submit(&mut self, submit: Submit) -> u64 {
        self.tokens += 1;
        self.disk.submit(self.now_ns, self.tokens, submit);
        self.tokens
    }

    /// Waits for the next completion. Holds the disk to the contract of `next_ns`: nothing is due before
    /// it, and when it comes something is done or it has moved on.
    pub fn wait(&mut self) -> Completion {
        loop {
            let next_ns = self.disk.next_ns().expect("something is under way");
            if next_ns > self.now_ns + 1 {
                assert_eq!(self.disk.poll(next_ns - 1), None);
                assert_eq!(self.disk.next_ns(), Some(next_ns));
            }
            self.now_ns = self.now_ns.max(next_ns);
            if let Some(completion) = self.disk.poll(self.now_ns) {
                assert_eq!(completion.done_ns, next_ns);
                return completion;
            }
            assert!(self.disk.next_ns().is_none_or(|moved| moved > next_ns));
        }
    }

    /// One operation alone; how long it took.
    pub fn time_ns(&mut self, submit: Submit) -> u64 {
        let began_ns = self.now_ns;
        let token = self.submit(submit);
        let completion = self.wait();
        assert_eq!(completion.token, token);
        completion.done_ns - began_ns
    }

    /// `operations` from `next`, `depth` of them at a time.
    pub fn run(&mut self, depth: usize, operations: u64, mut next: impl FnMut() -> Submit) -> Report {
        let began_ns = self.now_ns;
        let mut began = HashMap::new();
        let mut report =
            Report { operations, bytes: 0, elapsed_ns: 0, latency_ns_mean: 0, latency_ns_max: 0 };
        let (mut submitted, mut done) = (0, 0);
        while done < operations {
            while began.len() < depth && submitted < operations {
                let submit = next();
                report.bytes += submit.len_bytes;
                let token = self.submit(submit);
                began.insert(token, self.now_ns);
                submitted += 1;
            }
            let completion = self.wait();
            let latency_ns = completion.done_ns - began.remove(&completion.token).expect("done once");
            report.latency_ns_mean += latency_ns;
            report.latency_ns_max = report.latency_ns_max.max(latency_ns);
            done += 1;
        }
        report.latency_ns_mean /= operations;
        report.elapsed_ns = self.now_ns - began_ns;
        report
    }

    pub fn sleep(&mut self, nanos: u64) {
        self.now_ns += nanos;
        assert_eq!(self.disk.poll(self.now_ns), None);
    }
}

/// Operations one after the other from `offset_bytes` on.
pub fn sequential(op: Op, offset_bytes: u64, len_bytes: u64) -> impl FnMut() -> Submit {
    let mut next_bytes = offset_bytes;
    move || {
        let submit = Submit { op, offset_bytes: next_bytes, len_bytes };
        next_bytes += len_bytes;
        submit
    }
}

/// Operations all over the first `size_bytes`.
pub fn random(op: Op, size_bytes: u64, len_bytes: u64, seed: u64) -> impl FnMut() -> Submit {
    let mut random = Random(seed);
    move || Submit { op, offset_bytes: random.below(size_bytes / len_bytes) * len_bytes, len_bytes }
}

pub const FLUSH: Submit = Submit { op: Op::Flush, offset_bytes: 0, len_bytes: 0 };

pub fn with(name: &str, changes: &[(&str, Value)]) -> Parameters {
    let mut parameters = forebay_models::find(name).unwrap();
    for (key, value) in changes {
        parameters.set(key, value.clone()).unwrap();
    }
    parameters
}
