//! The file of a recording: lines of the MSR Cambridge traces, compressed with zstd in frames that are whole.
//!
//! What is in the file is a trace at any time: when a frame cannot be written, because the disk is full, the file is cut
//! behind the last whole one. Remarks (`#`) tell where it comes from, and how many requests are missing.

use crate::control::{RecordedLine, Recording};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

/// Text that goes into one frame; less if the file may not become large.
const FRAME_TEXT_BYTES: u64 = 1 << 20;
const FRAME_TEXT_BYTES_MIN: u64 = 4096;
/// Time after which a shorter one is written.
const FRAME_PERIOD: Duration = Duration::from_secs(10);
/// Room that is left for the end below the limit.
const END_BYTES: u64 = 256;
/// The level of zstd: fast.
const LEVEL: i32 = 1;
/// From 1601, where the times of MSR traces count from, to 1970, in their unit of 100 ns.
const EPOCH_100NS: u64 = 116_444_736_000_000_000;

/// Whether there is room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is.
    All,
    /// The file has as many bytes as it may.
    Limit,
}

/// A file that becomes a trace.
pub(super) struct TraceFile {
    file: File,
    recording: Recording,
    limit_bytes: u64,
    frame_text_bytes: u64,
    /// Lines that wait for their frame, and requests among them.
    text: Vec<u8>,
    waiting: u64,
    since: Instant,
    /// Requests in the file, and its bytes, in whole frames.
    requests: u64,
    file_bytes: u64,
    dropped: u64,
}

impl TraceFile {
    /// Begins a trace: whatever was in the file is gone, and where the trace comes from is in it.
    pub(super) fn begin(
        file: File,
        limit_bytes: u64,
        cache: &str,
        recording: Recording,
    ) -> io::Result<TraceFile> {
        file.set_len(0)?;
        let text = format!(
            "# forebay record of {}: 100 ns since 1601, program, volume, operation, offset, bytes, 0\n",
            cache.escape_default()
        );
        let mut trace = TraceFile {
            file,
            recording,
            limit_bytes,
            frame_text_bytes: (limit_bytes / 8).clamp(FRAME_TEXT_BYTES_MIN, FRAME_TEXT_BYTES),
            text: text.into_bytes(),
            waiting: 0,
            since: Instant::now(),
            requests: 0,
            file_bytes: 0,
            dropped: 0,
        };
        trace.write()?;
        Ok(trace)
    }

    /// Takes requests, and knows that others are missing.
    pub(super) fn take(&mut self, requests: &[RecordedLine], dropped: u64) -> io::Result<Taken> {
        self.dropped += dropped;
        for RecordedLine(at_us, volume, kind, offset_bytes, len_bytes) in requests {
            // A volume that came later has no name here.
            let name = self.recording.volumes.get(usize::from(*volume)).cloned().flatten();
            let name = name.unwrap_or_else(|| format!("volume-{volume}"));
            let operation = match kind {
                'R' => "Read",
                'W' => "Write",
                'D' => "Discard",
                'Z' => "WriteZeroes",
                _ => "Flush",
            };
            let at_100ns = self.recording.unix_us.saturating_add(*at_us).saturating_mul(10);
            writeln!(
                self.text,
                "{},forebay,{name},{operation},{offset_bytes},{len_bytes},0",
                at_100ns.saturating_add(EPOCH_100NS)
            )?;
            self.waiting += 1;
            if self.text.len() as u64 >= self.frame_text_bytes && self.write()? == Taken::Limit {
                return Ok(Taken::Limit);
            }
        }
        if self.since.elapsed() >= FRAME_PERIOD { self.write() } else { Ok(Taken::All) }
    }

    /// Writes a frame, unless the file would get too large.
    fn write(&mut self) -> io::Result<Taken> {
        self.since = Instant::now();
        if self.text.is_empty() {
            return Ok(Taken::All);
        }
        let frame = zstd::bulk::compress(&self.text, LEVEL)?;
        let waiting = std::mem::take(&mut self.waiting);
        self.text.clear();
        if self.file_bytes + frame.len() as u64 + END_BYTES > self.limit_bytes {
            return Ok(Taken::Limit);
        }
        self.append(&frame)?;
        self.requests += waiting;
        Ok(Taken::All)
    }

    fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(frame) {
            // A file that cannot be cut either has a broken end, which its readers tell.
            let cut = self.file.set_len(self.file_bytes);
            let _ = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.file_bytes)));
            return Err(error);
        }
        self.file_bytes += frame.len() as u64;
        Ok(())
    }

    /// Writes the end: what waits, and how many requests are missing.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let written = self.write();
        let end =
            format!("# {} requests; {} more are missing: they came too fast\n", self.requests, self.dropped);
        let end = zstd::bulk::compress(end.as_bytes(), LEVEL)?;
        self.append(&end)?;
        written.map(drop)
    }

    /// Requests in the file, requests that are missing, and bytes of the file.
    pub(super) fn totals(&self) -> (u64, u64, u64) {
        (self.requests, self.dropped, self.file_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::trace::{Op, Reading, Survey, open};
    use std::path::PathBuf;

    fn recording() -> Recording {
        Recording { volumes: vec![None, Some("data".to_owned())], unix_us: 1_700_000_000_000_000 }
    }

    fn file(name: &str) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}.zst", std::process::id()));
        let file = File::create(&path).expect("a file for the test");
        (path, file)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let (path, file) = file("recorded");
        let mut trace = TraceFile::begin(file, 1 << 20, "/dev/x\ny", recording()).expect("room");
        let requests = [
            RecordedLine(5, 1, 'R', 4096, 8192),
            RecordedLine(6, 1, 'F', 0, 0),
            RecordedLine(1_000_005, 0, 'W', 0, 4096),
            RecordedLine(1_000_007, 1, 'D', 0, 1 << 40),
            RecordedLine(1_000_008, 1, 'Z', 0, 512),
        ];
        assert_eq!(trace.take(&requests, 3).expect("room"), Taken::All);
        trace.finish().expect("room");
        assert_eq!((trace.totals().0, trace.totals().1), (5, 3));
        let mut source = open(&path, Reading::default()).expect("it is a trace");
        let first = source.next_entry().expect("a line").expect("a request");
        assert_eq!((first.op, first.range.start, first.range.sectors), (Op::Read, 8, 16));
        let mut source = open(&path, Reading::default()).expect("it is a trace");
        let survey = Survey::of(source.as_mut(), &mut |_| ()).expect("all of it");
        assert_eq!((survey.reads, survey.writes, survey.discards, survey.late), (1, 2, 1, 0));
        assert_eq!((survey.volume_sectors.len(), survey.span_ns), (2, Some(1_000_003_000)));
        let plain = zstd::decode_all(File::open(&path).expect("the file")).expect("whole frames");
        let plain = String::from_utf8(plain).expect("text");
        assert!(plain.ends_with("# 5 requests; 3 more are missing: they came too fast\n"), "{plain}");
        assert_eq!(plain.lines().filter(|line| line.starts_with('#')).count(), 2, "{plain}");
        std::fs::remove_file(path).expect("it is ours");
    }

    #[test]
    fn a_limit_is_kept_and_the_file_is_whole() {
        let (path, file) = file("limited");
        let limit_bytes = 100_000;
        let mut trace = TraceFile::begin(file, limit_bytes, "x", recording()).expect("room");
        let mut state = 7_u64;
        let mut taken = Taken::All;
        for at_us in 0..1_000_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let line = RecordedLine(at_us, 1, 'R', state >> 30 << 9, 4096);
            taken = trace.take(&[line], 0).expect("room on the disk");
            if taken == Taken::Limit {
                break;
            }
        }
        trace.finish().expect("room for the end");
        let (requests, _, file_bytes) = trace.totals();
        assert_eq!((taken, file_bytes), (Taken::Limit, path.metadata().expect("the file").len()));
        assert!(file_bytes <= limit_bytes, "{file_bytes}");
        let mut source = open(&path, Reading::default()).expect("it is a trace");
        let survey = Survey::of(source.as_mut(), &mut |_| ()).expect("all of it");
        assert_eq!(survey.reads, requests);
        assert!(requests > 1000 && file_bytes > limit_bytes / 2, "{requests} in {file_bytes}");
        std::fs::remove_file(path).expect("it is ours");
    }
}
