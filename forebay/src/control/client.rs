//! The verb's end of the control socket.

use super::{Answer, NOT_UNDERSTOOD, Progress, Question};
use crate::run_dir::RunDirectory;
use anyhow::{Context, Error, Result, anyhow, bail};
use live::devices::DeviceSpec;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;

/// A daemon and a program that do not understand each other.
const ANOTHER_VERSION: &str = "the daemon is of another version than this program, and its answer is not understood; restart \
                               the daemon, or use the program that it was started from";

/// A connection to the daemon of one cache.
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the daemon that serves `cache`; `None` if there is none.
    ///
    /// # Errors
    /// If there may be one that cannot be reached.
    pub fn open(cache: &DeviceSpec) -> Result<Option<Connection>> {
        let own = RunDirectory::find();
        let found = if own.exists() { Connection::find(&own, cache)? } else { None };
        if found.is_some() {
            return Ok(found);
        }
        // A daemon of root may be open to a group.
        match RunDirectory::of_system() {
            Some(system) if system.is_open() => Connection::find(&system, cache),
            _ => Ok(None),
        }
    }

    /// Connects to the daemon of a cache.
    ///
    /// # Errors
    /// `idle` if no daemon serves it, or that the cache does not exist; else as [`Connection::open`].
    pub fn open_or(cache: &DeviceSpec, idle: impl FnOnce() -> String) -> Result<Connection> {
        match Connection::open(cache)? {
            Some(daemon) => Ok(daemon),
            None if cache.path().is_some_and(|path| !path.exists()) => {
                bail!(
                    "no daemon serves {cache}, and it does not exist; name the cache as it was given to create"
                )
            }
            None => Err(anyhow!(idle())),
        }
    }

    fn find(directory: &RunDirectory, cache: &DeviceSpec) -> Result<Option<Connection>> {
        directory.check_as_client()?;
        for path in directory.control_sockets(cache) {
            let path = path?;
            match UnixStream::connect(&path) {
                Ok(stream) => return Ok(Some(Connection { stream: BufReader::new(stream) })),
                // A killed daemon left a socket without a listener.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => bail!(
                    "the daemon at {} does not take you: its --control-mode and --socket-group say whom it takes",
                    path.display()
                ),
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot reach the daemon at {}", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Asks, passes every progress to `on_progress`, and returns the last answer.
    ///
    /// # Errors
    /// If the daemon refuses, or goes away.
    pub fn ask(&mut self, question: &Question, mut on_progress: impl FnMut(&Progress)) -> Result<Answer> {
        self.say(question)?;
        loop {
            match self.next()? {
                Answer::Progress(progress) => on_progress(&progress),
                answer => return Ok(answer),
            }
        }
    }

    /// Asks, without waiting for an answer.
    ///
    /// # Errors
    /// If the daemon went away.
    pub fn say(&mut self, question: &Question) -> Result<()> {
        let mut line = serde_json::to_string(question)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|_| gone())
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// If the daemon refuses, or goes away.
    pub fn next(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).map_err(|_| gone())? == 0 {
            return Err(gone());
        }
        // What it is in detail helps nobody.
        match serde_json::from_str(&line).map_err(|_| anyhow!(ANOTHER_VERSION))? {
            Answer::Refused { why } if why == NOT_UNDERSTOOD => {
                bail!("the daemon is of another version and cannot do that; restart it with this one")
            }
            Answer::Refused { why } => bail!(why),
            answer => Ok(answer),
        }
    }
}

/// An error of its own: a broken pipe here is not a reader of our output that went away.
fn gone() -> Error {
    anyhow!("the daemon went away before it answered")
}
