//! Excerpts of published traces: that the readers see in them what another program counted.

use forebay_lab::trace::{Layout, Place, Reading, Survey, read};

/// What was counted in an excerpt by a script that shares no code with the readers.
struct Golden {
    name: &'static str,
    bytes: &'static [u8],
    unit_bytes: Option<u64>,
    /// Reads, writes, discards.
    requests: [u64; 3],
    read_bytes: u64,
    written_bytes: u64,
    footprint_blocks: u64,
    span_ns: Option<u64>,
    volumes: usize,
    last_sector: u64,
}

macro_rules! excerpt {
    ($name:literal) => {
        ($name, include_bytes!(concat!("traces/", $name)).as_slice())
    };
}

fn goldens() -> Vec<Golden> {
    let golden =
        |(name, bytes), requests, moved: (u64, u64), footprint_blocks, span_ns, volumes, last_sector| {
            Golden {
                name,
                bytes,
                unit_bytes: None,
                requests,
                read_bytes: moved.0,
                written_bytes: moved.1,
                footprint_blocks,
                span_ns,
                volumes,
                last_sector,
            }
        };
    let vscsi = excerpt!("cloudphysics.vscsi.zst");
    let objects = excerpt!("cloudphysics.oracleGeneral.zst");
    let list = excerpt!("cloudphysics-w106.u32le.xz");
    let oltp = excerpt!("arc-oltp.lis.zst");
    let p3 = excerpt!("arc-p3.lis.gz");
    let tpcc = excerpt!("mqsim-tpcc.trace.gz");
    let opencas = excerpt!("opencas.csv.zst");
    vec![
        golden(vscsi, [383, 217, 0], (3_638_784, 1_182_208), 1528, Some(22_502_619_000), 1, 51_198_175),
        golden(objects, [600, 0, 0], (2_970_624, 0), 506, Some(186_000_000_000), 1, 42_932_807),
        golden(list, [60_000, 0, 0], (245_760_000, 0), 6225, None, 1, 8_233_056),
        Golden { unit_bytes: Some(4096), ..golden(oltp, [1000, 0, 0], (4_096_000, 0), 836, None, 1, 6696) },
        golden(p3, [1000, 0, 0], (15_292_416, 0), 3859, None, 1, 8_376_651),
        golden(tpcc, [123, 177, 0], (1_007_616, 1_568_768), 875, Some(9_258_000), 16, 454_514_390),
        golden(opencas, [0, 192, 9], (0, 24_423_424), 5963, Some(731_740_011), 1, 366_292_720),
    ]
}

#[test]
fn every_excerpt_holds_what_another_program_counted_in_it() {
    for golden in goldens() {
        let reading = Reading { format: None, unit_bytes: golden.unit_bytes };
        let mut source = read(golden.name, golden.bytes, reading).expect("the format is guessed");
        let survey = Survey::of(source.as_mut(), &mut |_| ()).expect("the excerpt is well-formed");
        let name = golden.name;
        assert_eq!([survey.reads, survey.writes, survey.discards], golden.requests, "{name}");
        assert_eq!(
            (survey.read_bytes, survey.written_bytes),
            (golden.read_bytes, golden.written_bytes),
            "{name}"
        );
        assert_eq!(
            (survey.footprint_blocks, survey.span_ns),
            (golden.footprint_blocks, golden.span_ns),
            "{name}"
        );
        assert_eq!((survey.volume_sectors.len(), survey.late), (golden.volumes, 0), "{name}");
        assert_eq!(survey.volume_sectors.iter().max(), Some(&golden.last_sector), "{name}");
        let layout = Layout::new(&survey).expect("the volumes fit on one origin");
        let mut again = read(golden.name, golden.bytes, reading).expect("as before");
        while let Some(entry) = again.next_entry().expect("as before") {
            let range = layout.place(&entry).expect("every request has its place");
            assert!(range.end() * 512 <= layout.origin_bytes());
            assert_eq!(range.start % 2048, entry.range.start % 2048, "blocks stay blocks");
        }
    }
}

#[test]
fn an_excerpt_that_is_cut_off_is_an_error_in_one_line() {
    for golden in goldens() {
        let reading = Reading { format: None, unit_bytes: golden.unit_bytes };
        let cut = &golden.bytes[..golden.bytes.len() / 2];
        let error = match read(golden.name, cut, reading) {
            Ok(mut source) => {
                let error = Survey::of(source.as_mut(), &mut |_| ()).expect_err("half of it is missing");
                assert_ne!(error.place, Place::File, "the reading had begun");
                assert!(matches!(source.next_entry(), Ok(None)), "after an error a source is over");
                error.to_string()
            }
            // A small file is decompressed at once, to guess its format.
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with(golden.name), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
