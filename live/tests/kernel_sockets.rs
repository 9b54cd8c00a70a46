//! Goal: a socket whose other end is the kernel's is served without a handshake, and its end is the end of that connection alone.
//! Method: the test speaks the transmission phase as the kernel's driver does, byte by byte.

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use engine::effect::Errno;
use engine::units::VolumeIndex;
use forebay_live::kernel::socket_pairs;
use forebay_live::passthrough::Passthrough;
use forebay_live::server::ControlError;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Running, VOLUME, pattern, serve};

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const FUA: u16 = 1;

/// The kernel's ends of new connections to the volume.
fn attach(server: &Running<Passthrough>, count: usize) -> Vec<UnixStream> {
    let (ours, kernels) = socket_pairs(count).unwrap();
    let export = server.handle.serve_sockets(VOLUME, ours).unwrap();
    assert_eq!((export.name.as_str(), export.size_bytes), ("disk", 1 << 20));
    let kernel = |socket| {
        let stream = UnixStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    };
    kernels.into_iter().map(kernel).collect()
}

fn request(command: u16, flags: u16, cookie: u64, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset_bytes.to_be_bytes());
    bytes.extend_from_slice(&len_bytes.to_be_bytes());
    bytes
}

/// The errno of a simple reply with this cookie.
fn reply(mut stream: &UnixStream, cookie: u64) -> u32 {
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..4], 0x6744_6698_u32.to_be_bytes());
    assert_eq!(bytes[8..], cookie.to_be_bytes());
    u32::from_be_bytes(bytes[4..8].try_into().unwrap())
}

fn works(mut stream: &UnixStream, at: u64) {
    let content = pattern(at, 8192);
    stream.write_all(&request(WRITE, FUA, 1, at * 8192, 8192)).unwrap();
    stream.write_all(&content).unwrap();
    assert_eq!(reply(stream, 1), 0);
    stream.write_all(&request(FLUSH, 0, 2, 0, 0)).unwrap();
    assert_eq!(reply(stream, 2), 0);
    stream.write_all(&request(READ, 0, 3, at * 8192, 8192)).unwrap();
    assert_eq!(reply(stream, 3), 0);
    let mut read = vec![0; 8192];
    stream.read_exact(&mut read).unwrap();
    assert!(read == content);
}

fn is_closed(mut stream: &UnixStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0))
}

#[test]
fn several_sockets_are_served_beside_ordinary_clients() {
    let server = serve("mem:1M", Passthrough::new());
    let kernel = attach(&server, 3);
    let mut client = server.connect();
    for (at, stream) in (0..).zip(&kernel) {
        works(stream, at);
    }
    assert!(client.read(8192, 8192).unwrap().unwrap() == pattern(1, 8192));
}

#[test]
fn one_connection_ends_alone() {
    let server = serve("mem:1M", Passthrough::new());
    let kernel = attach(&server, 2);
    (&kernel[0]).write_all(&request(DISCONNECT, 0, 9, 0, 0)).unwrap();
    assert!(is_closed(&kernel[0]));
    works(&kernel[1], 1);
    // In its place comes another.
    works(&attach(&server, 1)[0], 2);
}

#[test]
fn a_volume_that_is_not_offered_gets_no_sockets() {
    let server = serve("mem:1M", Passthrough::new());
    let (ours, _kernels) = socket_pairs(1).unwrap();
    let refused = server.handle.serve_sockets(VolumeIndex(7), ours).unwrap_err();
    assert_eq!(refused, ControlError::Engine(Errno::INVAL));
}

#[test]
fn closed_doors_close_the_sockets_too() {
    let server = serve("mem:1M", Passthrough::new());
    let kernel = attach(&server, 1);
    works(&kernel[0], 0);
    server.handle.close_export(VOLUME).unwrap();
    assert!(is_closed(&kernel[0]));
}
