//! A start: recovery, the checks that may refuse it, and only then the new session (rule 11).

use super::{CleanSample, OpenError, Opened, Options, begin_session, inspect, write_superblock};
use crate::effect::Errno;
use crate::image::Image;
use crate::mutation::{Mutation, Mutations};
use crate::number::index_wide;
use crate::prng::Prng;
use crate::store::Lookup;
use crate::store::log::extents::ExtentKind;
use crate::units::{BLOCK_BYTES, BlockKey, VolumeIndex, payload_checksum};
use alloc::vec::Vec;

/// Clean cached blocks that a start compares with their origins.
pub const SAMPLES: usize = 64;

/// Reason why a start came to nothing.
#[derive(Clone, Debug)]
pub enum StartError<E> {
    /// The cache cannot be opened.
    Open(OpenError),
    /// A check refused the start; nothing was written.
    Refused(E),
}

/// Opens the cache on `image` as [`super::open`] does, if `check` allows it: it is given what recovery found, before
/// anything is written.
///
/// # Errors
/// [`StartError`]; nothing was written unless it is [`OpenError::Device`].
pub fn start<I: Image, E>(
    image: &mut I,
    options: Options,
    check: impl FnOnce(&mut I, &Opened) -> Result<(), E>,
) -> Result<Opened, StartError<E>> {
    let mutations = options.mutations;
    let mut found = inspect(image, options).map_err(StartError::Open)?;
    // RULE 11: a start that is refused changes nothing on the cache. Otherwise the next one would find no clean stop any
    // more, and with it nothing to compare the origin with.
    let is_hasty = mutations.has(Mutation::SessionBeforeChecks);
    if is_hasty {
        found = begin_session(image, found, mutations).map_err(StartError::Open)?;
    }
    if let Err(refusal) = check(image, &found) {
        if mutations.has(Mutation::RefusalForgetsStop) {
            let mut superblock = found.superblock;
            (superblock.update, superblock.clean_stop) = (superblock.update + 1, false);
            write_superblock(image, &superblock, mutations)
                .map_err(|errno| StartError::Open(OpenError::Device(errno)))?;
        }
        return Err(StartError::Refused(refusal));
    }
    if is_hasty {
        return Ok(found);
    }
    begin_session(image, found, mutations).map_err(StartError::Open)
}

/// A block that an origin must have, because the cache has a clean copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The volume.
    pub volume: VolumeIndex,
    /// Its offset on the origin.
    pub offset_bytes: u64,
    /// Its checksum.
    pub checksum: u32,
}

/// State of a block in a cache that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// The origin has it, too.
    Clean,
    /// It is written to the origin once more.
    Dirty,
    /// It was dirty, and cannot be read any more.
    Lost,
}

impl Opened {
    /// State of a block of a volume in the cache, if it is there.
    #[must_use]
    pub fn held(&self, volume: VolumeIndex, block: u64) -> Option<Held> {
        let key = BlockKey::new(volume, block);
        let (extent, cached) = match &self.store {
            super::OpenedStore::Log(log) => (log.store.extent(key), log.store.lookup(key)),
            super::OpenedStore::Slots(store) => (store.extent(key), store.lookup(key)),
        };
        match (extent, cached) {
            (Some(ExtentKind::Lost), _) => Some(Held::Lost),
            (Some(ExtentKind::Zero), _) => Some(Held::Dirty),
            (None, Some(cached)) => Some(if cached.dirty { Held::Dirty } else { Held::Clean }),
            (None, None) => None,
        }
    }

    /// Clean cached blocks with which their origins are compared: all where there are no more than [`SAMPLES`], of more
    /// that many by chance. They are the same until a session begins: a start that was refused is refused again, however
    /// often it is repeated.
    ///
    /// # Errors
    /// The cache device's errno.
    pub fn samples<I: Image>(&self, image: &mut I, mutations: Mutations) -> Result<Vec<Sample>, Errno> {
        if mutations.has(Mutation::SkipSamples) {
            return Ok(Vec::new());
        }
        let superblock = &self.superblock;
        let fold = |number: u64, byte: &u8| number.rotate_left(8) ^ u64::from(*byte);
        let mut numbers = Prng::new(superblock.set_id.iter().fold(superblock.session, fold));
        let mut random = || numbers.next_u64();
        let of_log = self.sample_clean(SAMPLES, &mut random).into_iter();
        let mut samples: Vec<Sample> = of_log
            .map(|(volume, offset_bytes, checksum)| Sample { volume, offset_bytes, checksum })
            .collect();
        for sample in self.sample_clean_slots(SAMPLES, &mut random) {
            let block = image.read(sample.cache_offset_bytes, index_wide(BLOCK_BYTES))?;
            let checksum = payload_checksum(&block);
            // What rotted in the cache says nothing of the origin.
            if sample.checksum.is_none_or(|known| known == checksum) {
                let CleanSample { volume, origin_offset_bytes: offset_bytes, .. } = sample;
                samples.push(Sample { volume, offset_bytes, checksum });
            }
        }
        Ok(samples)
    }
}
