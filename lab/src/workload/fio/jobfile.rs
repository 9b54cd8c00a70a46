//! fio's job files: sections of `key=value`, of which `[global]` holds for those behind it.

use super::job::{Distribution, Job, JobError};

/// Options that do not change which block is asked for when, here: they are passed over.
const PASSED_OVER: [&str; 24] = [
    "allow_file_create",
    "buffered",
    "clat_percentiles",
    "create_only",
    "create_serialize",
    "description",
    "direct",
    "end_fsync",
    "eta",
    "fadvise_hint",
    "fallocate",
    "group_reporting",
    "gtod_reduce",
    "invalidate",
    "lat_percentiles",
    "minimal",
    "new_group",
    "output",
    "overwrite",
    "percentile_list",
    "refill_buffers",
    "scramble_buffers",
    "thread",
    "write_iolog",
];
/// Engines that have one request under way, whatever the depth; the first one is fio's default.
const SYNCHRONOUS: [&str; 6] = ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap"];

/// The reason why a job file means nothing, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct JobFileError {
    /// The line; of a job that is wrong as a whole, that of its section.
    pub line: usize,
    /// The error, in words.
    pub reason: JobFileReason,
}

/// Error in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobFileReason {
    /// No such option here.
    #[error("the option {0:?} is not known")]
    Unknown(String),
    /// A value that the option does not take.
    #[error("{key}: the value {value:?} is not known")]
    Value {
        /// The option.
        key: String,
        /// Its value.
        value: String,
    },
    /// An option outside of a section.
    #[error("an option stands before the first section")]
    NoSection,
    /// The jobs are too many.
    #[error("there are more than 4096 jobs")]
    TooMany,
    /// The job cannot be run.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// A section, as far as it was read.
#[derive(Clone)]
struct Section {
    job: Job,
    count: u32,
    filename: Option<String>,
    directory: Option<String>,
    is_synchronous: bool,
}

/// The jobs of a job file, each as often as `numjobs` says, in fio's order.
///
/// # Errors
/// [`JobFileError`]: the line and the reason.
pub fn parse(text: &str) -> Result<Vec<Job>, JobFileError> {
    let mut global =
        Section { job: Job::new(""), count: 1, filename: None, directory: None, is_synchronous: true };
    let mut jobs = Vec::new();
    let mut current: Option<(usize, Section)> = None;
    let mut is_global = false;
    for (line, content) in (1..).zip(text.lines()) {
        let at = |reason| JobFileError { line, reason };
        let content = content.trim();
        if content.is_empty() || content.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if let Some((line, section)) = current.take() {
                section.finish(&mut jobs).map_err(|reason| JobFileError { line, reason })?;
            }
            is_global = name == "global";
            if !is_global {
                let mut section = global.clone();
                section.job.name = name.to_owned();
                current = Some((line, section));
            }
            continue;
        }
        let (key, value) = content.split_once('=').unwrap_or((content, ""));
        let section = match &mut current {
            Some((_, section)) => section,
            None if is_global => &mut global,
            None => return Err(at(JobFileReason::NoSection)),
        };
        section.set(key.trim(), value.trim()).map_err(at)?;
    }
    if let Some((line, section)) = current {
        section.finish(&mut jobs).map_err(|reason| JobFileError { line, reason })?;
    }
    Ok(jobs)
}

impl Section {
    fn set(&mut self, key: &str, value: &str) -> Result<(), JobFileReason> {
        let wrong = || JobFileReason::Value { key: key.to_owned(), value: value.to_owned() };
        let bytes = || bytes(value).ok_or_else(wrong);
        let number = || value.parse::<u64>().map_err(|_| wrong());
        let flag = || match value {
            "" | "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(wrong()),
        };
        let job = &mut self.job;
        match key {
            "rw" | "readwrite" => {
                (job.is_random, job.reads, job.writes) = match value {
                    "read" => (false, true, false),
                    "write" => (false, false, true),
                    "rw" | "readwrite" => (false, true, true),
                    "randread" => (true, true, false),
                    "randwrite" => (true, false, true),
                    "randrw" => (true, true, true),
                    _ => return Err(wrong()),
                };
            }
            "bs" | "blocksize" => job.block_bytes = bytes()?,
            "size" => job.size_bytes = bytes()?,
            "filesize" => job.file_bytes = Some(bytes()?),
            "io_size" | "io_limit" => job.io_bytes = Some(bytes()?),
            "offset" => job.offset_bytes = bytes()?,
            "iodepth" => {
                job.depth = u32::try_from(number()?).ok().filter(|&depth| depth > 0).ok_or_else(wrong)?
            }
            "numjobs" => {
                self.count = u32::try_from(number()?).ok().filter(|&count| count > 0).ok_or_else(wrong)?
            }
            // A block device knows no difference between them.
            "fsync" | "fdatasync" => job.writes_per_flush = Some(number()?).filter(|&writes| writes > 0),
            "loops" => job.loops = number()?.max(1),
            "rwmixread" | "rwmixwrite" => {
                let percent =
                    u32::try_from(number()?).ok().filter(|&percent| percent <= 100).ok_or_else(wrong)?;
                job.read_percent = if key == "rwmixread" { percent } else { 100 - percent };
            }
            "runtime" | "timeout" => job.set_runtime_s(seconds(value).ok_or_else(wrong)?),
            "time_based" => job.is_time_based = flag()?,
            "norandommap" => job.may_repeat = flag()?,
            "randrepeat" => job.is_repeatable = flag()?,
            "randseed" => job.seed = Some(number()?),
            "random_distribution" => {
                job.distribution = match value.split_once(':') {
                    None if value == "random" => Distribution::Uniform,
                    None if value == "zipf" => Distribution::Zipf { theta: 1.1 },
                    Some(("zipf", theta)) => {
                        Distribution::Zipf { theta: theta.parse().map_err(|_| wrong())? }
                    }
                    _ => return Err(wrong()),
                };
            }
            "stonewall" | "wait_for_previous" => job.is_phase = flag()?,
            "filename" if !value.is_empty() && !value.contains(':') => self.filename = Some(value.to_owned()),
            "directory" => self.directory = Some(value.to_owned()),
            "ioengine" => self.is_synchronous = SYNCHRONOUS.contains(&value),
            "name" => job.name = value.to_owned(),
            // Only the default value.
            "nrfiles" if value == "1" => (),
            "random_generator" if value == "tausworthe" => (),
            "nrfiles" | "random_generator" | "filename" => return Err(wrong()),
            _ if PASSED_OVER.contains(&key) => (),
            _ => return Err(JobFileReason::Unknown(key.to_owned())),
        }
        Ok(())
    }

    fn finish(self, jobs: &mut Vec<Job>) -> Result<(), JobFileReason> {
        for copy in 0..self.count {
            // fio makes the copies of a job counting down, behind the first one.
            let number = if copy == 0 { 0 } else { self.count - copy };
            if jobs.len() >= 4096 {
                return Err(JobFileReason::TooMany);
            }
            let mut job = self.job.clone();
            job.thread = jobs.len() as u32 + 1;
            // Copies of a job run beside each other.
            job.is_phase = job.is_phase && copy == 0;
            let file = self.filename.clone().unwrap_or_else(|| format!("{}.{number}.0", job.name));
            job.file = match &self.directory {
                Some(directory) => format!("{directory}/{file}"),
                None => file,
            };
            if self.is_synchronous {
                job.depth = 1;
            }
            job.check()?;
            jobs.push(job);
        }
        Ok(())
    }
}

/// A size: fio takes 1024 for k, whatever follows it.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let scale = match suffix {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_options_hold_for_the_sections_behind_them() {
        let jobs = parse(
            "; a comment\n[global]\nfsync=4\nbs=8k\nsize=1m\nioengine=libaio\niodepth=8\n\n[one]\nrw=randrw\nrwmixread=70\n\
             numjobs=3\n[global]\nbs=4k\n[two]\nstonewall\nrw=write\nfilename=/dev/sdx\nruntime=2m\nioengine=sync\nfdatasync=0\n",
        )
        .expect("it is a job file");
        let told: Vec<_> =
            jobs.iter().map(|job| (job.thread, job.file.as_str(), job.block_bytes, job.depth)).collect();
        assert_eq!(
            told,
            [
                (1, "one.0.0", 8192, 8),
                (2, "one.2.0", 8192, 8),
                (3, "one.1.0", 8192, 8),
                (4, "/dev/sdx", 4096, 1)
            ]
        );
        assert_eq!((jobs[1].read_percent, jobs[1].is_phase, jobs[3].is_phase), (70, false, true));
        assert_eq!(jobs[3].runtime_ns, Some(120_000_000_000));
        assert_eq!((jobs[2].writes_per_flush, jobs[3].writes_per_flush), (Some(4), None));
    }

    #[test]
    fn what_is_not_known_is_an_error_with_its_line() {
        for (text, told) in [
            ("bs=4k\n", "line 1: an option stands before the first section"),
            ("[a]\nsize=1m\nbssplit=4k/50:8k/50\n", "line 3: the option \"bssplit\" is not known"),
            ("[a]\n\nsize=1x\n", "line 3: size: the value \"1x\" is not known"),
            ("[a]\nrw=randtrim\n", "line 2: rw: the value \"randtrim\" is not known"),
            ("[a]\nrw=read\n", "line 1: job a has no size"),
            ("[a]\nsize=1m\ntime_based\n", "line 1: job a is time-based and has no runtime"),
            (
                "[a]\nsize=1m\nrandrepeat=0\n",
                "line 1: job a has randrepeat=0 and no randseed: it would be another one each time",
            ),
            (
                "[a]\nrw=randread\nsize=1m\nloops=2\nrandseed=1\n",
                "line 1: job a has a randseed, a random map and several passes: fio's order in the later ones is not \
                 known",
            ),
            ("[a]\nsize=8000000t\n", "line 1: job a: its file would be larger than 128 TiB"),
            ("[a]\nsize=2k\n", "line 1: job a: not one block fits into its part of the file"),
            ("[a]\nsize=1m\nrandom_distribution=zipf:1\n", "line 1: job a: theta is positive, and not 1"),
            ("[a]\nsize=1m\nnumjobs=5000\n", "line 1: there are more than 4096 jobs"),
        ] {
            assert_eq!(parse(text).expect_err(told).to_string(), told);
        }
    }
}
