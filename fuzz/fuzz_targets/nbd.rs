//! The server's side of NBD: a handshake in pieces, then requests, from any bytes at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use live::nbd::wire::{
    Command, Export, Handshake, Outcome, REQUEST_BYTES, SKIPPED_PAYLOAD_BYTES_MAX, Verdict, completion,
    decode_request, encode_request, validate,
};

fuzz_target!(|input: &[u8]| {
    let Some((&piece_bytes, stream)) = input.split_first() else { return };
    let export = |name: &str, min_block_bytes, read_only| Export {
        name: name.into(),
        description: "a disk".into(),
        size_bytes: 1 << 30,
        min_block_bytes,
        read_only,
    };
    let exports = [Some(export("a", 512, false)), None, Some(export("b", 4096, true))];
    let mut output = Vec::new();
    // The lowest bit of the length of pieces says whether TLS comes first.
    let wants_tls = piece_bytes & 1 == 1;
    let begin = if wants_tls { Handshake::with_tls } else { Handshake::new };
    let mut handshake = begin(&mut output);
    let mut is_secured = false;
    let mut at = 0;
    let session = loop {
        let end = stream.len().min(at + usize::from(piece_bytes).max(1));
        let step = handshake.feed(&stream[at..end], &exports, &mut output);
        assert!(step.consumed <= end - at);
        at += step.consumed;
        match step.outcome {
            Some(Outcome::Serve(session)) => {
                assert_eq!(wants_tls, is_secured, "nothing is served in the clear");
                break session;
            }
            Some(Outcome::StartTls) => {
                assert!(wants_tls && !is_secured, "TLS begins once");
                is_secured = true;
                handshake.secured();
            }
            Some(Outcome::Close) => return,
            None if at == stream.len() => return,
            None => assert_eq!(at, end, "without an outcome everything is taken"),
        }
    };
    let export = exports[session.export].as_ref().expect("what is served exists");
    while let Some(header) = stream[at..].first_chunk::<REQUEST_BYTES>() {
        at += REQUEST_BYTES;
        let Ok(request) = decode_request(header) else { return };
        assert_eq!(&encode_request(&request), header);
        match validate(&request, export) {
            Verdict::Finish | Verdict::Disconnect => return,
            Verdict::Reject { errno, skip_payload_bytes } => {
                assert!(skip_payload_bytes <= SKIPPED_PAYLOAD_BYTES_MAX);
                assert!(completion(session, false, request.cookie, Err(errno)).len() >= 16);
                at = stream.len().min(at + skip_payload_bytes as usize);
            }
            Verdict::Accept(Command::Flush) => {}
            Verdict::Accept(
                Command::Read { range }
                | Command::Write { range, .. }
                | Command::Trim { range, .. }
                | Command::WriteZeroes { range, .. },
            ) => assert!(range.sectors > 0 && range.end() * 512 <= export.size_bytes),
        }
    }
});
