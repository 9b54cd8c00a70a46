//! Volumes that are served: a list that the operator may change while clients work.

use crate::losses::Losses;
use crate::startup::Served;
use engine::effect::Errno;
use engine::engine::Engine;
use engine::units::VolumeIndex;
use live::devices::Device;
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

    /// Lets a new engine tell clients what the daemon before did not.
    pub fn hand_on(&self, losses: &Losses, engine: &mut Engine) {
        let volumes = self.all().into_iter();
        let left = volumes.filter_map(|volume| Some((volume.index, losses.left(volume.id.0)?)));
        engine.take_over_losses(&left.collect::<Vec<_>>());
    }

    /// The losses of which no FLUSH has told yet, by the ids of volumes: those that the engine knows of, and servers.
    pub fn untold_losses(&self, engine: &Engine) -> Vec<(u32, Errno)> {
        let losses = engine.untold_losses();
        let of_engine = losses.into_iter().filter_map(|(at, errno)| Some((self.of(at)?.id.0, errno)));
        let volumes = self.all().into_iter();
        let of_servers = volumes.filter(|volume| volume.origin.as_ref().is_some_and(Device::owes_failure));
        of_engine.chain(of_servers.map(|volume| (volume.id.0, Errno::IO))).collect()
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
