//! Exports as devices, against a scripted server that does what servers must not do, and then does it right.

use engine::effect::Errno;
use forebay_live::devices::{Access, BlockingDevice, open, parse};
use forebay_live::nbd::wire::protocol::*;
use forebay_live::nbd::wire::{
    Export, Handshake, Outcome, REQUEST_BYTES, Session, completion, data_head, decode_request, simple_reply,
};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

const SIZE_BYTES: u64 = 1 << 20;

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
}

const MARKED_BYTES: u64 = 64 << 10;

struct Server {
    path: PathBuf,
}

impl Server {
    /// A server whose disk holds at each sector that sector's number.
    fn start(name: &str, wrong: Wrong) -> Server {
        let path = std::env::temp_dir().join(format!("forebay-device-{}-{name}", std::process::id()));
        let _absent = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let wrong = Arc::new(Mutex::new(Some(wrong)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let wrong = Arc::clone(&wrong);
                std::thread::spawn(move || serve(stream, &wrong));
            }
        });
        Server { path }
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

fn serve(mut stream: UnixStream, wrong: &Mutex<Option<Wrong>>) {
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
        let is_marked = is_read && request.offset_bytes == MARKED_BYTES;
        let wrong = if is_marked { wrong.lock().unwrap().take() } else { None };
        match wrong {
            None => {}
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
