//! The server's side of the NBD codec: every option, every command, hostile bytes.
//!
//! Method: tables of inputs with their exact answers; properties over random and mutated streams.

use engine::effect::Errno;
use engine::units::SectorRange;
use forebay_live::nbd::wire::protocol::*;
use forebay_live::nbd::wire::{
    Command, Export, Handshake, Outcome, RawRequest, Session, Verdict, WireError, completion, data_head,
    decode_request, encode_request, error_chunk, error_offset_chunk, nbd_errno, none_chunk, simple_reply,
    structured_header, validate,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn export(name: &str) -> Export {
    Export {
        name: name.to_owned(),
        description: String::new(),
        size_bytes: 64 * MIB,
        min_block_bytes: 512,
        read_only: false,
    }
}

fn only(export: Export) -> Vec<Option<Export>> {
    vec![Some(export)]
}

// ---- building and reading handshakes --------------------------------------------------------

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn info_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
    data.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    data
}

fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

fn modern(options: &[Vec<u8>]) -> Vec<u8> {
    let mut input = 3_u32.to_be_bytes().to_vec();
    options.iter().for_each(|option| input.extend_from_slice(option));
    input
}

/// Feeds everything at once; the output without the greeting, the bytes left over, the outcome.
fn shake(exports: &[Option<Export>], input: &[u8]) -> (Vec<u8>, usize, Option<Outcome>) {
    let mut output = Vec::new();
    let mut handshake = Handshake::new(&mut output);
    assert_eq!(output.len(), GREETING_BYTES);
    let step = handshake.feed(input, exports, &mut output);
    (output.split_off(GREETING_BYTES), input.len() - step.consumed, step.outcome)
}

/// The replies in an output, as (option, type, data).
fn replies(mut output: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !output.is_empty() {
        assert_eq!(output[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let number = |at: usize| u32::from_be_bytes(output[at..at + 4].try_into().unwrap());
        let len = number(16) as usize;
        replies.push((number(8), number(12), output[20..20 + len].to_vec()));
        output = &output[20 + len..];
    }
    replies
}

fn kinds(output: &[u8]) -> Vec<(u32, u32)> {
    replies(output).into_iter().map(|(option, kind, _)| (option, kind)).collect()
}

// ---- the handshake --------------------------------------------------------------------------

#[test]
fn a_go_exchange_has_exactly_these_bytes() {
    let exports = only(Export { description: "home".into(), ..export("disk") });
    let input = modern(&[
        option(OPT_STRUCTURED_REPLY, &[]),
        option(OPT_GO, &info_data("disk", &[INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE])),
    ]);
    let mut output = Vec::new();
    let mut handshake = Handshake::new(&mut output);
    let step = handshake.feed(&input, &exports, &mut output);
    assert_eq!(step.consumed, input.len());
    assert_eq!(step.outcome, Some(Outcome::Serve(Session { export: 0, structured: true })));
    let hex: String = output.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "4e42444d41474943",
        "49484156454f5054",
        "0003",
        "0003e889045565a9",
        "00000008",
        "00000001",
        "00000000",
        "0003e889045565a9",
        "00000007",
        "00000003",
        "0000000c",
        "0000",
        "0000000004000000",
        "016d",
        "0003e889045565a9",
        "00000007",
        "00000003",
        "00000006",
        "0001",
        "6469736b",
        "0003e889045565a9",
        "00000007",
        "00000003",
        "00000006",
        "0002",
        "686f6d65",
        "0003e889045565a9",
        "00000007",
        "00000003",
        "0000000e",
        "0003",
        "00000200",
        "00001000",
        "04000000",
        "0003e889045565a9",
        "00000007",
        "00000001",
        "00000000",
    );
    assert_eq!(hex, expected);
}

#[test]
fn options_are_answered_as_the_table_says() {
    let exports = vec![Some(export("a")), None, Some(Export { description: "B".into(), ..export("b") })];
    let sized = |number, len| option(number, &vec![0; len]);
    let long = OPTION_BYTES_MAX as usize + 1;
    let table: Vec<(&str, Vec<u8>, Vec<u32>)> = vec![
        ("list", option(OPT_LIST, &[]), vec![REP_SERVER, REP_SERVER, REP_ACK]),
        ("list with data", option(OPT_LIST, &[1]), vec![REP_ERR_INVALID]),
        ("list too long", sized(OPT_LIST, long), vec![REP_ERR_TOO_BIG]),
        ("tls", option(OPT_STARTTLS, &[]), vec![REP_ERR_UNSUP]),
        ("extended headers", option(11, &[]), vec![REP_ERR_UNSUP]),
        ("unknown with data", sized(0xdead_beef, 4000), vec![REP_ERR_UNSUP]),
        ("unknown and long", sized(77, long), vec![REP_ERR_UNSUP]),
        ("structured", option(OPT_STRUCTURED_REPLY, &[]), vec![REP_ACK]),
        ("structured with data", option(OPT_STRUCTURED_REPLY, &[0]), vec![REP_ERR_INVALID]),
        ("info", option(OPT_INFO, &info_data("b", &[])), vec![REP_INFO, REP_ACK]),
        ("info, all", option(OPT_INFO, &info_data("b", &[0, 1, 2, 3, 99])), vec![REP_INFO; 4]),
        ("info without description", option(OPT_INFO, &info_data("a", &[2])), vec![REP_INFO, REP_ACK]),
        ("info, unknown export", option(OPT_INFO, &info_data("c", &[])), vec![REP_ERR_UNKNOWN]),
        ("info, no default export", option(OPT_INFO, &info_data("", &[])), vec![REP_ERR_UNKNOWN]),
        ("info, cut off", option(OPT_INFO, &info_data("b", &[3])[..7]), vec![REP_ERR_INVALID]),
        ("info, empty", option(OPT_INFO, &[]), vec![REP_ERR_INVALID]),
        ("info, name of 4 GiB", option(OPT_INFO, &[0xff; 12]), vec![REP_ERR_INVALID]),
        (
            "info, bytes after",
            option(OPT_INFO, &[info_data("b", &[]), vec![0]].concat()),
            vec![REP_ERR_INVALID],
        ),
        ("go, unknown export", option(OPT_GO, &info_data("c", &[])), vec![REP_ERR_UNKNOWN]),
        (
            "meta without structured",
            option(OPT_LIST_META_CONTEXT, &meta_data("a", &[])),
            vec![REP_ERR_INVALID],
        ),
    ];
    for (what, bytes, mut expected) in table {
        let (output, left, outcome) = shake(&exports, &modern(std::slice::from_ref(&bytes)));
        if what == "info, all" {
            expected.push(REP_ACK);
        }
        assert_eq!((left, outcome), (0, None), "{what}");
        let number = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        let got = kinds(&output);
        assert_eq!(got, expected.iter().map(|kind| (number, *kind)).collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn listed_exports_have_names_and_descriptions() {
    let exports = vec![None, Some(Export { description: "slow".into(), ..export("b") })];
    let (output, ..) = shake(&exports, &modern(&[option(OPT_LIST, &[])]));
    assert_eq!(replies(&output)[0].2, b"\0\0\0\x01bslow");
}

#[test]
fn metadata_contexts_are_an_empty_list() {
    let exports = only(export("a"));
    for (number, data, expected) in [
        (OPT_SET_META_CONTEXT, meta_data("a", &["base:allocation"]), REP_ACK),
        (OPT_LIST_META_CONTEXT, meta_data("", &[]), REP_ACK),
        (OPT_SET_META_CONTEXT, meta_data("c", &[]), REP_ERR_UNKNOWN),
        (OPT_SET_META_CONTEXT, vec![0, 0, 0, 0, 255, 255, 255, 255], REP_ERR_INVALID),
    ] {
        let input = modern(&[option(OPT_STRUCTURED_REPLY, &[]), option(number, &data)]);
        let (output, _, outcome) = shake(&exports, &input);
        assert_eq!((kinds(&output)[1], outcome), ((number, expected), None));
    }
}

#[test]
fn the_empty_name_is_the_only_export() {
    for exports in [vec![Some(export("a"))], vec![None, Some(export("a")), None]] {
        let index = exports.iter().position(Option::is_some).unwrap();
        let (_, _, outcome) = shake(&exports, &modern(&[option(OPT_GO, &info_data("", &[]))]));
        assert_eq!(outcome, Some(Outcome::Serve(Session { export: index, structured: false })));
    }
    for exports in [vec![], vec![None], vec![Some(export("a")), Some(export("b"))]] {
        let (output, _, outcome) = shake(&exports, &modern(&[option(OPT_GO, &info_data("", &[]))]));
        assert_eq!((kinds(&output), outcome), (vec![(OPT_GO, REP_ERR_UNKNOWN)], None));
    }
}

#[test]
fn what_follows_a_go_is_left_for_the_transmission() {
    let mut input = modern(&[option(OPT_GO, &info_data("a", &[]))]);
    input.extend_from_slice(&[7; 28]);
    let (_, left, outcome) = shake(&only(export("a")), &input);
    assert_eq!(left, 28);
    assert!(matches!(outcome, Some(Outcome::Serve(_))));
}

#[test]
fn export_name_is_answered_with_size_flags_and_maybe_zeroes() {
    for (client_flags, zeroes) in [(0_u32, 124), (1, 124), (2, 0), (3, 0)] {
        let input = [client_flags.to_be_bytes().to_vec(), option(OPT_EXPORT_NAME, b"a")].concat();
        let (output, left, outcome) = shake(&only(export("a")), &input);
        assert_eq!(left, 0);
        assert_eq!(outcome, Some(Outcome::Serve(Session { export: 0, structured: false })));
        assert_eq!(output[..10], *b"\0\0\0\0\x04\0\0\0\x01\x6d");
        assert_eq!(output[10..], vec![0; zeroes]);
    }
    let (output, _, outcome) = shake(&only(export("a")), &modern(&[option(OPT_EXPORT_NAME, b"b")]));
    assert_eq!((output.len(), outcome), (0, Some(Outcome::Close)));
}

#[test]
fn an_abort_is_acknowledged_and_closes() {
    let (output, _, outcome) = shake(&only(export("a")), &modern(&[option(OPT_ABORT, &[])]));
    assert_eq!((kinds(&output), outcome), (vec![(OPT_ABORT, REP_ACK)], Some(Outcome::Close)));
}

#[test]
fn garbage_closes_without_an_answer() {
    let mut announced = option(OPT_LIST, &[]);
    announced[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let long_name = option(OPT_EXPORT_NAME, &[b'a'; 5000]);
    let not_fixed = [vec![0; 4], option(OPT_LIST, &[])].concat();
    for input in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100],
        vec![0; 100],
        modern(&[vec![0; 16]]),
        modern(&[announced]),
        modern(&[long_name]),
        not_fixed,
    ] {
        let (output, _, outcome) = shake(&only(export("a")), &input);
        assert_eq!((output.len(), outcome), (0, Some(Outcome::Close)));
    }
}

#[test]
fn a_client_that_never_ends_its_options_is_cut_off() {
    let endless = vec![option(OPT_LIST, &[]); OPTIONS_MAX as usize + 10];
    let (output, left, outcome) = shake(&only(export("a")), &modern(&endless));
    assert_eq!(outcome, Some(Outcome::Close));
    assert_eq!(left, 9 * OPTION_HEADER_BYTES);
    assert_eq!(kinds(&output).len(), 2 * OPTIONS_MAX as usize);
}

// ---- TLS ------------------------------------------------------------------------------------

/// As [`shake`], of a server that wants TLS first.
fn shake_with_tls(input: &[u8]) -> (Handshake, Vec<u8>, usize, Option<Outcome>) {
    let mut output = Vec::new();
    let mut handshake = Handshake::with_tls(&mut output);
    let step = handshake.feed(input, &only(export("a")), &mut output);
    (handshake, output.split_off(GREETING_BYTES), input.len() - step.consumed, step.outcome)
}

#[test]
fn nothing_comes_before_tls_where_it_is_wanted() {
    let refused = [
        option(OPT_STRUCTURED_REPLY, &[]),
        option(OPT_LIST, &[]),
        option(OPT_GO, &info_data("a", &[])),
        option(OPT_INFO, &info_data("a", &[])),
        option(OPT_SET_META_CONTEXT, &meta_data("a", &[])),
        option(77, &[1; 100]),
    ];
    let (handshake, output, _, outcome) = shake_with_tls(&modern(&refused));
    assert!(kinds(&output).iter().all(|(_, kind)| *kind == REP_ERR_TLS_REQD), "{:?}", kinds(&output));
    assert_eq!((kinds(&output).len(), outcome, handshake.lacked_tls()), (refused.len(), None, true));
    // An old client knows no errors.
    let (handshake, output, _, outcome) = shake_with_tls(&modern(&[option(OPT_EXPORT_NAME, b"a")]));
    assert_eq!((output.len(), outcome, handshake.lacked_tls()), (0, Some(Outcome::Close), true));
    let (handshake, output, _, outcome) = shake_with_tls(&modern(&[option(OPT_ABORT, &[])]));
    assert_eq!((kinds(&output), outcome), (vec![(OPT_ABORT, REP_ACK)], Some(Outcome::Close)));
    assert!(!handshake.lacked_tls());
}

#[test]
fn tls_begins_the_options_anew() {
    // What follows the option in the clear is not looked at.
    let more = option(OPT_LIST, &[]);
    let input = modern(&[option(OPT_LIST, &[]), option(OPT_STARTTLS, &[]), more.clone()]);
    let (mut handshake, output, left, outcome) = shake_with_tls(&input);
    assert_eq!(kinds(&output), [(OPT_LIST, REP_ERR_TLS_REQD), (OPT_STARTTLS, REP_ACK)]);
    assert_eq!((left, outcome), (more.len(), Some(Outcome::StartTls)));
    let mut output = Vec::new();
    let again = handshake.feed(&more, &only(export("a")), &mut output);
    assert_eq!((again.consumed, again.outcome, output.len()), (0, Some(Outcome::StartTls), 0));
    handshake.secured();
    let second = [option(OPT_STARTTLS, &[]), option(OPT_GO, &info_data("a", &[]))].concat();
    let step = handshake.feed(&second, &only(export("a")), &mut output);
    assert_eq!(kinds(&output)[0], (OPT_STARTTLS, REP_ERR_INVALID), "once is enough");
    assert_eq!(step.outcome, Some(Outcome::Serve(Session { export: 0, structured: false })));
    assert!(!handshake.lacked_tls());
}

#[test]
fn an_option_for_tls_with_data_or_where_there_is_none_is_refused() {
    let (_, output, _, outcome) = shake_with_tls(&modern(&[option(OPT_STARTTLS, b"x")]));
    assert_eq!((kinds(&output), outcome), (vec![(OPT_STARTTLS, REP_ERR_INVALID)], None));
    let (output, _, outcome) = shake(&only(export("a")), &modern(&[option(OPT_STARTTLS, &[])]));
    assert_eq!((kinds(&output), outcome), (vec![(OPT_STARTTLS, REP_ERR_UNSUP)], None));
}

#[test]
fn an_export_announces_what_it_can_do() {
    let writable = export("a");
    let all = FLAG_HAS_FLAGS
        | FLAG_SEND_FLUSH
        | FLAG_SEND_FUA
        | FLAG_SEND_TRIM
        | FLAG_SEND_WRITE_ZEROES
        | FLAG_CAN_MULTI_CONN;
    assert_eq!(writable.transmission_flags(), all);
    let read_only = Export { read_only: true, ..export("a") };
    let expected = (all | FLAG_READ_ONLY) & !(FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES);
    assert_eq!(read_only.transmission_flags(), expected);
    let coarse = Export { min_block_bytes: 8192, size_bytes: 20_000, ..export("a") };
    assert_eq!(coarse.block_sizes(), [8192, 8192, 64 << 20]);
    assert_eq!(coarse.announced_bytes(), 16384);
}

proptest! {
    #[test]
    fn input_in_pieces_gives_the_same_as_at_once(cuts in prop::collection::vec(0_usize..300, 0..12)) {
        let exports = only(Export { description: "home".into(), ..export("disk") });
        let input = modern(&[
            option(OPT_STARTTLS, &[0; 40]),
            option(OPT_STRUCTURED_REPLY, &[]),
            option(OPT_LIST, &[]),
            option(OPT_SET_META_CONTEXT, &meta_data("disk", &["base:allocation"])),
            option(OPT_GO, &info_data("disk", &[INFO_BLOCK_SIZE])),
        ]);
        let whole = shake(&exports, &input);
        let mut output = Vec::new();
        let mut handshake = Handshake::new(&mut output);
        let (mut at, mut outcome) = (0, None);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
        cuts.push(input.len());
        cuts.sort_unstable();
        for cut in cuts {
            let step = handshake.feed(&input[at..cut], &exports, &mut output);
            prop_assert_eq!(step.consumed, cut - at);
            at = cut;
            outcome = step.outcome;
        }
        prop_assert_eq!((output.split_off(GREETING_BYTES), 0, outcome), whole);
    }

    #[test]
    fn any_bytes_leave_the_handshake_sane(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        valid_flags in any::<bool>(),
        mutations in prop::collection::vec((0_usize..200, any::<u8>()), 0..6),
    ) {
        let exports = vec![Some(export("disk")), Some(export("other"))];
        let mut streams = vec![bytes.clone()];
        let mut mutated = modern(&[
            option(OPT_LIST, &[]),
            option(OPT_STRUCTURED_REPLY, &[]),
            option(OPT_LIST_META_CONTEXT, &meta_data("other", &["x:"])),
            option(OPT_INFO, &info_data("disk", &[1, 2, 3])),
            option(OPT_GO, &info_data("other", &[3])),
        ]);
        for (at, byte) in mutations {
            let at = at % mutated.len();
            mutated[at] = byte;
        }
        streams.push(mutated);
        if valid_flags {
            streams.push(modern(&[option(OPT_GO, &bytes)]));
            streams.push(modern(&[option(OPT_SET_META_CONTEXT, &bytes)]));
        }
        for stream in streams {
            let (output, left, outcome) = shake(&exports, &stream);
            prop_assert!(output.len() <= stream.len() * 20 + 400);
            prop_assert!(left == 0 || outcome.is_some());
        }
    }

    #[test]
    fn any_request_gets_a_verdict_that_holds(
        header in any::<[u8; 28]>(),
        command in 0_u16..9,
        len_bytes in prop_oneof![any::<u32>(), (0_u32..300).prop_map(|sectors| sectors * 512)],
        offset_bytes in prop_oneof![any::<u64>(), (0_u64..140_000).prop_map(|sector| sector * 512)],
        min_block_bytes in prop_oneof![Just(512_u32), Just(4096)],
        read_only in any::<bool>(),
    ) {
        let subject = Export { read_only, min_block_bytes, ..export("a") };
        let mut magic = header;
        magic[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        let raw = decode_request(&magic).unwrap();
        prop_assert_eq!(encode_request(&raw), magic);
        for request in [raw, RawRequest { flags: 0, command, cookie: 1, offset_bytes, len_bytes }] {
            match validate(&request, &subject) {
                Verdict::Accept(Command::Flush) | Verdict::Finish | Verdict::Disconnect => {}
                Verdict::Accept(
                    Command::Read { range }
                    | Command::Write { range, .. }
                    | Command::Trim { range, .. }
                    | Command::WriteZeroes { range, .. },
                ) => {
                    prop_assert!(range.sectors > 0 && range.end() * 512 <= subject.size_bytes);
                    prop_assert_eq!(range.start * 512, request.offset_bytes);
                    prop_assert_eq!(range.sectors * 512, u64::from(request.len_bytes));
                    prop_assert!((range.start * 512).is_multiple_of(u64::from(min_block_bytes)));
                    prop_assert!((range.sectors * 512).is_multiple_of(u64::from(min_block_bytes)));
                    prop_assert!(!read_only || request.command == CMD_READ);
                }
                Verdict::Reject { skip_payload_bytes, .. } => {
                    let payload = if request.command == CMD_WRITE { request.len_bytes } else { 0 };
                    prop_assert_eq!(skip_payload_bytes, payload);
                    prop_assert!(skip_payload_bytes <= SKIPPED_PAYLOAD_BYTES_MAX);
                }
            }
        }
    }
}

// ---- requests and replies -------------------------------------------------------------------

#[test]
fn requests_are_judged_as_the_table_says() {
    let range = SectorRange { start: 8, sectors: 8 };
    let reject = |errno, skip_payload_bytes| Verdict::Reject { errno, skip_payload_bytes };
    let (end, fua) = (64 * MIB, CMD_FLAG_FUA);
    let too_long = PAYLOAD_BYTES_MAX + 512;
    let table = [
        (CMD_READ, 0, 4096, 4096, Verdict::Accept(Command::Read { range })),
        (CMD_READ, fua, 4096, 4096, Verdict::Accept(Command::Read { range })),
        (CMD_READ, CMD_FLAG_DF, 4096, 4096, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, end, 512, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, end - 512, 1024, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, 0u64.wrapping_sub(512), 1024, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, 0, 0, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, 1, 512, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, 0, 511, reject(Errno::INVAL, 0)),
        (CMD_READ, 0, 0, too_long, reject(Errno::INVAL, 0)),
        (CMD_WRITE, 0, 4096, 4096, Verdict::Accept(Command::Write { range, fua: false })),
        (CMD_WRITE, fua, 4096, 4096, Verdict::Accept(Command::Write { range, fua: true })),
        (CMD_WRITE, CMD_FLAG_NO_HOLE, 4096, 4096, reject(Errno::INVAL, 4096)),
        (CMD_WRITE, 0, end, 512, reject(Errno::NOSPC, 512)),
        (CMD_WRITE, 0, u64::MAX - 511, 512, reject(Errno::NOSPC, 512)),
        (CMD_WRITE, 0, 0, 0, reject(Errno::INVAL, 0)),
        (CMD_WRITE, 0, 0, 100, reject(Errno::INVAL, 100)),
        (CMD_WRITE, 0, 0, too_long, reject(Errno::INVAL, too_long)),
        (CMD_WRITE, 0, 0, SKIPPED_PAYLOAD_BYTES_MAX + 1, Verdict::Disconnect),
        (CMD_DISC, 0, 0, 0, Verdict::Finish),
        (CMD_FLUSH, 0, 0, 0, Verdict::Accept(Command::Flush)),
        (CMD_FLUSH, fua, 0, 0, Verdict::Accept(Command::Flush)),
        (CMD_FLUSH, 2, 0, 0, reject(Errno::INVAL, 0)),
        (CMD_TRIM, fua, 4096, 4096, Verdict::Accept(Command::Trim { range, fua: true })),
        (CMD_TRIM, 0, end, 512, reject(Errno::INVAL, 0)),
        (CMD_WRITE_ZEROES, 0, 4096, 4096, Verdict::Accept(Command::WriteZeroes { range, fua: false })),
        (
            CMD_WRITE_ZEROES,
            fua | CMD_FLAG_NO_HOLE,
            4096,
            4096,
            Verdict::Accept(Command::WriteZeroes { range, fua: true }),
        ),
        (CMD_WRITE_ZEROES, CMD_FLAG_FAST_ZERO, 4096, 4096, reject(Errno::INVAL, 0)),
        (CMD_WRITE_ZEROES, 0, end, 512, reject(Errno::NOSPC, 0)),
        (CMD_CACHE, 0, 4096, 4096, reject(Errno::INVAL, 0)),
        (CMD_BLOCK_STATUS, 0, 4096, 4096, reject(Errno::INVAL, 0)),
        (99, 0, 4096, 4096, reject(Errno::INVAL, 0)),
    ];
    for (command, flags, offset_bytes, len_bytes, expected) in table {
        let request = RawRequest { flags, command, cookie: 1, offset_bytes, len_bytes };
        assert_eq!(validate(&request, &export("a")), expected, "{request:?}");
    }
}

#[test]
fn trims_and_zeroes_may_be_longer_than_a_payload() {
    let large = Export { size_bytes: 1 << 40, ..export("a") };
    let len_bytes = u32::MAX - 511;
    for command in [CMD_TRIM, CMD_WRITE_ZEROES] {
        let request = RawRequest { flags: 0, command, cookie: 1, offset_bytes: 0, len_bytes };
        assert!(matches!(validate(&request, &large), Verdict::Accept(_)));
    }
}

#[test]
fn a_read_only_export_refuses_changes() {
    let subject = Export { read_only: true, ..export("a") };
    for (command, skip_payload_bytes) in [(CMD_WRITE, 512), (CMD_TRIM, 0), (CMD_WRITE_ZEROES, 0)] {
        let request = RawRequest { flags: 0, command, cookie: 1, offset_bytes: 0, len_bytes: 512 };
        assert_eq!(validate(&request, &subject), Verdict::Reject { errno: Errno::PERM, skip_payload_bytes });
    }
    let flush = RawRequest { flags: 0, command: CMD_FLUSH, cookie: 1, offset_bytes: 0, len_bytes: 0 };
    assert_eq!(validate(&flush, &subject), Verdict::Accept(Command::Flush));
}

#[test]
fn a_request_without_its_magic_is_an_error() {
    let expected = u64::from(REQUEST_MAGIC);
    assert_eq!(decode_request(&[0; 28]), Err(WireError::Magic { found: 0, expected }));
}

#[test]
fn errnos_become_the_eight_that_the_protocol_knows() {
    for known in [1, 5, 12, 22, 28, 75, 95, 108] {
        assert_eq!(nbd_errno(Errno(known)), known as u32);
    }
    for other in [Errno::NODEV, Errno::TIMEDOUT, Errno(0), Errno(-1), Errno(i32::MAX)] {
        assert_eq!(nbd_errno(other), 5);
    }
}

#[test]
fn replies_have_exactly_these_bytes() {
    let cookie = 0x0102_0304_0506_0708;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&simple_reply(cookie, Ok(()))), "67446698000000000102030405060708");
    assert_eq!(hex(&simple_reply(cookie, Err(Errno::NOSPC))), "674466980000001c0102030405060708");
    assert_eq!(hex(&none_chunk(cookie)), "668e33ef00010000010203040506070800000000");
    assert_eq!(hex(&structured_header(0, 1, cookie, 520)), "668e33ef00000001010203040506070800000208");
    assert_eq!(
        hex(&error_chunk(cookie, Errno::IO, true)),
        "668e33ef000180010102030405060708000000060000000500\
         00"
    );
    assert_eq!(
        hex(&error_offset_chunk(cookie, Errno::IO, 4096, false)),
        "668e33ef0000800201020304050607080000000e0000000500000000000000001000"
    );
    let structured = Session { export: 0, structured: true };
    let simple = Session { export: 0, structured: false };
    assert_eq!(
        hex(&data_head(structured, cookie, 4096, 512, true)),
        "668e33ef000100010102030405060708000002080000000000001000"
    );
    assert_eq!(hex(&data_head(simple, cookie, 4096, 512, true)), hex(&simple_reply(cookie, Ok(()))));
    assert_eq!(completion(structured, true, 1, Ok(())).as_bytes(), none_chunk(1));
    assert_eq!(completion(structured, true, 1, Err(Errno::IO)).as_bytes(), error_chunk(1, Errno::IO, true));
    assert_eq!(completion(structured, false, 1, Ok(())).as_bytes(), simple_reply(1, Ok(())));
    assert_eq!(completion(simple, true, 1, Err(Errno::IO)).as_bytes(), simple_reply(1, Err(Errno::IO)));
}
