//! Pages of studies and duels to which values were put by hand.

use super::*;
use crate::duel::{self, Row, Size};
use crate::replay::{Outcome, Pace};
use crate::study;
use engine::status::Bypasses;

/// A study with every simulated value a tenth above the published one.
fn chapter(name: &str) -> Chapter {
    let study = study::named(name).expect("it is built in");
    let outcomes: Vec<study::Outcome> = study.runs.iter().map(|_| None).collect();
    let mut rows = study::rows(&study, &outcomes, &|_, _| true);
    for row in &mut rows {
        row.simulated = row.published.map(|value| value * 1.1);
    }
    Chapter::new(study, rows)
}

#[test]
fn pages_hold_all_pictures_and_all_figures_and_need_nothing_else() {
    let chapters: Vec<Chapter> = study::names().map(chapter).collect();
    let pages = pages(&chapters, "forebay lab study --report <out>", "0").expect("they can be drawn");
    let names: Vec<&str> = pages.iter().map(|page| &*page.file).collect();
    assert_eq!((names[0], names.len()), ("index.html", 6));
    for (page, chapter) in pages[1..].iter().zip(&chapters) {
        let pictures: usize = chapter
            .study
            .plots
            .iter()
            .map(|plot| match plot.kind {
                study::PlotKind::Growth | study::PlotKind::Percentiles => plot.tests.len(),
                study::PlotKind::Sequence | study::PlotKind::Bars => 1,
            })
            .sum();
        let has_scatter = !chapter.study.fidelity.is_empty();
        assert_eq!(page.html.matches("<svg").count(), pictures + usize::from(has_scatter), "{}", page.file);
        assert!(chapter.rows.iter().all(|row| page.html.contains(&html::escape(&row.metric))));
    }
    for page in &pages {
        assert!(page.html.contains("forebay lab study --report &lt;out&gt;"));
        let links: Vec<&str> =
            page.html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(links.iter().all(|link| names.contains(link)), "{links:?}");
        assert!(!page.html.contains("src=") && !page.html.contains("NaN"), "{}", page.file);
    }
}

#[test]
fn the_page_of_a_duel_has_a_picture_of_each_figure_and_says_why_one_is_missing() {
    let latency = crate::replay::Latency {
        count: 10,
        mean_ns: 5_000_000,
        p50_ns: 0,
        p99_ns: 7_000_000,
        p999_ns: 0,
        max_ns: 0,
    };
    let moved = |written_bytes| crate::replay::Moved { read_bytes: 0, written_bytes };
    let outcome = Outcome {
        cache_bytes: 32 << 20,
        origin_bytes: 1 << 30,
        elapsed_ns: 12_340_000_000,
        requests: 10,
        errors: 0,
        client_written_bytes: 0,
        hit_blocks: 1,
        miss_blocks: 3,
        hits: 1,
        misses: 3,
        reads: Some(latency),
        writes: None,
        flushes: None,
        cache: moved(3 << 20),
        origin: moved(0),
        entered_bytes: 0,
        read_bypasses: Bypasses::default(),
        write_bypasses: Bypasses::default(),
        cached_end_bytes: 0,
        backlog: crate::replay::Backlog {
            mean_bytes: 0,
            max_bytes: 0,
            at_end_bytes: 0,
            drain_ns: None,
            drain_origin_written_bytes: 0,
        },
    };
    let row = |bytes, pace| {
        let cell = |profile: &str, result| duel::Cell {
            profile: profile.to_owned(),
            mode: engine::effect::WriteMode::Writeback,
            result,
        };
        let cells = vec![cell("ours", Ok(outcome.clone())), cell("big", Err("no room for <it>".to_owned()))];
        let size = Size { bytes, footprint_percents: vec![10, 20] };
        Row::new("a&b.spc".to_owned(), size, pace, cells, "ours")
    };
    let duel = Duel {
        contender: "ours".to_owned(),
        origin: "hdd".to_owned(),
        cache: "ssd".to_owned(),
        rows: vec![
            row(32 << 20, Pace::Timed),
            row(32 << 20, Pace::Depth(8)),
            row(1000 << 20, Pace::Depth(8)),
        ],
    };
    let page = duel_page(&duel, "forebay lab duel a&b.spc", "0").expect("it can be drawn");
    assert_eq!(page.matches("<svg").count(), 2 * 5, "five figures for each pace");
    for words in [
        "a&amp;b.spc, open loop",
        "a&amp;b.spc, closed loop, 8 under way",
        "3 rows; time: 3 won",
        "32 MiB",
        "1000 MiB",
        "10, 20",
        "mean latency: fastest",
        "no room for &lt;it&gt;",
        ">12.34<",
        ">25.00<",
        ">3.00<",
        ">7.00<",
    ] {
        assert!(page.contains(words), "{words} is missing");
    }
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("NaN"));
}
