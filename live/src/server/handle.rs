//! Handles: the interface of other threads to a running server.

use super::ExportConfig;
use crate::devices::Device;
use crate::doors::Export;
use crate::doors::latency::{Histograms, Latencies};
use crate::doors::limits::ClientFigures;
use crate::doors::traffic::Traffic;
use crate::kernel::KernelClient;
use crate::kernel::ublk::Queue;
use crate::limits::{HeldBack, Limits};
use crate::reactor::Core;
use engine::effect::{Errno, RequestOp, Room, Target, WearBudget, WriteMode};
use engine::limits::REQUEST_BYTES_MAX;
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, SectorRange, VolumeIndex};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use thiserror::Error;

/// Request of the operator to a volume; see [`RequestOp`] for what each does and when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOp {
    /// [`RequestOp::SetMode`]
    SetMode(WriteMode),
    /// [`RequestOp::SetSize`]; then the export has the new size, and its clients are sent away to look again.
    SetSize {
        /// The new size.
        sectors: u64,
    },
    /// [`RequestOp::Scrub`]
    Scrub(SectorRange),
    /// [`RequestOp::ScrubSegment`]
    ScrubSegment(u32),
    /// [`RequestOp::Flush`]
    Flush,
    /// [`RequestOp::Drain`]
    Drain,
    /// [`RequestOp::CancelDrain`]
    CancelDrain,
    /// [`RequestOp::HoldDestage`]
    HoldDestage(bool),
    /// [`RequestOp::SetRoom`]
    SetRoom(Room),
    /// [`RequestOp::SetOrder`]
    SetOrder(bool),
    /// [`RequestOp::SetWearBudget`]
    SetWearBudget(Option<WearBudget>),
    /// [`RequestOp::Detach`]; the volume's clients are disconnected when it is done.
    Detach,
    /// [`RequestOp::Add`], of the volume that was proposed to the core.
    Add,
    /// [`RequestOp::GiveUpLost`]
    GiveUpLost,
    /// [`RequestOp::Rejoin`], of the half that was taken with [`Handle::take_half`].
    Rejoin,
    /// [`RequestOp::Stop`], of a core whose place another one takes ([`Handle::swap`]).
    Stop,
}

impl ControlOp {
    pub(crate) fn request(self) -> RequestOp {
        match self {
            ControlOp::SetMode(mode) => RequestOp::SetMode(mode),
            ControlOp::SetSize { sectors } => RequestOp::SetSize(sectors),
            ControlOp::Scrub(range) => RequestOp::Scrub(range),
            ControlOp::ScrubSegment(segment) => RequestOp::ScrubSegment(segment),
            ControlOp::Flush => RequestOp::Flush,
            ControlOp::Drain => RequestOp::Drain,
            ControlOp::CancelDrain => RequestOp::CancelDrain,
            ControlOp::SetOrder(is_strict) => RequestOp::SetOrder(is_strict),
            ControlOp::HoldDestage(is_held_back) => RequestOp::HoldDestage(is_held_back),
            ControlOp::SetRoom(room) => RequestOp::SetRoom(room),
            ControlOp::SetWearBudget(budget) => RequestOp::SetWearBudget(budget),
            ControlOp::Detach => RequestOp::Detach,
            ControlOp::Add => RequestOp::Add,
            ControlOp::GiveUpLost => RequestOp::GiveUpLost,
            ControlOp::Rejoin => RequestOp::Rejoin,
            ControlOp::Stop => RequestOp::Stop,
        }
    }
}

/// Reason why a call of another thread has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The core refused.
    #[error("{}", io::Error::from_raw_os_error(.0.0))]
    Engine(Errno),
    /// The kernel refuses io_uring to the server.
    #[error("the daemon works without io_uring, without which there is no ublk; take --door nbd")]
    NoRing,
    /// The server has stopped or is stopping.
    #[error("the daemon is stopping")]
    Stopped,
}

/// Channel for the one answer of a call.
pub(crate) type Answer<T> = Sender<Result<T, ControlError>>;

/// Message of another thread to the control thread.
pub(crate) enum Message<C> {
    Request { volume: VolumeIndex, op: ControlOp, passes_gate: bool, answer: Answer<()> },
    CloseGate { answer: Answer<()> },
    OpenGate { answer: Answer<()> },
    LearnCache { device: Device, answer: Answer<()> },
    ForgetCache { device: Device, answer: Answer<()> },
    Swap { core: C, cache: Option<Device>, answer: Answer<Option<Device>> },
    WithCore(Box<dyn FnOnce(&mut C) + Send>),
    WithTraffic(Box<dyn FnOnce(&mut Traffic) + Send>),
    Read { volume: VolumeIndex, offset_bytes: u64, len_bytes: u32, answer: Answer<Vec<u8>> },
    Warm { volume: VolumeIndex, first_block: u64, blocks: u32, answer: Answer<()> },
    Latencies { volume: VolumeIndex, answer: Answer<Latencies> },
    Histograms { volume: VolumeIndex, answer: Answer<Option<Box<Histograms>>> },
    SetLimits { volume: VolumeIndex, limits: Limits, answer: Answer<()> },
    HeldBack { volume: VolumeIndex, answer: Answer<HeldBack> },
    Clients { answer: Answer<ClientFigures> },
    ResizeExport { volume: VolumeIndex, size_bytes: u64, answer: Answer<()> },
    SetReadOnly { volume: VolumeIndex, read_only: bool, answer: Answer<()> },
    ServeKernel { volume: VolumeIndex, clients: Vec<KernelClient>, answer: Answer<Export> },
    TakeOrigin { volume: VolumeIndex, device: Device, answer: Answer<()> },
    LetGoOfOrigin { volume: VolumeIndex, answer: Answer<()> },
    TakeHalf { half: Target, device: Device, answer: Answer<()> },
    LetGoOfHalf { half: Target, answer: Answer<()> },
    OpenExport { export: ExportConfig, answer: Answer<()> },
    CloseExport { volume: VolumeIndex, answer: Answer<()> },
    CloseDoors { answer: Answer<()> },
    Stop { answer: Answer<()> },
}

/// A way to talk to a running server from any thread. Calls wait for their answer.
pub struct Handle<C> {
    pub(super) messages: Sender<Message<C>>,
    pub(super) wake: Arc<OwnedFd>,
}

impl<C> Clone for Handle<C> {
    fn clone(&self) -> Handle<C> {
        Handle { messages: self.messages.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// A request whose answer is still to come.
#[derive(Debug)]
pub struct Pending {
    answer: Receiver<Result<(), ControlError>>,
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// What the core said, or that the server stopped meanwhile.
    pub fn wait(self) -> Result<(), ControlError> {
        self.answer.recv().unwrap_or(Err(ControlError::Stopped))
    }

    /// Waits for the answer, but not longer than `time`. `None` if it is still to come.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Option<Result<(), ControlError>> {
        match self.answer.recv_timeout(time) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(ControlError::Stopped)),
        }
    }
}

impl<C: Core + 'static> Handle<C> {
    fn send(&self, message: Message<C>) -> Result<(), ControlError> {
        self.messages.send(message).map_err(|_| ControlError::Stopped)?;
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    fn call<T>(&self, message: impl FnOnce(Answer<T>) -> Message<C>) -> Result<T, ControlError> {
        let (answer, receiver) = channel();
        self.send(message(answer))?;
        receiver.recv().unwrap_or(Err(ControlError::Stopped))
    }

    /// Submits a request to the core, and waits until it is done.
    ///
    /// # Errors
    /// What the core said, or that the server has stopped.
    pub fn request(&self, volume: VolumeIndex, op: ControlOp) -> Result<(), ControlError> {
        self.start(volume, op)?.wait()
    }

    /// Asks the core for something that may take long.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn start(&self, volume: VolumeIndex, op: ControlOp) -> Result<Pending, ControlError> {
        let (answer, receiver) = channel();
        self.send(Message::Request { volume, op, passes_gate: false, answer })?;
        Ok(Pending { answer: receiver })
    }

    /// The same, also while the gate is closed.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn start_behind_gate(&self, volume: VolumeIndex, op: ControlOp) -> Result<Pending, ControlError> {
        let (answer, receiver) = channel();
        self.send(Message::Request { volume, op, passes_gate: true, answer })?;
        Ok(Pending { answer: receiver })
    }

    /// Keeps all requests back from now on, those of clients, too: they wait. Answered when those that the core has are
    /// done.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn close_gate(&self) -> Result<Pending, ControlError> {
        let (answer, receiver) = channel();
        self.send(Message::CloseGate { answer })?;
        Ok(Pending { answer: receiver })
    }

    /// Lets requests go on.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn open_gate(&self) -> Result<(), ControlError> {
        self.call(|answer| Message::OpenGate { answer })
    }

    /// Gets ready for a device that is to be the cache.
    ///
    /// # Errors
    /// The system's error if it has no threads for it, or that the server has stopped.
    pub fn learn_cache(&self, device: Device) -> Result<(), ControlError> {
        self.call(|answer| Message::LearnCache { device, answer })
    }

    /// Lets go of a device that is not the cache, or is not any more.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn forget_cache(&self, device: Device) -> Result<(), ControlError> {
        self.call(|answer| Message::ForgetCache { device, answer })
    }

    /// Puts a core in the place of one that was stopped behind the gate, and a device in that of the cache if one is
    /// given. Returns the device that was the cache before, if that is another one now.
    ///
    /// # Errors
    /// [`Errno::BUSY`] while the gate is open or the cache has operations under way, or that the server has stopped.
    pub fn swap(&self, core: C, cache: Option<Device>) -> Result<Option<Device>, ControlError> {
        self.call(|answer| Message::Swap { core, cache, answer })
    }

    /// Runs `look` in a reactor, and all of them wait for it: be quick.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn with_core<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut C) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        self.call(|answer| {
            Message::WithCore(Box::new(move |core| {
                // The thread that asked may be gone.
                let _ = answer.send(Ok(look(core)));
            }))
        })
    }

    /// Runs `look` at what is seen of clients' requests, in a reactor, and all of them wait for it: be quick.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn with_traffic<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Traffic) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        self.call(|answer| {
            Message::WithTraffic(Box::new(move |traffic| {
                // The thread that asked may be gone.
                let _ = answer.send(Ok(look(traffic)));
            }))
        })
    }

    /// Reads of a volume through the core, as a client would. Offset and length are
    /// multiples of the volume's sector, and the length at most [`REQUEST_BYTES_MAX`] less a block.
    ///
    /// # Errors
    /// What the core said, [`Errno::INVAL`] for a range that is not allowed, [`Errno::NOSPC`] when
    /// clients hold all memory, or that the server has stopped.
    pub fn read(
        &self,
        volume: VolumeIndex,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Vec<u8>, ControlError> {
        let sector = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
        if len_bytes == 0
            || u64::from(len_bytes) > u64::from(REQUEST_BYTES_MAX) - BLOCK_BYTES
            || !sector(offset_bytes)
            || !sector(u64::from(len_bytes))
        {
            return Err(ControlError::Engine(Errno::INVAL));
        }
        self.call(|answer| Message::Read { volume, offset_bytes, len_bytes, answer })
    }

    /// Brings what is not cached of some blocks into the cache; at most [`REQUEST_BYTES_MAX`] of them. See
    /// [`RequestOp::Warm`].
    ///
    /// # Errors
    /// What the core said, [`Errno::NOSPC`] when clients hold all memory, or that the server has stopped.
    pub fn warm(&self, volume: VolumeIndex, first_block: u64, blocks: u32) -> Result<(), ControlError> {
        if blocks == 0 || u64::from(blocks) * BLOCK_BYTES > u64::from(REQUEST_BYTES_MAX) {
            return Err(ControlError::Engine(Errno::INVAL));
        }
        self.call(|answer| Message::Warm { volume, first_block, blocks, answer })
    }

    /// Latencies of a volume's clients so far.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn latencies(&self, volume: VolumeIndex) -> Result<Latencies, ControlError> {
        self.call(|answer| Message::Latencies { volume, answer })
    }

    /// A copy of the histograms of a volume's latencies; `None` if it is not offered to clients. Copying is all that
    /// the reactors wait for.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn histograms(&self, volume: VolumeIndex) -> Result<Option<Box<Histograms>>, ControlError> {
        self.call(|answer| Message::Histograms { volume, answer })
    }

    /// Holds the clients of a volume to these limits from now on.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn set_limits(&self, volume: VolumeIndex, limits: Limits) -> Result<(), ControlError> {
        self.call(|answer| Message::SetLimits { volume, limits, answer })
    }

    /// Requests of a volume's clients that limits have held back so far.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn held_back(&self, volume: VolumeIndex) -> Result<HeldBack, ControlError> {
        self.call(|answer| Message::HeldBack { volume, answer })
    }

    /// Counts its clients.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn clients(&self) -> Result<ClientFigures, ControlError> {
        self.call(|answer| Message::Clients { answer })
    }

    /// Offers a volume with another size; connections to it are closed, so that clients ask again.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn resize_export(&self, volume: VolumeIndex, size_bytes: u64) -> Result<(), ControlError> {
        self.call(|answer| Message::ResizeExport { volume, size_bytes, answer })
    }

    /// Announces a volume as read-only, or as writable, to clients that connect from now on. Present connections keep
    /// their announcement; their writes are judged by the new rule.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn set_read_only(&self, volume: VolumeIndex, read_only: bool) -> Result<(), ControlError> {
        self.call(|answer| Message::SetReadOnly { volume, read_only, answer })
    }

    /// Serves a volume at these sockets, whose other ends are for the kernel: what comes from there is NBD's
    /// transmission phase, with simple replies. The volume as it is offered now. A socket that is closed by either side
    /// is not served again.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if the volume is not offered, or that the server has stopped.
    pub fn serve_sockets(&self, volume: VolumeIndex, sockets: Vec<OwnedFd>) -> Result<Export, ControlError> {
        self.serve_kernel(volume, sockets.into_iter().map(KernelClient::Socket).collect())
    }

    /// Serves a volume at these queues of a ublk device. The volume as it is offered now. A queue ends with its device; it
    /// is left to the next server when this one stops.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if the volume is not offered, [`ControlError::NoRing`], or that the server has stopped.
    pub fn serve_queues(&self, volume: VolumeIndex, queues: Vec<Queue>) -> Result<Export, ControlError> {
        self.serve_kernel(volume, queues.into_iter().map(KernelClient::Queue).collect())
    }

    /// A volume as it is offered now.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if the volume is not offered, or that the server has stopped.
    pub fn export(&self, volume: VolumeIndex) -> Result<Export, ControlError> {
        self.serve_kernel(volume, Vec::new())
    }

    fn serve_kernel(&self, volume: VolumeIndex, clients: Vec<KernelClient>) -> Result<Export, ControlError> {
        self.call(|answer| Message::ServeKernel { volume, clients, answer })
    }

    /// Takes a device as the origin of a volume that is not served yet: from then on the core may use it.
    ///
    /// # Errors
    /// [`Errno::BUSY`] while an origin that was there before has operations under way, the system's error if it has no
    /// threads for it, or that the server has stopped.
    pub fn take_origin(&self, volume: VolumeIndex, device: Device) -> Result<(), ControlError> {
        self.call(|answer| Message::TakeOrigin { volume, device, answer })
    }

    /// Lets go of the origin of a volume that is not served any more, and with it of its lock, unless an operation that
    /// timed out is still under way there.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn let_go_of_origin(&self, volume: VolumeIndex) -> Result<(), ControlError> {
        self.call(|answer| Message::LetGoOfOrigin { volume, answer })
    }

    /// Takes a device as a half of a mirrored cache, in the place of one that was let go of: from then on the core may use it.
    ///
    /// # Errors
    /// [`Errno::BUSY`] if a device is there, the system's error if it has no threads for it, or that the server has stopped.
    pub fn take_half(&self, half: Target, device: Device) -> Result<(), ControlError> {
        self.call(|answer| Message::TakeHalf { half, device, answer })
    }

    /// Lets go of a half that the core does not use, and with it of its lock, unless an operation that timed out is still
    /// under way there.
    ///
    /// # Errors
    /// [`Errno::BUSY`] if the core waits for it, or such operations are under way at an earlier one, too; or that the server
    /// has stopped.
    pub fn let_go_of_half(&self, half: Target) -> Result<(), ControlError> {
        self.call(|answer| Message::LetGoOfHalf { half, answer })
    }

    /// Offers one more volume.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if it cannot be offered so, or that the server has stopped.
    pub fn open_export(&self, export: ExportConfig) -> Result<(), ControlError> {
        self.call(|answer| Message::OpenExport { export, answer })
    }

    /// Offers a volume no longer; connections to it are closed.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn close_export(&self, volume: VolumeIndex) -> Result<(), ControlError> {
        self.call(|answer| Message::CloseExport { volume, answer })
    }

    /// Takes no new connections and closes those there are.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn close_doors(&self) -> Result<(), ControlError> {
        self.call(|answer| Message::CloseDoors { answer })
    }

    /// Closes the doors, lets what is under way end, and stops the core cleanly
    /// ([`RequestOp::Stop`]). Afterwards [`super::Server::run`] returns.
    ///
    /// # Errors
    /// What the core said, or that the server had stopped already.
    pub fn stop(&self) -> Result<(), ControlError> {
        self.call(|answer| Message::Stop { answer })
    }
}
