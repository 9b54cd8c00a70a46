//! Losses: changes that an origin may have dropped with a flush that failed, until a FLUSH has told clients (hazard 11).
//!
//! The engine and the clients of servers know of them. They are noted beside the cache as well: clients whose device outlives
//! the daemon are told by the next one. Clients do not outlive the machine's boot.

use crate::state::{LiveRecord, UntoldNote, hexadecimal};
use anyhow::Result;
use engine::effect::Errno;
use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Notes on losses of which no FLUSH has told.
pub struct Losses {
    record: Arc<LiveRecord>,
    /// The boot of this machine in hexadecimal; empty if the system does not tell.
    boot: String,
    /// Number of losses that were noted when they came.
    noted: AtomicU64,
    /// The ids of volumes whose clients seem to be told: the answer may be on its way yet.
    told: Mutex<BTreeSet<u32>>,
}

impl Losses {
    /// The notes in this record.
    pub fn new(record: &Arc<LiveRecord>) -> Arc<Losses> {
        Arc::new(Losses {
            record: Arc::clone(record),
            boot: live::buffers::boot_id().map_or_else(String::new, |boot| hexadecimal(&boot)),
            noted: AtomicU64::new(0),
            told: Mutex::default(),
        })
    }

    /// The error with which FLUSH has to fail on a volume, for what the daemon before did not tell clients.
    pub fn left(&self, id: u32) -> Option<Errno> {
        self.record.untold(id, &self.boot).map(Errno)
    }

    /// Notes a loss when it comes.
    ///
    /// # Errors
    /// If the notes cannot be written: then they are when there is room for them, if that is before the daemon ends.
    pub fn note(&self, id: u32, errno: Errno) -> Result<()> {
        self.noted.fetch_add(1, Ordering::SeqCst);
        let untold = Some(UntoldNote { errno: errno.0, boot: self.boot.clone() });
        self.record.change_volume(id, |note| note.untold = untold)
    }

    /// The number of losses that were noted when they came: to be read before it is asked which are left.
    pub fn noted(&self) -> u64 {
        self.noted.load(Ordering::SeqCst)
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
