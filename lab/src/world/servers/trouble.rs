//! Trouble with servers: connections that are lost, servers that die, and what comes back in their place.

use super::{BREAK, LAND, Server, Servers, World, event};
use crate::content::Tag;
use crate::disk::faults::Fault;
use crate::disk::{Content, Fate, Unflushed};
use crate::random::Random;
use crate::world::operations::InFlight;
use crate::world::{OpId, What};
use engine::effect::Target;
use engine::remote::SETTLE_NS;
use engine::units::VolumeIndex;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Marks a connection that is over.
pub(super) const OVER: u64 = u64::MAX;
/// Longest time from the request that breaks a connection to the break.
const BREAK_NS: u64 = 5_000_000;

/// Rates of what servers do wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Requests with which the connection is lost, in a million.
    pub losses: u32,
    /// Answers that come twice, in a million.
    pub doubles: u32,
    /// Answers that the server is shutting down, in a million.
    pub endings: u32,
    /// Per cent of lost connections whose server died, with what was not flushed.
    pub deaths: u64,
    /// Per cent of lost connections behind which something else comes first.
    pub impostors: u64,
    /// The longest time that a server is away; some stay away until all is healed.
    pub away_ns: u64,
}

/// A find at the address of a server.
#[derive(Clone, Debug)]
pub enum Found {
    /// The right disk.
    Right,
    /// Nobody.
    Nobody,
    /// Another disk: of the blocks one in so many is another one.
    Another {
        /// One in so many.
        one_in: u64,
    },
    /// The disk as it was some time ago.
    Older(Rc<[Tag]>),
    /// The same, with so many sectors.
    Smaller(u64),
}

/// Finds at an address, and until when; after that, the right disk.
#[derive(Debug, Default)]
pub(super) struct Timeline(VecDeque<(u64, Found)>);

impl Timeline {
    /// The find of now.
    pub fn now(&mut self, now_ns: u64) -> Found {
        while self.0.front().is_some_and(|(until_ns, _)| *until_ns <= now_ns) {
            self.0.pop_front();
        }
        self.0.front().map_or(Found::Right, |(_, found)| found.clone())
    }

    fn add(&mut self, until_ns: u64, found: Found) {
        self.0.push_back((until_ns, found));
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The fate of the requests that a server has when their connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It carries some of them out, at once or later, and others never.
    ByChance,
    /// A script says when it carries them out.
    Waits,
    /// It is dead. Of what was not flushed some is kept, by chance, or nothing.
    Dead {
        /// Nothing is kept.
        is_all_lost: bool,
    },
}

impl World {
    /// Gives servers trouble from now on.
    pub fn trouble_servers(&mut self, trouble: Trouble) {
        self.servers.trouble = trouble;
    }

    /// Ends all trouble: servers are there, with the right disks. What was lost before is told yet.
    pub fn heal_servers(&mut self) {
        self.servers.trouble = Trouble::default();
        self.servers.all.iter_mut().flatten().for_each(|server| server.timeline.clear());
    }

    /// Whether a flush may yet fail for what a server lost, or a server is not in use.
    #[must_use]
    pub fn do_servers_owe(&self) -> bool {
        self.servers.owe()
    }

    /// Loses the connection to the server of a volume. It is dead, with all that was not flushed, or carries out what it has
    /// when the script says so ([`World::land_late_at_server`]).
    pub fn cut_connection(&mut self, volume: usize, is_dead: bool) {
        self.lose(volume, if is_dead { Rest::Dead { is_all_lost: true } } else { Rest::Waits });
        self.look_at_server(volume);
    }

    /// At the address of a server this is found for so long, behind what was said before.
    pub fn comes_back_as(&mut self, volume: usize, found: Found, for_ns: u64) {
        let now_ns = self.clock.now_ns();
        let timeline = &mut self.server(volume).timeline;
        let from_ns = timeline.0.back().map_or(now_ns, |(until_ns, _)| *until_ns);
        timeline.add(from_ns.saturating_add(for_ns), found);
    }

    /// A server carries out what it has of connections that are over.
    pub fn land_late_at_server(&mut self, volume: usize) {
        let server = self.server(volume);
        let old = server.sent.iter().filter(|(_, sent)| sent.generation != server.generation);
        let old: Vec<u64> = old.map(|(number, _)| *number).collect();
        old.into_iter().for_each(|number| self.land_sent(volume, number));
    }

    /// A server answers what it has of connections that are over.
    pub fn answer_late_at_server(&mut self, volume: usize) {
        let server = self.server(volume);
        let old = server.sent.iter().filter(|(_, sent)| sent.generation != server.generation);
        let old: Vec<u64> = old.map(|(number, _)| *number).collect();
        old.into_iter().for_each(|number| self.answer_sent(volume, number));
        self.look_at_server(volume);
    }

    /// Carries out and answers the request of an operation that its server has; other parts of the operation are to follow.
    pub fn complete_request(&mut self, volume: usize, id: OpId) {
        if let Some(number) = self.sent_of(volume, id.0) {
            self.answer_sent(volume, number);
            self.look_at_server(volume);
        }
    }

    /// The answers of a server from now on come once more, when the script says so ([`World::answer_again_at_server`]).
    pub fn answer_twice_at_server(&mut self, volume: usize) {
        self.server(volume).answers_twice = true;
    }

    /// The answers of a server come once more.
    pub fn answer_again_at_server(&mut self, volume: usize) {
        let echoes: Vec<u64> = self.server(volume).echoes.keys().copied().collect();
        echoes.into_iter().for_each(|number| self.answer_again(volume, number));
        self.look_at_server(volume);
    }

    /// The disk behind a server as it is now, to come back later.
    #[must_use]
    pub fn as_it_is(&self, volume: usize) -> Found {
        Found::Older(self.tags_of_origin(volume))
    }

    /// Keeps answers of a server's client from the engine, or lets them go on.
    pub fn silence_server(&mut self, volume: usize, is_silent: bool) {
        self.server(volume).is_silent = is_silent;
        self.look_at_server(volume);
    }

    /// A connection may be lost with a request.
    pub(super) fn break_by_chance(&mut self, volume: usize) {
        let Servers { all, random, trouble, .. } = &mut self.servers;
        let Some(server) = all[volume].as_mut().filter(|_| random.chance(trouble.losses)) else { return };
        let at_ns = self.clock.now_ns() + random.below(BREAK_NS);
        self.clock.at(at_ns, event(volume, server.generation & 0xffff_ffff, BREAK));
    }

    pub(super) fn break_by_plan(&mut self, volume: usize, generation: u64) {
        let is_healed = self.servers.trouble == Trouble::default();
        if self.server(volume).generation == generation && !is_healed {
            self.lose_connection(volume);
        }
    }

    /// Loses the connection to the server of a volume; what comes of that is drawn.
    pub(super) fn lose_connection(&mut self, volume: usize) {
        let now_ns = self.clock.now_ns();
        let Servers { all, random, trouble, .. } = &mut self.servers;
        let Some(server) = all[volume].as_mut().filter(|server| server.generation != OVER) else { return };
        let away_ns = trouble.away_ns;
        let stays_ns = match random.below(8) {
            0..=2 => 0,
            3 if away_ns > 0 => u64::MAX,
            _ => random.below(away_ns + 1),
        };
        let mut until_ns = now_ns.saturating_add(stays_ns);
        if stays_ns > 0 {
            server.timeline.add(until_ns, Found::Nobody);
        }
        if random.below(100) < trouble.impostors {
            let sectors = self.origins[volume].sectors();
            let found = match (random.below(4), &server.older) {
                (0, _) => Found::Smaller(sectors - random.between(1, sectors.min(64))),
                (1, _) => Found::Another { one_in: *random.pick(&[1, 1, 4, 16]) },
                (_, Some(older)) => Found::Older(Rc::clone(older)),
                (_, None) => Found::Another { one_in: 1 },
            };
            until_ns = until_ns.saturating_add(random.below(away_ns + 1));
            server.timeline.add(until_ns, found);
        }
        let is_dead = random.below(100) < trouble.deaths;
        let renews = random.one_in(3);
        self.lose(volume, if is_dead { Rest::Dead { is_all_lost: false } } else { Rest::ByChance });
        if renews {
            let older = Some(self.tags_of_origin(volume));
            self.server(volume).older = older;
        }
    }

    pub(super) fn lose(&mut self, volume: usize, rest: Rest) {
        let now = self.now();
        let World { servers, origins, clock, .. } = self;
        let Servers { all, random, counts, .. } = servers;
        let Some(server) = all[volume].as_mut() else { return };
        if !server.remote.lost(server.generation, now) {
            return;
        }
        server.judge.lost(now);
        let generation = std::mem::replace(&mut server.generation, OVER);
        counts.losses += 1;
        // What landed is over: later flushes cover it.
        for sent in server.sent.values_mut() {
            if let Some(serial) = sent.landed.take() {
                origins[volume].answered(serial);
            }
        }
        if rest == Rest::ByChance {
            delay_some(server, generation, random, |at_ns, number| {
                clock.at(now.0 + at_ns, event(volume, number, LAND));
            });
        }
        self.note(What::Server { volume, what: "is lost" });
        if let Rest::Dead { is_all_lost } = rest {
            self.server_dies(volume, is_all_lost);
        }
    }

    /// A server dies, with any part of what was not flushed.
    pub(super) fn server_dies(&mut self, volume: usize, is_all_lost: bool) {
        self.servers.counts.deaths += 1;
        self.note(What::Server { volume, what: "is dead" });
        let (unheard, carried_out) = self.unheard_changes(volume);
        let unflushed = self.origins[volume].unflushed().to_vec();
        let World { servers, origins, .. } = self;
        let Servers { all, random, .. } = servers;
        let mut under_way = Vec::new();
        if let Some(server) = &mut all[volume] {
            // What it had not carried out is torn at best; what it answered before may still be heard.
            server.sent.retain(|_, sent| {
                if let (false, Some(content)) = (sent.has_landed, &sent.content) {
                    under_way.push((sent.first, content.clone()));
                }
                sent.has_landed
            });
        }
        let luck = random.below(5);
        let mut lost = origins[volume].die(under_way, &mut |write| match is_all_lost {
            true => Fate::Lost,
            false => Fate::draw(write.content.sectors(), luck, random),
        });
        // What the client was not answered, it sends again, and of what failed it was told: only what lay below is lost.
        let is_failed = |sector: &u64| {
            let mut covering =
                unflushed.iter().rev().filter(|write| write.content.at(write.first, *sector).is_some());
            covering.next().is_some_and(|write| write.is_failed)
        };
        let is_above = |sector: &mut u64| {
            unheard.iter().any(|(first, content)| content.at(*first, *sector).is_some()) || is_failed(sector)
        };
        let below: Vec<u64> = lost.extract_if(.., is_above).collect();
        self.lose_at_origin(volume, &lost);
        if self.servers.get(volume).is_some() {
            self.note_lost(volume, lost);
        }
        let is_lost = |sector: &u64| {
            let is_acknowledged =
                |write: &&Unflushed| !write.is_failed && !carried_out.contains(&write.serial);
            let good = unflushed.iter().rev().filter(is_acknowledged);
            let mut acknowledged = good.filter_map(|write| write.content.at(write.first, *sector));
            acknowledged.next().is_some_and(|content| content != self.origins[volume].read(*sector, 1)[0])
        };
        let below: Vec<u64> = below.into_iter().filter(is_lost).collect();
        self.lose_at_origin(volume, &below);
    }

    /// Changes of an origin whose answers its client has not heard: where they begin and their content, and the serials of what
    /// the server carried out of them.
    fn unheard_changes(&mut self, volume: usize) -> (Vec<(u64, Content)>, BTreeSet<u64>) {
        let Some(server) = self.servers.get(volume) else { return Default::default() };
        let heard = server.heard.clone();
        let origin = Target::Origin(VolumeIndex(volume as u8));
        let unheard = self.in_flight.iter().filter(|(op, in_flight)| {
            in_flight.view.target == origin && in_flight.view.kind.is_change() && !heard.contains(op)
        });
        let content = |in_flight: &InFlight| {
            let kept = in_flight.content.clone();
            (in_flight.view.first, kept.unwrap_or(Content::Zeroes(in_flight.view.sectors)))
        };
        let changes = unheard.clone().map(|(_, in_flight)| content(in_flight)).collect();
        let carried_out = unheard.flat_map(|(_, in_flight)| &in_flight.carried_out).copied().collect();
        (changes, carried_out)
    }

    /// Servers may die behind the end of a process.
    pub(in crate::world) fn servers_die_by_chance(&mut self, volumes: &[usize]) {
        for &volume in volumes {
            let Servers { random, trouble, leftovers, .. } = &mut self.servers;
            if random.below(200) < trouble.deaths {
                leftovers.retain(|leftover| leftover.target != Target::Origin(VolumeIndex(volume as u8)));
                self.server_dies(volume, false);
            }
        }
    }

    /// The volumes whose origins are behind servers in this life.
    pub(in crate::world) fn remote_volumes(&self) -> Vec<usize> {
        (0..self.origins.len()).filter(|volume| self.servers.all[*volume].is_some()).collect()
    }
}

/// Of the requests that a server has, it carries some out in their time, some later, and some never.
fn delay_some(server: &mut Server, generation: u64, random: &mut Random, mut lands: impl FnMut(u64, u64)) {
    let open = server.sent.iter().filter(|(_, sent)| !sent.has_landed && sent.generation == generation);
    let open: Vec<u64> = open.map(|(number, _)| *number).collect();
    for number in open {
        match random.below(3) {
            0 => drop(server.sent.remove(&number)),
            1 => {
                let Some(sent) = server.sent.remove(&number) else { continue };
                let number = server.next;
                server.next += 1;
                server.sent.insert(number, sent);
                lands(random.below(SETTLE_NS), number);
            }
            // It never does, not even when the server dies, long after it could be in the way of others.
            _ if matches!(server.sent[&number].fault, Some(Fault::Hang)) => drop(server.sent.remove(&number)),
            _ => (),
        }
    }
}
