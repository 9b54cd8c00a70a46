//! Pages about systems whose figures were put by hand.

use super::*;

fn measured(name: &str, rates: &[f64]) -> System {
    let job = |(at, rate): (usize, &f64)| Job {
        job: format!("job {at}"),
        per_second: *rate,
        rounds: vec![*rate],
        p50_us: 80.0,
        p99_us: 90.4,
        instructions: 40_000.0,
        daemon_instructions: if name.starts_with("forebay") { 16_600.0 } else { 0.0 },
    };
    System {
        system: name.to_owned(),
        kernel: "6.12".to_owned(),
        tools: "fio 3.33-3".to_owned(),
        day: "2026-01-01".to_owned(),
        disks: String::new(),
        forebay: name.starts_with("forebay").then(|| "forebay 0.1.0".to_owned()),
        jobs: rates.iter().enumerate().map(job).collect(),
    }
}

fn example() -> Vec<System> {
    vec![
        measured("ssd", &[1000.0, 1000.0, 1000.0]),
        measured("bcache", &[900.0, 500.0, 300.0]),
        measured("dm-cache", &[500.0, 800.0, 310.0]),
        measured("forebay-ublk", &[450.0, 990.0, 308.0]),
    ]
}

/// The cells of a row of the first table.
fn row(text: &str, job: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.starts_with(&format!("| {job}"))).expect("the job has a row");
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn each_row_says_how_ours_compares_with_the_best_of_the_kernel() {
    let text = rates(&example());
    assert_eq!(row(&text, "job 0")[4..], ["450", "0.50, loses", "–"]);
    assert_eq!(row(&text, "job 1")[4..], ["990", "1.24, wins", "–"]);
    assert_eq!(row(&text, "job 2")[4..], ["308", "0.99", "–"], "a difference within the noise is none");
    let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "columns stand below each other: {text}");
}

#[test]
fn the_page_names_every_loss_and_how_it_was_made() {
    let page = page(&example(), "make versus");
    assert!(page.contains(
        "forebay-ublk is slower than the best cache of the kernel in 1 of 3 rows:\n  - job 0: 0.50"
    ));
    assert!(!page.contains("forebay-nbd is"), "what was not measured is not judged");
    for said in
        ["    make versus\n", "6.12", "fio 3.33-3", "2026-01-01", "forebay 0.1.0", "80 / 90", "40 (17)"]
    {
        assert!(page.contains(said), "{said} is missing in {page}");
    }
}

#[test]
fn a_job_that_a_system_did_not_do_is_left_open() {
    let mut systems = example();
    systems[1].jobs.remove(2);
    assert_eq!(row(&rates(&systems), "job 2")[2], "–");
    assert_eq!(row(&rates(&systems), "job 2")[5], "0.99");
}

#[test]
fn a_profile_of_ours_stands_beside_what_it_imitates() {
    let mut systems = example();
    systems.push(measured("as-bcache", &[1000.0, 580.0, 300.0]));
    let text = page(&systems, "make versus");
    let (_, table) = text.split_once("## Our profiles").expect("there is a table of them");
    assert_eq!(row(table, "job 0")[1..4], ["900", "1000", "1.11"]);
    assert_eq!(row(table, "job 1")[1..4], ["500", "580", "1.16, differs"]);
    assert!(table.contains("2 of 3 within 15 %."), "{table}");
    let (first, _) = text.split_once("## Our profiles").expect("seen above");
    assert!(!first.contains("as-bcache"), "nowhere else");
    assert!(!page(&example(), "make versus").contains("## Our profiles"), "nobody is imitated there");
}

#[test]
fn rounds_that_differ_are_told() {
    let mut systems = example();
    systems.push(measured("as-dm-cache", &[500.0, 580.0, 300.0]));
    assert!(!page(&systems, "make versus").contains("rounds counts"), "one round differs from nothing");
    let [_, _, dm_cache, _, ours] = &mut systems[..] else { panic!("five systems") };
    dm_cache.jobs[0].rounds = vec![300.0, 500.0, 900.0];
    dm_cache.jobs[1].rounds = vec![790.0, 800.0, 900.0];
    ours.jobs[2].rounds = vec![200.0, 300.0, 301.0];
    let page = page(&systems, "make versus");
    let (_, told) =
        page.split_once("The median of 3 rounds counts. They differ by more than 20 %").expect("told");
    let told: Vec<&str> = told.lines().skip(1).take_while(|line| line.starts_with("  - ")).collect();
    assert_eq!(told, ["  - job 0: dm-cache 300 to 900", "  - job 2: as-dm-cache 200 to 301"]);
}

#[test]
fn the_picture_has_a_bar_and_a_figure_for_each_system_and_job() {
    let picture = plot(&example()).expect("it can be drawn");
    for figure in ["450", "990", "308", "900"] {
        assert!(picture.contains(figure), "{figure} is missing");
    }
    assert!(!picture.contains("NaN"), "a figure is no number");
    let nothing = plot(&example()[1..]).expect("it can be drawn without the SSD");
    assert!(!nothing.contains("450"), "there is nothing to be a part of");
}
