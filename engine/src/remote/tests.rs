use super::*;
use crate::remote::facts::Difference;
use crate::units::BLOCK_BYTES;
use std::vec;
use std::vec::Vec;

const PATIENCE_NS: u64 = 10 * Nanos::SECOND;

fn facts() -> Facts {
    Facts {
        size_bytes: 1 << 20,
        unused_bytes: 0,
        sector_bytes: 512,
        payload_bytes_max: 8192,
        name: None,
        is_read_only: false,
        can_flush: true,
        can_fua: true,
        can_trim: true,
        can_zero: true,
        has_several_connections: false,
    }
}

/// An origin in use; operations are known by a letter.
fn up(facts: Facts) -> Remote<char> {
    let mut remote = Remote::new(facts, Places::default(), PATIENCE_NS, Mutations::NONE);
    remote.go_up();
    remote
}

fn submit(remote: &mut Remote<char>, kind: Kind, name: char, block: u64, blocks: u64) -> Option<u64> {
    let operation = Operation { kind, offset_bytes: block * BLOCK_BYTES, len_bytes: blocks * BLOCK_BYTES };
    remote.submit(operation, Owner::Engine, name, |_, _| 7)
}

/// Submits an operation, and sends its first request.
fn send(remote: &mut Remote<char>, kind: Kind, name: char, block: u64, blocks: u64) -> Request {
    let cookie = submit(remote, kind, name, block, blocks).expect("it is not answered at once");
    remote.begin(cookie, Nanos(0)).expect("it may go")
}

fn answers(remote: &mut Remote<char>) -> Vec<(char, bool)> {
    core::iter::from_fn(|| remote.take_answer())
        .map(|answer| (answer.carried, answer.result.is_ok()))
        .collect()
}

#[test]
fn a_long_operation_goes_in_parts() {
    let mut remote = up(facts());
    let first = send(&mut remote, Kind::Write, 'a', 0, 3);
    assert_eq!((first.len_bytes, first.at_bytes), (8192, 0));
    let Heard::More { cookie } = remote.heard(1, first.cookie, Ok(())) else { panic!("there is more") };
    assert_eq!(remote.heard(1, first.cookie, Ok(())), Heard::Stray, "it was answered before");
    let second = remote.begin(cookie, Nanos(0)).unwrap();
    assert_eq!((second.len_bytes, second.at_bytes, second.offset_bytes), (4096, 8192, 8192));
    assert_eq!(remote.heard(1, cookie, Ok(())), Heard::Done);
    assert_eq!(answers(&mut remote), [('a', true)]);
}

#[test]
fn parts_that_were_answered_are_sent_again_with_the_rest() {
    let mut remote = up(facts());
    let first = send(&mut remote, Kind::Write, 'w', 0, 3);
    let Heard::More { cookie } = remote.heard(1, first.cookie, Ok(())) else { panic!("there is more") };
    remote.begin(cookie, Nanos(0)).unwrap();
    remote.lost(1, Nanos(0));
    remote.take_back(Nanos(0));
    remote.go_up();
    let again = remote.begin(cookie, Nanos(SETTLE_NS)).unwrap();
    assert_eq!((again.at_bytes, again.len_bytes), (0, 8192), "the server may have died with the first part");
}

#[test]
fn what_was_under_way_is_sent_again_when_the_server_has_settled() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    let read = send(&mut remote, Kind::Read, 'r', 9, 1);
    assert!(remote.lost(1, Nanos(5)) && !remote.lost(1, Nanos(6)));
    remote.take_back(Nanos(5));
    let generation = remote.go_up();
    assert_eq!(remote.heard(1, write.cookie, Ok(())), Heard::Late);
    assert_eq!(remote.begin(write.cookie, Nanos(5)), None, "the server may go on with the first one");
    assert!(remote.begin(read.cookie, Nanos(5)).is_some());
    let until = Nanos(5 + SETTLE_NS);
    assert_eq!(remote.task(Nanos(5)), Task::WaitUntil(until));
    assert_eq!(remote.task(until), Task::Release);
    assert_eq!(remote.begin(write.cookie, until), Some(write));
    assert_eq!(remote.heard(generation, write.cookie, Ok(())), Heard::Done);
    assert_eq!(answers(&mut remote), [('w', true)]);
}

#[test]
fn a_slow_server_gets_more_time_to_settle() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    remote.lost(1, Nanos(5));
    remote.take_back(Nanos(5));
    remote.recognised(facts(), SETTLE_NS);
    remote.go_up();
    assert_eq!(remote.task(Nanos(6)), Task::WaitUntil(Nanos(5 + 10 * SETTLE_NS)));
    assert_eq!(remote.begin(write.cookie, Nanos(5 + SETTLE_NS)), None);
    // It has flushed for a long time, and nobody waits for ever.
    assert_eq!(settled_at(Nanos(7), 100 * SETTLE_NS, Mutations::NONE), Nanos(7 + 30 * SETTLE_NS));
}

#[test]
fn a_loss_is_told_by_a_flush() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    remote.heard(1, write.cookie, Ok(()));
    remote.lost(1, Nanos(0));
    remote.take_back(Nanos(0));
    let generation = remote.go_up();
    assert_eq!(submit(&mut remote, Kind::Flush, 'f', 0, 0), None);
    assert_eq!(answers(&mut remote), [('w', true), ('f', false)]);
    let flush = send(&mut remote, Kind::Flush, 'g', 0, 0);
    remote.heard(generation, flush.cookie, Ok(()));
    assert_eq!(answers(&mut remote), [('g', true)], "it is told once");
}

#[test]
fn a_change_that_failed_may_be_lost_as_well() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    remote.heard(1, write.cookie, Err(Errno::IO));
    // Somebody may read what it did, and rely on this flush.
    send(&mut remote, Kind::Flush, 'f', 0, 0);
    remote.lost(1, Nanos(0));
    remote.take_back(Nanos(0));
    assert_eq!(answers(&mut remote), [('w', false), ('f', false)]);
}

#[test]
fn a_flush_under_way_fails_behind_what_it_takes_back() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    remote.heard(1, write.cookie, Ok(()));
    send(&mut remote, Kind::Flush, 'f', 0, 0);
    remote.lost(1, Nanos(0));
    remote.take_back(Nanos(0));
    assert_eq!(answers(&mut remote), [('w', true), ('f', false)]);
    // Until a flush has succeeded the server may have kept what the next loss takes.
    let generation = remote.go_up();
    send(&mut remote, Kind::Flush, 'g', 0, 0);
    remote.lost(generation, Nanos(0));
    remote.take_back(Nanos(0));
    assert_eq!(answers(&mut remote), [('g', false)]);
    // Then nothing is unflushed: a flush is sent again like everything else.
    let generation = remote.go_up();
    let flush = send(&mut remote, Kind::Flush, 'h', 0, 0);
    remote.heard(generation, flush.cookie, Ok(()));
    let flush = send(&mut remote, Kind::Flush, 'i', 0, 0);
    remote.lost(generation, Nanos(0));
    remote.take_back(Nanos(0));
    assert_eq!(answers(&mut remote), [('h', true)]);
    assert!(remote.waiting().eq([flush.cookie]));
}

#[test]
fn what_waits_too_long_fails() {
    let mut remote = up(facts());
    send(&mut remote, Kind::Read, 'r', 0, 1);
    remote.lost(1, Nanos(0));
    remote.take_back(Nanos(0));
    remote.sought_in_vain(Nanos(PATIENCE_NS - 1));
    assert!(answers(&mut remote).is_empty());
    remote.sought_in_vain(Nanos(PATIENCE_NS));
    assert_eq!(submit(&mut remote, Kind::Write, 'w', 0, 1), None);
    assert_eq!(answers(&mut remote), [('r', false), ('w', false)]);
    remote.go_up();
    assert!(submit(&mut remote, Kind::Write, 'x', 0, 1).is_some(), "it is back");
}

#[test]
fn zeroes_are_written_where_the_server_cannot_zero() {
    let mut remote = up(facts());
    let [first, second] = ['a', 'b'].map(|name| send(&mut remote, Kind::Zero, name, 4, 1));
    assert!(first.kind == Kind::Zero && !first.is_zeroes);
    for request in [first, second] {
        let heard = remote.heard(1, request.cookie, Err(Errno::OPNOTSUPP));
        let Heard::More { cookie } = heard else { panic!("{heard:?}") };
        let again = remote.begin(cookie, Nanos(0)).unwrap();
        assert!(again.kind == Kind::Write && again.is_zeroes);
        assert_eq!(remote.heard(1, cookie, Ok(())), Heard::Done);
    }
    assert_eq!(answers(&mut remote), [('a', true), ('b', true)]);
}

#[test]
fn without_a_flush_every_change_is_durable_by_itself() {
    let mut remote = up(Facts { can_flush: false, ..facts() });
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    assert!(write.is_fua);
    remote.heard(1, write.cookie, Ok(()));
    assert!(!remote.is_unflushed());
    assert_eq!(submit(&mut remote, Kind::Flush, 'f', 0, 0), None);
    assert_eq!(answers(&mut remote), [('w', true), ('f', true)]);
}

#[test]
fn a_connection_is_renewed_when_it_is_quiet() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    assert!(remote.want_renewal() && !remote.want_renewal());
    let waits = submit(&mut remote, Kind::Write, 'x', 1, 1).unwrap();
    assert_eq!((remote.begin(waits, Nanos(0)), remote.task(Nanos(0))), (None, Task::Wait));
    remote.heard(1, write.cookie, Ok(()));
    assert_eq!(remote.task(Nanos(0)), Task::Renew);
    let own = remote.submit(Operation::FLUSH, Owner::Driver, 'f', |_, _| 0).unwrap();
    assert!(remote.begin(own, Nanos(0)).is_some());
    remote.heard(1, own, Ok(()));
    remote.give_away();
    assert_eq!(remote.task(Nanos(0)), Task::Reconnect);
    remote.take_back(Nanos(0));
    remote.go_up();
    assert!(remote.begin(waits, Nanos(0)).is_some(), "nothing had to settle");
}

#[test]
fn an_export_may_grow_and_not_become_less() {
    let with = |change: fn(&mut Facts)| {
        let mut now = facts();
        change(&mut now);
        facts().difference(&now, Mutations::NONE)
    };
    assert_eq!(with(|now| now.size_bytes *= 2), None);
    assert!(matches!(with(|now| now.size_bytes -= 512), Some(Difference::Shrunk { .. })));
    assert!(matches!(with(|now| now.sector_bytes = 4096), Some(Difference::Sectors { .. })));
    assert_eq!(with(|now| now.is_read_only = true), Some(Difference::ReadOnly));
    assert_eq!(with(|now| now.can_flush = false), Some(Difference::NotDurable));
}

#[test]
fn a_flush_that_fails_takes_back_what_is_known() {
    let mut remote = up(facts());
    let write = send(&mut remote, Kind::Write, 'w', 0, 1);
    remote.heard(1, write.cookie, Ok(()));
    let flush = send(&mut remote, Kind::Flush, 'f', 0, 0);
    remote.heard(1, flush.cookie, Err(Errno::IO));
    let flush = send(&mut remote, Kind::Flush, 'g', 0, 0);
    remote.heard(1, flush.cookie, Ok(()));
    assert_eq!(remote.known().places, [], "the server may have dropped it");
    let write = send(&mut remote, Kind::Write, 'x', 1, 1);
    remote.heard(1, write.cookie, Ok(()));
    let flush = send(&mut remote, Kind::Flush, 'h', 0, 0);
    remote.heard(1, flush.cookie, Ok(()));
    assert_eq!(remote.known().places.len(), 1);
}

#[test]
fn a_change_that_a_failed_flush_overtakes_begins_anew() {
    let mut remote = up(Facts { payload_bytes_max: 4096, ..facts() });
    let first = send(&mut remote, Kind::Write, 'w', 0, 2);
    let Heard::More { cookie } = remote.heard(1, first.cookie, Ok(())) else { panic!("it has two parts") };
    assert_eq!(remote.begin(cookie, Nanos(0)).unwrap().at_bytes, BLOCK_BYTES);
    let flush = send(&mut remote, Kind::Flush, 'f', 0, 0);
    remote.heard(1, flush.cookie, Err(Errno::IO));
    let Heard::More { cookie } = remote.heard(1, cookie, Ok(())) else { panic!("it begins anew") };
    assert_eq!(remote.begin(cookie, Nanos(0)).unwrap().at_bytes, 0);
    let Heard::More { cookie } = remote.heard(1, cookie, Ok(())) else { panic!("it has two parts") };
    remote.begin(cookie, Nanos(0)).unwrap();
    assert_eq!(remote.heard(1, cookie, Ok(())), Heard::Done);
    let carried: Vec<char> =
        core::iter::from_fn(|| remote.take_answer()).map(|answer| answer.carried).collect();
    assert_eq!(carried, ['f', 'w']);
}

#[test]
fn each_place_is_compared() {
    let mut places = Places::default();
    for block in 0..3 {
        places.add_read(Place { offset_bytes: block * BLOCK_BYTES, checksum: 7 });
    }
    let remote: Remote<char> = Remote::new(facts(), places, PATIENCE_NS, Mutations::NONE);
    let compare = |wrong: Option<u64>| {
        let read = |at: u64| if wrong == Some(at) { 8 } else { 7 };
        remote.known().compare(&facts(), |at| Ok::<u32, ()>(read(at))).unwrap()
    };
    assert_eq!(compare(None), Ok(()));
    for block in 0..3 {
        let offset_bytes = block * BLOCK_BYTES;
        assert_eq!(compare(Some(offset_bytes)), Err(Difference::Content { offset_bytes }));
    }
    assert_eq!(remote.known().compare(&facts(), |_| Err(vec![1])), Err(vec![1]), "it cannot be read");
}
