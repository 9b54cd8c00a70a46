//! Parts that all plots share: an SVG document, colours, a legend.

use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

/// Distinguishable by people who do not see all colours (Okabe and Ito, with one more).
pub(crate) const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
    RGBColor(140, 86, 75),
];

/// A picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("a plot cannot be drawn: {0}")]
pub struct DrawError(String);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A document of this size in pixels, white where nothing is drawn.
pub(crate) fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, DrawError> {
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&root)).and_then(|()| Ok(root.present()?))
    };
    drawn.map_err(|error| DrawError(error.to_string()))?;
    Ok(svg)
}

/// The width of a strip with the names of the drawn lines beside it.
pub(crate) const KEY_WIDTH: u32 = 190;

/// The mark by which a name belongs to a drawn line.
#[derive(Clone, Copy)]
pub(crate) enum Mark {
    Line,
    Dashes,
    Box,
    PaleBox,
    Dot,
}

/// The names of the drawn lines, one below the other, in a strip of its own: nothing is hidden behind it.
pub(crate) fn key(strip: &Area<'_>, names: &[(String, RGBColor, Mark)]) -> Drawn {
    for (at, (name, colour, mark)) in (0..).zip(names) {
        let y = 44 + 17 * at;
        let line = |from: i32, to: i32| PathElement::new(vec![(from, y), (to, y)], colour.stroke_width(2));
        match mark {
            Mark::Line => strip.draw(&line(4, 26))?,
            Mark::Dashes => {
                for from in [4, 12, 20] {
                    strip.draw(&line(from, from + 5))?;
                }
            }
            Mark::Box => strip.draw(&Rectangle::new([(8, y - 5), (22, y + 5)], colour.filled()))?,
            Mark::PaleBox => {
                strip.draw(&Rectangle::new([(8, y - 5), (22, y + 5)], colour.mix(0.4).filled()))?
            }
            Mark::Dot => strip.draw(&Circle::new((15, y), 4, colour.mix(0.7).filled()))?,
        }
        strip.draw(&Text::new(name.clone(), (32, y - 6), ("sans-serif", 11)))?;
    }
    Ok(())
}

/// The names of the drawn lines, in a corner.
pub(crate) fn legend<'a, 'b: 'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, C>,
    corner: SeriesLabelPosition,
) -> Drawn {
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 11))
        .position(corner)
        .draw()?;
    Ok(())
}
