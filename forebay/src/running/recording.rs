//! Recording: what clients ask for, passed on to the verb that writes it down.
//!
//! The reactors fill a list with a bound; the thread of the verb's connection changes it for an empty one, many times a
//! second. A verb that is too slow loses requests, which are counted. Nobody waits for it.

use crate::control::{Answer, RecordedLine, RecordedPart, Recording};
use anyhow::{Result, bail};
use engine::units::SECTOR_BYTES;
use live::clock;
use live::reactor::Core;
use live::server::{Handle, RecordedRequest, RequestKind};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests that the reactors may leave until the list is changed: enough for a million a second.
const REQUESTS_MAX: usize = 65_536;
/// Time until the list is changed.
const PERIOD: Duration = Duration::from_millis(50);
/// Periods for which an earlier recording is waited for, whose verb has just gone.
const END_PERIODS: u32 = 5;

/// Ends a recording when dropped.
struct Guard<'a, C: Core + 'static>(&'a Handle<C>);

impl<C: Core + 'static> Drop for Guard<'_, C> {
    fn drop(&mut self) {
        // A server that has stopped records nothing any more. The memory is given back in this thread.
        let _ = self.0.with_traffic(live::server::Traffic::end_recording);
    }
}

/// Records until `say` has nobody to talk to. `volumes` are the names by slot.
///
/// # Errors
/// If somebody else records, or the daemon is stopping.
pub fn record<C: Core + 'static>(
    handle: &Handle<C>,
    volumes: Vec<Option<String>>,
    say: &mut dyn FnMut(Answer) -> ControlFlow<()>,
) -> Result<()> {
    let empty = || Vec::with_capacity(REQUESTS_MAX);
    let mut tries = 0;
    while !begin(handle, empty())? {
        tries += 1;
        if tries > END_PERIODS {
            bail!("somebody records this cache already; one recording at a time");
        }
        thread::sleep(PERIOD);
    }
    let _guard = Guard(handle);
    let began_ns = clock::now().0;
    let unix_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let unix_us = u64::try_from(unix_us).unwrap_or(u64::MAX);
    if say(Answer::Recording(Recording { volumes, unix_us })).is_break() {
        return Ok(());
    }
    let mut spare = empty();
    loop {
        thread::sleep(PERIOD);
        let taken = handle.with_traffic(move |traffic| traffic.take_recording(spare))?;
        // A part may be empty: so it is noticed when the verb has gone.
        let requests = taken.requests.iter().map(|request| line(request, began_ns)).collect();
        if say(Answer::Recorded(RecordedPart { requests, dropped: taken.dropped })).is_break() {
            return Ok(());
        }
        spare = taken.requests;
        spare.clear();
    }
}

fn begin<C: Core + 'static>(handle: &Handle<C>, empty: Vec<RecordedRequest>) -> Result<bool> {
    Ok(handle.with_traffic(move |traffic| traffic.begin_recording(empty))?)
}

fn line(request: &RecordedRequest, began_ns: u64) -> RecordedLine {
    let kind = match request.kind {
        RequestKind::Read => 'R',
        RequestKind::Write => 'W',
        RequestKind::Flush => 'F',
        RequestKind::Trim => 'D',
        RequestKind::WriteZeroes => 'Z',
    };
    let at_us = request.at.0.saturating_sub(began_ns) / 1000;
    let range = request.range;
    RecordedLine(at_us, request.volume.0, kind, range.start * SECTOR_BYTES, range.sectors * SECTOR_BYTES)
}
