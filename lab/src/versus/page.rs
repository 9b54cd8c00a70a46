//! Tables, and the sentences around them.

use super::{Job, SPREAD, System, best_kernel, imitated, jobs, rate, system};
use std::fmt::Write as _;

/// Part by which repeats of a run differ; less is no difference.
const NOISE: f64 = 0.03;
const OURS: [&str; 2] = ["forebay-ublk", "forebay-nbd"];

/// Part by which an imitation may differ from what it imitates.
const ALIKE: f64 = 0.15;

/// The tables of requests a second: how ours compare, and how alike our profiles are to what they imitate.
#[must_use]
pub fn rates(systems: &[System]) -> String {
    let (imitations, compared) = without_imitations(systems);
    let mut text = beside_each_other(&compared);
    for table in likenesses(&imitations, &compared) {
        text.push('\n');
        text.push_str(&table);
    }
    text
}

/// Our profiles of caches of the kernel, and all others.
fn without_imitations(systems: &[System]) -> (Vec<System>, Vec<System>) {
    systems.iter().cloned().partition(|system| imitated(&system.system).is_some())
}

/// A table of each imitation whose original was measured, too.
fn likenesses(imitations: &[System], compared: &[System]) -> Vec<String> {
    let table = |ours: &System| Some(likeness(system(compared, imitated(&ours.system)?)?, ours));
    imitations.iter().filter_map(table).collect()
}

/// A table of an imitation beside what it imitates, and in how many jobs they are alike.
fn likeness(real: &System, ours: &System) -> String {
    let mut rows = vec![
        ["requests a second", &real.system, &ours.system, "ours : real", "real, us", "ours, us"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let (mut all, mut alike) = (0, 0);
    for job in &real.jobs {
        let Some(own) = ours.job(&job.job) else { continue };
        let ratio = own.per_second / job.per_second;
        let is_alike = (ratio - 1.0).abs() <= ALIKE;
        (all, alike) = (all + 1, alike + u32::from(is_alike));
        let word = if is_alike { "" } else { ", differs" };
        let latency = |job: &Job| format!("{:.0} / {:.0}", job.p50_us, job.p99_us);
        rows.push(vec![
            job.job.clone(),
            format!("{:.0}", job.per_second),
            format!("{:.0}", own.per_second),
            format!("{ratio:.2}{word}"),
            latency(job),
            latency(own),
        ]);
    }
    let alike = format!("{alike} of {all} within {:.0} %.", ALIKE * 100.0);
    format!("{}\n{alike}\n{}", table(&rows), spreads(&[real, ours]))
}

/// A sentence with the jobs whose rounds differ.
fn spreads(systems: &[&System]) -> String {
    let mut rounds = 0;
    let mut spread = |name: &str| {
        let of_one = |system: &&System| {
            let job = system.job(name)?;
            let (least, most) = job.spread()?;
            rounds = rounds.max(job.rounds.len());
            Some(format!("{} {least:.0} to {most:.0}", system.system))
        };
        let all: Vec<String> = systems.iter().filter_map(of_one).collect();
        (!all.is_empty()).then(|| format!("  - {name}: {}\n", all.join(", ")))
    };
    let spreads: String = systems[0].jobs.iter().filter_map(|job| spread(&job.job)).collect();
    if spreads.is_empty() {
        return spreads;
    }
    format!(
        "\n- The median of {rounds} rounds counts. They differ by more than {:.0} % in\n{spreads}",
        SPREAD * 100.0
    )
}

fn beside_each_other(systems: &[System]) -> String {
    let mut rows = vec![head(systems, "requests a second")];
    rows[0].extend(OURS.map(|name| format!("{name} : best kernel cache")));
    for job in jobs(systems) {
        let mut row = line(systems, job, |job| format!("{:.0}", job.per_second));
        row.extend(OURS.map(|name| verdict(systems, name, job)));
        rows.push(row);
    }
    table(&rows)
}

/// How one of ours compares in a job.
fn verdict(systems: &[System], name: &str, job: &str) -> String {
    let (Some(ours), Some(best)) = (rate(systems, name, job), best_kernel(systems, job)) else {
        return "–".to_owned();
    };
    let ratio = ours / best;
    let word = match ratio {
        _ if ratio < 1.0 - NOISE => ", loses",
        _ if ratio > 1.0 + NOISE => ", wins",
        _ => "",
    };
    format!("{ratio:.2}{word}")
}

/// The page: `command` made the figures.
#[must_use]
pub fn page(systems: &[System], command: &str) -> String {
    let latency = |job: &Job| format!("{:.0} / {:.0}", job.p50_us, job.p99_us);
    let thousands = |job: &Job| {
        let all = format!("{:.0}", job.instructions / 1000.0);
        let of_daemon = job.daemon_instructions / 1000.0;
        if of_daemon > 0.0 { format!("{all} ({of_daemon:.0})") } else { all }
    };
    let (imitations, compared) = without_imitations(systems);
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n![Each system as a part of what the SSD does alone](versus.svg)\n\n");
    page.push_str(&beside_each_other(&compared));
    page.push('\n');
    for name in OURS {
        page.push_str(&losses(&compared, name));
    }
    page.push_str(
        "\n## Latency\n\nMedian / 99th percentile in microseconds; of reads and writes the worse one.\n\n",
    );
    page.push_str(&cells(&compared, "latency, us", latency));
    page.push_str(
        "\n## Instructions\n\nThousands for a request: of the whole computer, fio among them, and in brackets of the \
         daemon\nand of the kernel in its name.\n\n",
    );
    page.push_str(&cells(&compared, "thousand instructions", thousands));
    let alike = likenesses(&imitations, &compared);
    if !alike.is_empty() {
        page.push_str(IMITATIONS);
        page.push_str(&alike.join("\n"));
    }
    page.push_str(&provenance(systems, command));
    page
}

/// A sentence with the jobs in which one of ours is slower than the best of the kernel.
fn losses(systems: &[System], name: &str) -> String {
    let compared: Vec<(&str, f64)> = jobs(systems)
        .into_iter()
        .filter_map(|job| Some((job, rate(systems, name, job)? / best_kernel(systems, job)?)))
        .collect();
    let lost: Vec<String> = compared
        .iter()
        .filter(|(_, ratio)| *ratio < 1.0 - NOISE)
        .map(|(job, ratio)| format!("  - {job}: {ratio:.2}\n"))
        .collect();
    match (compared.len(), lost.len()) {
        (0, _) => String::new(),
        (all, 0) => {
            format!("- {name} is at least level with the best cache of the kernel in all {all} rows.\n")
        }
        (all, few) => format!(
            "- {name} is slower than the best cache of the kernel in {few} of {all} rows:\n{}",
            lost.concat()
        ),
    }
}

fn provenance(systems: &[System], command: &str) -> String {
    let mut text = format!("\n## Where the figures come from\n\n    {command}\n\n");
    let mut rows = vec![["system", "day", "kernel", "program", "disks", "with"].map(str::to_owned).to_vec()];
    for system in systems {
        let disks = if system.disks.is_empty() { "as they come" } else { &system.disks };
        let program = system.forebay.as_deref().unwrap_or("the kernel's");
        rows.push(vec![
            system.system.clone(),
            system.day.clone(),
            system.kernel.clone(),
            program.to_owned(),
            disks.to_owned(),
            system.tools.clone(),
        ]);
    }
    text.push_str(&table(&rows));
    text
}

fn head(systems: &[System], first: &str) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(systems.iter().map(|system| system.system.clone())).collect()
}

fn line(systems: &[System], job: &str, cell: impl Fn(&Job) -> String) -> Vec<String> {
    let cells = systems.iter().map(|one| one.job(job).map_or_else(|| "–".to_owned(), &cell));
    std::iter::once(job.to_owned()).chain(cells).collect()
}

fn cells(systems: &[System], first: &str, cell: impl Fn(&Job) -> String + Copy) -> String {
    let mut rows = vec![head(systems, first)];
    rows.extend(jobs(systems).into_iter().map(|job| line(systems, job, cell)));
    table(&rows)
}

/// Markdown with columns of one width each, so that it can be read in a terminal, too.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (at, cell) in row.iter().enumerate() {
            let width = widths[at];
            let _ =
                if at == 0 { write!(text, "| {cell:<width$} ") } else { write!(text, "| {cell:>width$} ") };
        }
        text.push_str("|\n");
        if number == 0 {
            for (at, width) in widths.iter().enumerate() {
                let (dashes, colon) = ("-".repeat(*width), if at == 0 { "-" } else { ":" });
                let _ = write!(text, "| {dashes}{colon}");
            }
            text.push_str("|\n");
        }
    }
    text
}

const INTRODUCTION: &str = "# Beside the caches of the kernel

This page is made by `make versus`, and so is every figure of it. Debian's kernel runs in QEMU, and
each system does the same fio jobs, one after the other, over the same two modelled disks: a hard
disk with 7200 turns a minute (8 GiB) and an SATA SSD (1 GiB), which `versus/disks/disks.c`
describes.

- Time is counted in instructions, on one processor of 4 instructions a nanosecond. So the figures
  do not depend on the computer that runs the comparison, and anybody gets the same ones within
  some 3 %. Rows of dm-cache depend on what it chose to promote, and ours of the skewed load on
  which misses are left: of their rounds the median counts.
- The kernel's own timers, and ours, run four times as fast as they should beside the disks.
- All caches are in writeback mode. bcache has its cutoff for sequential requests and its limits
  for congestion switched off. dm-cache has policy smq with its defaults, and blocks of 256 KiB.
  dm-writecache caches no reads. Forebay is as it comes: cached blocks are read ahead of who reads
  in a row, so one request at a time gets more done than the SSD alone, which waits for each.
- `ssd` and `hdd` are the disks alone. `floor` is a volume of our daemon over the SSD in mode
  passthrough: what the way through the daemon costs without a cache.
- In each row Forebay is compared with the best of the three kernel caches, which is not the same
  one in all rows.
";

const IMITATIONS: &str = "
## Our profiles of two of them

The profiles `bcache` and `dm-cache` with `--unsafe`, set as the kernel's are and served by ublk,
beside the real ones. A difference of up to 15 % counts as none. Latencies as above.

- What the kernel does in its own context our daemon does behind ublk: at depth 1 and for large
  requests that alone is up to a tenth (`floor-ublk` above).
- A promotion costs a stream a turn of the disk if the stream's next request is there before the
  worker that copies. In the kernel that is so for half of them in the first pass; ours takes every
  other one for such. How many are promoted hangs on when the pass begins in a period of the policy.
- dm-cache takes dirty data home while nothing misses, and looks once a second whether that is so.
  So the last row hangs on a few misses, and `rand write 4K QD32` on the moment.

";
