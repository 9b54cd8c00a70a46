//! Test-only bugs: each switches off one line that prevents something.
//!
//! A test that never fails proves nothing. For every hazard and every rule of the log store the simulator
//! has a scenario that must fail when the line that prevents it is switched off. A mutation is named after
//! the bug that it plants, and its comment tells the history that goes wrong. In those histories *v1*, *v2* are
//! versions of a block, written in that order over what was there, *v0*.
//!
//! Without the crate's feature `mutations` the set is a type without bytes, [`Mutations::has`] is a constant,
//! and the switches are gone from the program.

macro_rules! mutations {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Mutation {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Mutation] = &[$(Mutation::$name),+];

            /// Its name, as in the source.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutation::$name => stringify!($name),)+
                }
            }

            /// The history in which the mutation does harm.
            #[must_use]
            pub fn history(self) -> &'static str {
                match self {
                    $(Mutation::$name => concat!($($doc, "\n"),+),)+
                }
            }
        }
    };
}

mutations! {
    // ---- strict order ---------------------------------------------------------------------------
    /// Rule 14: a flush ends no interval. v1 was written before it, and another block after it goes home first: with the
    /// cache the origin loses v1 and keeps what came later.
    IntervalsJoined,
    /// Rule 14: the newest version of a block goes home, not that of the interval. v2 is at the origin, while other blocks
    /// written before it are not.
    NewestGoesHome,
    /// Rule 14: an interval counts as home before the origin was flushed. A power cut takes v1 from it, which was there before what
    /// is left, and the cache is lost with it.
    IntervalUnflushed,
    /// Rule 14: the next interval goes home before the record is durable that the one before it is. After a crash v1 goes home
    /// once more, over v2 and beside what is newer than both.
    IntervalBeforeRecord,
    /// Rule 14: the log does not say where an interval begins. After a crash two of them go home as one.
    IntervalUnmarked,
    /// Rule 14: a discard goes to the origin while what was written before it is not home.
    DiscardOvertakes,
    /// Rule 14: strict order ends, and nothing says that its zeroes are home. v1 is written around the cache; after a start
    /// the zeroes hide it.
    ForgetOrderEnd,
    /// Rule 14: strict order ends, and a power cut takes the log's last batches. v1 gets the sequence of one of them, and counts as home
    /// after a crash.
    OrderEndsBehindCut,

    // ---- fills -----------------------------------------------------------------------------
    /// Hazard 1: a read fetches v0 from the origin; v1 is written around the cache meanwhile and leaves nothing
    /// behind in the index; then v0 enters the cache as clean.
    FillAfterChange,
    /// Hazard 1: v0 is read ahead of a stream; v1 is written, and the stream is given v0.
    StaleReadAhead,
    /// Hazard 1: v1 is on its way to the origin; a read fetches v0 and enters it as clean before v1 arrives.
    FillDuringChange,
    /// Hazard 1: v0 is in a batch as a fill; v1 goes to the origin without waiting for it, and the batch is
    /// published after v1 was answered.
    FillBehindBypass,
    /// Rule 2: v1 is on the origin, unflushed, is read and cached as clean. A power cut takes it from the origin:
    /// v1 is read from the cache until it is evicted, then v0.
    FillOverUnflushedOrigin,
    /// Rule 2: the same, where v1 was written to the origin by the process before this one.
    FillBeforeFirstFlush,

    // ---- the two devices of a mirrored cache --------------------------------------------------
    /// Rule 20: v1 is answered when the first half has it, because the second one fails. A crash follows, and the second half is
    /// well again: nothing says that it lacks v1. The first half is lost, and v0 is read.
    AnsweredBeforeOutRecorded,
    /// Rule 20: a power cut leaves v1 on the first half alone, and nothing says that the halves may differ. v1 is read, later the
    /// first half is lost, and v0 is read.
    HalvesUnmarked,
    /// Rule 20: v1 is written while the page is that takes the mark of its region away. A power cut leaves v1 on the first half alone.
    /// It is read, later the first half is lost, and v0 is read.
    MarkTakenAway,
    /// Rule 20: v0 is read for the copy that brings a half up to date. v1 is written to both halves, then the copy lands.
    CopyOverChange,
    /// Rule 20: a dirty block rots on one half. It counts as lost, although the other half has it.
    RottenHalfBelieved,
    /// Rule 20: v1 rots on the half that is read, and v2 was written behind it. A start copies the rotten block to the other half, as
    /// nothing leads to it any more. The power fails, and takes v2: v1 is on neither half.
    OverwrittenForgotten,
    /// Rule 20: a dirty block is appended again, as one that one half has alone. The half is lost, and the origin's v0 is read.
    DirtyKeptOnce,
    /// Rule 20: recovery asks one half for all payload of a batch, also for clean blocks that the other one has alone. The log ends
    /// there, and v1, which lies behind it, is lost.
    CutAtOnce,
    /// Rule 20: the head of one segment rots on the first half, that of another one on the second. The start is refused.
    HalfReadAlone,
    /// Rule 20: a head rots on one half, and a scrub says that all is well. The other half is lost, and the start is refused.
    ScrubForgetsHeads,

    // ---- a cache device that is passed by ------------------------------------------------------
    /// Rule 19: the cache device takes twenty times as long as usual, for minutes. Reads of what the origin has, too, wait for it.
    SlowCacheKeepsReads,
    /// Rule 19: v1 is dirty in the cache, whose device is passed by. A read of it goes to the origin and returns v0.
    DirtyPassedBy,
    /// Rule 19: a read of a clean block passes the cache device by, and the origin fails it. The client gets the error, although
    /// the cache has the block.
    PassedReadFails,

    // ---- keys and buckets ----------------------------------------------------------------------
    /// Hazard 5: recovery takes no notice that a bucket was given up. A key of the old content of a bucket survives the one
    /// that says so, and leads to bytes of another block.
    ForgetFreed,
    /// Rule 1: a bucket is filled again before it is durable that it was given up. A power cut takes that, and the old keys
    /// lead to new bytes.
    RefillBeforeFlush,
    /// Rule 5: a bucket is filled again when its leave was flushed, but before anything on the device says so. Recovery
    /// verifies the old keys, finds other bytes, and cuts the log below what was flushed.
    RefillBeforeStated,
    /// Rule 7: v0 was dropped with its bucket, v1 goes around the cache, and a power cut takes the entry that says that the
    /// bucket was given up: v0 is read again.
    BypassBeforeFreed,
    /// Rule 3: the key of a clean block is appended behind a newer version that is on its way, and is the last that
    /// recovery finds.
    KeyBehindNewer,
    /// Hazard 7, without `safe`: v1 is answered for, and its key waits; it is dropped by a discard, and the tombstone gets into the
    /// log before the key. v2 goes around the cache: after a crash v1 is read.
    RecordsBeforeKeys,
    /// Hazard 5: the tail is emptied although some of its keys still hold and were not appended again.
    DropTailKeys,

    // ---- dirty data in memory --------------------------------------------------------------------
    /// Without `safe`: v1 is answered for, leaves memory when its batch is sent, and is not in the index yet: v0 is read.
    DropFrameEarly,
    /// v1 is dirty in memory, and discarded or overwritten around the cache; memory keeps it, and it is read again.
    KeepStaleFrame,
    /// Without `safe`: more writes are answered before they are on the device than may be lost.
    AnswerBeyondWindow,
    /// Without `safe`: FLUSH does not wait for what was answered and is not published; a crash takes it.
    FlushBeforeOwed,

    // ---- torn writes, recovery's verification --------------------------------------------------
    /// Hazard 2: the header of a batch reaches the device and its payload does not. Recovery believes the header,
    /// and blocks that nobody promised anything for cannot be read any more.
    SkipPayloadAtRecovery,
    /// Hazard 2: the first sector of a header reaches the device, the rest is that of an older batch of the same
    /// shape: old payload passes for new.
    SkipHeaderChecksum,
    /// Hazard 2: the same with the summary of a segment: blocks are looked for in the wrong places.
    SkipSummaryChecksum,
    /// Rule 5: a summary reaches the device, the unflushed batches before it do not. Recovery believes it.
    TrustSummaryAboveFlush,
    /// Hazard 15: a summary with a valid checksum names payload behind the segment's end.
    TrustSummaryPlaces,
    /// Rule 5: v1 is flushed, and nobody writes any more. A block of an earlier batch rots; after a power cut nothing says that
    /// its batch was whole once: the log is cut there, and v0 is read.
    FlushNotNoted,
    /// Rule 5: v1 is flushed, and the process is killed before anything durable tells of that. The header of v1 rots: the log is
    /// cut before it, and v0 is read.
    FlushForgotten,
    /// Rule 5: the head of the log's last segment rots, or a power cut takes it. Recovery looks at segments with heads alone, and
    /// cuts what was flushed there, or is said there to be flushed, without a word.
    SkipHeadless,
    /// Rule 5: v1 is flushed, and a clean stop follows at once. While the cache is switched off a block of an earlier batch rots:
    /// nothing says that its batch was whole once, the log is cut there, and v0 is read.
    EndNotNoted,
    /// Rule 6: a power cut leaves the footer of a segment and not its head. The next session opens the segment once more and stops
    /// cleanly, and its superblock moves the cut to the log's end: the dead footer counts, the cache cannot be opened.
    StopMovesCut,
    /// Rule 5: a block rots whose key is put into the ring once more; v1 is flushed behind that. After a power cut the key's batch
    /// passes for torn: the log is cut there, and v0 is read.
    DoubtKeptKeys,
    /// Hazard 2: data and its key are written between two flushes, and of these the key survives. Recovery is told that the data
    /// was durable before it, and the block is lost.
    KeptUnflushed,
    /// Rule 5: a durable header rots. The log is cut there without a word, and what was flushed reads as v0.
    CutSilently,
    /// Rule 6: of two batches in flight at a power cut only the second survives. The next session writes
    /// another first one, and the old second one is taken for its successor. ([`Mutation::TrustDeadTail`] is
    /// the other line that prevents it.)
    ForgetChain,
    /// Rule 6: as [`Mutation::ForgetChain`], by taking dead batches and segments of an earlier session for live.
    TrustDeadTail,
    /// Rule 6: as [`Mutation::ForgetChain`], where the new first batch is the same as the lost one, byte for byte: only
    /// the session tells them apart.
    ForgetSessionBump,
    /// Rule 6: the head of a dead segment stays on the device. Two sessions later the cut is above it, and it passes
    /// for a part of the log, in place of one that counts.
    KeepDeadTail,
    /// Rule 6: both copies of the superblock are written before a flush; a power cut tears both.
    SuperblockCopiesTogether,
    /// Rule 6: an operator changes the superblock behind a crash of the process, which left one copy in the device's volatile
    /// cache. A power cut tears that copy and the one that is being written.
    EditUnflushed,
    /// Rule 6: recovery finds batches that the device has not made durable, and records a cut behind them. A power
    /// cut takes them and leaves the cut.
    SkipRecoveryFlush,
    /// Rule 6: the flag of a clean stop stays when the next session writes: after a crash it is believed.
    KeepCleanFlag,
    /// Rule 5: a repair cuts the log between v1, which is clean, and v2, which went home: v1 is read.
    TrustCleanAfterRepair,
    /// Rule 6: the superblock comes back as it was a session ago. Sessions are counted twice, and the dead
    /// tail of the first one joins the second.
    TrustStaleSuperblock,

    // ---- flushes -----------------------------------------------------------------------------
    /// Hazard 3: FLUSH is answered without a flush of the cache.
    FlushWithoutCacheFlush,
    /// Hazard 3: a batch that is published while a flush is under way counts as covered by it.
    CacheFlushCoversLater,
    /// Rule 7: FLUSH is answered without a flush of the origin that has the writes.
    FlushWithoutOriginFlush,
    /// Rule 4: a write with FUA is answered when its batch is written.
    FuaWithoutFlush,
    /// Rule 4: a write is answered before its batch is on the device.
    AckBeforeWritten,
    /// Hazard 14, rule 4: a batch is published when the device has it, while one before it is on its way. The later write is
    /// answered, and lost with the earlier one.
    PublishOutOfOrder,
    /// Hazard 10: a flush of the cache fails and counts as done.
    IgnoreCacheFlushError,
    /// Hazard 11: a flush of the origin fails and counts as done.
    IgnoreOriginFlushError,
    /// Hazard 11: a FLUSH that fails speaks for what was acknowledged since it came, and the next one succeeds.
    ToldOnce,
    /// Hazard 11: a FLUSH speaks for what was answered in the group of calls in which it came, before its client had the answer.
    GivenIsHad,
    /// Hazard 11: a durable discard fails with the flush of the origin that took writes before it, and the next FLUSH succeeds.
    DiscardTellsOfWrites,
    /// Hazard 11: nobody notes that the origin lost what was acknowledged. The process is killed, and the next FLUSH of its clients
    /// succeeds.
    LossUnsaid,
    /// Hazard 11: an origin loses what was acknowledged, and the FLUSH that tells of it waits for the cache first. The process is
    /// killed before its answer, and the next FLUSH succeeds.
    ToldBehindCache,

    /// Hazard 16: what the origin has stands in for a copy that cannot be read, and is not compared with its checksum.
    StandInUnchecked,

    // ---- destage -----------------------------------------------------------------------------
    /// Hazard 4: a block counts as clean when it was written home, before the origin was flushed.
    CleanBeforeOriginFlush,
    /// Hazard 4: v1 is durable and clean in the cache, v2 is written home before the cache was flushed. A power cut takes v2
    /// from the cache, not from the origin: v1 is read until it is evicted, then v2.
    DestageBeforeCacheFlush,
    /// Hazard 4: a block that was written home while a flush of the origin was under way counts as covered by it.
    OriginFlushCoversLater,
    /// Hazard 4: v1 goes home, v2 is written meanwhile, and counts as clean because v1 is home.
    CleanThoughRewritten,
    /// Hazard 4: v1 goes home; before the origin's flush the log has gone round, and v2 lies at the very place where v1 was. It
    /// counts as clean because what was there is home.
    CleanThoughReused,
    /// Rule 2: the same at recovery: the record that v1 is home follows v2 in the log.
    ReplayCleansNewer,
    /// Rule 2: zeroes are home, v1 is written over them before that is recorded. The record names the place of a header, and v1
    /// lies as far behind that as its block in the range: at recovery v1 passes for what went home.
    ReplayMistakesZeroes,
    /// Rule 2: nothing in the log says that a block is home: after each crash it counts as dirty again.
    CleanNotRecorded,
    /// Rule 2: a header says that everything before it is clean, when batches before it are on their way.
    OldestDirtyTooHigh,
    /// Rule 2: the dirty v1 is discarded, and the tombstone waits, because a batch has no room for it. The header of that batch
    /// says that everything is clean. A power cut takes the tombstone: v1 is read until it is evicted, then v0.
    CleanBeforeTombstone,
    /// Hazard 11: the origin fails a destage, and the block counts as home.
    IgnoreDestageError,
    /// Rule 10: a rotten dirty block is written home.
    DestageUnverified,
    /// Rules 7, 12: zeroes are forgotten when the origin has them, before it was flushed.
    ZeroDroppedEarly,

    // ---- segments ------------------------------------------------------------------------------
    /// Rule 1, hazard 5: a segment is overwritten before what superseded its blocks, and the header that says it is empty,
    /// are covered by a flush.
    ReuseBeforeCacheFlush,
    /// Rule 5: the dirty v1 is discarded, its segment emptied; the summary of another segment says so, the tombstone follows in
    /// the next one. A power cut takes the tombstone. One start reads the headers and finds v1, the next one trusts the
    /// summary and finds v0.
    FooterAheadOfBatches,
    /// Rule 1: a segment is overwritten while somebody reads it. (The checksum notices, unless it is switched off, too.)
    ForgetPins,
    /// Hazard 5: a segment is emptied although it has dirty blocks.
    EmptyWithoutDestage,
    /// Hazard 12, rule 9: clients take the last segments; the records that would free others find no room.
    NoReserve,
    /// Hazard 12: writes that wait for room keep the destages away that would make it.
    WaitersBlockDestage,
    /// Hazard 12: in a flood writes wait for more to go home although nothing is on its way.
    FloodWaitsForNothing,
    /// Hazard 12: destage is held back until an hour of the day, also what a full cache, a drain or a detach waits for.
    HoldBackAll,
    /// Rule 9: a volume whose origin fails holds up the ring for all others.
    StuckNotMoved,
    /// Rule 9: records take the last segments but one, and what is appended again is less than the oldest segment holds: the
    /// rest of it finds no room.
    StuckMovedInPart,
    /// Rule 9: two origins fail when their volumes have filled the cache. A write of the third volume waits for room, and a stop for
    /// that write: the daemon does not end.
    StopWaitsForRoom,
    /// Rule 9: all of a volume is to go home, and its clients write on: something is always dirty, and the job never ends.
    WritersOutrunDrain,
    /// Rule 9: what is appended again fills the last segment; those it came from are empty, and the header that would
    /// say so has no place.
    FloorWithoutRoom,
    /// Rule 9: a lost extent holds up the ring for ever.
    ExtentsNotMoved,
    /// Rule 15: an index above its budget reclaims nothing.
    IndexOverBudget,
    /// Rule 15: partial writes take as much memory as there are requests.
    WorkUnbounded,

    // ---- copies and tombstones -----------------------------------------------------------------
    /// Rule 3: v1 is on its way into the log when a tombstone that follows the rotten v0 gets the higher sequence.
    CopyDuringWrite,
    /// Rule 3: the same, where v1 was published just before.
    TombstoneOverNewer,
    /// Hazard 7: v1 is written around the cache, nothing durable says that the cached v0 is void.
    ForgetTombstone,
    /// Rule 7: the same, where the tombstone is written and not flushed before the origin changes.
    TombstoneUnflushed,
    /// Rule 22: a block that was dropped dirty is in no checkpoint, and its tombstone is lost with the power: the origin's
    /// v0 comes back instead of v1.
    CheckpointBeforeTombstones,
    /// Rule 22: zeroes that are in no header behind the checkpoint are forgotten.
    CheckpointWithoutExtents,
    /// Rule 22: a segment was written again since the checkpoint, and what that had in it is found there.
    CheckpointInNewSegments,
    /// Rule 22: a volume was taken off and another one came: it reads what the checkpoint had of the first.
    CheckpointOfOtherVolume,
    /// Rule 22: v0 is clean and void since a repair, and lies before the checkpoint in a segment that is replayed as a whole.
    VoidIsReplayed,
    /// Rule 22: a power cut took v2 from the log, and not from the checkpoint: v1 is there, and not found any more.
    BelieveCutCheckpoint,
    /// Rule 22: the same, when the log has grown past the end of that checkpoint.
    BelieveVoidCheckpoint,
    /// Hazard 7, rule 12: a dirty block is discarded, reads as zeroes or v0, and is v1 again after a crash.
    ForgetDiscard,
    /// Rule 7: a segment with the clean v0 was emptied; before that is durable, v1 is written around the
    /// cache, without a tombstone because the index has nothing.
    BypassBeforeFloor,
    /// Rule 7: zeroes are home and forgotten; before a record of that is durable, v1 is written around the cache. After
    /// a crash the zeroes hide it.
    ForgetZeroesHome,
    /// Rule 7: part of a dirty block is written around the cache: the rest of it is old again.
    BypassDirty,
    /// Rule 8 with one ring: a clean copy that could not be read is dropped without a tombstone, v1 is written around
    /// the cache; after a crash the copy is readable again.
    DropWithoutTombstone,
    /// Rule 8: the same, where the tombstone waits to be written when v1 goes around the cache.
    OvertakeTombstone,
    /// Rule 8: a start with little memory leaves a clean copy of v0 out of its index, v1 is written around the cache; the next
    /// start has memory for v0.
    ForgetLeftOut,

    // ---- writes ------------------------------------------------------------------------------
    /// Hazard 6: a write-through enters the log as clean. A crash before the origin has it leaves v1 in the
    /// cache until it is evicted, then v0.
    WritethroughLogsClean,
    /// Hazard 6, rule 7: the origin gets a write-through before its log entry is durable: the cache goes on
    /// with v0, until that is evicted.
    OriginBeforeLogFlush,
    /// Rule 7: v0 is on its way into the log as a fill, and v1 of a write-through behind it counts as the first that the log has
    /// of the block. The origin gets v1; a power cut leaves the fill.
    NewBehindCopy,
    /// Rule 7: v0 was forgotten, which is not durable, and v1 of a write-through counts as the first that the log has of the block.
    /// The origin gets v1; a power cut brings v0 back.
    NewBehindForgotten,
    /// Rule 7: v1 on its way home and v2 of a write-through reach the origin in any order; so do two writes around the cache.
    OverlapAtOrigin,
    /// Rule 7: v1 and v2 share their blocks on the way into the log. The mode changed while they waited: both go to the origin
    /// at the same time.
    SharersGoHome,
    /// Hazard 8: two writes to different sectors of a block both start from v0.
    PartialWriteShares,
    /// Hazard 8: a write of part of a block takes blocks behind along that it does not hold. Its copy of one of them is published
    /// over v1, which was written meanwhile.
    RowNotHeld,
    /// Rule 13: a partial write does not read the rest of its block.
    PartialWriteWithoutOld,

    // ---- late headers ---------------------------------------------------------------------------
    /// Rule 21: v1 is answered before its header is written, and memory that lasts has nothing of it. The process dies: v0 is read.
    LateForgotten,
    /// Rule 21: v1 is answered, and memory that lasts has its entry without the checksum. The process dies: what its successor
    /// writes as the header does not match v1, and the log is cut there.
    LateWithoutChecksums,
    /// Rule 21: memory that lasts keeps an entry whose header is on the device. The ring comes round, and the process dies: its
    /// successor writes the old header over what is there by now.
    LateRemembered,
    /// Rule 21: a header is written when its payload is on the way. The process dies and takes the payload: the log is cut there,
    /// and what was answered in that batch is gone.
    HeaderBeforePayload,
    /// Rule 21: v1 is answered, and a FLUSH does not wait for its header. A power cut takes v1.
    FlushWithoutLate,

    // ---- failures ------------------------------------------------------------------------------
    /// Hazard 10: a cached block is not compared with its checksum.
    SkipReadChecksum,
    /// Hazard 10: a dirty block that rotted is served by the origin, with v0.
    RottenDirtyFromOrigin,
    /// Rule 10: nothing is recorded of a dirty block that rotted: it is tried again for ever.
    LostNotRecorded,
    /// Rule 10, in slots: a dirty block rotted and its readers were told; no table has it. After a crash the rotten bytes
    /// are read.
    LostForgotten,
    /// Rule 10, in slots: v2 is written over a lost block, and the table says that it is lost no more before that is flushed.
    /// A power cut takes v2: the rotten bytes are read.
    FoundBeforeFlush,
    /// Rule 10, in slots: the table of lost blocks goes to one of its places, and rots there. The one before it counts: the rotten
    /// bytes of v1 are read.
    LostInOnePlace,
    /// Rule 10, in slots: a lost block is given up and read from the origin, and v2 is written over it beside that. What
    /// the origin has is written over v2.
    RestoreBesideWrites,
    /// Hazard 11, in slots: v2 is on its way to a clean slot and to the origin; the origin has it and drops it with a flush
    /// that fails, and the next flush succeeds. The slot is used for something else: v1 is read.
    TrustWrittenAround,
    /// D1: a piece is copied to a slot with v1, which the origin then drops with a flush that fails; the slot stays mapped. v0 is
    /// read, a crash calls the slot dirty, and v1 goes home.
    RottenStays,
    /// D1, D2: the same, where the slot leaves, and v0 is read before that is durable.
    TellDoubted,
    /// H2, with slot pages: a record says that a slot is dirty before its data is flushed. A power cut keeps the record and
    /// takes the data: whatever lay there before is read.
    RecordBeforeData,
    /// H4, H5, with slot pages: a record was taken back, and counts as gone before that is flushed. A power cut brings it back:
    /// what is in the slot by now is read as its old piece, or v1 instead of the v2 that went around the cache.
    RecordGoneUnflushed,
    /// H4, H5, with slot pages: a slot is home, and counts as not recorded before any page says so. After a crash what is in
    /// the slot by now is read as its old piece, or v1 instead of the v2 that went around the cache.
    RecordGoneUnwritten,
    /// Rule 6, H4, with slot pages: a process dies when a record was taken back, and that was not flushed. Its successor flushes
    /// nothing at its start and gives the slot to another piece. A power cut brings the record back: the bytes of the new
    /// piece are read as the old one's.
    StartUnflushed,
    /// Hazard 14, in slots: two writes to one place are under way. They land in one order and are answered in the other: the
    /// checksum in memory is not that of what lies there.
    OverlapInSlot,
    /// S9: v2 is written over v1 when the page is written that says that the area is open, and not flushed. A power cut takes the
    /// page and keeps v2: after the start v2 passes for rot.
    AreaOpenUnflushed,
    /// S9: v2 is written over v1, and the area is closed with its checksum before v2 is flushed. A power cut keeps the page and takes
    /// v2: v1, to which the disk may go back, passes for rot.
    AreaClosedUnflushed,
    /// S9: a start takes no notice of the checksums on the device. A slot rots; after a crash the rotten bytes are read, and go
    /// home.
    ForgetSlotChecksums,
    /// S9: a sector of checksums rots, and a start takes its blocks for such as nothing is known of. One of them rots, too:
    /// the rotten bytes are read, and go home.
    TrustRottenChecksums,
    /// Rule 5: the page of mappings that counts rots, and a start takes the version before it. A slot that was mapped since is
    /// forgotten with v1, which is dirty: v0 is read.
    OlderPageCounts,
    /// Rule 5: the newer record of transactions rots, and a start takes the one before it. What was mapped since is forgotten with
    /// v1: v0 is read.
    OlderRecordCounts,
    /// Rule 18: a scrub finds v1 rotten, which is dirty, and drops it as it drops clean blocks: v0 is read.
    ScrubDropsDirty,
    /// Rule 18: a scrub finds v0 rotten, which is clean. v1 is written before that is certain, and what is cached of the block
    /// is dropped: v0 is read from the origin.
    ScrubForgetsChange,
    /// Rule 18: v1 was written home and waits for the origin's flush, and its copy in the cache rots. A scrub calls it lost.
    ScrubLosesWhatIsHome,
    /// Rule 18: a device returns garbage for v1 once, to a scrub. v1 counts as lost, and was there all the time.
    ScrubBelievesOnce,
    /// Hazard 10: the cache failed; the origin is written before that is noted durably. The cache comes back with v0.
    BypassBeforeAbandoned,
    /// Hazard 10: the cache failed, and so does the note of that; the origin is written all the same. The cache comes back with v0.
    BypassUnnoted,
    /// Hazard 10: the cache fails a flush, and v1, which was written through, is in the origin alone. A FLUSH is answered before that
    /// is noted durably, and the cache comes back with v0.
    FlushBeforeAbandoned,
    /// Hazard 10: the cache failed; a volume that left writeback goes on with its origin, which lacks v1. v0 is read.
    OwingGivenUp,
    /// Rule 11: an origin's well-known place is written while its checksum is on record: after a crash the
    /// volume's own origin is refused.
    KeepFingerprint,
    /// Rule 11: a stop records the checksum of a well-known place that a destage changed while it was read: the next start
    /// refuses the volume's own origin.
    RecordChangedPlace,
    /// Rule 11: a volume grows, which takes the checksums of its origin back. A well-known place is written before that is
    /// durable: after a crash the volume's own origin is refused.
    ForgetTakenBack,
    /// Rule 11: a volume grows, and the new size counts before it is durable. v0, behind the old end, is warmed, and a crash
    /// takes the size back. Somebody writes v1 there, and the volume grows once more: after another crash v0 is read.
    GrowBeforeDurable,
    /// Rule 11: a detach is answered before the volume is durably off the cache.
    DetachBeforeDurable,
    /// Rule 11: a volume is added and serves before it is durably on the cache: v1 is flushed, and after a crash there is no
    /// such volume.
    AddBeforeDurable,
    /// Rule 11: a volume gets the number of one that was taken off. Somebody wrote v1 to the origin in between; after a crash
    /// the log's entries of the old volume count for the new one: v0 is read.
    ReuseVolumeId,
    /// Rule 16: a cache is replaced while it holds v1 as dirty: v0 is read.
    HandOverDirty,
    /// Rule 16: the new cache is believed before the old one is not: after a crash both are, and what the one takes the other
    /// does not know.
    HeirBeforeRetired,
    /// Rule 16: that the old cache is not to be believed any more is written, and not flushed, before the new one is
    /// believed: a power cut takes it, and both are.
    RetireUnflushed,
    /// Rule 16: a succession was cut when one copy of the new cache's superblock was written, and its repetition finds it done. That
    /// copy rots: the other one says that the cache waits, and no cache is believed.
    HeirInOneCopy,
    /// Rule 16: a cache is made anew, and does not say so before: a crash between the two copies of its superblock leaves those
    /// of two caches, and neither counts.
    RemakeWithoutNote,
    /// Rule 16: a cache that is made anew keeps its id: what is left of its log on the device is believed.
    RemakeKeepsSetId,
    /// Rule 11: a session begins before the origin is compared. The start is refused; the next one finds no clean stop any
    /// more, and in slots that are all dirty after a crash nothing to compare: old blocks go home over newer ones.
    SessionBeforeChecks,
    /// Rule 11: a start that is refused takes the mark of the clean stop away.
    RefusalForgetsStop,
    /// Hazard 9: an origin that has shrunk is served: what lay behind its end is gone.
    AcceptShrunk,
    /// Hazard 9: nobody is told that an origin has grown.
    OverlookGrowth,
    /// Hazard 9: the well-known places of an origin are not compared: another disk is served.
    TrustChangedOrigin,
    /// Rule 11: the clean blocks of a cache are not compared with the origin: one that was changed in other places is served.
    SkipSamples,
    /// Hazard 9: an older copy of a cache is served in its place: what was dirty then goes home over newer data.
    TrustOlderCopy,
    /// Rule 17: v1 is in the cache of an ephemeral device alone, and was read and flushed after a crash. The device is blank at
    /// the next start, and is formatted although the notes say that something dirty may be lost: v0 is read.
    FormatThoughDirty,
    /// Rule 17: the same, where the notes say nothing of what recovery found dirty.
    OverlookRecovered,
    /// Rule 17: another cache took the place of one that was gone, and v1 was written through it. The older one comes back and
    /// is served: v0 is read.
    TrustReplaced,
    /// Rule 17: v1 is written over a dirty block of a volume that is not in writeback: the cache alone has it when it is
    /// acknowledged. The cache is lost: v0 is read.
    LogAlone,

    // ---- remote origins ------------------------------------------------------------------------
    /// Hazard 16: v1 is on its way to a server when the connection is lost, and counts as written. The server never got it:
    /// v0 is read.
    UnderWayCounts,
    /// Hazard 16: v1 goes in two requests. The first one is answered, and the server dies with it; the second one alone is sent
    /// again. v1 counts as written, and as durable with the next flush: the first half is nowhere.
    PartsNotSentAgain,
    /// Hazard 16: v1 goes in two requests. The first one is answered, and then a flush fails, with which the server drops it. The
    /// second one is answered, and the next flush succeeds: v1 counts as durable, and its first half is nowhere.
    PartsOutliveFailedFlush,
    /// Hazard 16: v1 was acknowledged and not flushed; the server dies with it. A flush was on its way, is sent to the next
    /// server, and succeeds: v1 counts as durable, and is nowhere.
    FlushSentAgain,
    /// Hazard 16: v1 was acknowledged and not flushed; the server dies with it. The next flush goes to the next server and
    /// succeeds: v1 counts as durable, and is nowhere.
    LossNotOwed,
    /// Hazard 16: v1 was acknowledged and not flushed when the connection is lost. The flush fails for that, and the client
    /// tries again; before that the server dies with v1, which it had kept so far. The flush succeeds: v1 counts as durable,
    /// and is nowhere.
    LossToldOnce,
    /// Hazard 16: v1 is acknowledged, and the server dies with it. The flush that fails for that is told before v1 is: v1
    /// counts as written after it, and as durable with the next flush.
    FailedFlushOvertakes,
    /// Hazard 16: the server carries out v1 when its connection is long lost: v1 was sent again at once, and v2 written over
    /// it. v1 comes over v2.
    SentAgainAtOnce,
    /// Hazard 16: a process is killed with v1 on its way around the cache. The next one reads v0, and caches it; then the
    /// server carries out v1. v0 is read until it is evicted, then v1.
    UnsettledStart,
    /// Hazard 16: the same with a server that is slow: it carries out v1 three seconds after the end.
    SlownessIgnored,
    /// Hazard 16: a server answers v1 twice. The second answer is taken for one to v2, which has the same cookie, and which
    /// the server never carries out.
    CookiesComeAgain,
    /// Hazard 16: the answer to v1 is heard when its connection was lost, and the server died with v1. It is taken for one to
    /// v1 as it was sent again, which the next server never carries out.
    LateAnswersCount,
    /// Hazard 16: the server that comes back has another disk. Dirty blocks overwrite it.
    RejoinAnother,
    /// Hazard 16: the server that comes back has a smaller disk. What is behind its end goes nowhere.
    RejoinShrunk,
    /// Hazard 16: all places that were read at the start have been written since. The server comes back with a copy of the
    /// disk as it was before that, and nothing tells it.
    FlushedPlacesForgotten,
    /// Hazard 16: a place was written when the server died. The right disk comes back without it, and is refused.
    LostPlacesKept,
    /// Hazard 16: a place was written, and the server dropped that with a flush that failed. After the next flush the right disk
    /// comes back without it, and is refused.
    FailedFlushBelieved,
    /// Hazard 16: a place is changed after it was written down. The right disk comes back, and is refused.
    ChangedPlacesKept,
    /// Hazard 16: a server without a flush gets v1 without the flag that makes it durable, and dies with it.
    FuaForgotten,

    // ---- slots that are recorded by transactions ---------------------------------------------------
    /// History H1: a write enters a slot, and is answered before the slot is mapped durably, or recorded in a slot page. The
    /// process dies: v0 is read.
    AckBeforeMapping,
    /// H2: the slot of a piece is mapped, and the transaction is not flushed. A power cut keeps the mapping and takes what was
    /// written to the slot.
    TransactionUnflushed,
    /// H4: a transaction counts when its record is written, not flushed. A slot that it removed is given to another piece; a power
    /// cut takes the record: the bytes of the new piece are read as the old one's.
    RecordUnflushed,
    /// Rule 6: a transaction was cut off when a page of it was written and its record was not. The page stays, with the mapping of v0; v1
    /// is written around the cache. Then a transaction reaches the page's number: after a crash v0 is read.
    KeepCutPages,
    /// Rule 6, H13: a process dies with its last record written and not flushed. Its successor writes a page over the version of the
    /// transaction before; a power cut takes the record: the page has no version that counts.
    OverwriteUnflushedRecord,
    /// H4: a slot is given to another piece before the removal of its mapping is durable. After a crash the bytes of the
    /// new piece are read as the old one's.
    ReuseBeforeRemoval,
    /// H5: a slot is forgotten, and v1 is written around the cache before that is durable. After a crash the slot has v0.
    BypassBeforeRemoval,
    /// H9: v1 is written to a clean slot before its leaf is marked durably. After a crash the slot counts as clean, gives
    /// its place up, and v0 is read.
    MarkAfterData,
    /// H10: the same, where the leaf is marked, and a transaction is under way that takes the mark away.
    MarkInFlight,
    /// H11: a page has the mapping of a dirty slot, and the mark of its leaf follows with the next transaction.
    MappingBeforeMark,
    /// H12: a page is written where it counts; a power cut tears it.
    PageInPlace,
    /// Rule 2: v1 is on the origin, unflushed, and enters a slot as clean. A power cut takes it from the origin, and the slot
    /// still counts as clean: v1 is read until it is evicted, then v0.
    KeepUnflushedFill,
}

impl Mutation {
    /// Whether it is planted in slots that are recorded by transactions, and nowhere else.
    #[must_use]
    pub const fn is_of_transactions(self) -> bool {
        self.number() >= Mutation::AckBeforeMapping.number()
    }

    /// Whether it is planted in the client of a server, and nowhere else.
    #[must_use]
    pub const fn is_of_servers(self) -> bool {
        self.number() >= Mutation::UnderWayCounts.number() && !self.is_of_transactions()
    }

    /// Whether it is planted in strict order, and nowhere else.
    #[must_use]
    pub const fn is_of_order(self) -> bool {
        self.number() >= Mutation::IntervalsJoined.number()
            && self.number() <= Mutation::DiscardOvertakes.number()
    }

    /// Whether it is planted in a mirrored cache, and nowhere else.
    #[must_use]
    pub const fn is_of_halves(self) -> bool {
        self.number() >= Mutation::AnsweredBeforeOutRecorded.number()
            && self.number() <= Mutation::ScrubForgetsHeads.number()
    }

    /// Whether it is planted where headers follow what they are of, and nowhere else.
    #[must_use]
    pub const fn is_of_late_headers(self) -> bool {
        self.number() >= Mutation::LateForgotten.number()
            && self.number() <= Mutation::FlushWithoutLate.number()
    }

    /// Whether it is planted in checkpoints of the index, and nowhere else.
    #[must_use]
    pub const fn is_of_checkpoints(self) -> bool {
        self.number() >= Mutation::CheckpointBeforeTombstones.number()
            && self.number() <= Mutation::BelieveVoidCheckpoint.number()
    }

    /// The word and the bit that stand for it in a set.
    #[cfg(feature = "mutations")]
    const fn place(self) -> (usize, u128) {
        let word = if self.number() < WORD_BITS { 0 } else { 1 };
        (word, 1 << (self.number() % WORD_BITS))
    }

    #[allow(clippy::as_conversions, reason = "a variant's number has no other name, and loses nothing")]
    const fn number(self) -> u32 {
        self as u32
    }
}

/// Bits of a word of a set.
#[cfg(feature = "mutations")]
const WORD_BITS: u32 = u128::BITS;

const _: () = assert!(Mutation::ALL.len() <= 256, "a set is two words of 128 bits");

/// A set of planted bugs; always empty without the feature `mutations`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutations {
    #[cfg(feature = "mutations")]
    words: [u128; 2],
}

impl Mutations {
    /// No bug is planted.
    pub const NONE: Mutations = Mutations {
        #[cfg(feature = "mutations")]
        words: [0; 2],
    };

    /// Whether that bug is planted.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub const fn has(self, mutation: Mutation) -> bool {
        let (word, bit) = mutation.place();
        self.words[word] & bit != 0
    }

    /// Whether that bug is planted: without the feature none ever is.
    #[cfg(not(feature = "mutations"))]
    #[must_use]
    pub const fn has(self, _mutation: Mutation) -> bool {
        false
    }

    /// The same set with one bug more.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub const fn with(self, mutation: Mutation) -> Mutations {
        let (word, bit) = mutation.place();
        let mut words = self.words;
        words[word] |= bit;
        Mutations { words }
    }
}
