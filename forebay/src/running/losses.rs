//! Losses: changes that an origin may have dropped with a flush that failed, until a FLUSH has told clients (hazard 11).
//!
//! The engine and the clients of servers know of them. They are noted beside the cache as well: clients whose device outlives
//! the daemon are told by the next one. Clients do not outlive the machine's boot.

use super::volumes::ServedVolumes;
use crate::state::{LiveRecord, UntoldNote, hexadecimal};
use anyhow::Result;
use engine::effect::Errno;
use engine::engine::Engine;
use engine::units::VolumeIndex;
use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Notes on losses of which no FLUSH has told.
pub(super) struct Losses {
    volumes: ServedVolumes,
    record: Arc<LiveRecord>,
    /// The boot of this machine in hexadecimal; empty if the system does not tell.
    boot: String,
    /// Number of losses that were noted when they came.
    noted: AtomicU64,
    /// The ids of volumes whose clients seem to be told: the answer may be on its way yet.
    told: Mutex<BTreeSet<u32>>,
}

impl Losses {
    pub fn new(volumes: &ServedVolumes, record: &Arc<LiveRecord>) -> Arc<Losses> {
        Arc::new(Losses {
            volumes: volumes.clone(),
            record: Arc::clone(record),
            boot: live::buffers::boot_id().map_or_else(String::new, |boot| hexadecimal(&boot)),
            noted: AtomicU64::new(0),
            told: Mutex::default(),
        })
    }

    /// Hands the first engine what the daemon before had to tell clients.
    pub fn hand_on(&self, engine: &mut Engine) {
        let noted = self.record.untold(&self.boot);
        let volumes = self.volumes.all().into_iter();
        let losses: Vec<(VolumeIndex, Errno)> = volumes
            .filter_map(|volume| {
                let (_, errno) = noted.iter().find(|(id, _)| *id == volume.id.0)?;
                Some((volume.index, Errno(*errno)))
            })
            .collect();
        engine.take_over_losses(&losses);
    }

    /// Notes a loss when it comes.
    ///
    /// # Errors
    /// If the notes cannot be written: then they are when there is room for them, if that is before the daemon ends.
    pub fn note(&self, index: VolumeIndex, errno: Errno) -> Result<()> {
        let Some(volume) = self.volumes.of(index) else { return Ok(()) };
        self.noted.fetch_add(1, Ordering::SeqCst);
        let untold = Some(UntoldNote { errno: errno.0, boot: self.boot.clone() });
        self.record.change_volume(volume.id.0, |note| note.untold = untold)
    }

    /// The number of losses that were noted when they came: to be read before [`Losses::of`].
    pub fn noted(&self) -> u64 {
        self.noted.load(Ordering::SeqCst)
    }

    /// The losses of which no FLUSH has told yet, by the ids of volumes.
    pub fn of(&self, engine: &Engine) -> Vec<(u32, Errno)> {
        let losses = engine.untold_losses();
        let of_engine = losses.into_iter().filter_map(|(at, errno)| Some((self.volumes.of(at)?.id.0, errno)));
        let owes = |origin: &live::devices::Device| origin.owes_failure();
        let volumes = self.volumes.all().into_iter();
        let of_servers = volumes.filter(|volume| volume.origin.as_ref().is_some_and(owes));
        of_engine.chain(of_servers.map(|volume| (volume.id.0, Errno::IO))).collect()
    }

    /// Brings the notes up to the losses that are left in `untold`, where none came since `noted` was read. What clients were
    /// told of is noted until the second look after that, or the last one.
    ///
    /// # Errors
    /// If the notes cannot be written.
    pub fn follow(&self, untold: &[(u32, Errno)], noted: u64, is_last: bool) -> Result<()> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = mem::take(&mut *told);
        self.record.change(|record| {
            if self.noted() != noted {
                return;
            }
            for note in &mut record.volumes {
                match untold.iter().find(|(id, _)| *id == note.id) {
                    Some((_, errno)) => {
                        note.untold = Some(UntoldNote { errno: errno.0, boot: self.boot.clone() });
                    }
                    None if is_last || before.contains(&note.id) => note.untold = None,
                    None if note.untold.is_some() => drop(told.insert(note.id)),
                    None => (),
                }
            }
        })
    }
}
