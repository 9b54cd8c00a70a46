//! Lines, bars, scatter as SVG.

use crate::drawing::{COLOURS, DrawError, KEY_WIDTH, Mark, key, svg};
use plotters::prelude::*;

const WIDTH: u32 = 560;
const HEIGHT: u32 = 340;
/// Width of a place's name, so that it does not touch the next one; below, the margins beside all of them.
const TICK_WIDTH: u32 = 38;
const TICKS_MARGIN: u32 = 90;
/// How far from 1 the band of the scatter plot goes.
const BAND: f64 = 0.25;

/// A line.
pub(super) struct Line {
    pub label: String,
    pub colour: usize,
    pub is_published: bool,
    pub points: Vec<(f64, f64)>,
}

/// A picture of lines.
pub(super) struct Lines<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Names of the places 0, 1, 2 ... of the axis.
    pub ticks: Option<&'a [String]>,
    pub is_log: bool,
    pub lines: &'a [Line],
}

/// Bars of one kind, one in each group.
pub(super) struct Bars {
    pub label: String,
    pub colour: usize,
    pub is_published: bool,
    pub values: Vec<Option<f64>>,
}

/// A point of the scatter plot.
pub(super) struct Point {
    pub group: String,
    pub at: (f64, f64),
}

fn label(label: &str, is_published: bool) -> String {
    format!("{label}{}", if is_published { ", published" } else { "" })
}

/// Lines over numbers, or over named places.
pub(super) fn lines(picture: &Lines<'_>) -> Result<String, DrawError> {
    let points = || picture.lines.iter().flat_map(|line| &line.points);
    let ends = |value: fn(&(f64, f64)) -> f64| {
        let low = points().map(value).fold(f64::INFINITY, f64::min);
        let high = points().map(value).fold(f64::NEG_INFINITY, f64::max);
        if low <= high { (low, high) } else { (0.0, 1.0) }
    };
    let ((left, right), (low, high)) = (ends(|point| point.0), ends(|point| point.1));
    let right = if right > left { right } else { left + 1.0 };
    let names_width = picture.ticks.map_or(0, |ticks| ticks.len() as u32 * TICK_WIDTH + TICKS_MARGIN);
    let width = WIDTH.max(names_width);
    svg((width + KEY_WIDTH, HEIGHT), |root| {
        let (area, strip) = root.split_horizontally(width);
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(picture.title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(38)
            .y_label_area_size(66);
        let name = |x: &f64| match picture.ticks {
            None => format!("{x:.0}"),
            Some(ticks) if x.fract().abs() < 1e-6 && *x >= 0.0 => {
                ticks.get(*x as usize).cloned().unwrap_or_default()
            }
            Some(_) => String::new(),
        };
        let count = picture.ticks.map_or(10, |ticks| ticks.len().max(1));
        // The two kinds of axes have different types.
        macro_rules! draw {
            ($range:expr) => {{
                let mut chart = builder.build_cartesian_2d(left..right, $range)?;
                chart
                    .configure_mesh()
                    .x_desc(picture.x)
                    .y_desc(picture.y)
                    .x_labels(count)
                    .x_label_formatter(&name)
                    .light_line_style(TRANSPARENT)
                    .draw()?;
                for line in picture.lines {
                    let points = line.points.iter().copied();
                    let colour = COLOURS[line.colour % COLOURS.len()];
                    let style = colour.stroke_width(2);
                    if line.is_published {
                        chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?;
                    } else {
                        chart.draw_series(LineSeries::new(points, style))?;
                    }
                }
            }};
        }
        if picture.is_log {
            draw!((low.max(1.0)..(high * 1.3).max(10.0)).log_scale());
        } else {
            draw!(0.0..if high > 0.0 { high * 1.08 } else { 1.0 });
        }
        let mark = |line: &Line| if line.is_published { Mark::Dashes } else { Mark::Line };
        let names = picture.lines.iter().map(|line| {
            (label(&line.label, line.is_published), COLOURS[line.colour % COLOURS.len()], mark(line))
        });
        key(&strip, &names.collect::<Vec<_>>())
    })
}

/// Groups of bars.
pub(super) fn bars(title: &str, unit: &str, groups: &[String], bars: &[Bars]) -> Result<String, DrawError> {
    let highest = bars.iter().flat_map(|bars| bars.values.iter().flatten()).copied().fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let width = WIDTH.max(120 + groups.len() as u32 * (20 + 14 * bars.len() as u32));
    svg((width + KEY_WIDTH, HEIGHT), |root| {
        let (area, strip) = root.split_horizontally(width);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
        let name = |_: &f64| String::new();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc(unit)
            .x_labels(1)
            .x_label_formatter(&name)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let step = 0.9 / bars.len().max(1) as f64;
        for (at, one) in bars.iter().enumerate() {
            let colour = COLOURS[one.colour % COLOURS.len()];
            let style = if one.is_published { colour.mix(0.4) } else { colour.mix(1.0) }.filled();
            let rectangles = one.values.iter().enumerate().filter_map(|(group, value)| {
                let left = group as f64 + 0.05 + at as f64 * step;
                Some(Rectangle::new([(left, 0.0), (left + step * 0.9, (*value)?)], style))
            });
            chart.draw_series(rectangles)?;
        }
        for (group, name) in groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let centred = plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Center,
                plotters::style::text_anchor::VPos::Top,
            );
            let style = ("sans-serif", 12).into_text_style(&area).pos(centred);
            area.draw_text(name, &style, (x, y + 6))?;
        }
        let mark = |bars: &Bars| if bars.is_published { Mark::PaleBox } else { Mark::Box };
        let names = bars.iter().map(|bars| {
            (label(&bars.label, bars.is_published), COLOURS[bars.colour % COLOURS.len()], mark(bars))
        });
        key(&strip, &names.collect::<Vec<_>>())
    })
}

/// Published against simulated values, both axes logarithmic.
pub(super) fn scatter(title: &str, points: &[Point]) -> Result<String, DrawError> {
    let is_shown = |point: &&Point| point.at.0 > 0.0 && point.at.1 > 0.0;
    let all = || points.iter().filter(is_shown).flat_map(|point| [point.at.0, point.at.1]);
    let low = all().fold(f64::INFINITY, f64::min) * 0.7;
    let high = all().fold(0.0, f64::max) * 1.5;
    let mut groups: Vec<&str> = Vec::new();
    for point in points.iter().filter(is_shown) {
        if !groups.contains(&&*point.group) {
            groups.push(&point.group);
        }
    }
    svg((620 + KEY_WIDTH, 560), |root| {
        let (area, strip) = root.split_horizontally(620);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((low..high).log_scale(), (low..high).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("published")
            .y_desc("simulated")
            .light_line_style(TRANSPARENT)
            .draw()?;
        chart.draw_series([Polygon::new(
            [
                (low, low),
                (low / (1.0 - BAND), low),
                (high, high * (1.0 - BAND)),
                (high, high),
                (high / (1.0 + BAND), high),
                (low, low * (1.0 + BAND)),
            ],
            RGBColor(0, 158, 115).mix(0.15),
        )])?;
        chart.draw_series([PathElement::new([(low, low), (high, high)], BLACK.mix(0.5))])?;
        for (at, group) in groups.iter().enumerate() {
            let style = COLOURS[at % COLOURS.len()].mix(0.7).filled();
            let circles = points
                .iter()
                .filter(is_shown)
                .filter(|point| point.group == *group)
                .map(|point| Circle::new(point.at, 3, style));
            chart.draw_series(circles)?;
        }
        let colours = COLOURS.iter().cycle();
        let names =
            groups.iter().zip(colours).map(|(group, colour)| ((*group).to_owned(), *colour, Mark::Dot));
        key(&strip, &names.collect::<Vec<_>>())
    })
}
