//! Each figure as a part of what the SSD does alone: bars, and the figures themselves at their ends.

use super::{KERNELS, SSD, System, jobs, rate};
use crate::drawing::{Area, COLOURS, DrawError, Drawn, KEY_WIDTH, Mark, key, svg};
use plotters::prelude::*;

const BAR_HEIGHT: u32 = 13;
const GROUP_GAP: u32 = 14;
const NAMES_WIDTH: u32 = 210;
const BARS_WIDTH: u32 = 560;
const TOP: u32 = 60;

/// Draws all jobs that the SSD did, too.
///
/// # Errors
/// [`DrawError`].
pub fn plot(systems: &[System]) -> Result<String, DrawError> {
    let names: Vec<&str> = ["forebay-ublk", "forebay-nbd"].into_iter().chain(KERNELS).collect();
    let group_height = BAR_HEIGHT * names.len() as u32 + GROUP_GAP;
    let shown: Vec<(&str, f64)> =
        jobs(systems).into_iter().filter_map(|job| Some((job, rate(systems, SSD, job)?))).collect();
    let height = TOP + group_height * shown.len() as u32 + 20;
    svg((NAMES_WIDTH + BARS_WIDTH + 70 + KEY_WIDTH, height), |root| {
        let (area, strip) = root.split_horizontally(NAMES_WIDTH + BARS_WIDTH + 70);
        let title = ("sans-serif", 16).into_text_style(&area);
        area.draw_text("Requests a second; the line is what the SSD does alone", &title, (12, 14))?;
        for (group, (job, limit)) in (0..).zip(&shown) {
            let top = (TOP + group * group_height) as i32;
            let label = ("sans-serif", 12).into_text_style(&area);
            area.draw_text(job, &label, (12, top + (group_height - GROUP_GAP) as i32 / 2 - 7))?;
            for (at, name) in names.iter().enumerate() {
                if let Some(value) = rate(systems, name, job) {
                    bar(&area, top + at as i32 * BAR_HEIGHT as i32, at, value, value / limit)?;
                }
            }
        }
        let end = (NAMES_WIDTH + BARS_WIDTH) as i32;
        area.draw(&PathElement::new([(end, TOP as i32 - 10), (end, height as i32 - 20)], BLACK.mix(0.5)))?;
        let marks = names.iter().zip(COLOURS).map(|(name, colour)| ((*name).to_owned(), colour, Mark::Box));
        key(&strip, &marks.collect::<Vec<_>>())
    })
}

/// One bar with its figure.
fn bar(area: &Area<'_>, top: i32, colour: usize, value: f64, part: f64) -> Drawn {
    let left = NAMES_WIDTH as i32;
    // What is faster than the SSD, because the cache works ahead, ends a little behind the line.
    let right = left + (part.min(1.04) * f64::from(BARS_WIDTH)) as i32;
    area.draw(&Rectangle::new(
        [(left, top), (right, top + BAR_HEIGHT as i32 - 2)],
        COLOURS[colour].filled(),
    ))?;
    area.draw_text(&format!("{value:.0}"), &("sans-serif", 10).into_text_style(area), (right + 4, top))?;
    Ok(())
}
