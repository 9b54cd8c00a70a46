//! Formats of which there is no excerpt, and what is malformed.

use super::*;

fn entries(name: &str, bytes: &[u8], reading: Reading) -> Result<Vec<Entry>, TraceError> {
    let mut source = read(name, bytes, reading)?;
    let mut entries = Vec::new();
    while let Some(entry) = source.next_entry()? {
        entries.push(entry);
    }
    Ok(entries)
}

fn guessed(name: &str, text: &str) -> Vec<Entry> {
    entries(name, text.as_bytes(), Reading::default()).expect("it is well-formed")
}

fn entry(at_ns: Option<u64>, volume: u32, op: Op, start: u64, sectors: u64) -> Entry {
    Entry { at_ns, volume, op, range: SectorRange { start, sectors } }
}

#[test]
fn spc_counts_units_sectors_bytes_and_seconds() {
    let text = "0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214\r\n7,1,1,r,1\n0,8,0,r,2\n";
    assert_eq!(
        guessed("x.spc", text),
        [
            entry(Some(0), 0, Op::Write, 303_567, 7),
            entry(Some(26_214_000), 1, Op::Read, 55_590, 6),
            entry(Some(1_000_000_000), 2, Op::Read, 1, 1),
        ]
    );
}

#[test]
fn block_lists_skip_marks_and_have_a_unit() {
    let text = "*\n17\n\n*\n3";
    assert_eq!(guessed("x.trace", text), [entry(None, 0, Op::Read, 136, 8), entry(None, 0, Op::Read, 24, 8)]);
    let reading = Reading { format: Some(Format::BlockList), unit_bytes: Some(512) };
    assert_eq!(entries("x", b"9", reading).expect("it is well-formed"), [entry(None, 0, Op::Read, 9, 1)]);
}

#[test]
fn msr_counts_bytes_and_parts_of_microseconds() {
    let text = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                128166372016382155,usr,1,Write,1317441537,512,1963\n\
                128166372026382245,src,0,Read,2436440064,4096,1835\n";
    let at = |ticks: u64| Some(ticks * 100);
    assert_eq!(
        guessed("x.csv", text),
        [
            entry(at(128_166_372_003_061_629), 0, Op::Read, 13_700_410, 48),
            // It begins one byte into a sector and so touches two.
            entry(at(128_166_372_016_382_155), 1, Op::Write, 2_573_128, 2),
            entry(at(128_166_372_026_382_245), 2, Op::Read, 4_758_672, 8),
        ]
    );
}

#[test]
fn remarks_are_no_requests_and_a_recording_has_more_operations() {
    let text = "# of forebay, at night\n128166372003061629,forebay,data,Read,4096,4096,0\n\
                128166372003061630,forebay,data,Flush,0,0,0\n# nothing is missing\n\
                128166372003061639,forebay,data,WriteZeroes,8192,4096,0\n\
                128166372003061649,forebay,other,Discard,0,1099511627776,0\n";
    let at = |ticks: u64| Some(128_166_372_003_061_600_u64 * 100 + ticks * 100);
    assert_eq!(
        guessed("x.csv", text),
        [
            entry(at(29), 0, Op::Read, 8, 8),
            entry(at(39), 0, Op::Write, 16, 8),
            entry(at(49), 1, Op::Discard, 0, 1 << 31),
        ]
    );
    assert_eq!(guessed("x.trace", "# one\n#two\n17\n# three\n").len(), 1);
    // Frames of their own for the remarks, as `forebay record` writes them.
    let parts = ["# one\n", text, "# the end\n"];
    let frames = parts.map(|part| zstd::encode_all(part.as_bytes(), 1).expect("in memory")).concat();
    assert_eq!(entries("x.csv.zst", &frames, Reading::default()).expect("it is well-formed").len(), 3);
}

#[test]
fn systor_has_a_header_and_sometimes_no_operation() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1455592201.5,0.000098,R,2,4096,512\n\
                1455592202,0.1,,2,0,512\n1455592203,0.1,W,0,512,1024\n";
    assert_eq!(
        guessed("x.csv", text),
        [
            entry(Some(1_455_592_201_500_000_000), 0, Op::Read, 8, 1),
            entry(Some(1_455_592_203_000_000_000), 1, Op::Write, 1, 2),
        ]
    );
}

#[test]
fn tencent_and_fiu_count_sectors() {
    assert_eq!(
        guessed("x.csv", "1538323200,12910952,128,1,1063\n1538323199,8,8,0,1064\n"),
        [
            entry(Some(1_538_323_200_000_000_000), 0, Op::Write, 12_910_952, 128),
            entry(Some(1_538_323_199_000_000_000), 1, Op::Read, 8, 8),
        ]
    );
    let text = "89966104300581 4892 syslogd 904265560 8 W 6 0 531e779539838db9cdd4bf8e4a2bd0e1\n";
    assert_eq!(guessed("x.blkparse", text), [entry(Some(89_966_104_300_581), 0, Op::Write, 904_265_560, 8)]);
}

#[test]
fn vscsi_commands_that_move_nothing_are_passed_over() {
    let record = |command: u16, version: u8| {
        let mut record = [0; 32];
        record[4..8].copy_from_slice(&1024u32.to_le_bytes());
        record[12..14].copy_from_slice(&command.to_le_bytes());
        record[15] = version;
        record[16] = 5;
        record[24] = 7;
        record
    };
    let bytes = [record(0x28, 1), record(0x35, 1), record(0x8a, 1)].concat();
    assert_eq!(
        entries("x.vscsi", &bytes, Reading::default()).expect("it is well-formed"),
        [entry(Some(7000), 0, Op::Read, 5, 2), entry(Some(7000), 0, Op::Write, 5, 2)]
    );
    let error = entries("x.vscsi", &[record(0x28, 1), record(0x28, 2)].concat(), Reading::default());
    let error = error.expect_err("version 2 is not read").to_string();
    assert_eq!(error, "x.vscsi, record 2: version 2 of vscsi records is not known");
}

#[test]
fn a_recording_of_nothing_is_told_from_an_unknown_format() {
    for (bytes, said) in [(&b"# recorded by forebay\n\n"[..], "no request"), (b"what\n", "is not known")] {
        let error = entries("recording", bytes, Reading::default()).expect_err("there is nothing to read");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn what_is_malformed_is_told_in_one_line() {
    let long = format!("1,2,3,r,4\n{}", "9".repeat(5000));
    for (name, text, told) in [
        (
            "a.spc",
            "0,1,512,r,0\n0,x\u{1b},512,r,0\n",
            "a.spc, line 2: the address is no number that can be: x\\u{1b}",
        ),
        ("a.spc", "0,1,512,r\n", "a.spc, line 1: there are 4 fields, not 5"),
        ("a.spc", "0,1,512,q,0\n", "a.spc, line 1: the operation is neither a read nor a write: q"),
        (
            "a.csv",
            "1,a,0,Rewind,0,512,0\n",
            "a.csv, line 1: the operation is neither a read nor a write: Rewind",
        ),
        ("a.spc", "0,1,512,r,1e9\n", "a.spc, line 1: the time is no number that can be: 1e9"),
        ("a.spc", "0,1,2000000000,r,1\n", "a.spc, line 1: a request of 3906250 sectors is longer than 1 GiB"),
        ("a.spc", &long, "a.spc, line 2: the line has more than 4096 bytes"),
        ("a.lis", "18014398509481983 2 0 0\n", "a.lis, line 1: the address is beyond the end of any disk"),
        (
            "a.lis",
            "1 99999999999999999999 0 0\n",
            "a.lis, line 1: the count is no number that can be: 99999999999999999999",
        ),
        ("a.u32le", "12345", "a.u32le, record 2: the file ends in the middle of a record of 4 bytes"),
        ("a.vscsi", "12345", "a.vscsi, record 1: the file ends in the middle of a record of 32 bytes"),
        ("a.txt", "what is this\n", &format!("a.txt: {}", Reason::UnknownFormat)),
    ] {
        let error = entries(name, text.as_bytes(), Reading::default()).expect_err(told).to_string();
        assert_eq!(error, told);
        assert_eq!(error.lines().count(), 1);
    }
    let error = entries("a.lis", b"1 1 0 0\n\xff\xff\n", Reading::default()).expect_err("it is not text");
    assert_eq!(error.to_string(), "a.lis, line 2: the line is not text");
    let reading = Reading { format: None, unit_bytes: Some(4096) };
    let error = entries("a.spc", b"", reading).expect_err("the format has sectors");
    assert_eq!(error.to_string(), "a.spc: the format spc says itself in what units it counts");
    for bytes in [&b"no frame"[..], b""] {
        for name in ["a.lis.zst", "a.lis.xz", "a.lis.gz"] {
            let found = entries(name, bytes, Reading { format: Some(Format::Arc), unit_bytes: None });
            let error = found.err().map_or(String::new(), |error| error.to_string());
            assert!(error.lines().count() <= 1, "{error}");
            assert!(bytes.is_empty() || error.starts_with(name), "{name}: {error}");
        }
    }
    let missing = open("no/such/file.spc".as_ref(), Reading::default()).err().expect("there is none");
    assert!(missing.to_string().starts_with("no/such/file.spc: cannot be read: "), "{missing}");
}

#[test]
fn names_of_formats_are_read_back() {
    for (format, name) in Format::ALL {
        assert_eq!((format.name(), Format::parse(name)), (name, Some(format)));
    }
    assert_eq!(Format::parse("blktrace"), None);
}

#[test]
fn the_head_of_a_trace_ends_before_what_is_wrong_behind_it() -> Result<(), TraceError> {
    let text = "7\n8\nnonsense\n";
    let counted = |requests| {
        let mut head = Head::new(read("x.trace", text.as_bytes(), Reading::default())?, requests);
        Survey::of(&mut head, &mut |_| ()).map(|survey| survey.requests())
    };
    assert_eq!((counted(1)?, counted(2)?), (1, 2));
    assert!(counted(3).is_err(), "the third line is no number");
    let mut short = Head::new(read("x.trace", b"7\n".as_slice(), Reading::default())?, 100);
    assert_eq!(Survey::of(&mut short, &mut |_| ())?.requests(), 1, "a shorter trace has no more");
    Ok(())
}
