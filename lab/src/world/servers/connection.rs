//! Connections to servers: who looks for one, what is found there, and what the client makes of it. The daemon's threads do the
//! same ([`engine::remote::Task`]).

use super::trouble::{Found, OVER};
use super::{OWN, RELEASE, SEEK, Servers, TAKE_BACK, TELL, TELL_NS, World, event};
use crate::content::{self, Tag};
use crate::disk::faults::Kind;
use crate::violation;
use crate::world::What;
use crate::world::start::checksum_at;
use engine::effect::{Errno, Target};
use engine::remote::facts::{Difference, Facts, Known};
use engine::remote::{Operation, Owner, Phase, SETTLE_NS, Task};
use engine::units::{SECTORS_PER_BLOCK, VolumeIndex};

/// The first pause between two attempts to find a server, which doubles, and the longest one.
const PAUSE_NS: u64 = 50_000_000;
const PAUSE_NS_MAX: u64 = 2_000_000_000;
/// Longest time until all that used a connection has ended.
const END_NS: u64 = 3_000_000;

impl World {
    /// Does what the client of a server wants done now.
    pub(super) fn look_at_server(&mut self, volume: usize) {
        while self.violation.is_none() && self.servers.get(volume).is_some() {
            let now = self.now();
            let World { servers, clock, .. } = self;
            let Servers { all, random, .. } = servers;
            let Some(server) = all[volume].as_mut() else { return };
            match server.remote.task(now) {
                Task::Wait | Task::End => break,
                Task::WaitUntil(until) => {
                    if server.release_at.replace(until) != Some(until) {
                        clock.at(until.0, event(volume, 0, RELEASE));
                    }
                    break;
                }
                Task::Release => self.send_waiting(volume),
                Task::Renew => self.renew(volume),
                Task::Reconnect => {
                    if !std::mem::replace(&mut server.is_seeking, true) {
                        clock.at(now.0 + random.below(END_NS), event(volume, 0, TAKE_BACK));
                    }
                    break;
                }
            }
        }
        let now_ns = self.clock.now_ns();
        let Servers { all, random, .. } = &mut self.servers;
        if let Some(server) = &mut all[volume]
            && server.remote.has_answers()
            && !server.is_silent
            && !std::mem::replace(&mut server.is_telling, true)
        {
            self.clock.at(now_ns + random.below(TELL_NS), event(volume, 0, TELL));
        }
    }

    fn send_waiting(&mut self, volume: usize) {
        let cookies: Vec<u64> = self.server(volume).remote.waiting().collect();
        cookies.into_iter().for_each(|cookie| self.send(volume, cookie));
    }

    /// Makes everything durable on the connection there is, and then takes another one.
    fn renew(&mut self, volume: usize) {
        let server = self.server(volume);
        if server.remote.is_unflushed() && !std::mem::replace(&mut server.has_own_flush, true) {
            server.judge.asked(OWN, Kind::Flush, 0, 0);
            let cookie = server.remote.submit(Operation::FLUSH, Owner::Driver, OWN, |_, _| 0);
            if let Some(cookie) = cookie {
                self.send(volume, cookie);
            }
            return;
        }
        server.remote.give_away();
        server.generation = OVER;
    }

    /// A new connection is wanted, as when the size is asked for.
    pub(in crate::world) fn renew_connection(&mut self, volume: usize) {
        if let Some(server) = self.servers.get(volume) {
            server.remote.want_renewal();
            self.look_at_server(volume);
        }
    }

    /// All that used a lost connection has ended.
    pub(super) fn take_back(&mut self, volume: usize) {
        let now = self.now();
        let server = self.server(volume);
        server.judge.taken_back();
        server.remote.take_back(now);
        let owes = server.remote.owes_failure();
        let target = Target::Origin(VolumeIndex(volume as u8));
        for in_flight in self.in_flight.values_mut().filter(|other| other.view.target == target) {
            in_flight.fault = None;
        }
        if owes {
            self.notes.lost(volume, Errno::IO);
            self.oracle.heard_of_loss(volume);
            self.oracle.noted_losses();
        }
        self.seek(volume);
    }

    /// Looks for a server.
    pub(super) fn seek(&mut self, volume: usize) {
        let now = self.now();
        let right = self.facts(volume);
        let known = self.server(volume).remote.known();
        match self.server(volume).timeline.now(now.0) {
            Found::Nobody => self.sought_in_vain(volume),
            Found::Right => {
                let disk = &self.origins[volume];
                let verdict = known.compare(&right, |offset| Ok::<u32, Errno>(checksum_at(disk, offset)));
                match verdict {
                    Ok(Ok(())) => self.found(volume, right),
                    Ok(Err(difference)) => {
                        let what = format!("origin {volume} came back, and is refused: {difference}");
                        self.fail(violation::Kind::Contract, what);
                    }
                    Err(errno) => {
                        let what = format!("origin {volume} is read behind its end: errno {}", errno.0);
                        self.fail(violation::Kind::Contract, what);
                    }
                }
            }
            wrong => self.judge_impostor(volume, &known, right, &wrong),
        }
    }

    /// The right disk is back.
    fn found(&mut self, volume: usize, facts: Facts) {
        let flush_ns = self.setup.servers.flush_ns;
        let server = self.server(volume);
        server.remote.recognised(facts, flush_ns);
        server.generation = server.remote.go_up();
        server.judge.is_back();
        (server.is_seeking, server.pause_ns, server.has_own_flush) = (false, 0, false);
        let again = server.remote.waiting().count() as u64;
        self.servers.counts.sent_again += again;
        self.note(What::Server { volume, what: "is back" });
        self.send_waiting(volume);
    }

    fn sought_in_vain(&mut self, volume: usize) {
        let now = self.now();
        let server = self.server(volume);
        let is_given_up = server.judge.sought_in_vain(now);
        server.remote.sought_in_vain(now);
        server.pause_ns = (2 * server.pause_ns).clamp(PAUSE_NS, PAUSE_NS_MAX);
        let at_ns = now.0 + server.pause_ns;
        self.servers.counts.given_up += u64::from(is_given_up);
        self.clock.at(at_ns, event(volume, 0, SEEK));
    }

    /// Something else is in the place of an origin: it must be refused, if it can be told from the right one at all.
    fn judge_impostor(&mut self, volume: usize, known: &Known, right: Facts, wrong: &Found) {
        let disk = &self.origins[volume];
        let checksum = |offset_bytes: u64| match wrong {
            Found::Another { one_in } => {
                let is_other = (offset_bytes / 4096).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                checksum_at(disk, offset_bytes) ^ u32::from(is_other.is_multiple_of(*one_in))
            }
            Found::Older(tags) => checksum_of(tags, offset_bytes),
            _ => checksum_at(disk, offset_bytes),
        };
        let size_bytes = match wrong {
            Found::Smaller(sectors) => sectors * 512,
            _ => right.size_bytes,
        };
        let is_smaller = size_bytes < known.facts.size_bytes;
        let is_told =
            is_smaller || known.places.iter().any(|place| checksum(place.offset_bytes) != place.checksum);
        if !is_told {
            let is_blind = matches!(wrong, Found::Another { one_in: 1 })
                && self.server(volume).judge.is_any_place_known();
            if is_blind {
                let what = format!("origin {volume} is another disk, and its client knows no place of it");
                self.fail(violation::Kind::Contract, what);
            }
            self.servers.counts.alike += 1;
            return self.sought_in_vain(volume);
        }
        let facts = Facts { size_bytes, ..right };
        let verdict = known.compare(&facts, |offset_bytes| {
            if offset_bytes + 4096 > size_bytes { Err(Errno::INVAL) } else { Ok(checksum(offset_bytes)) }
        });
        match verdict {
            Ok(Ok(())) => {
                let what = format!("in the place of origin {volume} something else is used: {}", name(wrong));
                self.fail(violation::Kind::Contract, what);
            }
            Ok(Err(Difference::Shrunk { .. } | Difference::Content { .. })) | Err(_) => {
                self.servers.counts.refused += 1;
                self.note(What::Server { volume, what: "is another one" });
                self.sought_in_vain(volume);
            }
            Ok(Err(difference)) => {
                let what = format!("origin {volume} is refused for what is not so: {difference}");
                self.fail(violation::Kind::Contract, what);
            }
        }
    }

    /// A request was not answered in time: the device counts as gone.
    pub(super) fn time_out_sent(&mut self, volume: usize, number: u64) {
        let server = self.server(volume);
        let generation = server.generation;
        if server.sent.get(&number).is_some_and(|sent| sent.generation == generation) {
            self.time_out_device(Target::Origin(VolumeIndex(volume as u8)));
        }
    }

    /// The device counts as gone: the server may still carry out some of what it has.
    pub(in crate::world) fn end_server(&mut self, volume: usize) {
        let now_ns = self.clock.now_ns();
        let Servers { all, random, .. } = &mut self.servers;
        let Some(server) = all[volume].as_mut() else { return };
        server.remote.end();
        server.judge.ended();
        server.generation = OVER;
        let mut later = Vec::new();
        server.sent.retain(|number, sent| {
            let is_kept = sent.has_landed || random.one_in(2);
            if is_kept && !sent.has_landed {
                later.push((*number, random.below(SETTLE_NS)));
            }
            is_kept
        });
        for (number, after_ns) in later {
            self.clock.at(now_ns + after_ns, event(volume, number, super::LAND));
        }
    }

    /// Whether the device behind a server counts as gone until the next start.
    #[must_use]
    pub fn is_server_gone(&self, volume: usize) -> bool {
        let server = self.servers.all[volume].as_ref();
        server.is_some_and(|server| server.remote.phase() == Phase::Ended)
    }
}

fn name(wrong: &Found) -> &'static str {
    match wrong {
        Found::Right | Found::Nobody => "nothing",
        Found::Another { .. } => "another disk",
        Found::Older(_) => "an older copy",
        Found::Smaller(_) => "a smaller disk",
    }
}

/// The checksum of a block of a disk with this content; 0 behind its end.
fn checksum_of(tags: &[Tag], offset_bytes: u64) -> u32 {
    let first = (offset_bytes / 512) as usize;
    tags.get(first..first + SECTORS_PER_BLOCK as usize).map_or(0, content::checksum)
}
