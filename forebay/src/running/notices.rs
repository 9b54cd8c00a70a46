//! Notices: unasked messages of a running cache to its operator.

use super::halves::HalvesWatch;
use super::volumes::ServedVolumes;
use crate::events::Event;
use crate::log::Log;
use crate::losses::Losses;
use crate::state::LiveRecord;
use crate::superblock::system;
use engine::effect::{Errno, Notice, Target};
use engine::pair::Half;
use engine::units::VolumeIndex;
use live::server::ServerNotice;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Reports the server's notices, with the names of volumes where the engine knows numbers, and keeps the reason why the
/// cache is not written any more. `origin_failed` is called before a client learns of a failure.
pub(super) fn notices(
    volumes: &ServedVolumes,
    is_daemon: bool,
    latch: &Arc<OnceLock<Errno>>,
    log: Log,
    halves: HalvesWatch,
    origin_failed: impl Fn(VolumeIndex) + Send + 'static,
    losses: Arc<Losses>,
) -> impl FnMut(ServerNotice) + Send + 'static {
    let (volumes, latch) = (volumes.clone(), Arc::clone(latch));
    move |said| {
        let name = |index: VolumeIndex| volumes.name(index);
        if let ServerNotice::Engine(Notice::CacheLatched { errno }) = said {
            // The first failure is the reason; later ones follow from it.
            let _ = latch.set(errno);
        }
        if let ServerNotice::Engine(Notice::OriginError { volume, .. }) = said {
            origin_failed(volume);
        }
        note_loss(&said, &losses, |index| volumes.of(index).map(|volume| volume.id.0), &log);
        if let ServerNotice::Engine(Notice::HalfLost { .. }) = said {
            // The thread that notes it ends with the process.
            let _ = halves.lost.send(());
        }
        // The verb that drains a volume without a daemon says so itself.
        let is_said_elsewhere = matches!(said, ServerNotice::Engine(Notice::Drained { .. })) && !is_daemon;
        if !is_said_elsewhere {
            let volume = volume(&said).map(|index| name(index).to_owned());
            let half_name = |half| halves.halves.name(half);
            let away = |index| Some(volumes.of(index)?.origin.as_ref()?.away()?.reason);
            let line = of_half(&said, half_name).unwrap_or_else(|| line(&said, name, away));
            log.say_of(event(&said), volume, kind(&said), line);
        }
    }
}

/// Hazard 11: notes what an origin lost, if a notice tells of that. `id_of` gives the ids of volumes.
pub fn note_loss(
    said: &ServerNotice,
    losses: &Losses,
    id_of: impl Fn(VolumeIndex) -> Option<u32>,
    log: &Log,
) {
    let (volume, errno) = match said {
        ServerNotice::Engine(Notice::ChangesLost { volume, errno }) => (*volume, *errno),
        ServerNotice::OriginLost { target: Target::Origin(volume) } => (*volume, Errno::IO),
        _ => return,
    };
    if let Some(Err(error)) = id_of(volume).map(|id| losses.note(id, errno)) {
        log.say(Event::NotNoted, "loss".to_owned(), format!("{error:#}"));
    }
}

type Abandon = Box<dyn FnMut(VolumeIndex) -> io::Result<()> + Send>;

/// Hazard 10: notes that the cached content is void, before a write passes a failed cache to the origin.
pub(super) fn abandon(volumes: &ServedVolumes, record: &Arc<LiveRecord>, log: Log) -> Abandon {
    let (volumes, record) = (volumes.clone(), Arc::clone(record));
    Box::new(move |index| {
        let volume = volumes.of(index).ok_or(io::ErrorKind::NotFound)?;
        record
            .change_volume(volume.id.0, |note| {
                note.abandoned = true;
                note.may_be_dirty = false;
            })
            .map_err(|error| {
                log.say(Event::NotNoted, "abandon".to_owned(), format!("{error:#}"));
                io::Error::other(error)
            })
    })
}

/// Notes of an ephemeral cache, before a client learns that an origin failed: what that has dropped, the cache alone has from
/// then on (rule 17).
pub(super) fn doubt(
    volumes: &ServedVolumes,
    record: &Arc<LiveRecord>,
    is_ephemeral: bool,
    doubts: Arc<AtomicU64>,
    log: Log,
) -> impl Fn(VolumeIndex) + Send + 'static {
    let (volumes, record) = (volumes.clone(), Arc::clone(record));
    move |index| {
        let Some(volume) = volumes.of(index).filter(|_| is_ephemeral) else { return };
        doubts.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = record.change_volume(volume.id.0, |note| note.may_be_dirty = true) {
            log.say(Event::NotNoted, "doubt".to_owned(), format!("{error:#}"));
        }
    }
}

/// The volume that a notice is about.
fn volume(said: &ServerNotice) -> Option<VolumeIndex> {
    match said {
        ServerNotice::Engine(
            Notice::OriginError { volume, .. }
            | Notice::ChangesLost { volume, .. }
            | Notice::CorruptClean { volume, .. }
            | Notice::Lost { volume, .. }
            | Notice::DirtyUnread { volume, .. }
            | Notice::Uncached { volume }
            | Notice::Drained { volume },
        ) => Some(*volume),
        ServerNotice::DeviceGone { target: Target::Origin(volume) }
        | ServerNotice::OriginAway { target: Target::Origin(volume), .. }
        | ServerNotice::OriginOther { target: Target::Origin(volume), .. }
        | ServerNotice::OriginLost { target: Target::Origin(volume) }
        | ServerNotice::OriginBack { target: Target::Origin(volume), .. } => Some(*volume),
        _ => None,
    }
}

/// The event that a notice tells of.
#[must_use]
pub fn event(said: &ServerNotice) -> Event {
    match said {
        ServerNotice::Engine(Notice::OriginError { .. }) => Event::OriginFailed,
        ServerNotice::Engine(Notice::ChangesLost { .. }) | ServerNotice::OriginLost { .. } => {
            Event::ChangesLost
        }
        ServerNotice::Engine(Notice::CacheLatched { .. }) => Event::CacheFailed,
        ServerNotice::Engine(Notice::HalfLost { .. }) => Event::HalfLost,
        ServerNotice::Engine(Notice::HalfBack { .. }) => Event::HalfBack,
        ServerNotice::Engine(Notice::CacheSlow { .. }) => Event::CacheSlow,
        ServerNotice::Engine(Notice::CacheWell { .. }) => Event::CacheWell,
        ServerNotice::Engine(Notice::CorruptClean { errno: None, .. }) => Event::CleanRotted,
        ServerNotice::Engine(Notice::CorruptClean { errno: Some(_), .. }) => Event::CleanUnread,
        ServerNotice::Engine(Notice::Lost { .. }) => Event::DataLost,
        ServerNotice::Engine(Notice::DirtyUnread { .. }) => Event::DirtyUnread,
        ServerNotice::Engine(Notice::Uncached { .. }) => Event::Uncached,
        ServerNotice::Engine(Notice::Drained { .. }) => Event::Drained,
        ServerNotice::DeviceGone { .. } => Event::DeviceGone,
        ServerNotice::OriginAway { .. } => Event::OriginAway,
        ServerNotice::OriginOther { .. } => Event::OriginOther,
        ServerNotice::OriginBack { .. } => Event::OriginBack,
        ServerNotice::TooManyClients { .. } => Event::TooManyClients,
        ServerNotice::ClientRefused { .. } => Event::ClientRefused,
        ServerNotice::NoIoUring { .. } => Event::NoIoUring,
        _ => Event::Other,
    }
}

/// The kind of a notice, for the log: what differs from one failure to the next is left out.
pub fn kind(said: &ServerNotice) -> String {
    match said {
        ServerNotice::Engine(Notice::CorruptClean { volume, errno, .. }) => {
            format!("rotted or unread, clean, {}, {errno:?}", volume.0)
        }
        ServerNotice::Engine(Notice::Lost { volume, .. }) => format!("rotted, dirty, {}", volume.0),
        ServerNotice::Engine(Notice::CacheSlow { .. }) => "slow".into(),
        ServerNotice::Engine(Notice::CacheWell { .. }) => "well".into(),
        ServerNotice::Engine(Notice::DirtyUnread { volume, errno, .. }) => {
            format!("unread, dirty, {}, {errno:?}", volume.0)
        }
        ServerNotice::OriginAway { target, .. } => format!("away, {target:?}"),
        ServerNotice::OriginOther { target, .. } => format!("another disk, {target:?}"),
        ServerNotice::OriginBack { target, .. } => format!("back, {target:?}"),
        ServerNotice::ClientRefused { refusal, .. } => format!("refused, {}", refusal.kind()),
        said => format!("{said:?}"),
    }
}

/// The line about changes that an origin may have lost.
fn lost(name: &str) -> String {
    format!(
        "the origin of volume {name} may have lost what clients wrote around the cache since their last FLUSH; the next one \
         fails and tells them"
    )
}

/// Why the cache is not written any more, and what to do about it.
pub fn latched(errno: Errno) -> String {
    let error = system(errno);
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; there is no space for the cache's file: make room on its file system"
        }
        io::ErrorKind::FileTooLarge => "; allow larger files (ulimit -f)",
        _ => "; look after the device",
    };
    format!("the cache device failed: {error}{advice}, then restart the daemon; until then it is not written")
}

/// The line of a notice about a half of a mirrored cache; `None` of others.
fn of_half(said: &ServerNotice, name: impl Fn(Half) -> Option<String>) -> Option<String> {
    match said {
        ServerNotice::Engine(Notice::HalfLost { half, errno }) => {
            let (lost, other) = (name(*half)?, name(half.other())?);
            Some(format!(
                "the half {lost} of the mirrored cache failed and does not count any more: {}; the cache goes on with {other} \
                 alone; forebay replace {other} --mirror DEV takes a device in its place",
                system(*errno)
            ))
        }
        ServerNotice::Engine(Notice::HalfBack { half }) => {
            Some(format!("the half {} of the mirrored cache has everything and counts again", name(*half)?))
        }
        ServerNotice::DeviceGone { target: target @ (Target::Cache | Target::Mirror) } => {
            let half = if *target == Target::Cache { Half::First } else { Half::Second };
            Some(format!(
                "the half {} of the mirrored cache did not answer in time; it is not used any more",
                name(half)?
            ))
        }
        _ => None,
    }
}

/// The line of a notice; `away` is the reason why an origin cannot be reached, if it cannot.
fn line(
    said: &ServerNotice,
    name: impl Fn(VolumeIndex) -> String,
    away: impl Fn(VolumeIndex) -> Option<String>,
) -> String {
    let said = match said {
        ServerNotice::Engine(said) => said,
        ServerNotice::DeviceGone { target: Target::Origin(volume) } => {
            let name = name(*volume);
            return format!("the origin of volume {name} did not answer in time; it is not used any more");
        }
        ServerNotice::OriginAway { target: Target::Origin(volume), reason } => {
            let name = name(*volume);
            return format!("the origin of volume {name} is away: {reason}; it is looked for");
        }
        ServerNotice::OriginOther { target: Target::Origin(volume), reason } => {
            let name = name(*volume);
            return format!(
                "the server of the origin of volume {name} serves another disk: {reason}; nothing is written to it, \
                 bring the right one back"
            );
        }
        ServerNotice::OriginLost { target: Target::Origin(volume) } => return lost(&name(*volume)),
        ServerNotice::OriginBack { target: Target::Origin(volume), away_ms } => {
            let name = name(*volume);
            return format!(
                "the origin of volume {name} is back after {}.{:03} s",
                away_ms / 1000,
                away_ms % 1000
            );
        }
        said => return said.to_string(),
    };
    match *said {
        Notice::OriginError { volume, errno } => {
            let name = name(volume);
            if let Some(reason) = away(volume) {
                return format!(
                    "the origin of volume {name} is away: {reason}; dirty data stays in the cache"
                );
            }
            let error = system(errno);
            // A device that became read-only refuses writes with one of the two.
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "; the device is read-only: make it writable (blockdev --setrw)"
                }
                _ => "",
            };
            format!(
                "the origin of volume {name} failed: {error}{advice}; it is retried, dirty data stays in the cache"
            )
        }
        Notice::ChangesLost { volume, .. } => lost(&name(volume)),
        Notice::CacheLatched { errno } => latched(errno),
        Notice::HalfLost { .. } | Notice::HalfBack { .. } => ServerNotice::Engine(*said).to_string(),
        Notice::CacheSlow { usual_us, slow_us } => {
            let [usual, slow] = [usual_us, slow_us].map(crate::report::milliseconds);
            format!(
                "the cache device is slow: its reads take {slow} ms instead of {usual} ms; what the origin has is read \
                 there where that is faster"
            )
        }
        Notice::CacheWell { passed_ms } => format!(
            "the cache device is as fast as before and is used again, after {}.{:03} s",
            passed_ms / 1000,
            passed_ms % 1000
        ),
        Notice::CorruptClean { volume, block, errno: None } => {
            format!("block {block} of volume {} rotted in the cache; the origin serves it", name(volume))
        }
        Notice::CorruptClean { volume, block, errno: Some(errno) } => {
            let (name, error) = (name(volume), system(errno));
            format!(
                "block {block} of volume {name} could not be read from the cache: {error}; the origin serves it"
            )
        }
        Notice::Lost { volume, block } => format!(
            "block {block} of volume {} rotted in the cache before it went home; reads of it fail until it is written, \
             or given up with lost=give-up",
            name(volume)
        ),
        Notice::DirtyUnread { volume, block, errno } => {
            let (name, error) = (name(volume), system(errno));
            format!(
                "block {block} of volume {name} could not be read from the cache before it went home: {error}; it is \
                 tried again"
            )
        }
        Notice::Uncached { volume } => format!("volume {} goes on without its cache", name(volume)),
        Notice::Drained { volume } => format!("volume {} has no dirty data any more", name(volume)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_became_read_only_is_named() {
        let said = |errno| {
            let failed = Notice::OriginError { volume: VolumeIndex(0), errno };
            line(&ServerNotice::Engine(failed), |_| "disk".to_owned(), |_| None)
        };
        for errno in [Errno::PERM, Errno(30)] {
            assert!(said(errno).contains("the device is read-only: make it writable"), "{}", said(errno));
        }
        assert!(!said(Errno::IO).contains("read-only"));
        let failed = ServerNotice::Engine(Notice::OriginError { volume: VolumeIndex(0), errno: Errno::IO });
        let away = line(&failed, |_| "disk".to_owned(), |_| Some("no answer".to_owned()));
        assert_eq!(away, "the origin of volume disk is away: no answer; dirty data stays in the cache");
    }
}
