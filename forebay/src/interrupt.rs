//! Signals: the polite ones end a job, SIGUSR1 cuts the power of the modelled disks.

use anyhow::{Context, Result};
use live::devices::Device;
use live::signals::{Signal, Signals, exit_now};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Starts a thread.
///
/// # Errors
/// If the system has no more threads, or memory for one.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .with_context(|| format!("cannot start the thread {name}; raise the limit of threads or memory"))
}

/// The exit status of a process that was ended by a power cut, as if it had been killed.
const POWER_CUT: i32 = 137;

/// Takes care of signals from the beginning of the process to its end.
#[derive(Clone)]
pub struct Interrupts {
    shared: Arc<Shared>,
}

struct Shared {
    unattended_status: i32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The program looks after `is_interrupted`; until then a signal ends the process.
    is_attended: bool,
    is_interrupted: bool,
    /// The program has a configuration to read again; without one a hangup is an interrupt.
    may_reload: bool,
    is_reload_wanted: bool,
    modelled: Vec<Device>,
}

impl Interrupts {
    /// Takes over the signals. Called before any other thread exists. An interrupt before [`Interrupts::attend`] ends
    /// the process with this status.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn install(unattended_status: i32) -> Result<Interrupts> {
        let signals = Signals::install().context("cannot take over the signals")?;
        let shared = Arc::new(Shared { unattended_status, state: Mutex::default(), changed: Condvar::new() });
        let interrupts = Interrupts { shared: Arc::clone(&shared) };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    match signals.wait() {
                        Signal::Terminate | Signal::Interrupt => shared.interrupt(),
                        Signal::HangUp => shared.hang_up(),
                        Signal::LoseUnflushed => shared.cut_power(),
                    }
                }
            })
            .context("cannot take over the signals")?;
        Ok(interrupts)
    }

    /// Makes a modelled disk lose its unflushed data when the power is cut.
    pub fn watch(&self, device: &Device) {
        if device.is_modelled() {
            self.shared.lock().modelled.push(device.clone());
        }
    }

    /// Takes a disk off that is not used any more.
    pub fn unwatch(&self, device: &Device) {
        self.shared.lock().modelled.retain(|other| !other.same_as(device));
    }

    /// Keeps interrupts from ending the process from now on: the caller looks at [`Interrupts::is_interrupted`] or
    /// [`Interrupts::wait`].
    pub fn attend(&self) {
        self.shared.lock().is_attended = true;
    }

    /// Whether an interrupt came.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.shared.lock().is_interrupted
    }

    /// Takes hangups for the wish that the configuration is read again, from now on.
    pub fn reload_on_hangup(&self) {
        self.shared.lock().may_reload = true;
    }

    /// Whether the configuration is to be read again; asks once for each time.
    #[must_use]
    pub fn take_reload(&self) -> bool {
        std::mem::take(&mut self.shared.lock().is_reload_wanted)
    }

    /// Waits for an interrupt or the wish to reload, for `patience` at the most; true if an interrupt came.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, patience, |state| !state.is_interrupted && !state.is_reload_wanted)
            .expect("no thread panics while it holds the state");
        state.is_interrupted
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the state")
    }

    fn hang_up(&self) {
        let mut state = self.lock();
        if state.may_reload {
            state.is_reload_wanted = true;
            self.changed.notify_all();
        } else {
            drop(state);
            self.interrupt();
        }
    }

    fn interrupt(&self) {
        let mut state = self.lock();
        if !state.is_attended {
            // No promise was made yet: the next start does again what this one began.
            exit_now(self.unattended_status);
        }
        state.is_interrupted = true;
        self.changed.notify_all();
    }

    fn cut_power(&self) {
        for device in &self.lock().modelled {
            device.lose_unflushed();
        }
        exit_now(POWER_CUT);
    }
}
