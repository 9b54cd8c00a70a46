//! Small histories of one sector, right ones and wrong ones.
//!
//! Method: each test tells a history step by step, as a client sees it, and ends with what a read may show and what it
//! may not.

use crate::verifier::{Content, Crash, Effect, Histories, Wrong};

/// The history of one sector; time goes on with every step.
struct Sector {
    histories: Histories,
    now: u64,
}

impl Sector {
    fn new() -> Sector {
        Sector { histories: Histories::new(1), now: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Sends a write; its version.
    fn send(&mut self) -> u64 {
        let asked = self.tick();
        self.histories.begin(0..1, asked, Effect::Becomes(Content::Version(asked)), asked);
        asked
    }

    fn answer(&mut self, asked: u64, worked: bool, fua: bool) {
        let now = self.tick();
        self.histories.finish(0..1, asked, now, worked, fua);
    }

    /// A write that is acknowledged.
    fn write(&mut self) -> u64 {
        let asked = self.send();
        self.answer(asked, true, false);
        asked
    }

    /// A write that is acknowledged as durable.
    fn write_fua(&mut self) -> u64 {
        let asked = self.send();
        self.answer(asked, true, true);
        asked
    }

    /// A write that is answered with an error.
    fn fail(&mut self) -> u64 {
        let asked = self.send();
        self.answer(asked, false, false);
        asked
    }

    fn discard(&mut self) {
        let asked = self.tick();
        self.histories.begin(0..1, asked, Effect::Discarded, asked);
        self.answer(asked, true, false);
    }

    fn flush(&mut self) {
        let asked = self.tick();
        self.tick();
        self.histories.flush(asked);
    }

    fn crash(&mut self, crash: Crash) {
        let now = self.tick();
        self.histories.crash(crash, now);
    }

    fn kill(&mut self) {
        self.crash(Crash::Process);
    }

    fn cut(&mut self) {
        self.crash(Crash::Power);
    }

    /// A read that shows this version.
    fn shows(&mut self, version: u64) -> Result<(), Wrong> {
        let asked = self.tick();
        let now = self.tick();
        self.histories.observe(0, Content::Version(version), asked, now)
    }

    fn shows_zeroes(&mut self) -> Result<(), Wrong> {
        let asked = self.tick();
        let now = self.tick();
        self.histories.observe(0, Content::Zeroes, asked, now)
    }
}

#[test]
fn what_was_acknowledged_last_is_what_reads_show() {
    let mut sector = Sector::new();
    let (old, new) = (sector.write(), sector.write());
    assert_eq!(sector.shows(new), Ok(()));
    assert_eq!(sector.shows(old), Err(Wrong::Stale), "an older version is silently old data");
    assert_eq!(sector.shows_zeroes(), Err(Wrong::Stale));
    assert_eq!(sector.shows(99), Err(Wrong::Unsent));
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged() {
    let mut sector = Sector::new();
    let old = sector.write();
    sector.flush();
    let new = sector.write();
    sector.kill();
    assert_eq!(sector.shows(old), Err(Wrong::Lost), "acknowledged is enough for a kill");
    assert_eq!(sector.shows(new), Ok(()));
}

#[test]
fn a_cut_loses_what_no_flush_covers_and_nothing_else() {
    let mut sector = Sector::new();
    let first = sector.write();
    let flushed = sector.write();
    sector.flush();
    let volatile = sector.write();
    sector.cut();
    assert_eq!(sector.shows(first), Err(Wrong::Lost), "a flushed write hides those before it for good");
    assert_eq!(sector.shows_zeroes(), Err(Wrong::Lost));
    assert_eq!(sector.shows(flushed), Ok(()), "what no flush covers may be lost");
    assert_eq!(sector.shows(volatile), Err(Wrong::Returned), "what a read showed to be lost stays lost");
}

#[test]
fn a_cut_may_keep_what_no_flush_covers() {
    let mut sector = Sector::new();
    let flushed = sector.write_fua();
    let volatile = sector.write();
    sector.cut();
    assert_eq!(sector.shows(volatile), Ok(()));
    assert_eq!(sector.shows(flushed), Err(Wrong::Changed));
    sector.cut();
    assert_eq!(sector.shows(volatile), Ok(()), "what came through one cut comes through the next");
}

#[test]
fn what_was_under_way_may_be_there_or_not_and_then_stays() {
    for is_there in [false, true] {
        let mut sector = Sector::new();
        let old = sector.write();
        let new = sector.send();
        sector.kill();
        let (shown, other) = if is_there { (new, old) } else { (old, new) };
        assert_eq!(sector.shows(shown), Ok(()));
        assert!(sector.shows(other).is_err(), "a sector does not flip after a read has shown it");
        sector.kill();
        assert!(sector.shows(other).is_err(), "nor in the next life");
    }
}

#[test]
fn what_failed_may_be_there_or_not() {
    for is_there in [false, true] {
        let mut sector = Sector::new();
        let old = sector.write();
        let failed = sector.fail();
        let (shown, other) = if is_there { (failed, old) } else { (old, failed) };
        assert_eq!(sector.shows(shown), Ok(()));
        assert!(sector.shows(other).is_err(), "it does not flip as long as the daemon lives");
        assert_eq!(sector.shows(shown), Ok(()));
    }
}

#[test]
fn what_failed_and_was_not_there_may_come_with_a_crash() {
    for crash in [Crash::Process, Crash::Power] {
        let mut sector = Sector::new();
        let old = sector.write_fua();
        let failed = sector.fail();
        assert_eq!(sector.shows(old), Ok(()));
        sector.flush();
        sector.crash(crash);
        assert_eq!(sector.shows(failed), Ok(()), "its header may have landed, and recovery finds it");
        assert!(sector.shows(old).is_err(), "now it is settled");
    }
}

#[test]
fn what_failed_and_was_there_may_be_gone_after_a_crash() {
    for crash in [Crash::Process, Crash::Power] {
        for is_there in [false, true] {
            let mut sector = Sector::new();
            let older = sector.write_fua();
            let old = sector.write_fua();
            let failed = sector.fail();
            assert_eq!(sector.shows(failed), Ok(()), "its data is in the cache");
            assert!(sector.shows(old).is_err(), "it does not flip as long as the daemon lives");
            sector.crash(crash);
            assert_eq!(sector.shows(older), Err(Wrong::Lost), "only what it was to replace comes back");
            let (shown, other) = if is_there { (failed, old) } else { (old, failed) };
            assert_eq!(sector.shows(shown), Ok(()), "its record may have landed or not");
            assert!(sector.shows(other).is_err(), "now it is settled");
            sector.crash(crash);
            assert_eq!(sector.shows(shown), Ok(()));
            assert!(sector.shows(other).is_err(), "and in the next life");
        }
    }
}

#[test]
fn what_was_there_before_a_failed_write_does_not_come_back_over_an_acknowledged_one() {
    for is_flushed in [false, true] {
        let mut sector = Sector::new();
        let old = sector.write_fua();
        let failed = sector.fail();
        assert_eq!(sector.shows(failed), Ok(()));
        let new = if is_flushed { failed } else { sector.write() };
        if is_flushed {
            sector.flush();
        }
        sector.kill();
        assert_eq!(sector.shows(old), Err(Wrong::Lost), "a flush and an acknowledged write end the doubt");
        assert_eq!(sector.shows(new), Ok(()));
    }
}

#[test]
fn what_failed_does_not_come_back_over_an_acknowledged_write() {
    for crash in [Crash::Process, Crash::Power] {
        let mut sector = Sector::new();
        let old = sector.write_fua();
        let failed = sector.fail();
        assert_eq!(sector.shows(old), Ok(()));
        let new = sector.write_fua();
        assert_eq!(sector.shows(failed), Err(Wrong::Stale));
        sector.crash(crash);
        assert_eq!(sector.shows(failed), Err(Wrong::Lost));
        assert_eq!(sector.shows(new), Ok(()));
    }
}

#[test]
fn a_flush_covers_only_what_was_answered_before_it_was_sent() {
    let mut sector = Sector::new();
    let old = sector.write_fua();
    let new = sector.send();
    let asked = sector.tick();
    sector.answer(new, true, false);
    sector.histories.flush(asked);
    sector.cut();
    assert_eq!(sector.shows(old), Ok(()), "the flush was sent before the write was answered");
}

#[test]
fn a_discard_shows_zeroes_or_anything_older_and_nothing_that_was_lost() {
    let mut sector = Sector::new();
    let old = sector.write_fua();
    let volatile = sector.write();
    sector.cut();
    assert_eq!(sector.shows(old), Ok(()));
    sector.discard();
    assert_eq!(sector.shows_zeroes(), Ok(()));
    assert_eq!(sector.shows(old), Ok(()));
    assert_eq!(sector.shows(volatile), Err(Wrong::Returned), "not even a discard brings it back");
    sector.flush();
    assert_eq!(sector.shows_zeroes(), Ok(()));
    assert_eq!(sector.shows(old), Err(Wrong::Stale), "a flushed discard does not change any more");
}
