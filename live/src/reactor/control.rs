//! Control thread: the first reactor's other duty, to answer requests of other threads and to end the server.

use crate::devices::Device;
use crate::doors::Export;
use crate::kernel::KernelClient;
use crate::reactor::driver::{Asker, Core, Turn};
use crate::reactor::wakeups::{Order, Receipt};
use crate::server::{Answer, ControlError, ControlOp, Message};
use engine::effect::{Errno, RequestOp, Target};
use engine::memory::{Memory, Slice};
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use slab::Slab;
use std::sync::mpsc::Receiver;

/// Request of another thread that the core has not answered yet.
enum Asked {
    Request { volume: VolumeIndex, op: ControlOp, answer: Answer<()> },
    Read { slice: Slice, answer: Answer<Vec<u8>> },
    Warm { answer: Answer<()> },
    Stop,
}

/// Stage of the end.
enum Ending {
    /// No thread asked for it.
    No,
    /// Clients' requests are under way, and have until then.
    Quieting { answers: Vec<Answer<()>>, until: Nanos },
    /// The core is stopping.
    Stopping { answers: Vec<Answer<()>> },
    /// The server has ended.
    Over,
}

/// Time that clients' requests have to end before the core stops. Then it refuses those that wait, for an origin that fails or
/// for room that such origins do not make. Nobody gets these replies: the connections are closed.
const QUIETING_NS: u64 = 5 * Nanos::SECOND;

/// Messages of other threads, and the requests made from them.
pub(crate) struct Control<C> {
    messages: Receiver<Message<C>>,
    asked: Slab<Asked>,
    ending: Ending,
}

impl<C: Core> Control<C> {
    pub(crate) fn new(messages: Receiver<Message<C>>) -> Control<C> {
        Control { messages, asked: Slab::new(), ending: Ending::No }
    }

    /// Takes all messages there are.
    pub(crate) fn take_messages(&mut self, turn: &mut Turn<'_, C>) {
        while let Ok(message) = self.messages.try_recv() {
            self.take_message(message, turn);
        }
    }

    fn take_message(&mut self, message: Message<C>, turn: &mut Turn<'_, C>) {
        let driver = &mut *turn.driver;
        // The thread that asked may be gone, and then its answer is dropped.
        match message {
            Message::WithCore(look) => look(&mut driver.core),
            Message::WithTraffic(look) => look(&mut driver.offers.traffic),
            Message::Latencies { volume, answer } => drop(answer.send(Ok(driver.offers.latencies(volume)))),
            Message::Histograms { volume, answer } => {
                let _ = answer.send(Ok(driver.offers.histograms(volume).map(Box::new)));
            }
            Message::SetLimits { volume, limits, answer } => {
                driver.brakes.set(volume, limits, driver.now);
                let _ = answer.send(Ok(()));
            }
            Message::HeldBack { volume, answer } => drop(answer.send(Ok(driver.brakes.held_back(volume)))),
            Message::Clients { answer } => drop(answer.send(Ok(driver.client_figures()))),
            Message::ResizeExport { volume, size_bytes, answer } => {
                let place = driver.offers.resize(volume, size_bytes);
                disconnect(place, answer, turn);
            }
            Message::SetReadOnly { volume, read_only, answer } => {
                driver.offers.set_read_only(volume, read_only);
                let _ = answer.send(Ok(()));
            }
            Message::ServeKernel { volume, clients, answer } => {
                let _ = answer.send(serve_kernel(volume, clients, turn));
            }
            Message::TakeOrigin { volume, device, answer } => take_origin(volume, device, answer, turn),
            Message::LetGoOfOrigin { volume, answer } => {
                let receipt = Receipt::new(answer);
                let device = driver.flights.let_go_of_origin(volume);
                if let Some(device) = device {
                    driver
                        .wakeups
                        .order_all(|| Order::Forget { device: device.clone(), receipt: receipt.clone() });
                }
            }
            Message::TakeHalf { half, device, answer } => take_half(half, device, answer, turn),
            Message::LetGoOfHalf { half, answer } => let_go_of_half(half, answer, turn),
            Message::OpenExport { export, answer } => {
                let is_allowed = export.is_allowed();
                if is_allowed {
                    driver.offers.open(export.offered());
                }
                let refused = Err(ControlError::Engine(Errno::INVAL));
                let _ = answer.send(if is_allowed { Ok(()) } else { refused });
            }
            Message::CloseExport { volume, answer } => {
                let place = driver.offers.close(volume);
                disconnect(place, answer, turn);
            }
            Message::CloseDoors { answer } => {
                let receipt = Receipt::new(answer);
                driver.wakeups.order_all(|| Order::Shut { receipt: Some(receipt.clone()) });
            }
            Message::Stop { answer } => self.stop(answer, turn),
            Message::Request { answer, .. } | Message::Warm { answer, .. }
                if !matches!(self.ending, Ending::No) =>
            {
                let _ = answer.send(Err(ControlError::Stopped));
            }
            Message::Read { answer, .. } if !matches!(self.ending, Ending::No) => {
                let _ = answer.send(Err(ControlError::Stopped));
            }
            Message::Request { volume, op, passes_gate, answer } => {
                let key = self.asked.insert(Asked::Request { volume, op, answer });
                if passes_gate {
                    driver.ask_behind_gate(volume, op.request(), Asker::Control(key));
                } else {
                    driver.ask(volume, op.request(), Asker::Control(key));
                }
            }
            Message::CloseGate { answer } => driver.close_gate(answer),
            Message::OpenGate { answer } => {
                driver.open_gate();
                let _ = answer.send(Ok(()));
            }
            Message::LearnCache { device, answer } => {
                let receipt = Receipt::new(answer);
                if let Some(file) = device.raw_fd() {
                    driver.wakeups.order_all(|| Order::Learn { file, receipt: receipt.clone() });
                }
            }
            Message::ForgetCache { device, answer } => {
                let receipt = Receipt::new(answer);
                driver
                    .wakeups
                    .order_all(|| Order::Forget { device: device.clone(), receipt: receipt.clone() });
            }
            Message::Swap { core, cache, answer } => {
                let _ = answer.send(driver.swap(core, cache).map_err(ControlError::Engine));
            }
            Message::Read { volume, offset_bytes, len_bytes, answer } => {
                self.read(volume, offset_bytes, len_bytes, answer, turn);
            }
            Message::Warm { volume, first_block, blocks, answer } => {
                self.warm(volume, first_block, blocks, answer, turn);
            }
        }
    }

    fn read(
        &mut self,
        volume: VolumeIndex,
        offset_bytes: u64,
        len_bytes: u32,
        answer: Answer<Vec<u8>>,
        turn: &mut Turn<'_, C>,
    ) {
        let lead_bytes = u32::try_from(offset_bytes % BLOCK_BYTES).expect("less than a block");
        let buffer_bytes = (lead_bytes + len_bytes).next_multiple_of(BLOCK_BYTES as u32);
        let Some(buffer) = turn.driver.pool.allocate_for_door(buffer_bytes) else {
            let _ = answer.send(Err(ControlError::Engine(Errno::NOSPC)));
            return;
        };
        let slice = Slice { buffer, offset_bytes: lead_bytes, len_bytes };
        turn.driver.pool.retain(buffer);
        let range =
            SectorRange { start: offset_bytes / SECTOR_BYTES, sectors: u64::from(len_bytes) / SECTOR_BYTES };
        let key = self.asked.insert(Asked::Read { slice, answer });
        turn.driver.ask(volume, RequestOp::Read { range, into: slice }, Asker::Control(key));
    }

    fn warm(
        &mut self,
        volume: VolumeIndex,
        first_block: u64,
        blocks: u32,
        answer: Answer<()>,
        turn: &mut Turn<'_, C>,
    ) {
        let len_bytes = blocks * BLOCK_BYTES as u32;
        let Some(buffer) = turn.driver.pool.allocate_for_door(len_bytes) else {
            let _ = answer.send(Err(ControlError::Engine(Errno::NOSPC)));
            return;
        };
        let slice = Slice { buffer, offset_bytes: 0, len_bytes };
        let sectors_per_block = BLOCK_BYTES / SECTOR_BYTES;
        let range = SectorRange {
            start: first_block * sectors_per_block,
            sectors: u64::from(blocks) * sectors_per_block,
        };
        let key = self.asked.insert(Asked::Warm { answer });
        turn.driver.ask(volume, RequestOp::Warm { range, into: slice }, Asker::Control(key));
    }

    /// The core has answered a request of another thread.
    pub(crate) fn answer(&mut self, key: usize, result: Result<(), Errno>, turn: &mut Turn<'_, C>) {
        let result = result.map_err(ControlError::Engine);
        match self.asked.remove(key) {
            Asked::Read { slice, answer } => {
                let _ = answer.send(result.map(|()| turn.driver.pool.bytes(slice).to_vec()));
                turn.release(slice);
            }
            Asked::Warm { answer } => {
                let _ = answer.send(result);
            }
            Asked::Request { volume, op, answer } => match op {
                ControlOp::Detach if result.is_ok() => {
                    let place = turn.driver.offers.close(volume);
                    disconnect(place, answer, turn);
                }
                ControlOp::SetSize { sectors } if result.is_ok() => {
                    let place = turn.driver.offers.resize(volume, sectors * SECTOR_BYTES);
                    disconnect(place, answer, turn);
                }
                _ => {
                    let _ = answer.send(result);
                }
            },
            Asked::Stop => {
                if let Ending::Stopping { answers } = std::mem::replace(&mut self.ending, Ending::Over) {
                    for answer in answers {
                        let _ = answer.send(result);
                    }
                }
                turn.driver.wakeups.end();
            }
        }
    }

    fn stop(&mut self, answer: Answer<()>, turn: &mut Turn<'_, C>) {
        match &mut self.ending {
            Ending::No => {
                turn.driver.wakeups.order_all(|| Order::Shut { receipt: None });
                let until = turn.driver.now.plus(QUIETING_NS);
                self.ending = Ending::Quieting { answers: vec![answer], until };
            }
            Ending::Quieting { answers, .. } | Ending::Stopping { answers } => answers.push(answer),
            Ending::Over => {
                let _ = answer.send(Err(ControlError::Stopped));
            }
        }
    }

    /// The time at which the core is stopped, whether or not clients' requests are under way.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match self.ending {
            Ending::Quieting { until, .. } => Some(until),
            Ending::No | Ending::Stopping { .. } | Ending::Over => None,
        }
    }

    /// Tells the core to stop once no client's request is under way, or they had their time; `true` if it did.
    pub(crate) fn end_if_quiet(&mut self, turn: &mut Turn<'_, C>) -> bool {
        let Ending::Quieting { answers, until } = &mut self.ending else { return false };
        // A client counts until its last request is answered.
        if turn.driver.wakeups.clients() > 0 && turn.driver.now < *until {
            return false;
        }
        let answers = std::mem::take(answers);
        self.ending = Ending::Stopping { answers };
        let key = self.asked.insert(Asked::Stop);
        turn.driver.ask(VolumeIndex(0), RequestOp::Stop, Asker::Control(key));
        true
    }
}

/// Takes a device as an origin; answers when every reactor has a thread for what waits there.
fn take_origin<C>(volume: VolumeIndex, device: Device, answer: Answer<()>, turn: &mut Turn<'_, C>) {
    let file = device.raw_fd();
    let receipt = Receipt::new(answer);
    if turn.driver.flights.take_origin(volume, device).is_err() {
        receipt.fail(Errno::BUSY);
    } else if let Some(file) = file {
        turn.driver.wakeups.order_all(|| Order::Learn { file, receipt: receipt.clone() });
    }
}

/// Takes a device as a half of the cache; answers when every reactor has a thread for what waits there.
fn take_half<C>(half: Target, device: Device, answer: Answer<()>, turn: &mut Turn<'_, C>) {
    let file = device.raw_fd();
    let receipt = Receipt::new(answer);
    if let Err(errno) = turn.driver.flights.take_half(half, device) {
        receipt.fail(errno);
    } else if let Some(file) = file {
        turn.driver.wakeups.order_all(|| Order::Learn { file, receipt: receipt.clone() });
    }
}

/// Lets go of a half of the cache; answers when no reactor has a thread for it.
fn let_go_of_half<C>(half: Target, answer: Answer<()>, turn: &mut Turn<'_, C>) {
    let receipt = Receipt::new(answer);
    match turn.driver.flights.let_go_of_half(half) {
        Err(errno) => receipt.fail(errno),
        Ok(devices) => {
            for device in devices {
                turn.driver
                    .wakeups
                    .order_all(|| Order::Forget { device: device.clone(), receipt: receipt.clone() });
            }
        }
    }
}

/// Orders reactors to serve a volume to these clients.
fn serve_kernel<C>(
    volume: VolumeIndex,
    clients: Vec<KernelClient>,
    turn: &mut Turn<'_, C>,
) -> Result<Export, ControlError> {
    let driver = &mut *turn.driver;
    let (place, export) = driver.offers.find(volume).ok_or(ControlError::Engine(Errno::INVAL))?;
    let export = export.clone();
    // Where one reactor has a ring, all have.
    if !turn.backend.is_ring() && clients.iter().any(|client| matches!(client, KernelClient::Queue(_))) {
        return Err(ControlError::NoRing);
    }
    for client in clients {
        let reactor = driver.wakeups.admit();
        driver.wakeups.order(reactor, Order::Serve { client, place });
    }
    Ok(export)
}

/// Orders all doors to close the connections to an export; answers when they have.
fn disconnect<C>(place: Option<usize>, answer: Answer<()>, turn: &mut Turn<'_, C>) {
    let receipt = Receipt::new(answer);
    if let Some(place) = place {
        turn.driver.wakeups.order_all(|| Order::Disconnect { place, receipt: receipt.clone() });
    }
}
