//! The view: the model on a terminal of any size.

use super::model::{Model, Moment, VolumeRates};
use crate::output::Size;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use std::time::Duration;

/// Lines of a plot, with its border.
const PLOT_LINES: u16 = 5;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let rows = u16::try_from(model.rates.len()).unwrap_or(u16::MAX);
    let [head, volumes, plots, foot] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(rows.saturating_add(2)),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(model)), head);
    draw_volumes(frame, model, volumes);
    draw_plots(frame, model, plots);
    let end = Line::from("q ends").style(Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(Paragraph::new(end), foot);
}

fn head_lines(model: &Model) -> Vec<Line<'_>> {
    let mut lines = vec![Line::from(format!("forebay  {}", model.cache)).style(Modifier::BOLD)];
    if let Some(trouble) = &model.trouble {
        lines.push(Line::from(trouble.as_str()).style(Color::Red));
        return lines;
    }
    let Some(status) = &model.status else { return lines };
    if let Some(cache) = &status.cache {
        lines.push(Line::from(format!(
            "{}, {} of {} in use, session {}",
            cache.profile,
            Size(cache.used_bytes),
            Size(cache.size_bytes),
            status.session
        )));
        if cache.latched {
            let why =
                cache.latched_because.as_deref().unwrap_or("the cache failed and is not written any more");
            lines.push(Line::from(why).style(Color::Red));
            return lines;
        }
        if let Some(why) = cache.mirror.iter().find_map(|half| half.trouble(&cache.device)) {
            lines.push(Line::from(format!("degraded: {why}")).style(Color::Yellow));
        } else if let Some(why) = cache.pace.trouble() {
            lines.push(Line::from(format!("slow: {why}")).style(Color::Yellow));
        }
        let [user, fill, relocation, headers] = model.written;
        lines.push(Line::from(format!(
            "to the SSD: {} written by clients, {} fills, {} relocated, {} headers",
            rate(user),
            rate(fill),
            rate(relocation),
            rate(headers)
        )));
    } else {
        lines.push(Line::from("the cache is missing; the origins are served alone").style(Color::Red));
    }
    if let Some(seconds) = status.oldest_dirty_seconds.filter(|seconds| *seconds > 0.0) {
        lines.push(Line::from(format!("oldest dirty data: {}", age(seconds))));
    } else {
        lines.push(Line::from("no dirty data"));
    }
    lines
}

/// A column of the table of volumes.
struct Column {
    title: &'static str,
    width: u16,
    /// The order in which columns get room: the first ones are left on a narrow terminal.
    rank: u8,
    text: fn(&VolumeRates) -> String,
}

const fn column(title: &'static str, width: u16, rank: u8, text: fn(&VolumeRates) -> String) -> Column {
    Column { title, width, rank, text }
}

const COLUMNS: [Column; 13] = [
    column("volume", 10, 0, |volume| volume.name.clone()),
    column("mode", 12, 11, |volume| volume.mode.clone()),
    column("state", 14, 8, |volume| volume.state.clone()),
    column("reads/s", 8, 1, |volume| format!("{:.0}", volume.rates.reads)),
    column("writes/s", 8, 2, |volume| format!("{:.0}", volume.rates.writes)),
    column("read", 11, 6, |volume| rate(volume.rates.read_bytes)),
    column("written", 11, 7, |volume| rate(volume.rates.written_bytes)),
    column("hits", 5, 3, |volume| {
        volume.rates.hit_ratio.map_or_else(none, |ratio| format!("{:.0}%", ratio * 100.0))
    }),
    column("r p99<", 7, 9, |volume| volume.read_p99.map_or_else(none, latency)),
    column("w p99<", 7, 10, |volume| volume.write_p99.map_or_else(none, latency)),
    column("dirty", 10, 4, |volume| Size(volume.dirty_bytes).to_string()),
    column("destage", 11, 5, |volume| rate(volume.rates.destaged_bytes)),
    column("cached", 10, 12, |volume| Size(volume.cached_bytes).to_string()),
];

fn none() -> String {
    "-".to_owned()
}

/// The columns that a terminal has room for.
fn fitting(width: u16) -> Vec<&'static Column> {
    let mut ranked: Vec<&Column> = COLUMNS.iter().collect();
    ranked.sort_by_key(|column| column.rank);
    let mut used = 0_u16;
    let fits = |column: &&&Column| {
        used = used.saturating_add(column.width + 1);
        used <= width + 1 || column.rank == 0
    };
    let last = ranked.iter().take_while(fits).last().map_or(0, |column| column.rank);
    COLUMNS.iter().filter(|column| column.rank <= last).collect()
}

fn draw_volumes(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let columns = fitting(area.width);
    let widths = columns.iter().map(|column| match column.rank {
        0 => Constraint::Min(column.width),
        _ => Constraint::Length(column.width),
    });
    let rows = model.rates.iter().map(|rates| {
        let is_well = matches!(rates.state.as_str(), "active" | "draining");
        let color = if is_well { Color::Reset } else { Color::Red };
        Row::new(columns.iter().map(|column| Cell::from((column.text)(rates)))).style(color)
    });
    let head = Row::new(columns.iter().map(|column| column.title));
    let head = head.style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(rows, widths.collect::<Vec<_>>()).header(head), area);
}

fn draw_plots(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    type Plot = (&'static str, fn(&Moment) -> Option<u64>, Option<u64>, fn(u64) -> String);
    let plots: [Plot; 4] = [
        (
            "hit ratio",
            |moment| moment.hit_ratio.map(|ratio| (ratio * 1000.0) as u64),
            Some(1000),
            |permille| format!("{:.1} %", permille as f64 / 10.0),
        ),
        ("requests", |moment| Some(moment.requests as u64), None, |number| format!("{number}/s")),
        ("bytes", |moment| Some(moment.bytes as u64), None, |bytes| rate(bytes as f64)),
        ("dirty", |moment| Some(moment.dirty_bytes), None, |bytes| Size(bytes).to_string()),
    ];
    let fitting = usize::from(area.height / PLOT_LINES).min(plots.len());
    let areas = Layout::vertical(vec![Constraint::Length(PLOT_LINES); fitting]).split(area);
    for ((title, value, max, text), area) in plots.into_iter().zip(areas.iter()) {
        let width = usize::from(area.width.saturating_sub(2));
        let data: Vec<Option<u64>> = model.past.iter().rev().take(width).map(value).rev().collect();
        let now = data.last().copied().flatten().map_or_else(|| "-".to_owned(), text);
        let peak = data.iter().copied().flatten().max().unwrap_or(0);
        let title = match max {
            Some(_) => format!(" {title}: {now} "),
            None => format!(" {title}: {now}, at most {} ", text(peak)),
        };
        let plot = Sparkline::default()
            .block(Block::bordered().title(title))
            .data(&data)
            .max(max.unwrap_or(peak).max(1))
            .style(Color::Cyan);
        frame.render_widget(plot, *area);
    }
}

fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", Size(bytes_per_second as u64))
}

fn latency(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..1000 => format!("{us} us"),
        us @ 1000..1_000_000 => format!("{} ms", us as f64 / 1000.0),
        us => format!("{} s", us as f64 / 1e6),
    }
}

fn age(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::look_after;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Instant;

    fn screen(model: &Model, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, model)).expect("it is drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn a_page_has_figures_and_plots() {
        let start = Instant::now();
        let mut model = Model::new("/dev/x");
        for second in 1..30 {
            model.look(start + Duration::from_secs(second), look_after(second, 1));
        }
        let text = screen(&model, 150, 40);
        for word in ["/dev/x", "data", "writeback", "100", "400 KiB/s", "75%", "100 us", "5 MiB", "1 MiB/s"] {
            assert!(text.contains(word), "`{word}` is missing in:\n{text}");
        }
        for word in
            ["hit ratio: 75.0 %", "requests: 110/s", "dirty: 5 MiB", "q ends", "oldest dirty data: 12 s"]
        {
            assert!(text.contains(word), "`{word}` is missing in:\n{text}");
        }
        model.look(start + Duration::from_secs(30), look_after(29, 1));
        assert!(screen(&model, 150, 40).contains("hit ratio: -"), "nothing was read");
        model.gone("not running");
        assert!(screen(&model, 150, 40).contains("not running"));
    }

    #[test]
    fn a_terminal_may_be_small() {
        let mut model = Model::new("/dev/x");
        model.look(Instant::now(), look_after(1, 1));
        for (columns, lines) in [(1, 1), (20, 3), (80, 6), (40, 24), (300, 100)] {
            screen(&model, columns, lines);
        }
        let narrow = screen(&model, 40, 24);
        assert!(narrow.contains("volume") && narrow.contains("reads/s"), "{narrow}");
        assert!(!narrow.contains("cached"), "what has no room is left out: {narrow}");
    }
}
