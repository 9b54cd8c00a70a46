//! Sizes of the cache, as shares of what a trace touches.

use crate::replay::share_of_footprint;

/// A size of the cache as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeWanted {
    /// So many percent of the bytes that the trace touches, but at least the smallest cache.
    Percent(u64),
    /// So many bytes.
    Bytes(u64),
}

/// A size of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// In bytes.
    pub bytes: u64,
    /// The shares of the footprint that come to this size; none if it was asked for in bytes.
    pub footprint_percents: Vec<u64>,
}

/// The sizes for a trace with this footprint, the smallest first, each once.
#[must_use]
pub fn sizes(wanted: &[SizeWanted], footprint_bytes: u64) -> Vec<Size> {
    let mut sizes: Vec<Size> = Vec::new();
    for &one in wanted {
        let (bytes, percent) = match one {
            SizeWanted::Percent(percent) => (share_of_footprint(footprint_bytes, percent), Some(percent)),
            SizeWanted::Bytes(bytes) => (bytes, None),
        };
        let at = sizes.iter().position(|size| size.bytes == bytes).unwrap_or_else(|| {
            sizes.push(Size { bytes, footprint_percents: Vec::new() });
            sizes.len() - 1
        });
        let known = &mut sizes[at].footprint_percents;
        known.extend(percent.filter(|percent| !known.contains(percent)));
        known.sort_unstable();
    }
    sizes.sort_by_key(|size| size.bytes);
    sizes
}
