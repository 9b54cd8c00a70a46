//! Rot in what transactions tell of slots (rule 5).

use crate::kinds::TRANSACTIONS;
use crate::steps::*;
use engine::format::COMMIT_RECORD_OFFSETS;
use engine::recovery::OpenError;
use forebay_lab::content::Sector;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{Refusal, World};

crate::scenarios! {
    rule_05_page_of_mappings_rots: OlderPageCounts, damaged, on TRANSACTIONS;
    rule_05_record_of_a_transaction_rots: OlderRecordCounts, damaged, on TRANSACTIONS;
}

/// The number that eight bytes of a sector of the cache are.
fn number(world: &mut World, sector: u64, at: usize) -> u64 {
    match &world.cache().read(sector, 1)[0] {
        Sector::Bytes(bytes) => u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")),
        _ => 0,
    }
}

/// Has the sector rot whose transaction is the higher one.
fn rot_newer(world: &mut World, sectors: [u64; 2], transaction_at: usize) {
    let newer = sectors.into_iter().max_by_key(|sector| number(world, *sector, transaction_at));
    assert!(world.rot_record(newer.expect("two of them"), 77), "it is durable");
}

fn rot_mappings(world: &mut World) {
    let layout = world.setup().slots.expect("a world with slots").layout();
    rot_newer(world, [0, 1].map(|place| layout.slot_page_offset_bytes(0, place) / 512), 16);
}

/// A start refuses the cache, and a repair lets it serve what is left; or it has all.
fn refused_and_repaired(world: &mut World) -> Run {
    match world.try_open()? {
        Ok(()) => return world.verify(),
        Err(Refusal::Cache(OpenError::Pages(_) | OpenError::CommitRecord { .. })) => (),
        Err(other) => {
            return Err(Violation::new(
                Broken::Contract,
                format!("records rotted, and a start says {other}"),
            ));
        }
    }
    let mut changes = 0;
    while !world.repair(changes)? {
        changes += 1;
    }
    world.open()?;
    world.verify()
}

fn rule_05_page_of_mappings_rots(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    write_fua(world, 0, 170, 1)?;
    world.kill(|_| true);
    rot_mappings(world);
    refused_and_repaired(world)
}

fn rule_05_record_of_a_transaction_rots(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.kill(|_| true);
    rot_newer(world, COMMIT_RECORD_OFFSETS.map(|offset_bytes| offset_bytes / 512), 40);
    refused_and_repaired(world)
}
