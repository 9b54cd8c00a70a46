//! The order of a transaction's steps, and who shares which one.

use super::*;
use std::vec;

const T0: Nanos = Nanos(0);
const PERIOD_NS: u64 = 1000;

/// A cache that was in use, with its first transaction of this life behind it: transaction 5 counts.
fn at_rest(pages: u32) -> Commit<u32> {
    let opened = Opened::find(4, None, (0..pages).map(|_| [Some(4), Some(3)])).unwrap();
    let mut commit = Commit::new(opened, PERIOD_NS);
    run(&mut commit);
    assert_eq!((commit.durable(), commit.holds_all()), (5, 0));
    commit
}

/// Runs a transaction that wants to begin, to its end. Answers its pages.
fn run(commit: &mut Commit<u32>) -> Vec<PageWrite> {
    if !commit.wants_to_begin(Nanos(u64::MAX)) {
        assert_eq!(commit.next_step(), Some(Step::Flush));
        commit.flushed();
    }
    let begun = commit.begin();
    finish(commit, begun.pages.len());
    begun.pages
}

fn finish(commit: &mut Commit<u32>, pages: usize) {
    for _ in 0..pages {
        assert_eq!(commit.next_step(), None, "no flush before the last page");
        commit.page_written();
    }
    assert_eq!(commit.next_step(), Some(Step::Flush));
    assert_eq!(commit.next_step(), None);
    commit.flushed();
    let transaction = commit.durable() + 1;
    assert_eq!(commit.next_step(), Some(Step::Record { transaction, is_clean_stop: false }));
    assert_eq!(commit.next_step(), None);
    commit.record_written();
    assert_eq!(commit.next_step(), Some(Step::Flush));
    assert_eq!((commit.next_step(), commit.durable()), (None, transaction - 1));
    commit.flushed();
    assert_eq!((commit.next_step(), commit.durable()), (None, transaction));
}

fn done(commit: &mut Commit<u32>) -> Vec<u32> {
    core::iter::from_fn(|| commit.next_done()).collect()
}

#[test]
fn a_start_flushes_and_commits_before_anything_else() {
    let mut commit: Commit<u32> =
        Commit::new(Opened::find(4, None, [[Some(4), Some(3)]]).unwrap(), PERIOD_NS);
    assert!(!commit.wants_to_begin(T0));
    assert_eq!(commit.next_step(), Some(Step::Flush));
    assert_eq!(commit.next_step(), None);
    commit.flushed();
    assert!(commit.wants_to_begin(T0));
    assert_eq!(commit.begin(), Begun { transaction: 5, pages: vec![] });
    finish(&mut commit, 0);
    assert!(!commit.wants_to_begin(Nanos(u64::MAX)));
}

#[test]
fn a_page_goes_to_the_place_that_does_not_count() {
    let mut commit = at_rest(3);
    commit.changed(2, T0);
    commit.changed(2, T0);
    assert_eq!(run(&mut commit), [PageWrite { page: 2, place: 1 }]);
    commit.changed(2, T0);
    commit.changed(0, T0);
    assert_eq!(run(&mut commit), [PageWrite { page: 0, place: 1 }, PageWrite { page: 2, place: 0 }]);
}

#[test]
fn who_comes_meanwhile_shares_the_next_one() {
    let mut commit = at_rest(4);
    commit.changed(0, T0);
    assert_eq!(commit.wait(commit.holds_all(), 60), None);
    assert!(commit.wants_to_begin(T0));
    let begun = commit.begin();
    assert_eq!((commit.running(), commit.next()), (Some(6), 7));
    assert_eq!(commit.wait(commit.holds_all(), 61), None, "nothing changed since: the one that runs will do");
    commit.changed(0, T0);
    commit.changed(1, T0);
    assert_eq!(commit.wait(commit.holds_all(), 70), None);
    assert_eq!(commit.wait(6, 62), None);
    assert_eq!(commit.wait(5, 50), Some(50));
    assert!(!commit.wants_to_begin(T0), "one at a time");
    finish(&mut commit, begun.pages.len());
    assert_eq!(done(&mut commit), [60, 61, 62]);
    assert!(commit.wants_to_begin(T0));
    assert_eq!(run(&mut commit), [PageWrite { page: 0, place: 0 }, PageWrite { page: 1, place: 1 }]);
    assert_eq!(done(&mut commit), [70]);
}

#[test]
fn a_change_alone_is_committed_after_a_period() {
    let mut commit = at_rest(1);
    assert_eq!(commit.deadline(), None);
    commit.changed(0, Nanos(500));
    commit.changed(0, Nanos(900));
    assert_eq!(commit.deadline(), Some(Nanos(1500)));
    assert!(!commit.wants_to_begin(Nanos(1499)) && commit.wants_to_begin(Nanos(1500)));
    run(&mut commit);
    assert_eq!(commit.deadline(), None);
}

#[test]
fn a_clean_stop_writes_all_pages_and_says_so_once() {
    let mut commit = at_rest(3);
    commit.changed(1, T0);
    let begun = commit.begin();
    commit.stop();
    finish(&mut commit, begun.pages.len());
    assert!(commit.wants_to_begin(T0));
    assert_eq!(commit.begin().pages.len(), 3);
    for _ in 0..3 {
        commit.page_written();
    }
    assert_eq!(commit.next_step(), Some(Step::Flush));
    commit.flushed();
    assert_eq!(commit.next_step(), Some(Step::Record { transaction: 7, is_clean_stop: true }));
    commit.record_written();
    assert_eq!(commit.next_step(), Some(Step::Flush));
    commit.flushed();
    assert!(!commit.wants_to_begin(Nanos(u64::MAX)));
}

#[test]
fn what_counts_is_found_and_what_was_cut_off_is_written_anew() {
    let found = [
        [Some(4), Some(3)],
        [Some(2), Some(4)],
        // Cut off.
        [Some(2), Some(5)],
        // Torn, or never written.
        [None, Some(1)],
    ];
    let opened = Opened::find(4, None, found).unwrap();
    assert_eq!([0, 1, 2, 3].map(|page| opened.places.get(page)), [false, true, false, true]);
    assert_eq!(opened.changed, [2, 3]);
    let missing = Opened::find(4, None, [[Some(4), None], [Some(5), None]]);
    assert_eq!(missing.unwrap_err(), PagesError::Missing { page: 1 });
    // Nothing was written: every page is, whatever lies there.
    let new = Opened::find(0, None, [[Some(1), None], [None, None]]).unwrap();
    assert_eq!((new.durable, new.changed), (0, vec![0, 1]));
}

#[test]
fn a_version_before_the_one_that_counts_is_refused() {
    let mut commit = at_rest(3);
    let mut places = [[4, 3]; 3];
    for changed in [&[0, 2][..], &[2], &[0, 1, 2], &[]] {
        changed.iter().for_each(|&page| commit.changed(page, T0));
        commit.ask();
        let begun = commit.begin();
        let sum = commit.running_sum();
        begun
            .pages
            .iter()
            .for_each(|write| places[write.page as usize][write.place as usize] = begun.transaction);
        finish(&mut commit, begun.pages.len());
        assert_eq!(sum_of(&commit.versions), sum);
        let find = |places: [[Option<u64>; 2]; 3]| Opened::find(begun.transaction, Some(sum), places);
        let whole = places.map(|page| page.map(Some));
        assert_eq!(find(whole).map(|opened| opened.versions), Ok(commit.versions.clone()));
        for page in 0..3 {
            let counts = usize::from(places[page][1] > places[page][0]);
            let mut rotten = whole;
            rotten[page][counts] = None;
            assert_eq!(find(rotten).unwrap_err(), PagesError::Older, "page {page}");
            let mut torn = whole;
            torn[page][1 - counts] = None;
            assert!(find(torn).is_ok(), "page {page}");
        }
    }
}

#[test]
#[should_panic(expected = "one transaction runs at a time")]
fn a_transaction_does_not_begin_in_another() {
    let mut commit = at_rest(1);
    commit.begin();
    commit.begin();
}
