//! The curves as a picture: hit ratio, latency and wear by size.

use super::advice::{Advice, Point};
use crate::drawing::{Area, COLOURS, DrawError, Drawn, legend, svg};
use plotters::prelude::*;

const WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 380;
const MIB: f64 = 1_048_576.0;

/// Draws the curves as one SVG document under this title.
///
/// # Errors
/// [`DrawError`].
pub fn plot(advice: &Advice, title: &str) -> Result<String, DrawError> {
    svg((WIDTH, PANEL_HEIGHT * 3), |root| draw(root, advice, title))
}

fn draw(root: &Area<'_>, advice: &Advice, title: &str) -> Drawn {
    let panels = root.split_evenly((3, 1));
    let hits = |point: &Point| point.hit_ratio * 100.0;
    let latency = |point: &Point| point.latency_ns as f64 / 1e6;
    let wear = |point: &Point| {
        advice.per_day_bytes(point.written_bytes).unwrap_or(point.written_bytes) as f64 / (1024.0 * MIB)
    };
    let wear_unit = if advice.per_day_bytes(0).is_some() { "GiB written a day" } else { "GiB written" };
    panel(&panels[0], advice, title, "hit ratio, %", &hits)?;
    panel(&panels[1], advice, "expected latency of a 4 KiB access", "ms", &latency)?;
    panel(&panels[2], advice, "wear of the SSD", wear_unit, &wear)
}

fn panel(area: &Area<'_>, advice: &Advice, title: &str, unit: &str, value: &dyn Fn(&Point) -> f64) -> Drawn {
    let sizes: Vec<f64> = advice.sizes_bytes.iter().map(|&bytes| bytes as f64 / MIB).collect();
    let (least, most) = (sizes.first().copied().unwrap_or(1.0), sizes.last().copied().unwrap_or(2.0));
    let highest =
        advice.curves.iter().flat_map(|curve| curve.points.iter().flatten()).map(value).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((least..most.max(least * 2.0)).log_scale(), 0.0..top)?;
    chart.configure_mesh().x_desc("cache, MiB").y_desc(unit).light_line_style(TRANSPARENT).draw()?;
    for (curve, colour) in advice.curves.iter().zip(COLOURS) {
        let points =
            sizes.iter().zip(&curve.points).filter_map(|(&size, point)| Some((size, value(point.as_ref()?))));
        let style = colour.stroke_width(if curve.policy == advice.curves[0].policy { 3 } else { 2 });
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(curve.policy)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    legend(&mut chart, SeriesLabelPosition::MiddleRight)
}
