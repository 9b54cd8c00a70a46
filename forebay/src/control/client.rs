//! The verb's end of the control socket.

use super::{Answer, NOT_UNDERSTOOD, Progress, Question};
use crate::run_dir::RunDirectory;
use anyhow::{Context, Error, Result, anyhow, bail};
use live::devices::DeviceSpec;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;

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
        let directory = RunDirectory::find();
        if !directory.exists() {
            return Ok(None);
        }
        directory.check()?;
        for path in directory.control_sockets(cache) {
            let path = path?;
            match UnixStream::connect(&path) {
                Ok(stream) => return Ok(Some(Connection { stream: BufReader::new(stream) })),
                // A killed daemon left a socket without a listener.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
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
        match serde_json::from_str(&line).context("the daemon speaks another version")? {
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
