//! Offers: the exports that clients can connect to, and their latencies. One list for all doors.

use super::Export;
use super::pieces::Kind;
use crate::doors::latency::{Histograms, Latencies};
use engine::units::VolumeIndex;

struct Served {
    volume: VolumeIndex,
    histograms: Histograms,
}

/// All exports, by place.
pub(crate) struct Offers {
    /// Exports by place; `None` for a closed one.
    exports: Vec<Option<Export>>,
    served: Vec<Served>,
}

impl Offers {
    pub(crate) fn new(exports: Vec<(VolumeIndex, Export)>) -> Offers {
        let (volumes, exports): (Vec<_>, Vec<_>) =
            exports.into_iter().map(|(volume, export)| (volume, Some(export))).unzip();
        let served =
            volumes.into_iter().map(|volume| Served { volume, histograms: Histograms::new() }).collect();
        Offers { exports, served }
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
        let served = Served { volume, histograms: Histograms::new() };
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

    /// A client has waited for a reply.
    pub(crate) fn record(&mut self, place: usize, kind: Kind, waited_ns: u64) {
        let histograms = &mut self.served[place].histograms;
        match kind {
            Kind::Read => histograms.read.saturating_record(waited_ns),
            Kind::Write => histograms.write.saturating_record(waited_ns),
            Kind::Flush => histograms.flush.saturating_record(waited_ns),
            Kind::Trim => histograms.discard.saturating_record(waited_ns),
            Kind::WriteZeroes => histograms.write_zeroes.saturating_record(waited_ns),
        }
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
