//! Origins behind servers, which go away and come back: the engine's operations pass through the very state machine that the
//! daemon's client of an export has ([`engine::remote`]), to a server that lives in virtual time.
//!
//! What a server may do is in the table at the top of `lab/src/disk/mod.rs`; when it does, in `trouble.rs`; which errors
//! that explains, in `judge.rs`. A server has requests of several connections at a time: those of the one in use, and
//! those of connections that are over, which it may still carry out for as long as the client waits for it to settle.

mod connection;
mod judge;
mod requests;
mod trouble;

pub use trouble::{Found, Trouble};

use super::World;
use crate::content::{Sector, Tag};
use crate::disk::faults::{Fault, Kind};
use crate::disk::{Content, FlushTicket};
use crate::oracle::Moment;
use crate::random::Random;
use crate::world::operations::OpId;
use engine::effect::{Errno, Target};
use engine::remote::facts::Facts;
use engine::remote::places::{Place, Places, spread_offsets};
use engine::remote::{self, Remote};
use engine::units::{Nanos, VolumeIndex};
use judge::Judge;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use trouble::Timeline;

/// The longest wait for a server, as in the daemon.
const PATIENCE_NS: u64 = 10 * Nanos::SECOND;
/// The longest time from an answer to the moment when the engine is told.
const TELL_NS: u64 = 100_000;
/// The longest time from an answer to the same answer once more.
const AGAIN_NS: u64 = 2_000_000;
/// Stands for a flush that the client asks for by itself.
const OWN: u64 = 0;

/// Events of servers, beside those of operations: the code of all of them there, then a code of their own.
pub(super) const EVENT: u64 = 3;
const LAND: u64 = 0;
const ANSWER: u64 = 1;
const TIMEOUT: u64 = 2;
const AGAIN: u64 = 3;
const TELL: u64 = 4;
const BREAK: u64 = 5;
const TAKE_BACK: u64 = 6;
const SEEK: u64 = 7;
const RELEASE: u64 = 8;

fn event(volume: usize, number: u64, code: u64) -> u64 {
    (number << 8 | (volume as u64) << 4 | code) << 2 | EVENT
}

/// Counters of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Crashes that were followed by recovery and a full read-back, in worlds with servers.
    pub cuts: u64,
    /// Connections lost.
    pub losses: u64,
    /// Those lost because the server died, with what was not flushed.
    pub deaths: u64,
    /// Requests that were sent again.
    pub sent_again: u64,
    /// Changes that a server carried out when their connection was over.
    pub late_changes: u64,
    /// Answers that came twice, or when their connection was over.
    pub odd_answers: u64,
    /// Other disks, older copies and smaller ones that came back in the place of an origin, and were refused.
    pub refused: u64,
    /// Those that are the same wherever the client looks: not used.
    pub alike: u64,
    /// Times that the wait for a server was given up.
    pub given_up: u64,
}

impl ServerCounts {
    /// Adds those of another world.
    pub fn add(&mut self, other: &ServerCounts) {
        self.cuts += other.cuts;
        self.losses += other.losses;
        self.deaths += other.deaths;
        self.sent_again += other.sent_again;
        self.late_changes += other.late_changes;
        self.odd_answers += other.odd_answers;
        self.refused += other.refused;
        self.alike += other.alike;
        self.given_up += other.given_up;
    }
}

/// Servers to begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSetup {
    /// The volumes whose origins are behind servers, as bits.
    pub volumes: u64,
    /// Sectors of a request at the most; 0: as many as one likes.
    pub request_sectors: u64,
    /// They have no flush: each change says that it is to be durable.
    pub without_flush: bool,
    /// A flush takes them so long when a client connects.
    pub flush_ns: u64,
}

/// A request that a server has.
struct Sent {
    generation: u64,
    cookie: u64,
    op: u64,
    kind: Kind,
    first: u64,
    sectors: u64,
    /// Where it begins in its operation.
    at_sectors: u64,
    content: Option<Content>,
    is_fua: bool,
    ticket: Option<FlushTicket>,
    fault: Option<Fault>,
    has_landed: bool,
    /// A change's serial once it landed.
    landed: Option<u64>,
    /// The sectors that a read found.
    found: Vec<Sector>,
    result: Result<(), Errno>,
}

/// The loss of a sector.
#[derive(Clone, Copy)]
struct Lost {
    at: Moment,
    /// The first operation that was issued later.
    next_op: u64,
}

/// The client of a server in one life of the engine, and what the server has of it.
pub(super) struct Server {
    remote: Remote<u64>,
    generation: u64,
    sent: BTreeMap<u64, Sent>,
    /// Answers that come once more: connection, cookie, and what they say.
    echoes: BTreeMap<u64, (u64, u64, Result<(), Errno>)>,
    next: u64,
    timeline: Timeline,
    /// The pause behind the next attempt to find the server.
    pause_ns: u64,
    is_seeking: bool,
    release_at: Option<Nanos>,
    /// The client's own flush was asked for on this connection.
    has_own_flush: bool,
    /// Nobody takes answers: a script does not let them go on.
    is_silent: bool,
    /// Answers come twice: a script wants that.
    answers_twice: bool,
    /// The engine is about to be told of answers.
    is_telling: bool,
    /// Sectors that were acknowledged and that the server lost when it died; no flush has failed for that yet, and no later
    /// change has taken them.
    lost: BTreeMap<u64, Lost>,
    /// Operations whose answers were heard, and of which the engine was not told yet.
    heard: BTreeSet<u64>,
    /// The disk as it was some time ago.
    older: Option<Rc<[Tag]>>,
    judge: Judge,
}

/// A change of a process that ended, which its server may still carry out.
pub(super) struct Leftover {
    /// So long after the end.
    pub after_ns: u64,
    pub target: Target,
    pub first: u64,
    pub content: Content,
}

/// All servers of a world, by volume.
pub(super) struct Servers {
    all: Vec<Option<Server>>,
    pub trouble: Trouble,
    pub leftovers: Vec<Leftover>,
    /// For servers alone, so that worlds without them draw the same.
    pub random: Random,
    pub counts: ServerCounts,
}

impl Servers {
    pub fn new(seed: u64, volumes: usize) -> Servers {
        Servers {
            all: (0..volumes).map(|_| None).collect(),
            trouble: Trouble::default(),
            leftovers: Vec::new(),
            random: Random::new(seed).fork(0x5e_4e45),
            counts: ServerCounts::default(),
        }
    }

    fn get(&mut self, volume: usize) -> Option<&mut Server> {
        self.all[volume].as_mut()
    }

    fn of(&mut self, volume: usize) -> &mut Server {
        self.all[volume].as_mut().expect("the caller knows that there is one")
    }

    /// When a server lost a sector that was acknowledged to its client, if nobody was told of that.
    pub fn lost_at(&self, volume: usize, sector: u64) -> Option<Moment> {
        let lost = self.all[volume].as_ref()?.lost.get(&sector);
        lost.map(|lost| lost.at)
    }

    /// Whether the answer to an operation was heard from its server, of which the engine was not told yet.
    pub fn is_heard(&self, volume: usize, op: OpId) -> bool {
        self.all[volume].as_ref().is_some_and(|server| server.heard.contains(&op.0))
    }

    /// Operations whose answers were heard from a server, and of which the engine was not told yet.
    pub fn heard(&self, volume: usize) -> impl Iterator<Item = u64> {
        self.all[volume].iter().flat_map(|server| server.heard.iter().copied())
    }

    /// Whether the operation is of a volume whose origin is behind a server.
    pub fn has(&self, target: Target) -> Option<usize> {
        match target {
            Target::Origin(volume) => self.all[volume.at()].is_some().then_some(volume.at()),
            Target::Cache | Target::Mirror | Target::State => None,
        }
    }

    /// Changes that servers may still carry out.
    pub fn under_way(&self) -> impl Iterator<Item = (Target, u64, &Content)> {
        self.all.iter().enumerate().flat_map(|(volume, server)| {
            let sent = server.iter().flat_map(|server| server.sent.values());
            let target = Target::Origin(VolumeIndex(volume as u8));
            sent.filter(|sent| !sent.has_landed)
                .filter_map(move |sent| Some((target, sent.first, sent.content.as_ref()?)))
        })
    }

    /// Whether the client of a server fails the next flush, for what the server may have lost.
    pub fn owes_failure(&self, volume: usize) -> bool {
        self.all[volume].as_ref().is_some_and(|server| server.remote.owes_failure())
    }

    /// The process ended.
    pub fn die(&mut self) {
        self.all.iter_mut().for_each(|server| *server = None);
    }

    /// Whether an engine may be told of a loss yet, or waits for a server.
    pub fn owe(&self) -> bool {
        let is_in_debt = |server: &Server| server.judge.owes() || server.remote.phase() != remote::Phase::Up;
        self.all.iter().flatten().any(is_in_debt)
    }
}

impl World {
    fn server(&mut self, volume: usize) -> &mut Server {
        self.servers.of(volume)
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock.now_ns())
    }

    /// The facts that the server of a volume states.
    fn facts(&self, volume: usize) -> Facts {
        let setup = &self.setup.servers;
        let payload_sectors = if setup.request_sectors == 0 { 65_536 } else { setup.request_sectors };
        Facts {
            size_bytes: self.origins[volume].sectors() * 512,
            unused_bytes: 0,
            sector_bytes: 512,
            payload_bytes_max: (payload_sectors * 512) as u32,
            name: None,
            is_read_only: false,
            can_flush: !setup.without_flush,
            can_fua: true,
            can_trim: self.setup.origin_can_discard,
            can_zero: true,
            has_several_connections: false,
        }
    }

    /// Waits until servers have settled, as the daemon does before it reads from an origin.
    pub(super) fn wait_for_servers(&mut self) {
        let Nanos(settled_ns) =
            remote::settled_at(Nanos(0), self.setup.servers.flush_ns, self.setup.mutations);
        self.time_passes_at_servers(settled_ns);
    }

    /// Servers carry out what they have of a process that ended: what they would do until so long after the end.
    pub(super) fn time_passes_at_servers(&mut self, ns: u64) {
        let leftovers = std::mem::take(&mut self.servers.leftovers);
        for Leftover { after_ns, target, first, content } in leftovers {
            if after_ns > ns {
                self.servers.leftovers.push(Leftover { after_ns, target, first, content });
                continue;
            }
            self.servers.counts.late_changes += 1;
            let disk = self.disk(target);
            let serial = disk.land(first, content);
            disk.answered(serial);
        }
    }

    /// Begins the use of servers, as the daemon does when it opens an origin: what was written is made durable, and places
    /// are read.
    pub(super) fn open_servers(&mut self) {
        for volume in 0..self.origins.len() {
            // That of a volume that is off is of a start before, which was refused: it knows what was there then.
            self.servers.all[volume] = None;
            if self.setup.servers.volumes >> volume & 1 == 0 || self.detached[volume] {
                continue;
            }
            let disk = &mut self.origins[volume];
            let ticket = disk.flush_begins();
            disk.flushed(ticket, &mut || false);
            let mut places = Places::default();
            let size_bytes = disk.sectors() * 512;
            for offset_bytes in spread_offsets(size_bytes) {
                let checksum = super::start::checksum_at(disk, offset_bytes);
                places.add_read(Place { offset_bytes, checksum });
            }
            let older = Some(self.tags_of_origin(volume));
            let remote = Remote::new(self.facts(volume), places, PATIENCE_NS, self.setup.mutations);
            self.servers.all[volume] = Some(Server {
                remote,
                generation: 0,
                sent: BTreeMap::new(),
                echoes: BTreeMap::new(),
                next: 1,
                timeline: Timeline::default(),
                pause_ns: 0,
                is_seeking: false,
                release_at: None,
                has_own_flush: false,
                is_silent: false,
                answers_twice: false,
                is_telling: false,
                lost: BTreeMap::new(),
                heard: BTreeSet::new(),
                older,
                judge: Judge::new(spread_offsets(size_bytes)),
            });
        }
    }

    /// The engine begins: connections are in use.
    pub(super) fn use_servers(&mut self) {
        for volume in 0..self.origins.len() {
            if let Some(server) = self.servers.get(volume) {
                server.generation = server.remote.go_up();
            }
        }
        // What servers carry out later than that, they carry out now.
        for leftover in std::mem::take(&mut self.servers.leftovers) {
            if let Some(volume) = self.servers.has(leftover.target) {
                let content = Some(leftover.content);
                let number = self.keep_sent(volume, Sent::left(leftover.first, content));
                self.clock.at(leftover.after_ns, event(volume, number, LAND));
            }
        }
    }

    fn tags_of_origin(&self, volume: usize) -> Rc<[Tag]> {
        let disk = &self.origins[volume];
        disk.read(0, disk.sectors()).iter().map(Sector::tag).collect()
    }

    fn keep_sent(&mut self, volume: usize, sent: Sent) -> u64 {
        let server = self.server(volume);
        let number = server.next;
        server.next += 1;
        server.sent.insert(number, sent);
        number
    }
}

impl Sent {
    /// A request that a process left behind.
    fn left(first: u64, content: Option<Content>) -> Sent {
        Sent {
            generation: 0,
            cookie: 0,
            op: OWN,
            kind: Kind::Write,
            first,
            sectors: content.as_ref().map_or(0, Content::sectors),
            at_sectors: 0,
            content,
            is_fua: false,
            ticket: None,
            fault: None,
            has_landed: false,
            landed: None,
            found: Vec::new(),
            result: Ok(()),
        }
    }
}
