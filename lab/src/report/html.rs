//! Text, tables, the frame of a page.

use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:74rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1,h2,h3{line-height:1.2}h2{margin-top:2.2em;border-bottom:1px solid #ccc}\
table{border-collapse:collapse;font-size:13px;margin:.6em 0}th,td{padding:.15em .7em;border-bottom:1px solid #ddd;\
text-align:right;font-variant-numeric:tabular-nums}th{background:#f4f4f4}td{white-space:nowrap}\
th.t,td.t{text-align:left;white-space:normal}\
.scroll{overflow-x:auto}.plots{display:flex;flex-wrap:wrap;gap:.6rem}.plots svg{max-width:100%;height:auto;border:1px solid #eee}\
.win{color:#00663c;font-weight:600}.loss{color:#b03a00;font-weight:600}.far{color:#b03a00}.near{color:#00663c}\
details{margin:.5em 0}summary{cursor:pointer}code{background:#f4f4f4;padding:0 .2em}footer{margin-top:3em;color:#666;font-size:13px}";

/// Escapes the characters that have a meaning in HTML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A whole page round its body.
pub(super) fn frame(title: &str, body: &str, foot: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{body}\n{foot}\n</body></html>\n",
        title = escape(title)
    )
}

/// The foot of each page.
pub(super) fn foot(command: &str, version: &str) -> String {
    format!(
        "<footer><p>Made by <code>{}</code>, forebay {}. Disks are modelled, time is virtual; the seeds of the origin's and \
         of the cache's model are {} and {}, and the same command gives the same figures.</p></footer>",
        escape(command),
        escape(version),
        crate::study::ORIGIN_SEED,
        crate::study::CACHE_SEED
    )
}

/// A table under construction.
pub(super) struct Table {
    html: String,
}

/// A cell: its text, and how it looks.
pub(super) struct Cell(pub String, pub &'static str);

impl Table {
    /// Columns whose names begin with `<` are of text.
    pub(super) fn new(columns: &[&str]) -> Table {
        let mut html = "<div class=\"scroll\"><table><tr>".to_owned();
        for column in columns {
            let _ = match column.strip_prefix('<') {
                Some(name) => write!(html, "<th class=\"t\">{}</th>", escape(name)),
                None => write!(html, "<th>{}</th>", escape(column)),
            };
        }
        html.push_str("</tr>\n");
        Table { html }
    }

    pub(super) fn row(&mut self, cells: &[Cell]) {
        self.html.push_str("<tr>");
        for Cell(text, class) in cells {
            let _ = write!(self.html, "<td class=\"{class}\">{}</td>", escape(text));
        }
        self.html.push_str("</tr>\n");
    }

    pub(super) fn finish(mut self) -> String {
        self.html.push_str("</table></div>\n");
        self.html
    }
}

/// Text.
pub(super) fn text(text: impl Into<String>) -> Cell {
    Cell(text.into(), "t")
}

/// A number to four digits, or a dash.
pub(super) fn number(value: Option<f64>) -> Cell {
    Cell(value.map_or_else(|| "–".to_owned(), short), "")
}

/// A share in percent, or a dash.
pub(super) fn percent(value: Option<f64>) -> Cell {
    Cell(value.map_or_else(|| "–".to_owned(), |value| format!("{:.0} %", value * 100.0)), "")
}

/// How far off, coloured by the 25 % band.
pub(super) fn error(value: Option<f64>) -> Cell {
    match value {
        None => Cell("–".to_owned(), ""),
        Some(value) if !value.is_finite() => Cell("published 0".to_owned(), "far"),
        Some(value) => Cell(format!("{:.0} %", value * 100.0), if value <= 0.25 { "near" } else { "far" }),
    }
}

/// A number to four digits.
pub(super) fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size < 1.0 => 3,
        size if size < 100.0 => 2,
        size if size < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}
