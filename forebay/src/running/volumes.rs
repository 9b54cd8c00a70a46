//! Volumes that are served: a list that the operator may change while clients work.

use crate::startup::Served;
use engine::units::VolumeIndex;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The volumes of a running cache, shared by its threads.
#[derive(Clone, Default)]
pub struct ServedVolumes {
    list: Arc<RwLock<Vec<Arc<Served>>>>,
}

impl ServedVolumes {
    /// The volumes of a start.
    #[must_use]
    pub fn new(volumes: Vec<Served>) -> ServedVolumes {
        ServedVolumes { list: Arc::new(RwLock::new(volumes.into_iter().map(Arc::new).collect())) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Served>>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, as they are now.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Served>> {
        self.read().clone()
    }

    /// One of them.
    #[must_use]
    pub fn of(&self, index: VolumeIndex) -> Option<Arc<Served>> {
        self.read().iter().find(|volume| volume.index == index).map(Arc::clone)
    }

    /// The name of one of them.
    #[must_use]
    pub fn name(&self, index: VolumeIndex) -> String {
        self.of(index).map_or_else(|| "?".to_owned(), |volume| volume.name.clone())
    }

    /// Enters one more.
    pub fn enter(&self, volume: Arc<Served>) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).push(volume);
    }

    /// Strikes one out.
    pub fn strike_out(&self, index: VolumeIndex) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).retain(|volume| volume.index != index);
    }
}
