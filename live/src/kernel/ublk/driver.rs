//! The control commands of the `ublk` driver, by a ring of their own: each is waited for.

use super::codec::{self, Control, INFORMATION_BYTES, Information, NEEDED, State};
use super::queue::Queue;
use crate::kernel::disk::{Disk, Maker};
use crate::kernel::error::{BLOCK_BYTES_MAX, KernelError};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

const CONTROL: &str = "/dev/ublk-control";
/// Longest wait for the end of a command. A start reads the table of partitions, from an origin that may have to spin up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for a device's file, which somebody may have to make.
const FILE_PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two looks for it.
const FILE_PAUSE: Duration = Duration::from_millis(5);
/// The index of a device for which the driver is to choose one.
const ANY: u32 = u32::MAX;

/// A device that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewDevice {
    /// Its index; `None` for a free one.
    pub index: Option<u32>,
    /// Number of its queues; the driver makes no more than there are processors.
    pub queues: u16,
    /// A number that the driver keeps, and by which the device is found again.
    pub mark: u64,
    /// Its size: whole blocks.
    pub size_bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Nobody may write to it.
    pub is_read_only: bool,
}

/// The driver, ready for commands.
pub struct UblkDriver {
    control: OwnedFd,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Commands that were given.
    given: u64,
}

impl UblkDriver {
    /// Finds the driver.
    ///
    /// # Errors
    /// [`KernelError`]: it is not there, lacks something, or is not for this process.
    pub fn open() -> Result<UblkDriver, KernelError> {
        let opened = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let control = opened.map_err(|errno| match errno {
            rustix::io::Errno::NOENT | rustix::io::Errno::NXIO | rustix::io::Errno::NODEV => {
                KernelError::missing(Maker::Ublk)
            }
            rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => KernelError::NotPermitted,
            errno => refused("be opened", errno.into()),
        })?;
        let ring = IoUring::builder().build(4).map_err(|_| KernelError::NoRing)?;
        let mut driver = UblkDriver { control, ring, given: 0 };
        let features = driver.ask_for(codec::GET_FEATURES, ANY, [0; 8]);
        // A driver without this command is too old, too.
        let features = features.map_or(0, u64::from_ne_bytes);
        if features & NEEDED == NEEDED { Ok(driver) } else { Err(KernelError::too_old()) }
    }

    /// Makes a device without a disk.
    ///
    /// # Errors
    /// [`KernelError`]; then there is no device.
    pub fn add(&mut self, device: &NewDevice) -> Result<Information, KernelError> {
        let block_bytes = device.block_bytes;
        if block_bytes > BLOCK_BYTES_MAX {
            return Err(KernelError::BlockSize { maker: Maker::Ublk, block_bytes });
        }
        let index = device.index.unwrap_or(ANY);
        let wanted = Information::wanted(index, device.queues, device.mark);
        let added = self.ask_for(codec::ADD, index, wanted.encode());
        let added = added.map_err(|source| match (source.raw_os_error(), device.index) {
            (Some(libc::EPERM), _) => KernelError::NotPermitted,
            (Some(libc::EEXIST), Some(index)) => KernelError::IndexTaken { disk: Disk::ublk(index) },
            _ => refused("make a device", source),
        })?;
        let added = Information::decode(&added);
        let parameters = codec::parameters(device.size_bytes, block_bytes, device.is_read_only);
        if let Err(source) = self.ask_for(codec::SET_PARAMETERS, added.index, parameters) {
            // The error says more than one on the way out could.
            let _ = self.delete(added.index);
            return Err(refused("take the limits of a device", source));
        }
        Ok(added)
    }

    /// The queues of a device that nobody serves.
    ///
    /// # Errors
    /// [`KernelError`], most often since somebody serves it.
    pub fn queues(&mut self, device: &Information) -> Result<Vec<Queue>, KernelError> {
        let path = format!("/dev/ublkc{}", device.index);
        let until = Instant::now() + FILE_PATIENCE;
        let file = loop {
            match rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) if Instant::now() < until => thread::sleep(FILE_PAUSE),
                opened => break opened.map_err(|errno| refused("open a device", errno.into()))?,
            }
        };
        Queue::all(file, device).map_err(|source| refused("share the memory of a device", source))
    }

    /// Gives a device its disk, once its queues are served: the kernel reads from it before this ends.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn start(&mut self, index: u32) -> Result<(), KernelError> {
        self.tell(codec::START, index, server()).map_err(|source| refused("start a device", source))
    }

    /// Makes a device whose server is dead ready for another one. Its queues are to be served then, and
    /// [`UblkDriver::go_on`] ends it.
    ///
    /// # Errors
    /// [`KernelError`], as long as its server lives or is about to end.
    pub fn take_over(&mut self, device: &Information) -> Result<(), KernelError> {
        match self.tell(codec::START_RECOVERY, device.index, 0) {
            // The last server died after it had said so, and before it served.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && device.state == State::Quiesced => {
                Ok(())
            }
            told => told.map_err(|source| refused("let a device be taken over", source)),
        }
    }

    /// Ends the wait of a device's requests, once its queues are served.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn go_on(&mut self, index: u32) -> Result<(), KernelError> {
        self.tell(codec::END_RECOVERY, index, server())
            .map_err(|source| refused("go on with a device", source))
    }

    /// Takes the disk of a device away, whoever uses it.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn stop(&mut self, index: u32) -> Result<(), KernelError> {
        self.tell(codec::STOP, index, 0).map_err(|source| refused("stop a device", source))
    }

    /// Takes a device away, when nobody has its file or its disk open any more: it waits for that.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn delete(&mut self, index: u32) -> Result<(), KernelError> {
        self.tell(codec::DELETE, index, 0).map_err(|source| refused("take a device away", source))
    }

    /// The driver's account of a device; `None` if there is no such one.
    #[must_use]
    pub fn information(&mut self, index: u32) -> Option<Information> {
        let bytes = self.ask_for(codec::GET_INFORMATION, index, [0; INFORMATION_BYTES]);
        bytes.ok().map(|bytes| Information::decode(&bytes))
    }

    fn tell(&mut self, command: u32, device: u32, value: u64) -> io::Result<()> {
        self.ask(command, device, value, Box::default()).map(drop)
    }

    /// Gives a command that reads these bytes, or writes its answer there.
    fn ask_for<const N: usize>(&mut self, command: u32, device: u32, bytes: [u8; N]) -> io::Result<[u8; N]> {
        let bytes = self.ask(command, device, 0, Box::new(bytes))?;
        Ok((*bytes).try_into().expect("the same bytes"))
    }

    /// Gives a command with this memory, and waits for its end.
    fn ask(&mut self, command: u32, device: u32, value: u64, mut memory: Box<[u8]>) -> io::Result<Box<[u8]>> {
        self.given += 1;
        let len_bytes = u16::try_from(memory.len()).expect("a structure of the driver's is small");
        let address = if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() as u64 };
        let argument = Control { device, address, len_bytes, value }.encode();
        let entry = opcode::UringCmd80::new(Fd(self.control.as_raw_fd()), command).cmd(argument).build();
        // SAFETY: the memory that the command names is this box. It stays until the command has ended; should that not
        // be known, for ever.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(self.given)) };
        pushed.map_err(|_| io::ErrorKind::ResourceBusy)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time = Timespec::from(left);
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
            // Answers to commands that were given up come, too.
            if let Some(answer) = self.ring.completion().find(|answer| answer.user_data() == self.given) {
                return match answer.result() {
                    result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
                    _ => Ok(memory),
                };
            }
            match waited.map_err(|error| error.raw_os_error()) {
                Ok(_) | Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME))
                    if !left.is_zero() => {}
                _ => {
                    #[expect(clippy::mem_forget, reason = "the driver may still write there")]
                    std::mem::forget(memory);
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

fn refused(step: &'static str, source: io::Error) -> KernelError {
    KernelError::Refused { maker: Maker::Ublk, step, source }
}

/// This process, as the driver wants to know it.
fn server() -> u64 {
    std::process::id().into()
}
