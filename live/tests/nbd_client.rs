//! The NBD client against a scripted server.
//!
//! Method: a thread shakes hands with the server's codec, then sends what each test wants sent,
//! right or wrong.

use engine::effect::Errno;
use forebay_live::nbd::client::{Address, Client, ClientError, list};
use forebay_live::nbd::wire::protocol::*;
use forebay_live::nbd::wire::{
    Export, Handshake, Outcome, RawRequest, Session, completion, data_head, decode_request,
    error_offset_chunk, none_chunk, simple_reply, structured_header,
};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

const SIZE_BYTES: u64 = 64 << 20;

fn exports() -> Vec<Option<Export>> {
    vec![Some(Export {
        name: "disk".into(),
        description: "home".into(),
        size_bytes: SIZE_BYTES,
        min_block_bytes: 512,
        read_only: false,
    })]
}

/// A socket path that vanishes with the test.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new(name: &str) -> SocketPath {
        let path = std::env::temp_dir().join(format!("forebay-wire-{}-{name}", std::process::id()));
        // Nothing is there unless an earlier process with this number died.
        let _absent = std::fs::remove_file(&path);
        SocketPath(path)
    }

    fn address(&self) -> Address {
        Address::Unix(self.0.clone())
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0);
    }
}

/// Shakes hands with one client, then lets `script` talk to it.
fn serve_once(
    path: &SocketPath,
    script: impl FnOnce(&mut UnixStream, Option<Session>) + Send + 'static,
) -> JoinHandle<()> {
    let listener = UnixListener::bind(&path.0).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut output = Vec::new();
        let mut handshake = Handshake::new(&mut output);
        let mut byte = [0];
        let outcome = loop {
            stream.write_all(&output).unwrap();
            output.clear();
            stream.read_exact(&mut byte).unwrap();
            let step = handshake.feed(&byte, &exports(), &mut output);
            if let Some(outcome) = step.outcome {
                break outcome;
            }
        };
        match outcome {
            Outcome::Serve(session) => {
                stream.write_all(&output).unwrap();
                script(&mut stream, Some(session));
            }
            // A client need not wait for the answer to its abort.
            Outcome::Close | Outcome::StartTls => script(&mut stream, None),
        }
    })
}

fn next_request(stream: &mut UnixStream) -> RawRequest {
    let mut header = [0; REQUEST_BYTES];
    stream.read_exact(&mut header).unwrap();
    decode_request(&header).unwrap()
}

#[test]
fn the_client_lists_and_learns_about_exports() {
    let path = SocketPath::new("list");
    let server = serve_once(&path, |_, session| assert_eq!(session, None));
    assert_eq!(list(&path.address()).unwrap(), [("disk".to_owned(), "home".to_owned())]);
    server.join().unwrap();

    let path = SocketPath::new("info");
    let server = serve_once(&path, |_, session| assert!(session.unwrap().structured));
    let client = Client::connect(&path.address(), "disk").unwrap();
    let info = client.info();
    assert_eq!((info.size_bytes, info.min_block_bytes(), info.is_read_only()), (SIZE_BYTES, 512, false));
    assert_eq!(info.block_sizes, Some([512, 4096, 64 << 20]));
    assert_eq!((info.name.as_deref(), info.description.as_deref()), (Some("disk"), Some("home")));
    server.join().unwrap();

    let path = SocketPath::new("refused");
    let server = std::thread::spawn({
        let listener = UnixListener::bind(&path.0).unwrap();
        move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut output = Vec::new();
            let mut handshake = Handshake::new(&mut output);
            let mut bytes = [0; 256];
            loop {
                stream.write_all(&output).unwrap();
                output.clear();
                let count = stream.read(&mut bytes).unwrap();
                if count == 0 {
                    return;
                }
                handshake.feed(&bytes[..count], &[], &mut output);
            }
        }
    });
    let refused = Client::connect(&path.address(), "other");
    assert!(matches!(refused, Err(ClientError::Refused { option: OPT_GO, reply: REP_ERR_UNKNOWN })));
    server.join().unwrap();
}

#[test]
fn the_client_puts_pieces_together_in_any_order() {
    let path = SocketPath::new("pieces");
    let server = serve_once(&path, |stream, session| {
        let session = session.unwrap();
        let (first, second) = (next_request(stream), next_request(stream));
        assert_eq!((first.cookie, second.cookie), (1, 2));
        // The second read fails after a piece of it came; the first comes backwards, with a hole.
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&data_head(session, 2, 0, 512, false));
        bytes.extend_from_slice(&[9; 512]);
        bytes.extend_from_slice(&data_head(session, 1, 5120, 512, false));
        bytes.extend_from_slice(&[2; 512]);
        bytes.extend_from_slice(&structured_header(0, REPLY_TYPE_OFFSET_HOLE, 1, 12));
        bytes.extend_from_slice(&4608_u64.to_be_bytes());
        bytes.extend_from_slice(&512_u32.to_be_bytes());
        bytes.extend_from_slice(&error_offset_chunk(2, Errno::IO, 512, false));
        bytes.extend_from_slice(&none_chunk(2));
        bytes.extend_from_slice(&data_head(session, 1, 4096, 512, true));
        bytes.extend_from_slice(&[1; 512]);
        stream.write_all(&bytes).unwrap();
    });
    let mut client = Client::connect(&path.address(), "").unwrap();
    client.sender().send_read(1, 4096, 1536).unwrap();
    client.sender().send_read(2, 0, 1024).unwrap();
    let failed = client.receive().unwrap();
    assert_eq!((failed.cookie, failed.result, failed.data.len()), (2, Err(Errno::IO), 0));
    let read = client.receive().unwrap();
    assert_eq!((read.cookie, read.result), (1, Ok(())));
    assert_eq!(read.data, [[1; 512], [0; 512], [2; 512]].concat());
    assert!(matches!(client.receive(), Err(ClientError::Closed)));
    server.join().unwrap();
}

#[test]
fn the_client_takes_simple_replies() {
    let path = SocketPath::new("simple");
    let server = serve_once(&path, |stream, session| {
        let session = session.unwrap();
        assert!(!session.structured);
        let request = next_request(stream);
        stream.write_all(&data_head(session, request.cookie, 0, 512, true)).unwrap();
        stream.write_all(&[5; 512]).unwrap();
        let request = next_request(stream);
        assert_eq!((request.command, request.flags), (CMD_WRITE, 0));
        stream.read_exact(&mut [0; 512]).unwrap();
        stream.write_all(&completion(session, false, request.cookie, Err(Errno::NOSPC))).unwrap();
        let request = next_request(stream);
        stream.write_all(&completion(session, false, request.cookie, Ok(()))).unwrap();
    });
    let mut client = Client::connect_simple(&path.address(), "disk").unwrap();
    assert_eq!(client.read(0, 512).unwrap().unwrap(), [5; 512]);
    assert_eq!(client.write(0, &[1; 512]).unwrap(), Err(Errno::NOSPC));
    assert_eq!(client.flush().unwrap(), Ok(()));
    server.join().unwrap();
}

#[test]
fn the_client_refuses_replies_that_do_not_fit() {
    type Answer = fn(Session) -> Vec<u8>;
    let gap: Answer = |session| [&data_head(session, 1, 0, 512, true)[..], &[0; 512]].concat();
    let twice: Answer = |session| {
        let piece = [&data_head(session, 1, 0, 512, false)[..], &[0; 512]].concat();
        [piece.clone(), piece, none_chunk(1).to_vec()].concat()
    };
    let outside: Answer = |session| data_head(session, 1, 1024, 512, true).to_vec();
    let stray: Answer = |_| simple_reply(2, Ok(())).to_vec();
    let garbage: Answer = |_| vec![0; 64];
    let huge: Answer = |_| structured_header(1, REPLY_TYPE_ERROR, 1, u32::MAX).to_vec();
    let empty: Answer = |_| none_chunk(1).to_vec();
    for (number, answer) in [gap, twice, outside, stray, garbage, huge, empty].into_iter().enumerate() {
        let path = SocketPath::new(&format!("misfit-{number}"));
        let server = serve_once(&path, move |stream, session| {
            next_request(stream);
            stream.write_all(&answer(session.unwrap())).unwrap();
        });
        let mut client = Client::connect(&path.address(), "disk").unwrap();
        client.sender().send_read(1, 0, 1024).unwrap();
        let error = client.receive().unwrap_err();
        assert_eq!(error.is_closed(), number == 5, "{number}: {error}");
        server.join().unwrap();
    }
}
