//! Where a byte lies on the platters, and how long the arm takes to get there.
//!
//! Tracks are numbered from the outside to the inside, and bytes follow each other along them. A
//! place is given as *media time*: the nanoseconds that a head would need to read all that lies
//! before it. One track is one revolution, so media time divided by the period is the track, and
//! the rest is the angle. Two neighbours are as far apart in media time as the platter turns
//! between them: whoever goes on where it stopped never waits, without any rounding to be
//! careful about. Only from one band of tracks to the next the angle jumps, for a disk goes on with another
//! head there; so streams that are far from each other do not keep in step with the platter for ever.

use crate::parameters::HddParameters;
use alloc::vec::Vec;

const MICROSECOND_NS: u64 = 1000;
const MINUTE_NS: u64 = 60_000_000_000;
const SECTOR_BYTES: u64 = 512;

/// Tracks that one head reads before another one goes on. By taste: half a second of reading.
const BAND_TRACKS: u64 = 64;

/// Tracks of equal length.
#[derive(Debug)]
struct Zone {
    start_byte: u64,
    start_ns: u64,
    track_bytes: u64,
}

/// The layout of a disk.
#[derive(Debug)]
pub(super) struct Geometry {
    period_ns: u64,
    zones: Vec<Zone>,
    tracks: u64,
    seek: Seek,
    /// The angle, as a time, under which the heads stand at time 0.
    phase_ns: u64,
}

impl Geometry {
    pub(super) fn new(parameters: &HddParameters, size_bytes: u64, seed: u64) -> Geometry {
        let period_ns = MINUTE_NS / parameters.rpm;
        let mut zones: Vec<Zone> = Vec::new();
        for (permille, mb_per_s) in parameters.zone_start_permille.iter().zip(&parameters.zone_mb_per_s) {
            let sectors = mb_per_s * period_ns / 1000 / SECTOR_BYTES;
            let track_bytes = sectors.max(1) * SECTOR_BYTES;
            let wanted_byte = size_bytes / 1000 * permille + size_bytes % 1000 * permille / 1000;
            // The zone before ends with a whole track, so this one begins a little later than asked.
            let (start_byte, start_ns) = zones.last().map_or((0, 0), |before| {
                let tracks = (wanted_byte - before.start_byte.min(wanted_byte)).div_ceil(before.track_bytes);
                (before.start_byte + tracks * before.track_bytes, before.start_ns + tracks * period_ns)
            });
            zones.push(Zone { start_byte, start_ns, track_bytes });
        }
        // On a very small disk several zones can begin at the same track: the last of them stays.
        for index in (1..zones.len()).rev() {
            if zones[index].start_byte == zones[index - 1].start_byte {
                zones.remove(index - 1);
            }
        }
        let mut geometry = Geometry {
            period_ns,
            zones,
            tracks: 0,
            seek: Seek::new(parameters),
            phase_ns: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % period_ns,
        };
        geometry.tracks = geometry.track(geometry.place_ns(size_bytes)) + 1;
        geometry
    }

    /// The media time of a byte.
    pub(super) fn place_ns(&self, byte: u64) -> u64 {
        let after = self.zones.partition_point(|zone| zone.start_byte <= byte);
        let zone = &self.zones[after - 1];
        let (track, rest) =
            ((byte - zone.start_byte) / zone.track_bytes, (byte - zone.start_byte) % zone.track_bytes);
        zone.start_ns + track * self.period_ns + rest * self.period_ns / zone.track_bytes
    }

    /// The byte that a head reaches at a media time.
    pub(super) fn byte_at(&self, place_ns: u64) -> u64 {
        let after = self.zones.partition_point(|zone| zone.start_ns <= place_ns);
        let zone = &self.zones[after - 1];
        let (track, rest) =
            ((place_ns - zone.start_ns) / self.period_ns, (place_ns - zone.start_ns) % self.period_ns);
        zone.start_byte + track * zone.track_bytes + rest * zone.track_bytes / self.period_ns
    }

    fn track(&self, place_ns: u64) -> u64 {
        place_ns / self.period_ns
    }

    /// The time that the platter turns after `now_ns` until `place_ns` is under the head of its track.
    pub(super) fn rotation_ns(&self, now_ns: u64, place_ns: u64) -> u64 {
        let band = self.track(place_ns) / BAND_TRACKS;
        let turned_ns = (band.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) % self.period_ns;
        let under_head_ns = (now_ns % self.period_ns + self.phase_ns + turned_ns) % self.period_ns;
        (place_ns % self.period_ns + self.period_ns - under_head_ns) % self.period_ns
    }

    /// The time of the arm from one place to the track of another.
    pub(super) fn seek_ns(&self, from_place_ns: u64, to_place_ns: u64) -> u64 {
        let distance = self.track(from_place_ns).abs_diff(self.track(to_place_ns));
        self.seek.time_ns(distance, self.tracks)
    }
}

/// The seek curve: `a + b * sqrt(distance)` up to the knee, from there on a straight line.
#[derive(Debug)]
struct Seek {
    track_to_track_ns: u64,
    knee_ns: u64,
    full_stroke_ns: u64,
    knee_permille: u64,
}

/// The full stroke, as a distance with fraction bits.
const STROKE: u64 = 1 << 32;

impl Seek {
    fn new(parameters: &HddParameters) -> Seek {
        Seek {
            track_to_track_ns: parameters.seek_track_to_track_us * MICROSECOND_NS,
            knee_ns: parameters.seek_average_us * MICROSECOND_NS,
            full_stroke_ns: parameters.seek_full_stroke_us * MICROSECOND_NS,
            knee_permille: parameters.seek_knee_permille,
        }
    }

    /// The time for `distance` tracks out of `tracks`.
    fn time_ns(&self, distance: u64, tracks: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let tracks = tracks.max(distance);
        // No product below exceeds 64 bits: distances are at most 2^32, times below 2^28.
        let distance = distance.min(STROKE - 1) * STROKE / tracks;
        let knee = STROKE / 1000 * self.knee_permille;
        if distance <= knee {
            // The root of a share in 2^-32 is a share in 2^-16.
            let root = (distance * STROKE / knee).isqrt();
            return self.track_to_track_ns + (self.knee_ns - self.track_to_track_ns) * root / (1 << 16);
        }
        let (beyond, line) = (distance - knee, STROKE - knee);
        self.knee_ns + (self.full_stroke_ns - self.knee_ns) * beyond / line
    }
}

#[cfg(test)]
mod tests {
    use super::Geometry;
    use crate::parameters::{HddParameters, Media};

    fn parameters() -> HddParameters {
        let Media::Hdd(hdd) = crate::find("hdd").unwrap().media else { panic!("a hard disk") };
        hdd
    }

    #[test]
    fn media_time_rises_with_the_bytes_and_leads_back_to_them() {
        for size_bytes in [512, 3 << 20, 100 << 20, 8 << 30, 2_000_398_934_016] {
            let geometry = Geometry::new(&parameters(), size_bytes, 1);
            let mut before = 0;
            for step in 0..=1000 {
                let byte = size_bytes / 1000 * step;
                let place_ns = geometry.place_ns(byte);
                assert!(place_ns >= before);
                assert!(byte - geometry.byte_at(place_ns) <= 1, "rounding loses a byte at most");
                before = place_ns;
            }
        }
    }

    #[test]
    fn seeks_take_what_the_data_sheet_says() {
        let parameters = parameters();
        let size_bytes = 2_000_398_934_016;
        let geometry = Geometry::new(&parameters, size_bytes, 1);
        let last = geometry.place_ns(size_bytes - 512);
        assert_eq!(geometry.seek_ns(last, last), 0);
        let next_us = geometry.seek_ns(0, geometry.period_ns) / 1000;
        assert!(next_us.abs_diff(parameters.seek_track_to_track_us) < 50);
        assert!((geometry.seek_ns(0, last) / 1000).abs_diff(parameters.seek_full_stroke_us) < 50);
        assert_eq!(geometry.seek_ns(0, last), geometry.seek_ns(last, 0));
        let places = |step: u64| geometry.place_ns(size_bytes / 200 * step);
        let sum: u64 = (0..200)
            .flat_map(|from| (0..200).map(move |to| (from, to)))
            .map(|(from, to)| geometry.seek_ns(places(from), places(to)))
            .sum();
        let average_us = sum / 40_000 / 1000;
        assert!(average_us.abs_diff(parameters.seek_average_us) < 400, "{average_us}");
    }

    #[test]
    fn who_goes_on_where_it_stopped_does_not_wait() {
        let geometry = Geometry::new(&parameters(), 8 << 30, 77);
        let begin_ns = geometry.rotation_ns(0, geometry.place_ns(4096 * 1000));
        let mut now_ns = begin_ns;
        for block in 1000..9000 {
            let place_ns = geometry.place_ns(4096 * block);
            assert_eq!(geometry.rotation_ns(now_ns, place_ns), 0);
            now_ns += geometry.place_ns(4096 * (block + 1)) - place_ns;
        }
        let mb_per_s = 4096 * 8000 * 1000 / (now_ns - begin_ns);
        assert!(mb_per_s.abs_diff(parameters().zone_mb_per_s[0]) <= 1, "{mb_per_s}");
    }
}
