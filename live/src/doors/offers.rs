//! Offers: the exports that clients can connect to, and what is seen of their requests. One list for all doors.

use super::Export;
use super::pieces::Kind;
use super::traffic::{Traffic, salt};
use crate::doors::latency::{Histograms, Latencies};
use engine::units::{Nanos, SectorRange, VolumeIndex};

struct Served {
    volume: VolumeIndex,
    /// The salt of its blocks in a sample.
    salt: u64,
    histograms: Histograms,
}

impl Served {
    fn new(volume: VolumeIndex) -> Served {
        Served { volume, salt: salt(volume), histograms: Histograms::new() }
    }
}

/// The arrival of a client's request, to be given back with its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    place: usize,
    kind: Kind,
    at: Nanos,
}

/// All exports, by place.
pub(crate) struct Offers {
    /// Exports by place; `None` for a closed one.
    exports: Vec<Option<Export>>,
    served: Vec<Served>,
    /// Requests to all of them, as others may look at them.
    pub traffic: Traffic,
}

impl Offers {
    pub(crate) fn new(exports: Vec<(VolumeIndex, Export)>) -> Offers {
        let (volumes, exports): (Vec<_>, Vec<_>) =
            exports.into_iter().map(|(volume, export)| (volume, Some(export))).unzip();
        let served = volumes.into_iter().map(Served::new).collect();
        Offers { exports, served, traffic: Traffic::default() }
    }

    pub(crate) fn exports(&self) -> &[Option<Export>] {
        &self.exports
    }

    /// The volume at a place.
    pub(crate) fn volume(&self, place: usize) -> VolumeIndex {
        self.served[place].volume
    }

    fn place_of(&self, volume: VolumeIndex) -> Option<usize> {
        self.served.iter().position(|served| served.volume == volume)
    }

    /// The place of a volume, and how it is offered now; `None` if it is not.
    pub(crate) fn find(&self, volume: VolumeIndex) -> Option<(usize, &Export)> {
        let place = self.place_of(volume)?;
        Some((place, self.exports[place].as_ref()?))
    }

    /// Offers one more volume: at the place that it had before, if it was offered then and nobody is connected to that any
    /// more, as after [`Offers::close`].
    pub(crate) fn open(&mut self, (volume, export): (VolumeIndex, Export)) {
        let served = Served::new(volume);
        match self.place_of(volume) {
            Some(place) => {
                self.exports[place] = Some(export);
                self.served[place] = served;
            }
            None => {
                self.exports.push(Some(export));
                self.served.push(served);
            }
        }
    }

    /// Offers a volume no longer; its place. Connections to it have to be closed.
    pub(crate) fn close(&mut self, volume: VolumeIndex) -> Option<usize> {
        let place = self.place_of(volume)?;
        self.exports[place] = None;
        Some(place)
    }

    /// Offers a volume with another size; its place. Connections to it have to be closed, so that
    /// clients ask again.
    pub(crate) fn resize(&mut self, volume: VolumeIndex, size_bytes: u64) -> Option<usize> {
        let place = self.place_of(volume)?;
        if let Some(export) = &mut self.exports[place] {
            export.size_bytes = size_bytes;
        }
        Some(place)
    }

    /// Announces a volume as read-only or not.
    pub(crate) fn set_read_only(&mut self, volume: VolumeIndex, read_only: bool) {
        if let Some(place) = self.place_of(volume)
            && let Some(export) = &mut self.exports[place]
        {
            export.read_only = read_only;
        }
    }

    /// A client's request has arrived. Every door says so of each request, and [`Offers::answered`] when it is answered.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, place: usize, kind: Kind, range: SectorRange, now: Nanos) -> Arrival {
        self.see(place, kind, range, now);
        Arrival { place, kind, at: now }
    }

    /// Shows a request to [`Traffic`]. This and [`Offers::answered`] are functions of their own in every build, so that
    /// `scripts/bench-watching` can count their instructions.
    #[inline(never)]
    fn see(&mut self, place: usize, kind: Kind, range: SectorRange, now: Nanos) {
        let Served { volume, salt, .. } = self.served[place];
        self.traffic.see(volume, salt, kind, range, now);
    }

    /// A client's request is answered.
    #[inline(never)]
    pub(crate) fn answered(&mut self, arrival: Arrival, now: Nanos) {
        self.served[arrival.place].histograms.record(arrival.kind, now.since(arrival.at));
    }

    /// Latencies of a volume's clients so far.
    pub(crate) fn latencies(&self, volume: VolumeIndex) -> Latencies {
        self.place_of(volume).map_or_else(Latencies::default, |place| self.served[place].histograms.summary())
    }

    /// A copy of the histograms of a volume's clients; `None` if it is not offered.
    pub(crate) fn histograms(&self, volume: VolumeIndex) -> Option<Histograms> {
        self.place_of(volume).map(|place| self.served[place].histograms.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_seen_and_its_time_kept() {
        let volume = VolumeIndex(0);
        let export = Export {
            name: "a".to_owned(),
            description: String::new(),
            size_bytes: 1 << 40,
            min_block_bytes: 512,
            read_only: false,
        };
        let mut offers = Offers::new(vec![(volume, export)]);
        let _ = offers.traffic.take_sample(5, Vec::with_capacity(1000));
        for number in 0..20_000_u64 {
            let range = SectorRange { start: number * 8, sectors: 8 };
            let arrival = offers.arrived(0, Kind::Read, range, Nanos(number * 1000));
            offers.answered(arrival, Nanos(number * 1000 + 20_000 + number % 1000 * 100));
        }
        let read = offers.latencies(volume).read;
        assert_eq!(read.count, 20_000);
        assert!((69_000..71_000).contains(&read.p50_ns), "{read:?}");
        let sampled = offers.traffic.take_sample(5, Vec::new());
        assert_eq!((sampled.read_blocks, sampled.written_blocks, sampled.dropped), (20_000, 0, 0));
        assert!((550..700).contains(&sampled.accesses.len()), "{}", sampled.accesses.len());
    }
}
