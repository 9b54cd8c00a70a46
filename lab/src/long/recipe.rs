//! The recipe of an engine on a new cache: a run may need it a second time.

use engine::composition::Composition;
use engine::effect::{Errno, WriteMode};
use engine::engine::Engine;
use engine::format::{Layout, SUPERBLOCK_BYTES, Superblock, VolumeRecord};
use engine::image::{Image, ReadAt};
use engine::limits::Config;
use engine::mutation::Mutations;
use engine::recovery::{self, OpenError, Opened, Options};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeId};
use std::collections::BTreeMap;

/// Layout, composition and volumes that an engine is opened with.
pub(super) struct Recipe {
    pub layout: Layout,
    pub composition: Composition,
    pub config: Config,
    /// The volumes' blocks and modes.
    pub volumes: Vec<(u64, WriteMode)>,
}

impl Recipe {
    /// The engine on a new cache, of which no device knows.
    pub(super) fn open_blank(&self, cache_bytes: u64) -> Engine {
        self.create(&mut BlankImage { size_bytes: cache_bytes, written: BTreeMap::new() })
    }

    /// The engine on a new cache.
    pub(super) fn create<I: Image>(&self, image: &mut I) -> Engine {
        let superblock = self.superblock(image.size_bytes());
        let opened = recovery::format(image, &superblock)
            .and_then(|()| recovery::write_superblock(image, &superblock, Mutations::NONE))
            .map_err(recovery::OpenError::Device)
            .and_then(|()| self.recover(image))
            .expect("a new cache in memory opens");
        Engine::new(opened, self.config)
    }

    /// Opens the cache again.
    pub(super) fn recover<I: Image>(&self, image: &mut I) -> Result<Opened, OpenError> {
        let index_budget_bytes = self.composition.index_bytes(&self.layout, false);
        recovery::open(image, Options { index_budget_bytes, repair: false, mutations: Mutations::NONE })
    }

    /// The superblock of a new cache.
    fn superblock(&self, cache_bytes: u64) -> Superblock {
        let volumes = &self.volumes;
        assert!((1..=VOLUMES_MAX).contains(&volumes.len()), "1 to {VOLUMES_MAX} volumes");
        let records = volumes.iter().enumerate().map(|(at, &(blocks, mode))| {
            assert!(blocks > 0, "an origin has at least one block");
            let (name, origin) = (format!("volume-{at}"), format!("origin-{at}"));
            let id = VolumeId(1 + at as u32);
            VolumeRecord { mode, ..VolumeRecord::new(id, &name, &origin, blocks * SECTORS_PER_BLOCK) }
        });
        Superblock {
            composition: self.composition.text(),
            profile: "lab".into(),
            ..Superblock::of_new_cache([1; 16], cache_bytes, self.layout)
        }
        .with_volumes(records)
    }
}

/// A device of zeroes that remembers the few blocks written to it, for the recovery of a new cache.
struct BlankImage {
    size_bytes: u64,
    written: BTreeMap<u64, [u8; BLOCK_BYTES as usize]>,
}

const _: () = assert!(SUPERBLOCK_BYTES.is_multiple_of(BLOCK_BYTES as usize));

impl Image for BlankImage {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        for read in reads {
            let blocks = read.bytes.chunks_mut(BLOCK_BYTES as usize);
            for (block, bytes) in (read.offset_bytes / BLOCK_BYTES..).zip(blocks) {
                match self.written.get(&block) {
                    Some(written) => bytes.copy_from_slice(&written[..bytes.len()]),
                    None => bytes.fill(0),
                }
            }
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let blocks = bytes.chunks_exact(BLOCK_BYTES as usize);
        for (block, bytes) in (offset_bytes / BLOCK_BYTES..).zip(blocks) {
            if bytes.iter().all(|byte| *byte == 0) {
                self.written.remove(&block);
            } else {
                self.written.insert(block, bytes.try_into().expect("a block"));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}
