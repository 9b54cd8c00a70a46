//! Pages of studies to which values were put by hand.

use super::*;
use crate::study;

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
