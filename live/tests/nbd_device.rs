//! Exports as devices, against a scripted server that does what servers must not do, and then does it right.

use engine::effect::Errno;
use forebay_live::devices::{Access, BlockingDevice, open, parse};
use forebay_live::nbd::wire::protocol::*;
use forebay_live::nbd::wire::{
    Export, Handshake, Outcome, REQUEST_BYTES, Session, completion, data_head, decode_request, simple_reply,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// More than a socket takes at once that nobody reads from, twice.
const SIZE_BYTES: u64 = 16 << 20;

/// The wrong that a server does once, when it is asked for the byte at the marked place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    /// It answers twice.
    Twice,
    /// It answers to something that was not asked.
    Stray,
    /// It hangs up in the middle of a reply.
    HalfAReply,
    /// It says that it shuts down.
    ShutsDown,
    /// It sends what is not NBD.
    Rubbish,
    /// It answers to a write, and takes none of its data.
    BeforeTheData,
}

const MARKED_BYTES: u64 = 64 << 10;

struct Server {
    path: PathBuf,
    script: Arc<Script>,
}

struct Script {
    wrong: Mutex<Option<Wrong>>,
    /// The writes whose data came, by their places.
    written: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Server {
    /// A server whose disk holds at each sector that sector's number.
    fn start(name: &str, wrong: Wrong) -> Server {
        let path = std::env::temp_dir().join(format!("forebay-device-{}-{name}", std::process::id()));
        let _absent = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let script = Arc::new(Script { wrong: Mutex::new(Some(wrong)), written: Mutex::default() });
        let played = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = Arc::clone(&played);
                std::thread::spawn(move || serve(stream, &script));
            }
        });
        Server { path, script }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

fn shake_hands(stream: &mut UnixStream) -> Option<Session> {
    let exports = [Some(Export {
        name: "disk".into(),
        description: String::new(),
        size_bytes: SIZE_BYTES,
        min_block_bytes: 512,
        read_only: false,
    })];
    let mut output = Vec::new();
    let mut handshake = Handshake::new(&mut output);
    loop {
        stream.write_all(&output).ok()?;
        output.clear();
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        match handshake.feed(&byte, &exports, &mut output).outcome {
            Some(Outcome::Serve(session)) => {
                stream.write_all(&output).ok()?;
                return Some(session);
            }
            Some(Outcome::Close | Outcome::StartTls) => return None,
            None => {}
        }
    }
}

fn content(offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
    let sectors = offset_bytes / 512..(offset_bytes + u64::from(len_bytes)) / 512;
    sectors.flat_map(|sector| sector.to_le_bytes().repeat(64)).collect()
}

/// Waits for the end of a connection, and takes nothing from it.
fn await_hang_up(stream: &UnixStream) {
    let mut polls = [PollFd::new(stream, PollFlags::empty())];
    while !poll(&mut polls, None).is_ok_and(|count| count > 0) {}
}

fn serve(mut stream: UnixStream, script: &Script) {
    let Some(session) = shake_hands(&mut stream) else { return };
    loop {
        let mut header = [0; REQUEST_BYTES];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let request = decode_request(&header).unwrap();
        let is_read = request.command == CMD_READ;
        if request.command == CMD_DISC {
            return;
        }
        let mut reply = if is_read {
            let head = data_head(session, request.cookie, request.offset_bytes, request.len_bytes, true);
            [&head[..], &content(request.offset_bytes, request.len_bytes)].concat()
        } else {
            completion(session, false, request.cookie, Ok(())).to_vec()
        };
        let is_marked = request.offset_bytes == MARKED_BYTES;
        let wrong = if is_marked { script.wrong.lock().unwrap().take() } else { None };
        if request.command == CMD_WRITE && wrong.is_none() {
            let mut data = vec![0; request.len_bytes as usize];
            if stream.read_exact(&mut data).is_err() {
                return;
            }
            script.written.lock().unwrap().push((request.offset_bytes, data));
        }
        match wrong {
            None | Some(Wrong::BeforeTheData) => {}
            Some(Wrong::Twice) => reply = reply.repeat(2),
            Some(Wrong::Stray) => reply = simple_reply(request.cookie + 77, Ok(())).to_vec(),
            Some(Wrong::HalfAReply) => reply.truncate(reply.len() / 2),
            Some(Wrong::ShutsDown) => {
                reply = completion(session, true, request.cookie, Err(Errno::SHUTDOWN)).to_vec();
            }
            Some(Wrong::Rubbish) => reply = vec![0x55; 64],
        }
        if stream.write_all(&reply).is_err() || wrong == Some(Wrong::HalfAReply) {
            return;
        }
        if wrong == Some(Wrong::BeforeTheData) {
            return await_hang_up(&stream);
        }
    }
}

/// Whatever the server does wrong, another connection is made, and the request gets its answer there.
#[test]
fn a_server_that_does_wrong_is_asked_again() {
    for wrong in [Wrong::Twice, Wrong::Stray, Wrong::HalfAReply, Wrong::ShutsDown, Wrong::Rubbish] {
        let server = Server::start(&format!("{wrong:?}"), wrong);
        let spec = parse(&format!("nbd+unix:///disk?socket={}", server.path.display())).unwrap();
        let device = open(&spec, Access::Exclusive).unwrap();
        assert_eq!(device.size_bytes(), SIZE_BYTES);
        let mut disk = BlockingDevice::new(&device);
        for offset_bytes in [0, MARKED_BYTES, MARKED_BYTES + 4096, SIZE_BYTES - 4096, MARKED_BYTES] {
            let mut bytes = vec![0; 4096];
            disk.read_at(offset_bytes, &mut bytes).unwrap();
            assert!(bytes == content(offset_bytes, 4096), "{wrong:?}: what is at {offset_bytes}");
        }
        disk.flush().unwrap();
        assert_eq!(device.away(), None);
    }
}

/// Who got an answer may use the memory of a write for something else: an answer that comes before the data was taken
/// is none, and the write goes out again.
#[test]
fn a_write_is_not_answered_before_its_data_is_sent() {
    let server = Server::start("early", Wrong::BeforeTheData);
    let spec = parse(&format!("nbd+unix:///disk?socket={}", server.path.display())).unwrap();
    let device = open(&spec, Access::Exclusive).unwrap();
    let mut disk = BlockingDevice::new(&device);
    let data = content(0, 4 << 20);
    disk.write_at(MARKED_BYTES, &data).unwrap();
    let written = server.script.written.lock().unwrap();
    assert!(*written == [(MARKED_BYTES, data)], "it is written once, on the second connection");
}

/// What is no multiple of a sector is read by whole ones, and a long read comes in one piece.
#[test]
fn any_range_is_read() {
    let server = Server::start("ranges", Wrong::Twice);
    let spec = parse(&format!("nbd+unix:///disk?socket={}", server.path.display())).unwrap();
    let device = open(&spec, Access::ReadOnly).unwrap();
    let mut disk = BlockingDevice::new(&device);
    let whole = content(0, SIZE_BYTES as u32);
    let mut bytes = vec![0; 300_000];
    disk.read_at(777, &mut bytes).unwrap();
    assert!(bytes == whole[777..300_777]);
    assert_eq!(disk.read_at(SIZE_BYTES - 1, &mut [0; 2]), Err(Errno::INVAL));
}
