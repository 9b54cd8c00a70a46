//! Tests of the order of record writes, and of who waits for which.

use super::*;
use std::vec;

/// Issues all pages that are ready.
fn issue(core: &mut SyncSector<u32>) -> Vec<u32> {
    core::iter::from_fn(|| core.next_page()).collect()
}

fn done(core: &mut SyncSector<u32>) -> Vec<u32> {
    core::iter::from_fn(|| core.next_done()).collect()
}

fn unrecorded(core: &mut SyncSector<u32>) -> Vec<u32> {
    core::iter::from_fn(|| core.next_unrecorded()).collect()
}

#[test]
fn a_write_of_128_kib_costs_one_or_two_pages() {
    // flashcache: 32 blocks of a set, each with its own request. The first to be done issues the page; the
    // others share the next one.
    let mut core = SyncSector::new(512, false, |_| false);
    assert_eq!(core.dirtied(0, 1, 0), None);
    assert_eq!(issue(&mut core), [0]);
    for slot in 1..32 {
        assert_eq!(core.dirtied(slot, u64::from(slot) + 1, slot), None);
    }
    assert_eq!(issue(&mut core), [], "one write in flight");
    core.page_written(0, 33);
    assert_eq!(done(&mut core), [0]);
    assert_eq!(issue(&mut core), [0]);
    core.page_written(0, 34);
    assert_eq!(done(&mut core), (1..32).collect::<Vec<_>>());
    assert_eq!(issue(&mut core), []);
    assert!(core.is_quiet());
}

#[test]
fn safe_shares_one_flush_and_one_page() {
    let mut core = SyncSector::new(512, true, |_| false);
    for slot in 0..32 {
        assert_eq!(core.dirtied(slot, u64::from(slot) + 1, slot), None);
    }
    assert_eq!(issue(&mut core), [], "no record before its data is flushed");
    assert_eq!(core.flush_wanted(), Some(32));
    core.flushed(20);
    assert_eq!(issue(&mut core), [0]);
    assert!(core.says_dirty(19) && !core.says_dirty(20), "those that the flush covers, and no others");
    core.flushed(32);
    core.page_written(0, 33);
    assert_eq!(done(&mut core), (0..20).collect::<Vec<_>>());
    assert_eq!(issue(&mut core), [0]);
    core.page_written(0, 34);
    assert_eq!(done(&mut core), (20..32).collect::<Vec<_>>());
}

#[test]
fn writes_of_others_do_not_hold_up_a_record() {
    // Every flush covers one write, and before it is complete there is the next one: for ever.
    let mut core = SyncSector::new(256, true, |_| false);
    let mut answered = Vec::new();
    for slot in 0..100 {
        assert_eq!(core.dirtied(slot, u64::from(slot) + 1, slot), None);
        core.flushed(u64::from(slot));
        for page in issue(&mut core) {
            core.page_written(page, u64::from(slot) + 1);
        }
        answered.extend(done(&mut core));
    }
    assert_eq!(answered, (0..99).collect::<Vec<_>>());
}

#[test]
fn what_is_dirty_on_record_costs_no_page() {
    for is_safe in [false, true] {
        let mut core = SyncSector::new(300, is_safe, |slot| slot == 5);
        assert_eq!(core.dirtied(5, 1, 50), Some(50));
        // Not even while its page is written for another slot.
        assert_eq!(core.dirtied(6, 2, 60), None);
        core.flushed(2);
        assert_eq!(issue(&mut core), [0]);
        assert_eq!(core.dirtied(5, 3, 51), Some(51));
        // A second write to the new one waits for the same page.
        assert_eq!(core.dirtied(6, 4, 61), None);
        core.page_written(0, 5);
        assert_eq!(done(&mut core), [60, 61]);
        assert_eq!(issue(&mut core), []);
        assert!(core.is_quiet());
    }
}

#[test]
fn a_slot_is_unrecorded_when_its_page_is_flushed_or_if_unsafe_written() {
    for is_safe in [false, true] {
        let mut core: SyncSector<u32> = SyncSector::new(300, is_safe, |slot| slot >= 299);
        core.cleaned(299);
        assert_eq!(issue(&mut core), [], "nobody wants the page yet");
        core.want(1);
        assert_eq!(issue(&mut core), [1]);
        assert_eq!(unrecorded(&mut core), []);
        core.page_written(1, 7);
        assert_eq!(unrecorded(&mut core), if is_safe { vec![] } else { vec![299] });
        core.flushed(6);
        assert_eq!(core.settling(), is_safe.then_some(7));
        assert_eq!(unrecorded(&mut core), [], "a flush that was issued before");
        core.flushed(7);
        assert_eq!(unrecorded(&mut core), if is_safe { vec![299] } else { vec![] });
        assert!(core.is_quiet());
    }
}

#[test]
fn a_slot_that_is_dirty_again_stays_recorded() {
    let mut core = SyncSector::new(256, true, |slot| slot == 3);
    core.cleaned(3);
    core.want(0);
    assert_eq!(issue(&mut core), [0]);
    assert_eq!(core.dirtied(3, 1, 30), None, "the page in flight says nothing of it");
    assert!(!core.is_written(3));
    core.page_written(0, 2);
    core.flushed(1);
    assert_eq!(issue(&mut core), [0]);
    core.flushed(2);
    assert_eq!(
        unrecorded(&mut core),
        [],
        "the page that is durable says nothing, but the next one may be, too"
    );
    core.page_written(0, 3);
    assert_eq!(done(&mut core), [30]);
    core.flushed(3);
    assert_eq!(unrecorded(&mut core), []);
    assert!(core.is_quiet() && core.is_written(3));
}

#[test]
fn a_slot_whose_next_record_waits_for_a_flush_stays_recorded() {
    let mut core = SyncSector::new(256, true, |slot| slot == 3);
    core.cleaned(3);
    core.want(0);
    assert_eq!(issue(&mut core), [0]);
    core.page_written(0, 1);
    assert_eq!(core.dirtied(3, 2, 30), None);
    core.flushed(1);
    assert_eq!(unrecorded(&mut core), [], "it is about to be recorded");
    core.flushed(2);
    assert_eq!(issue(&mut core), [0]);
}

#[test]
fn pages_are_written_beside_each_other_and_the_last_one_may_be_short() {
    let mut core = SyncSector::new(257, false, |_| false);
    assert_eq!(core.dirtied(256, 1, 1), None);
    assert_eq!(core.dirtied(0, 2, 0), None);
    assert_eq!(issue(&mut core), [1, 0]);
    core.page_written(0, 3);
    core.page_written(1, 4);
    assert_eq!(done(&mut core), [0, 1]);
}

#[test]
#[should_panic(expected = "a destaged slot is recorded")]
fn what_is_not_recorded_does_not_go_home() {
    let mut core = SyncSector::new(256, true, |_| false);
    assert_eq!(core.dirtied(3, 1, 30), None);
    core.cleaned(3);
}
