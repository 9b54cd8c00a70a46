//! The daemon's end of the control socket.

use super::{Answer, NOT_UNDERSTOOD, Progress, QUESTION_BYTES_MAX, Question};
use crate::access::{ControlAccess, Group};
use crate::connection_limit::ConnectionLimit;
use crate::interrupt::spawn;
use crate::run_dir::RunDirectory;
use anyhow::{Context, Result, bail};
use live::devices::DeviceSpec;
use rustix::fs::{Gid, Mode, chmod, chown, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// Verbs that may wait to be heard.
const BACKLOG: i32 = 128;
/// Verbs that are answered at the same time; beyond them they are sent away.
const CONVERSATIONS_MAX: usize = 256;
/// A verb that does not read its answer, or asks nothing, is left alone after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The part of a running cache that answers questions.
pub trait Answering: Send + Sync + 'static {
    /// Answers. `on_progress` returns whether to go on: false when the asking client went away.
    ///
    /// # Errors
    /// Reason why it cannot be done; becomes [`Answer::Refused`].
    fn answer(
        &self,
        question: Question,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Answer>;

    /// Records what clients ask for, and says [`Answer::Recording`] and [`Answer::Recorded`] until `say` has nobody to
    /// talk to.
    ///
    /// # Errors
    /// Reason why it cannot go on; becomes [`Answer::Refused`].
    fn record(&self, say: &mut dyn FnMut(Answer) -> ControlFlow<()>) -> Result<()>;
}

/// The control socket of a running cache; removed when this is dropped.
pub struct Listener {
    listener: UnixListener,
    file: SocketFile,
    access: ControlAccess,
}

impl Listener {
    /// Opens the socket. The caller holds the lock of the cache or of its origins.
    ///
    /// # Errors
    /// If a daemon answers there already, or the socket cannot be made.
    pub fn open(directory: &RunDirectory, cache: &DeviceSpec, access: ControlAccess) -> Result<Listener> {
        directory.make(access.group)?;
        let path = directory.control_socket(cache)?;
        if UnixStream::connect(&path).is_ok() {
            bail!("a daemon serves {cache} already; see forebay status {cache}");
        }
        Listener::bind(&path, access)
            .with_context(|| format!("cannot make the control socket {}", path.display()))
    }

    fn bind(path: &Path, access: ControlAccess) -> io::Result<Listener> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let mode = Mode::from_raw_mode(access.mode);
        // At no time does the file have more than these.
        fchmod(&socket, mode)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile { path: path.to_owned() };
        if let Some(Group(group)) = access.group {
            chown(path, None, Some(Gid::from_raw(group)))?;
        }
        // What the umask took is given back before anybody can connect.
        chmod(path, mode)?;
        listen(&socket, BACKLOG)?;
        Ok(Listener { listener: socket.into(), file, access })
    }

    /// Answers as soon as `answering` comes, each connection in a thread of its own; until then verbs wait. The socket
    /// file is removed when the returned guard is dropped; the threads end with the process.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn answer_with(self, answering: Receiver<Arc<impl Answering>>) -> Result<SocketFile> {
        let Listener { listener, file, access } = self;
        spawn("control", move || {
            // The start may fail, and then nothing is answered.
            let Ok(answering) = answering.recv() else { return };
            let limit = ConnectionLimit::new(CONVERSATIONS_MAX);
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Descriptors may be short for a while.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let Some(admitted) = limit.admit() else { continue };
                let answering = Arc::clone(&answering);
                // Without another thread this one verb gets no answer; the daemon goes on.
                let _ = thread::Builder::new().name("answer".to_owned()).spawn(move || {
                    let _admitted = admitted;
                    // A verb that went away needs no answer.
                    let _ = converse(&stream, answering.as_ref(), access);
                });
            }
        })?;
        Ok(file)
    }
}

/// Removes a socket's file when dropped.
pub struct SocketFile {
    path: PathBuf,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed by hand; then it was stale anyway.
        let _ = fs::remove_file(&self.path);
    }
}

fn converse(stream: &UnixStream, answering: &impl Answering, access: ControlAccess) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let may_change = access.may_change(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(QUESTION_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str::<Question>(&line) {
            Ok(question) if !may_change && !question.only_looks() => Answer::Refused {
                why:
                    "you may look only (status, stats, top, advise); ask root, or the daemon needs --control-changes"
                        .to_owned(),
            },
            Ok(Question::Record) => {
                let mut pass_on = |answer| match say(stream, &answer) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                };
                match answering.record(&mut pass_on) {
                    Ok(()) => return Ok(()),
                    Err(error) => Answer::Refused { why: format!("{error:#}") },
                }
            }
            Ok(question) => {
                let mut on_progress = |progress| match say(stream, &Answer::Progress(progress)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                };
                answering
                    .answer(question, &mut on_progress)
                    .unwrap_or_else(|error| Answer::Refused { why: format!("{error:#}") })
            }
            Err(_) => Answer::Refused { why: NOT_UNDERSTOOD.to_owned() },
        };
        say(stream, &answer)?;
    }
}

fn say(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}
