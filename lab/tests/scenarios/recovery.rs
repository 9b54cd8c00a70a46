//! Hazards 2 and 15, rules 5 and 6: what recovery believes.

use crate::kinds::{Kind as Records, RINGS};
use crate::steps::*;
use engine::effect::{RequestOp, Target, WriteMode};
use engine::format::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Summary, SummaryBuilder};
use engine::recovery::{load_superblock, write_superblock};
use engine::units::SectorRange;
use forebay_lab::content::Sector;
use forebay_lab::disk::faults::Kind;
use forebay_lab::disk::{Content, Fate};
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{AtStake, CutImage, IoView, Setup, World};

crate::scenarios! {
    hazard_02_payload_of_a_torn_batch: SkipPayloadAtRecovery, writeback, on WITH_PAYLOAD;
    hazard_02_header_of_a_torn_batch: SkipHeaderChecksum, in_turns;
    hazard_02_torn_summary: SkipSummaryChecksum, writeback;
    rule_05_summary_without_its_batches: TrustSummaryAboveFlush, writeback;
    hazard_15_summary_that_points_elsewhere: TrustSummaryPlaces, damaged, on WITH_PAYLOAD;
    rule_05_damage_is_not_cut_silently: CutSilently, writeback;
    rule_05_flush_is_noted_though_nobody_writes: FlushNotNoted, damaged, on RINGS;
    rule_05_a_growth_is_noted_with_what_it_dropped: FlushNotNoted, damaged, on RINGS;
    rule_05_the_last_segment_lost_its_head: SkipHeadless, damaged, on RINGS;
    rule_05_a_cut_took_the_last_segments_head: SkipHeadless, damaged, on RINGS;
    rule_05_a_cut_left_the_head_of_the_round_before: SkipHeadless, damaged, on RINGS;
    rule_05_the_end_of_a_clean_stop_is_known: EndNotNoted, damaged, on RINGS;
    rule_05_clean_copies_after_a_repair: TrustCleanAfterRepair, repaired;
    rule_06_stop_does_not_move_the_cut: StopMovesCut, damaged;
    rule_06_dead_tail_by_its_checksum: ForgetChain, writeback, with TrustDeadTail;
    rule_06_dead_tail_by_the_cut: TrustDeadTail, writeback, with ForgetChain;
    rule_06_dead_tail_by_its_session: ForgetSessionBump, writeback;
    rule_06_dead_head_is_wiped: KeepDeadTail, writeback;
    rule_06_one_copy_of_the_superblock_is_whole: SuperblockCopiesTogether, writeback;
    rule_06_changed_behind_a_crash: EditUnflushed, writeback;
    rule_06_recovery_flushes_first: SkipRecoveryFlush, writeback, on RINGS;
    rule_06_old_superblock_is_refused: TrustStaleSuperblock, writeback;
    rule_06_clean_flag_is_cleared: KeepCleanFlag, writeback;
}

/// Whose batches have payload.
const WITH_PAYLOAD: &[Records] = &[Records::Inline, Records::Mirror];

/// Batches in turns: what comes while one is on its way makes the next one.
fn in_turns() -> Setup {
    Setup { config: |config| config.group_commit_wait_ns_max = 0, ..writeback() }
}

/// A start that repairs.
fn repaired() -> Setup {
    let mut setup = damaged();
    setup.repair = true;
    setup
}

/// Keeps the first sectors of a write.
fn first_sectors(write: &AtStake, kept: u64) -> Fate {
    Fate::Torn((0..write.sectors()).map(|at| at < kept).collect())
}

fn hazard_02_payload_of_a_torn_batch(world: &mut World) -> Run {
    begin(world)?;
    world.hold(is_batch);
    let _unfinished = world.write(0, blocks(10, 4));
    world.until_pending(is_batch)?;
    world.cut_power(|write| first_sectors(write, write.sectors() - 8));
    world.open()?;
    world.verify_cut()
}

/// The 17 blocks of a header and 16 blocks of payload, on the device or on the way to it.
const BIG_BATCH_SECTORS: u64 = 17 * 8;

fn hazard_02_header_of_a_torn_batch(world: &mut World) -> Run {
    begin(world)?;
    let is_big = |io: &forebay_lab::world::IoView| is_batch(io) && io.sectors == BIG_BATCH_SECTORS;
    for step in 0..600 {
        world.hold(is_batch);
        let _first = world.write(0, blocks(step * 7 % 1400, 1));
        let small = world.until_pending(is_batch)?;
        // Sixteen entries: three of them, and all checksums, are in the header's second sector.
        for at in 0..16 {
            let _gathered = world.write(0, blocks((step * 37 + at * 2) % 1400, 1));
        }
        world.complete(small.id)?;
        let big = world.until_pending(is_batch)?;
        let before = cache_bytes(world, big.first, 1);
        let is_like_before = before.starts_with(b"FBAYBTCH") && before[84..92] == [16, 0, 0, 0, 16, 0, 0, 0];
        if is_big(&big) && is_like_before {
            world.cut_power(
                |write| {
                    if write.first == big.first { first_sectors(write, 1) } else { Fate::Kept }
                },
            );
            world.open()?;
            return world.verify_cut();
        }
        world.release();
        world.finish()?;
        if free_segments(world) < 10 {
            drain(world, 0)?;
        }
    }
    panic!("no two batches of the same shape at the same place")
}

/// Bytes of a summary of nine batches of a block each: the last record goes over the border of a sector.
const NINE_RECORDS_BYTES: [u8; 4] = (9 * 60u32).to_le_bytes();

fn hazard_02_torn_summary(world: &mut World) -> Run {
    begin(world)?;
    world.hold(is_summary);
    for step in 0..3000 {
        let ticket = world.write(0, blocks(step * 11 % 1500, 1));
        world.succeed(ticket)?;
        let Some(summary) = world.pending(is_summary).first().copied() else { continue };
        let before = cache_bytes(world, summary.first + 8, 1);
        let now = world
            .at_stake()
            .into_iter()
            .find(|write| write.is_in_flight && write.first == summary.first)
            .map(|write| match &write.content {
                Content::Data(sectors) => {
                    let mut bytes = vec![0; 512];
                    sectors[8].expand(&mut bytes);
                    bytes
                }
                Content::Zeroes(_) => Vec::new(),
            })
            .unwrap_or_default();
        let is_nine =
            |footer: &[u8]| footer.starts_with(b"FBAYSUMM") && footer[96..100] == NINE_RECORDS_BYTES;
        if is_nine(&before) && is_nine(&now) {
            world.cut_power(|write| {
                if write.first != summary.first {
                    return Fate::Kept;
                }
                // The footer, and the first sector of the body.
                Fate::Torn((0..write.sectors()).map(|at| at == 0 || at >= 8).collect())
            });
            world.open()?;
            return world.verify_cut();
        }
        world.complete(summary.id)?;
        if free_segments(world) < 16 {
            world.release();
            drain(world, 0)?;
            world.hold(is_summary);
        }
    }
    panic!("no two summaries of the same shape at the same place")
}

fn rule_05_summary_without_its_batches(world: &mut World) -> Run {
    begin(world)?;
    for step in 0..4 {
        write(world, 0, step * 16, 16)?;
    }
    world.pass(MS)?;
    // Of batches the device has the first block alone: the head of a segment is in it.
    world.cut_power(|write| if has_client_data(write) { first_sectors(write, 8) } else { Fate::Kept });
    world.open()?;
    world.verify_cut()
}

fn hazard_15_summary_that_points_elsewhere(world: &mut World) -> Run {
    begin(world)?;
    for step in 0..4 {
        write(world, 0, step * 16, 16)?;
    }
    flush(world, 0)?;
    world.cut_power(|_| Fate::Lost);
    let first = SEGMENTS_SECTOR + SEGMENT_SECTORS - 16;
    let summary = Summary::decode(&cache_bytes(world, first, 16)).expect("the first segment is sealed");
    let mut builder = SummaryBuilder::default();
    let last = summary.footer.last_sequence;
    for batch in &summary.batches {
        // The last batch's payload, says this summary, is in the next segment.
        let moved = if batch.sequence == last { 32 } else { 0 };
        builder.push(
            batch.sequence,
            batch.header_block,
            batch.payload_block + moved,
            &batch.entries,
            &batch.checksums,
        );
    }
    let mut bytes = vec![0; 8192];
    builder.finish(&summary.footer, &mut bytes);
    let forged: Vec<Sector> = bytes.chunks(512).map(Sector::of_bytes).collect();
    world.cache().tamper(first, &Content::Data(forged.into()));
    world.open()?;
    world.verify_cut()
}

fn rule_05_damage_is_not_cut_silently(world: &mut World) -> Run {
    begin(world)?;
    for block in [10, 20, 30] {
        write(world, 0, block, 1)?;
        flush(world, 0)?;
    }
    world.cut_power(|_| Fate::Lost);
    // The header of the first batch, behind the segment's head.
    assert!(world.rot_cache(SEGMENTS_SECTOR + 8, 400));
    if world.try_open()?.is_err() {
        return Ok(());
    }
    world.verify_cut()
}

/// Nothing goes home meanwhile, so that no record of that brings a header.
fn rule_05_flush_is_noted_though_nobody_writes(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write(world, 0, 10, 1)?;
    write(world, 0, 500, 1)?;
    flush(world, 0)?;
    world.pass(2000 * MS)?;
    rot(world, 0, 10)?;
    world.cut_power(|write| if write.target == Target::Cache { Fate::Kept } else { Fate::Lost });
    world.open()?;
    read(world, 0, 500, 1)
}

fn rule_05_a_growth_is_noted_with_what_it_dropped(world: &mut World) -> Run {
    let end = world.volume_sectors(0) / 8;
    let grown = world.grow(0, 3);
    world.succeed(grown)?;
    begin(world)?;
    for _ in 0..2 {
        let short = world.read(0, SectorRange { start: end * 8, sectors: 3 });
        world.succeed(short)?;
        world.pass(50 * MS)?;
    }
    flush(world, 0)?;
    world.pass(2000 * MS)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    // No flush tells of this but the growth's own.
    write(world, 0, 10, 1)?;
    let grown = world.grow(0, 80);
    world.succeed(grown)?;
    rot(world, 0, 10)?;
    world.cut_power(|write| if write.target == Target::Cache { Fate::Kept } else { Fate::Lost });
    world.open()?;
    read(world, 0, end, 1)
}

/// Nothing but headers behind it tells of the segment.
fn rule_05_the_last_segment_lost_its_head(world: &mut World) -> Run {
    begin(world)?;
    for block in [10, 20, 30] {
        write(world, 0, block, 1)?;
        flush(world, 0)?;
    }
    world.cut_power(|_| Fate::Lost);
    assert!(world.rot_cache(SEGMENTS_SECTOR, 400), "the head is durable");
    if world.try_open()?.is_err() {
        return Ok(());
    }
    world.verify_cut()
}

fn rule_05_a_cut_took_the_last_segments_head(world: &mut World) -> Run {
    begin(world)?;
    lose_head(world)
}

fn rule_05_a_cut_left_the_head_of_the_round_before(world: &mut World) -> Run {
    begin(world)?;
    // Few are dirty, or writes would wait for what goes home.
    for block in (0..480).step_by(16).cycle() {
        if world.counts().wraps > 0 {
            break;
        }
        write(world, 0, block, 8)?;
    }
    lose_head(world)
}

/// Nothing but a header behind the lost head of the second segment states what was flushed in the segment before.
fn lose_head(world: &mut World) -> Run {
    const SECOND: u64 = SEGMENTS_SECTOR + SEGMENT_SECTORS;
    let before = world.cache().read(SECOND, 1)[0].clone();
    let mut block = 10;
    write(world, 0, block, 1)?;
    while world.cache().read(SECOND, 1)[0] == before {
        flush(world, 0)?;
        block += 10;
        write(world, 0, block, 1)?;
    }
    write(world, 0, block + 10, 1)?;
    world.cut_power(|write| {
        let is_kept = write.target == Target::Cache && write.first > SECOND;
        if is_kept { Fate::Kept } else { Fate::Lost }
    });
    rot(world, 0, block - 10)?;
    if world.try_open()?.is_err() {
        return Ok(());
    }
    world.verify_cut()
}

/// No time passes: nothing but the stop can say that the last batches were flushed.
fn rule_05_the_end_of_a_clean_stop_is_known(world: &mut World) -> Run {
    begin(world)?;
    for _ in 0..2 {
        for block in 0..20 {
            write(world, 0, 10 + block * 3, 1)?;
        }
        flush(world, 0)?;
    }
    world.stop()?;
    rot(world, 0, 13)?;
    world.open()?;
    for block in (0..20).filter(|block| *block != 1) {
        read(world, 0, 10 + block * 3, 1)?;
    }
    Ok(())
}

fn rule_05_clean_copies_after_a_repair(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.run_dry()?;
    write_fua(world, 0, 500, 1)?;
    write_fua(world, 0, 600, 1)?;
    let payload = world.copies_of(0, 600 * 8)[0];
    write_fua(world, 0, 10, 1)?;
    world.run_dry()?;
    write_fua(world, 0, 700, 1)?;
    world.cut_power(|_| Fate::Lost);
    // The header of a batch between the two versions.
    assert!(world.rot_cache(payload - 8, 400));
    world.open()?;
    read(world, 0, 10, 1)
}

fn rule_06_changed_behind_a_crash(world: &mut World) -> Run {
    begin(world)?;
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < SEGMENTS_SECTOR;
    world.hold(is_superblock);
    let _unfinished = world.submit(0, RequestOp::SetMode(WriteMode::Writethrough));
    world.until_pending(is_superblock)?;
    world.kill(|_| true);
    // The power fails while an operator changes the mode again.
    let mutations = world.setup().mutations;
    let mut image = CutImage::cut_after(world.cache(), 0);
    let (mut superblock, _) = load_superblock(&mut image).expect("one copy is whole");
    superblock.update += 1;
    superblock.volumes[0].as_mut().expect("the volume under test").mode = WriteMode::Readonly;
    write_superblock(&mut image, &superblock, mutations).expect_err("the power fails");
    world.cut_power(|write| first_sectors(write, 1));
    world.open()?;
    world.verify_cut()
}

fn rule_06_clean_flag_is_cleared(world: &mut World) -> Run {
    begin(world)?;
    world.stop()?;
    world.open()?;
    write_fua(world, 0, 10, 1)?;
    lose_all(world)?;
    if world.reports().last().is_none_or(|report| report.was_clean) {
        return Err(Violation::new(Broken::Contract, "a crash counts as a clean stop"));
    }
    world.verify_cut()
}

/// Two batches are in flight at a power cut; the first, of zeroes, is lost, the second is not.
fn lose_the_first_of_two(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 5, 1)?;
    world.hold(is_batch);
    let _lost = world.write_zeroes(0, blocks(10, 1));
    for step in 0..6 {
        let _dead = world.write(0, blocks(100 + step * 16, 16));
    }
    assert!(pending(world, is_batch).len() >= 2, "two batches are in flight");
    world.cut_power(|write| if has_client_data(write) { Fate::Kept } else { Fate::Lost });
    Ok(())
}

/// The next session writes the first batch again, and crashes, too.
fn write_the_first_again(world: &mut World) -> Run {
    // Nothing enters the log but what is asked for: without a flushed origin there are no fills.
    world.hold(|io| io.is_origin(0, Kind::Flush));
    read(world, 0, 100, 16)?;
    let op = RequestOp::WriteZeroes { range: blocks(10, 1), fua: true };
    let ticket = world.submit(0, op);
    world.succeed(ticket)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_06_dead_tail_by_its_checksum(world: &mut World) -> Run {
    lose_the_first_of_two(world)?;
    world.open()?;
    write_the_first_again(world)
}

fn rule_06_stop_does_not_move_the_cut(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 5, 1)?;
    for step in 1..6 {
        write(world, 0, step * 16, 16)?;
    }
    world.pass(MS)?;
    // Of the second segment only the footer survives, without the head.
    let is_footer = |write: &AtStake| write.first + write.sectors() == SEGMENTS_SECTOR + 2 * SEGMENT_SECTORS;
    assert!(world.at_stake().iter().any(is_footer), "the second segment was sealed");
    world.cut_power(|write| if is_footer(write) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    // The next session opens the segment again, and reaches the dead footer's sequence in it.
    for step in 1..3 {
        write(world, 0, step * 16, 16)?;
    }
    write(world, 0, 200, 1)?;
    world.stop()?;
    world.open()?;
    read(world, 0, 200, 1)
}

fn rule_06_dead_tail_by_the_cut(world: &mut World) -> Run {
    rule_06_dead_tail_by_its_checksum(world)
}

fn rule_06_dead_tail_by_its_session(world: &mut World) -> Run {
    rule_06_dead_tail_by_its_checksum(world)
}

fn rule_06_old_superblock_is_refused(world: &mut World) -> Run {
    let sectors = SUPERBLOCK_BYTES as u64 / 512;
    let copies = SUPERBLOCK_OFFSETS.map(|offset| {
        let first = offset / 512;
        (first, Content::Data(world.cache().read(first, sectors).to_vec().into()))
    });
    lose_all(world)?;
    lose_the_first_of_two(world)?;
    for (first, content) in &copies {
        world.cache().tamper(*first, content);
    }
    if world.try_open()?.is_err() {
        return Ok(());
    }
    write_the_first_again(world)
}

fn rule_06_dead_head_is_wiped(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 5, 1)?;
    world.hold(is_batch);
    press(world, 1, 12, MS)?;
    // Of batches in three segments only that in the third survives, with the segment's head.
    let is_third = |write: &AtStake| segment_of(write.first) == Some(2) && has_client_data(write);
    assert!(world.at_stake().iter().any(is_third), "a batch is under way in the third segment");
    world.cut_power(|write| if is_third(write) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    // The next session fills the first segment, opens the second, and passes the dead head's sequence.
    for block in 0..11 {
        write_fua(world, 0, 200 + block * 2, 1)?;
    }
    lose_all(world)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_06_one_copy_of_the_superblock_is_whole(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 5, 1)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    let _unfinished = world.submit(0, RequestOp::SetMode(WriteMode::Writethrough));
    world.until_pending(|io| io.is_cache(Kind::Flush))?;
    // The first sector has the checksum, the mode is in another one.
    world.cut_power(|write| first_sectors(write, 1));
    world.open()?;
    world.verify_cut()
}

fn rule_06_recovery_flushes_first(world: &mut World) -> Run {
    begin(world)?;
    for changes in 0..6 {
        write(world, 0, 10 + changes, 1)?;
        world.kill(|_| true);
        let is_superblock = |write: &AtStake| segment_of(write.first).is_none();
        if world.open_and_cut(changes, |write| if is_superblock(write) { Fate::Kept } else { Fate::Lost })? {
            world.open()?;
        }
    }
    world.verify_cut()
}
