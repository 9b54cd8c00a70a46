//! Requests to servers: sent, carried out, answered, and heard by the client, which tells the engine.

use super::trouble::OVER;
use super::{
    AGAIN, AGAIN_NS, ANSWER, BREAK, LAND, Lost, OWN, RELEASE, SEEK, Sent, Servers, TAKE_BACK, TELL, TIMEOUT,
    event,
};
use crate::content::{self, Sector, Tag};
use crate::disk::Content;
use crate::disk::faults::{Fault, Kind};
use crate::violation;
use crate::world::operations::InFlight;
use crate::world::{Trouble, What, World};
use engine::effect::{Errno, Pieces};
use engine::memory::Slice;
use engine::remote::{self, Heard, Operation, Owner, Request};
use engine::units::SECTORS_PER_BLOCK;

fn remote_kind(kind: Kind) -> remote::Kind {
    match kind {
        Kind::Read => remote::Kind::Read,
        Kind::Write => remote::Kind::Write,
        Kind::Flush | Kind::Abandon => remote::Kind::Flush,
        Kind::Discard => remote::Kind::Discard,
        Kind::WriteZeroes => remote::Kind::Zero,
    }
}

fn kind_of(request: &Request) -> Kind {
    match request.kind {
        remote::Kind::Read => Kind::Read,
        remote::Kind::Write => Kind::Write,
        remote::Kind::Flush => Kind::Flush,
        remote::Kind::Discard => Kind::Discard,
        remote::Kind::Zero => Kind::WriteZeroes,
    }
}

/// A part of what an operation carries.
fn part(content: &Content, at_sectors: u64, sectors: u64) -> Content {
    match content {
        Content::Data(all) => Content::Data(all[at_sectors as usize..(at_sectors + sectors) as usize].into()),
        Content::Zeroes(_) => Content::Zeroes(sectors),
    }
}

/// The checksum of a block of what an operation carries.
fn checksum(content: Option<&Content>, at_sectors: u64) -> u32 {
    let Some(Content::Data(sectors)) = content else { return 0 };
    let block = &sectors[at_sectors as usize..(at_sectors + SECTORS_PER_BLOCK) as usize];
    let tags: Vec<Tag> = block.iter().map(Sector::tag).collect();
    content::checksum(&tags)
}

impl World {
    // ---- operations --------------------------------------------------------------------------

    /// Hands an operation of the engine to the client of its server.
    pub(in crate::world) fn ask_server(&mut self, volume: usize, op: u64) {
        let InFlight { view, content, .. } = &self.in_flight[&op];
        let (view, content) = (*view, content.clone());
        let operation = Operation {
            kind: remote_kind(view.kind),
            offset_bytes: view.first * 512,
            len_bytes: view.sectors * 512,
        };
        let checksum_at = |_: &u64, offset_bytes: u64| {
            checksum(content.as_ref(), (offset_bytes - operation.offset_bytes) / 512)
        };
        let server = self.servers.of(volume);
        server.judge.asked(op, view.kind, view.first, view.sectors);
        let cookie = server.remote.submit(operation, Owner::Engine, op, checksum_at);
        if let Some(cookie) = cookie {
            self.send(volume, cookie);
        }
        self.look_at_server(volume);
    }

    /// Sends a request, if it may go out.
    pub(super) fn send(&mut self, volume: usize, cookie: u64) {
        let now = self.now();
        let Some(request) = self.server(volume).remote.begin(cookie, now) else { return };
        let op = self.server(volume).remote.carried(cookie).copied().unwrap_or(OWN);
        let kind = kind_of(&request);
        let (first, sectors) = (request.offset_bytes / 512, u64::from(request.len_bytes) / 512);
        let at_sectors = request.at_bytes / 512;
        let in_flight = self.in_flight.get(&op);
        let is_held = in_flight.is_some_and(|in_flight| in_flight.is_held);
        let content = match in_flight.and_then(|in_flight| in_flight.content.as_ref()) {
            _ if request.is_zeroes => Some(Content::Zeroes(sectors)),
            Some(content) => Some(part(content, at_sectors, sectors)),
            None => None,
        };
        let World { origins, servers, .. } = self;
        let disk = &mut origins[volume];
        let fault = disk.faults.draw(kind, first, sectors, &mut servers.random);
        let ticket = (kind == Kind::Flush).then(|| disk.flush_begins());
        let generation = self.server(volume).generation;
        let sent = Sent {
            generation,
            cookie,
            op,
            kind,
            first,
            sectors,
            at_sectors,
            content,
            is_fua: request.is_fua,
            ticket,
            fault,
            has_landed: false,
            landed: None,
            found: Vec::new(),
            result: Ok(()),
        };
        if let Some(in_flight) = self.in_flight.get_mut(&op) {
            in_flight.fault = fault;
        }
        self.counts.faults += u64::from(fault.is_some());
        let number = self.keep_sent(volume, sent);
        if !is_held {
            self.schedule_sent(volume, number);
            self.break_by_chance(volume);
        }
    }

    /// The number of the request of an operation that is under way on the connection in use.
    pub(super) fn sent_of(&mut self, volume: usize, op: u64) -> Option<u64> {
        let server = self.server(volume);
        let is_it = |sent: &Sent| sent.op == op && sent.generation == server.generation;
        server.sent.iter().find(|(_, sent)| is_it(sent)).map(|(number, _)| *number)
    }

    /// Lets a held operation go on by itself.
    pub(in crate::world) fn schedule_at_server(&mut self, volume: usize, op: u64) {
        if let Some(number) = self.sent_of(volume, op) {
            self.schedule_sent(volume, number);
        }
    }

    /// Lets the request of an operation have its effect.
    pub(in crate::world) fn land_at_server(&mut self, volume: usize, op: u64) {
        if let Some(number) = self.sent_of(volume, op) {
            self.land_sent(volume, number);
        }
    }

    /// Carries out and answers an operation, whatever parts it has.
    pub(in crate::world) fn answer_at_server(&mut self, volume: usize, op: u64) {
        while let Some(number) = self.sent_of(volume, op) {
            let fault = self.in_flight.get(&op).and_then(|in_flight| in_flight.fault);
            if let Some(sent) = self.server(volume).sent.get_mut(&number) {
                sent.fault = fault;
            }
            self.answer_sent(volume, number);
        }
        self.tell_answers(volume);
    }

    pub(super) fn schedule_sent(&mut self, volume: usize, number: u64) {
        let World { servers, setup, clock, .. } = self;
        let Servers { all, random, .. } = servers;
        let Some(sent) = all[volume].as_ref().and_then(|server| server.sent.get(&number)) else { return };
        let now_ns = clock.now_ns();
        let latency = setup.origin_latency;
        let mut takes_ns = random.between(latency.least_ns, latency.most_ns.max(latency.least_ns));
        match sent.fault {
            Some(Fault::Hang) => {
                return clock.at(now_ns + setup.device_timeout_ns, event(volume, number, TIMEOUT));
            }
            Some(Fault::Slow { by_ns }) => takes_ns += by_ns,
            _ => (),
        }
        let is_failing_flush = sent.kind == Kind::Flush && matches!(sent.fault, Some(Fault::Error(_)));
        if !sent.has_landed && !is_failing_flush && random.one_in(2) {
            let early_ns = random.below(takes_ns + 1);
            clock.at(now_ns + early_ns, event(volume, number, LAND));
        }
        clock.at(now_ns + takes_ns, event(volume, number, ANSWER));
    }

    pub(in crate::world) fn server_event(&mut self, event: u64) {
        let (number, volume, code) = (event >> 10, (event >> 6 & 0xf) as usize, event >> 2 & 0xf);
        if self.servers.get(volume).is_none() {
            return;
        }
        match code {
            LAND => self.land_sent(volume, number),
            ANSWER => self.answer_sent(volume, number),
            TIMEOUT => self.time_out_sent(volume, number),
            AGAIN => self.answer_again(volume, number),
            TELL => self.tell_answers(volume),
            BREAK => self.break_by_plan(volume, number),
            TAKE_BACK => self.take_back(volume),
            SEEK => self.seek(volume),
            RELEASE => self.server(volume).release_at = None,
            _ => unreachable!("there are no other codes"),
        }
        self.look_at_server(volume);
    }

    // ---- effects and answers -----------------------------------------------------------------

    /// Lets a request have its effect on the server's disk.
    pub(super) fn land_sent(&mut self, volume: usize, number: u64) {
        let World { servers, origins, setup, in_flight, .. } = self;
        let Servers { all, random, counts, .. } = servers;
        let Some(server) = all[volume].as_mut() else { return };
        let generation = server.generation;
        let Some(sent) = server.sent.get_mut(&number) else { return };
        if std::mem::replace(&mut sent.has_landed, true) {
            return;
        }
        let disk = &mut origins[volume];
        let op = sent.op;
        if let Some(Fault::Error(errno)) = sent.fault {
            sent.result = Err(errno);
            return self.land_failed_at_server(volume, number, errno);
        }
        let is_late = sent.generation != generation;
        match sent.kind {
            Kind::Read => sent.found = disk.read(sent.first, sent.sectors).to_vec(),
            Kind::Flush => {
                if let Some(ticket) = sent.ticket {
                    disk.flushed(ticket, &mut || random.one_in(4));
                }
            }
            _ => {
                if let Some(content) = &sent.content {
                    let serial = disk.land(sent.first, content.clone());
                    sent.landed = Some(serial);
                    if let Some(in_flight) = in_flight.get_mut(&op) {
                        in_flight.carried_out.push(serial);
                    }
                    if sent.is_fua || setup.origins_keep {
                        disk.flush_all();
                    }
                }
                if is_late {
                    counts.late_changes += 1;
                    // It is over: later changes come after it, and later flushes cover it.
                    if let Some(serial) = sent.landed.take() {
                        disk.answered(serial);
                    }
                }
            }
        }
        self.note(What::Land { op });
        if !is_late && self.in_flight.contains_key(&op) {
            self.check_carried(op);
        }
    }

    /// Lets a failed request have its effect: any part of a change may land, a flush may have done anything.
    fn land_failed_at_server(&mut self, volume: usize, number: u64, errno: Errno) {
        let World { servers, origins, .. } = self;
        let Servers { all, random, .. } = servers;
        let disk = &mut origins[volume];
        let Some(server) = all[volume].as_mut() else { return };
        let Some(sent) = server.sent.get(&number) else { return };
        let mut lost = Vec::new();
        match (&sent.content, sent.kind) {
            _ if disk.faults.gone.is_some() => (),
            (Some(content), _) => {
                let kept: Vec<bool> = match random.below(3) {
                    0 => vec![false; sent.sectors as usize],
                    1 => vec![true; sent.sectors as usize],
                    _ => (0..sent.sectors).map(|_| random.one_in(2)).collect(),
                };
                disk.land_part(sent.first, content, &kept);
                // A server without a flush loses nothing later of what it carried out of a change that failed.
                if sent.is_fua {
                    disk.flush_all();
                }
            }
            // Nobody would be told of what another one loses, which nobody waits for any more.
            (None, Kind::Flush) if sent.generation == server.generation => lost = disk.flush_failed(random),
            _ => (),
        }
        if sent.kind == Kind::Flush {
            // Other flushes under way there cannot promise the changes that this one took.
            let others = server.sent.values_mut();
            let others = others.filter(|other| other.kind == Kind::Flush && !other.has_landed);
            others.for_each(|other| other.fault = Some(Fault::Error(errno)));
        }
        let lost: Vec<u64> = lost.into_iter().flat_map(|(first, sectors)| first..first + sectors).collect();
        // Some of it may be acknowledged to clients only now, before they hear of the flush.
        self.lose_at_origin(volume, &lost);
        self.note_lost(volume, lost);
    }

    /// Answers a request, on the connection on which it came.
    pub(super) fn answer_sent(&mut self, volume: usize, number: u64) {
        self.land_sent(volume, number);
        let World { servers, origins, .. } = self;
        let Servers { all, random, trouble, counts, .. } = servers;
        let Some(server) = all[volume].as_mut() else { return };
        let Some(mut sent) = server.sent.remove(&number) else { return };
        if let Some(serial) = sent.landed {
            origins[volume].answered(serial);
        }
        if sent.generation != server.generation {
            counts.odd_answers += 1;
        } else if random.chance(trouble.endings) {
            sent.result = Err(Errno::SHUTDOWN);
        }
        let is_by_chance = random.chance(trouble.doubles);
        if server.answers_twice || is_by_chance {
            let echo = server.next;
            server.next += 1;
            server.echoes.insert(echo, (sent.generation, sent.cookie, sent.result));
            if is_by_chance {
                let at_ns = self.clock.now_ns() + random.below(AGAIN_NS);
                self.clock.at(at_ns, event(volume, echo, AGAIN));
            }
        }
        self.hear(volume, &sent);
    }

    /// A request is answered once more.
    pub(super) fn answer_again(&mut self, volume: usize, number: u64) {
        let is_healed = self.servers.trouble == Trouble::default();
        let server = self.server(volume);
        let is_wanted = server.answers_twice || !is_healed;
        let echo = server.echoes.remove(&number).filter(|_| is_wanted);
        let Some((generation, cookie, result)) = echo else { return };
        self.servers.counts.odd_answers += 1;
        let echo = Sent { generation, cookie, result, ..Sent::left(0, None) };
        self.hear(volume, &echo);
    }

    /// The client hears an answer.
    fn hear(&mut self, volume: usize, sent: &Sent) {
        let server = self.server(volume);
        let op = server.remote.carried(sent.cookie).copied();
        match server.remote.heard(sent.generation, sent.cookie, sent.result) {
            Heard::Done => {
                if let Some(op) = op {
                    self.heard_done(volume, op, sent);
                }
            }
            Heard::More { cookie } => {
                if let Some(op) = op {
                    self.deliver(op, sent);
                }
                self.send(volume, cookie);
            }
            Heard::Late => {}
            Heard::Stray | Heard::ShuttingDown => self.lose_connection(volume),
        }
    }

    /// Notes what a server lost of what it acknowledged.
    pub(super) fn note_lost(&mut self, volume: usize, sectors: Vec<u64>) {
        let lost = Lost { at: self.oracle.moment(), next_op: self.next_op };
        self.server(volume).lost.extend(sectors.into_iter().map(|sector| (sector, lost)));
    }

    fn heard_done(&mut self, volume: usize, op: u64, sent: &Sent) {
        let kind = self.in_flight.get(&op).map_or(Kind::Flush, |in_flight| in_flight.view.kind);
        let can_flush = !self.setup.servers.without_flush;
        let server = self.servers.of(volume);
        server.judge.heard(op, kind, sent.result, can_flush);
        server.heard.insert(op);
        if let Some(InFlight { view, .. }) = self.in_flight.get(&op).filter(|_| sent.result.is_ok())
            && kind.is_change()
        {
            let is_taken = |sector: &u64| (view.first..view.first + view.sectors).contains(sector);
            server.lost.retain(|sector, lost| op < lost.next_op || !is_taken(sector));
        }
        if server.generation == OVER && sent.result.is_ok() {
            // The server has died meanwhile, and may have lost what it acknowledged here.
            let disk = &self.origins[volume];
            let content = self.in_flight.get(&op).and_then(|in_flight| in_flight.content.as_ref());
            let is_gone = |sector: &u64| {
                let first = sent.first - sent.at_sectors;
                let wanted = content.and_then(|content| content.at(first, *sector));
                wanted.is_some_and(|wanted| wanted != disk.read(*sector, 1)[0])
            };
            let first = sent.first - sent.at_sectors;
            let end = content.map_or(first, |content| first + content.sectors());
            let gone: Vec<u64> = (first..end).filter(is_gone).collect();
            self.note_lost(volume, gone);
        }
        self.deliver(op, sent);
    }

    /// Puts what a read found into the memory of its operation.
    fn deliver(&mut self, op: u64, sent: &Sent) {
        let Some(in_flight) = self.in_flight.get(&op).filter(|_| sent.result.is_ok()) else { return };
        let (mut at, end) = (0, sent.at_sectors + sent.found.len() as u64);
        for slice in in_flight.into.iter().flat_map(Pieces::as_slice) {
            let sectors = u64::from(slice.len_bytes / 512);
            let (from, to) = (at.max(sent.at_sectors), (at + sectors).min(end));
            if from < to {
                let found = &sent.found[(from - sent.at_sectors) as usize..(to - sent.at_sectors) as usize];
                let piece = Slice {
                    buffer: slice.buffer,
                    offset_bytes: slice.offset_bytes + ((from - at) * 512) as u32,
                    len_bytes: ((to - from) * 512) as u32,
                };
                self.pool.scatter(found, piece);
            }
            at += sectors;
        }
    }

    /// Tells the engine of answers, in the order in which they came.
    pub(super) fn tell_answers(&mut self, volume: usize) {
        if let Some(server) = self.servers.get(volume) {
            server.is_telling = false;
        }
        while let Some(server) = self.servers.get(volume).filter(|server| !server.is_silent) {
            let Some(remote::Answer { carried: op, result }) = server.remote.take_answer() else { return };
            // Of what timed out the engine was told, and its own flush is the client's.
            server.heard.remove(&op);
            let Some(in_flight) = self.in_flight.remove(&op) else { continue };
            let view = in_flight.view;
            if let Err(what) = self.servers.of(volume).judge.answered(op, view.kind, result) {
                self.fail(violation::Kind::Contract, format!("origin {volume}: {what}"));
            }
            if let Err(errno) = result {
                self.explain(&view, errno);
            }
            // One that succeeded was answered before the loss, or the client of the server knows that nobody relies on it.
            if view.kind == Kind::Flush && result.is_ok() {
                self.servers.of(volume).lost.retain(|_, lost| op < lost.next_op);
            }
            if view.kind == Kind::Flush && result.is_err() {
                // From now on nobody relies on what the server lost.
                let lost = std::mem::take(&mut self.servers.of(volume).lost);
                let sectors: Vec<u64> = lost.keys().copied().collect();
                self.lose_at_origin(volume, &sectors);
                self.remember_loss(volume, op, lost.into_iter().map(|(sector, lost)| (sector, lost.at)));
                self.oracle.heard_of_loss(volume);
            }
            self.tell(op, in_flight.io, view.target, result);
        }
    }
}
