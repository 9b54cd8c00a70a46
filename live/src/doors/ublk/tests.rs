//! Goal: a long range is handed on to its end, two pieces at a time. Method: a queue whose driver is a file in memory, and a
//! core that notes what it is asked and answers nothing by itself.

use super::door::{Place, UblkDoor};
use crate::buffers::{DOOR_BYTES_MIN, Pool};
use crate::doors::limits::ClientLimits;
use crate::doors::{Door, UBLK};
use crate::kernel::KernelClient;
use crate::kernel::ublk::Queue;
use crate::reactor::backend::Backend;
use crate::reactor::driver::{Asker, Core, Driver, Turn};
use crate::reactor::shared::wake_events;
use crate::server::{Config, ExportConfig};
use engine::effect::{Effect, Errno, IoId, Request, RequestOp};
use engine::engine::Busy;
use engine::limits::RANGE_BYTES_MAX;
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use std::time::Duration;

/// Sectors of the longest piece.
const PIECE: u64 = RANGE_BYTES_MAX / SECTOR_BYTES;

/// A core that keeps all requests.
#[derive(Default)]
struct Keeping {
    kept: Vec<Request>,
    effects: Vec<Effect>,
}

impl Core for Keeping {
    fn submit(&mut self, _: Nanos, request: Request, _: &mut Pool) -> Result<(), Busy> {
        self.kept.push(request);
        Ok(())
    }

    fn complete(&mut self, _: Nanos, _: IoId, _: Result<(), Errno>, _: &mut Pool) {}

    fn advance(&mut self, _: Nanos, _: &mut Pool) {}

    fn poll_effect(&mut self, _: &mut Pool) -> Option<Effect> {
        self.effects.pop()
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// A driver that offers one volume.
fn driver() -> Driver<Keeping> {
    let config = Config {
        pool_bytes: DOOR_BYTES_MIN,
        kept_bytes: 0,
        lasting: None,
        cache: None,
        mirror: None,
        origins: Vec::new(),
        exports: vec![ExportConfig {
            volume: VolumeIndex(0),
            name: "disk".to_owned(),
            size_bytes: 1 << 40,
            min_block_bytes: 512,
            read_only: false,
        }],
        listen: Vec::new(),
        socket_permissions: 0,
        socket_group: None,
        tls: None,
        limits: ClientLimits::default(),
        abandon: Box::new(|_| Ok(())),
        device_timeout: Duration::MAX,
        notice: Box::new(|_| ()),
        reactors: 1,
    };
    let pool = Pool::new(DOOR_BYTES_MIN).unwrap();
    Driver::new(Keeping::default(), pool, config, wake_events(1).unwrap())
}

/// The ranges that the core has.
fn kept(turn: &Turn<'_, Keeping>) -> Vec<SectorRange> {
    let range = |request: &Request| match request.op {
        RequestOp::Discard { range, .. } | RequestOp::WriteZeroes { range, .. } => range,
        _ => unreachable!("nothing else was asked"),
    };
    turn.driver.core.kept.iter().map(range).collect()
}

/// The core answers its first request, and the door learns of it.
fn answer_first(door: &mut UblkDoor, turn: &mut Turn<'_, Keeping>) {
    let first = turn.driver.core.kept.remove(0);
    turn.driver.core.effects.push(Effect::Reply { id: first.id, result: Ok(()) });
    turn.settle();
    let Some((Asker::Door { piece, .. }, result)) = turn.driver.wakeups.take_reply(0) else {
        unreachable!("a door asked")
    };
    door.answered(piece, result, turn);
}

#[test]
fn a_long_range_is_handed_on_to_its_end() {
    let (mut backend, refused) = Backend::new(&[]).unwrap();
    if refused.is_some() {
        eprintln!("SKIPPED: the kernel refuses io_uring, without which there is no ublk");
        return;
    }
    let (mut driver, mut door) = (driver(), UblkDoor::new(UBLK));
    driver.wakeups.admit();
    let turn = &mut Turn { driver: &mut driver, backend: &mut backend, reactor: 0 };
    // The codes of a discard and of write-zeroes.
    for (tag, code) in [(0, 3), (1, 5)] {
        let sectors = u32::try_from(4 * PIECE + 8).unwrap();
        let queue = Queue::asking(tag, code, (8, sectors));
        door.serve(KernelClient::Queue(queue), 0, turn);
        let place = Place { queue: usize::from(tag), tag };
        door.finished(place.name() as u64, 0, turn);
        // The first ends at a block's border, as it begins at one.
        let piece = |at: u64, sectors| SectorRange { start: 8 + at * PIECE, sectors };
        assert_eq!(kept(turn), [piece(0, PIECE), piece(1, PIECE)], "two at a time");
        for at in 2..4 {
            answer_first(&mut door, turn);
            assert_eq!(kept(turn), [piece(at - 1, PIECE), piece(at, PIECE)], "the next follows");
        }
        answer_first(&mut door, turn);
        assert_eq!(kept(turn), [piece(3, PIECE), piece(4, 8)], "and the rest");
        answer_first(&mut door, turn);
        assert_eq!(door.queues[place.queue].under_way, 1, "it is not over");
        answer_first(&mut door, turn);
        assert_eq!((kept(turn), door.queues[place.queue].under_way), (Vec::new(), 0));
    }
}
