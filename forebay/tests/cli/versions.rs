//! Goal: programs, daemons and caches of different versions tell each other so in one clear line. Method: questions and
//! answers that nobody knows, and a superblock whose version is another one.

use crate::scene::{Scene, overwrite};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// Where the format has its version, and its checksum: `engine/src/format/bytes.rs`.
const VERSION_AT: usize = 12;
const CHECKSUM_AT: usize = 8;

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    })
}

/// Makes a cache one of another version of the format.
fn make_version(cache: &str, version: u16) {
    let mut bytes = fs::read(cache).expect("the cache");
    for offset in engine::format::SUPERBLOCK_OFFSETS {
        let at = usize::try_from(offset).expect("small");
        let superblock = &mut bytes[at..at + engine::format::SUPERBLOCK_BYTES];
        superblock[VERSION_AT..VERSION_AT + 2].copy_from_slice(&version.to_le_bytes());
        superblock[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let checksum = crc32c(superblock);
        superblock[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        let superblock = superblock.to_vec();
        overwrite(cache, offset, &superblock);
    }
}

#[test]
fn a_cache_of_another_version_says_what_to_do() {
    let scene = Scene::new(64 << 20, &[]);
    scene.serve().stop();
    let known = engine::format::VERSION;
    make_version(&scene.cache, known);
    assert_eq!(scene.status()["running"], false, "the checksum is right");
    for (version, words) in
        [(known - 1, "detach its volumes with the forebay that made it"), (known + 1, "newer")]
    {
        make_version(&scene.cache, version);
        let before = fs::read(&scene.cache).expect("the cache");
        let says = format!("format version {version}, and this program knows version {known}");
        for verb in ["serve", "status", "flush", "check"] {
            scene.place.refused(&[verb, &scene.cache], 1, &[&says, words]);
        }
        assert!(fs::read(&scene.cache).expect("the cache") == before, "nothing is changed");
    }
}

/// The control socket of the scene's cache.
fn control_socket(scene: &Scene) -> PathBuf {
    let entries = fs::read_dir(scene.place.path("run")).expect("the run directory");
    let mut sockets = entries.map(|entry| entry.expect("an entry").path());
    sockets.find(|path| path.extension().is_some_and(|end| end == "sock")).expect("a control socket")
}

#[test]
fn questions_that_nobody_knows_get_one_line() {
    let scene = Scene::new(64 << 20, &[]);
    let daemon = scene.serve();
    let socket = control_socket(&scene);
    let ask = |question: &[u8]| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(question).expect("it is taken");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("an answer, or none");
        answer
    };
    for question in [&b"{\"verb\":\"frobnicate\"}\n"[..], b"GET / HTTP/1.1\r\n", &[b'x'; 4000]] {
        let answer = ask(question);
        assert!(answer.contains("the daemon does not understand the question"), "{answer}");
    }
    // A question of version 0.1 is understood for ever.
    assert!(ask(b"{\"verb\":\"status\"}\n").starts_with("{\"answer\":\"status\""));
    assert_eq!(scene.status()["running"], true);
    daemon.stop();

    // The other way round: a daemon that answers what this program does not know.
    let listener = UnixListener::bind(&socket).expect("the daemon has gone");
    let server = std::thread::spawn(move || {
        for answer in ["{\"answer\":\"marvel\"}\n", "{\"answer\":\"status\",\"running\":7}\n", "no JSON\n"] {
            let (mut stream, _) = listener.accept().expect("a verb");
            BufReader::new(stream.try_clone().expect("a socket"))
                .read_line(&mut String::new())
                .expect("a question");
            stream.write_all(answer.as_bytes()).expect("it is taken");
        }
    });
    for _ in 0..3 {
        scene.place.refused(
            &["status", &scene.cache],
            1,
            &["another version than this program", "restart the daemon"],
        );
    }
    server.join().expect("three verbs came");
}
