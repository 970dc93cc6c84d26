//! Pictures as SVG that fit the width they get, in the colours of the page.
//!
//! Horizontal positions are percentages and vertical ones are pixels, so that text keeps its size on every
//! screen. If the whole picture were scaled, its text would be too small on a telephone. Parts that need
//! plain numbers, such as curves, are stretched in an inner picture.

use std::fmt::Write;

use brisk_terminal::page::{CHART_STYLE, escaped};

/// Who made what was measured. Each has a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// brisk.
    Brisk,
    /// Another tool.
    Rival,
    /// The one that all others are compared with.
    Own,
}

impl Whose {
    fn class(self) -> &'static str {
        match self {
            Self::Brisk => "brisk",
            Self::Rival => "rival",
            Self::Own => "own",
        }
    }
}

/// One line of a comparison.
#[derive(Debug, Clone)]
pub struct Row {
    /// The text at the start of the line.
    pub name: String,
    /// The text at the end of the line.
    pub figure: String,
    /// Who made what was measured.
    pub whose: Whose,
    /// The measured values.
    pub values: Vec<f64>,
}

/// How many values have quarters, so that a box says more than they do.
const BOXED: usize = 6;

impl Row {
    /// Whether [`box_plots`] draws a box, and not only the values and their median.
    pub fn has_box(&self) -> bool {
        self.values.len() >= BOXED
    }
}

/// Height of a row, of its text, and of the space below the last row.
const ROW: f64 = 42.0;
const TEXT: f64 = 14.0;
const AXIS: f64 = 22.0;

/// The largest value of an axis. A larger figure is drawn at the end of the axis.
const LARGEST: f64 = 1e18;

/// The range of an axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    /// The axis for `values`: from 0, or logarithmic if the values are far apart.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let known = values.filter(|value| (1e-9..=LARGEST).contains(value));
        let (low, high) = known.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if high <= 0.0 {
            return Self {
                from: 0.0,
                to: 1.0,
                is_log: false,
            };
        }
        let is_log = high / low > 8.0;
        Self {
            from: match is_log {
                true => low / 1.1,
                false => 0.0,
            },
            to: high * 1.03,
            is_log,
        }
    }

    /// Position of `value`, in percent of the width.
    fn place(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        100.0 * part.clamp(0.0, 1.0)
    }

    /// Values that are easy to read.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.is_log {
            let mut power = 10_f64.powf(self.from.log10().floor());
            while power <= self.to {
                ticks.extend([1.0, 2.0, 5.0].map(|digit| digit * power));
                power *= 10.0;
            }
            ticks.retain(|tick| (self.from..=self.to).contains(tick));
            // Three ticks for each power of ten are too many for a long axis.
            if ticks.len() > 7 {
                ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
            }
            return ticks;
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|digit| digit * power)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        // Adding up steps would drift away from round numbers. The last tick may be the end itself.
        let tick = |number: u32| self.from + f64::from(number) * step;
        let ticks = (0..20).map(tick);
        ticks
            .take_while(|tick| *tick <= self.to + step * 1e-6)
            .collect()
    }

    fn draw(&self, svg: &mut Svg, top: f64, bottom: f64, unit: &str) {
        let ticks = self.ticks();
        for (number, tick) in ticks.iter().enumerate() {
            let at = self.place(*tick);
            svg.line("grid", (at, top), (at, bottom));
            let mut text = short(*tick);
            if number == 0 {
                text = format!("{text} {unit}");
            }
            svg.text("tick", at, bottom + 15.0, anchor(at), &text);
        }
    }
}

/// Where to anchor text at this position, so that it does not leave the picture.
fn anchor(at: f64) -> &'static str {
    match at {
        ..=8.0 => "start",
        93.0.. => "end",
        _ => "middle",
    }
}

/// A number as an axis shows it.
pub fn short(value: f64) -> String {
    match value {
        1e4.. => format!("{value:.0}"),
        _ if value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// A picture that is being drawn.
#[derive(Debug, Default)]
struct Svg {
    text: String,
}

impl Svg {
    fn add(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let written = self.text.write_fmt(arguments);
        debug_assert!(written.is_ok());
    }

    fn new(height: f64, title: &str) -> Self {
        let title = escaped(title);
        Self {
            text: format!(
                "<svg width=\"100%\" height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n"
            ),
        }
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{:.2}%\" y1=\"{:.1}\" x2=\"{:.2}%\" y2=\"{:.1}\"/>\n",
            from.0, from.1, to.0, to.1
        ));
    }

    fn rect(&mut self, class: &str, from: (f64, f64), size: (f64, f64)) {
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{:.2}%\" y=\"{:.1}\" width=\"{:.2}%\" height=\"{:.1}\" rx=\"2\"/>\n",
            from.0, from.1, size.0, size.1
        ));
    }

    fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.2}%\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            escaped(text)
        ));
    }

    fn head(&mut self, row: &Row, y: f64) {
        self.text("", 0.0, y + TEXT - 2.0, "start", &row.name);
        self.text("number", 100.0, y + TEXT - 2.0, "end", &row.figure);
    }

    fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// The value that this share of `sorted` is below, interpolated between two values.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = part * last as f64;
    let below = (0..=last).rfind(|index| *index as f64 <= at)?;
    let (low, high) = (*sorted.get(below)?, *sorted.get((below + 1).min(last))?);
    Some(low + (high - low) * (at - below as f64))
}

/// The height of [`box_plots`], in pixels.
fn height_of(rows: &[Row]) -> f64 {
    rows.len() as f64 * ROW + 4.0 + AXIS
}

/// Box plots in one picture, below their heading.
#[derive(Debug)]
pub struct Plots {
    /// The heading.
    pub heading: String,
    /// One box plot for each.
    pub rows: Vec<Row>,
    /// Lines through all rows.
    pub lines: Lines,
}

/// Lines through all rows of [`box_plots`], each at its value.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lines {
    /// What the rows are compared with: a dashed line.
    pub reference: Option<f64>,
    /// What no row is expected to be below: a dotted line.
    pub floor: Option<f64>,
}

/// A file of [`box_plots`], one below the other. It has its own background, because the page around it may be
/// light while its reader's system is dark.
pub fn standalone(plots: &[Plots], unit: &str) -> String {
    const WIDTH: f64 = 800.0;
    const MARGIN: f64 = 24.0;
    const HEADING: f64 = 28.0;
    let mut parts = Svg::default();
    let mut y = MARGIN;
    for Plots {
        heading,
        rows,
        lines,
    } in plots
    {
        parts.add(format_args!(
            "<text class=\"heading\" x=\"{MARGIN}\" y=\"{:.1}\">{}</text>\n",
            y + TEXT,
            escaped(heading)
        ));
        parts.add(format_args!(
            "<svg x=\"{MARGIN}\" y=\"{:.1}\" width=\"{}\" height=\"{}\">\n{}</svg>\n",
            y + HEADING,
            WIDTH - 2.0 * MARGIN,
            height_of(rows),
            box_plots(heading, rows, *lines, unit)
        ));
        y += HEADING + height_of(rows) + MARGIN;
    }
    let headings: Vec<_> = plots.iter().map(|plots| &*plots.heading).collect();
    let (title, parts) = (headings.join("; "), parts.text);
    let title = escaped(&title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
         viewBox=\"0 0 {WIDTH} {y}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>\n{CHART_STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n{parts}</svg>\n"
    )
}

/// A box with whiskers for each row, and a dot for each value. The box goes from quartile to quartile, the
/// whiskers to the extremes; a row of few values has neither.
pub fn box_plots(title: &str, rows: &[Row], lines: Lines, unit: &str) -> String {
    let axis = axis_of(rows, lines);
    let height = height_of(rows);
    let bottom = height - AXIS;
    let mut svg = Svg::new(height, title);
    axis.draw(&mut svg, 0.0, bottom, unit);
    for (class, value) in [("reference", lines.reference), ("floor", lines.floor)] {
        if let Some(value) = value {
            let at = axis.place(value);
            svg.line(class, (at, 0.0), (at, bottom));
        }
    }
    for (number, row) in rows.iter().enumerate() {
        let y = number as f64 * ROW;
        svg.head(row, y);
        let mut sorted = row.values.clone();
        sorted.sort_by(f64::total_cmp);
        let parts = [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| quantile(&sorted, part));
        let [Some(min), Some(low), Some(median), Some(high), Some(max)] =
            parts.map(|value| value.map(|value| axis.place(value)))
        else {
            continue;
        };
        let (class, middle) = (row.whose.class(), y + TEXT + 12.0);
        let (top, height) = (middle - 7.0, 14.0);
        if row.has_box() {
            svg.line(&format!("whisker {class}"), (min, middle), (max, middle));
        }
        for end in [min, max].into_iter().filter(|_| row.has_box()) {
            let ends = (end, middle - 4.0);
            svg.line(&format!("whisker {class}"), ends, (end, middle + 4.0));
        }
        // The gap of a box. Without a box, a gap would take the dot of the middle run away.
        if row.has_box() {
            let width = (high - low).max(0.3);
            svg.rect(&format!("box {class}"), (low, top), (width, height));
        } else {
            let ends = ((median, top), (median, top + height));
            svg.line(&format!("whisker {class}"), ends.0, ends.1);
        }
        for value in &sorted {
            let at = axis.place(*value);
            svg.add(format_args!(
                "<circle class=\"dot {class}\" cx=\"{at:.2}%\" cy=\"{middle:.1}\" r=\"2.5\"/>\n"
            ));
        }
        if row.has_box() {
            svg.line("median", (median, top), (median, top + height));
        }
    }
    svg.finish()
}

/// What the marks of [`box_plots`] mean, as a sentence.
pub fn marks_in_words(rows: &[Row]) -> &'static str {
    match rows.iter().any(Row::has_box) {
        true => {
            "The box holds the middle half of the runs, its gap is the median, and the whiskers reach the extremes."
        }
        false => "The line is at the median; so few runs have no box around their middle half.",
    }
}

/// Whether the axis of [`box_plots`] is logarithmic.
pub fn is_log(rows: &[Row], lines: Lines) -> bool {
    axis_of(rows, lines).is_log
}

fn axis_of(rows: &[Row], lines: Lines) -> Axis {
    let values = rows.iter().flat_map(|row| row.values.iter().copied());
    Axis::of(values.chain(lines.reference).chain(lines.floor))
}

/// A bar for the first value of each row.
pub fn bars(title: &str, rows: &[Row], unit: &str) -> String {
    let first = |row: &Row| row.values.first().copied().unwrap_or(0.0);
    let mut axis = Axis::of(rows.iter().map(first));
    // The length of a bar is its value, so the axis starts at 0.
    (axis.from, axis.is_log) = (0.0, false);
    let bottom = rows.len() as f64 * ROW;
    let mut svg = Svg::new(bottom + AXIS, title);
    axis.draw(&mut svg, 0.0, bottom, unit);
    for (number, row) in rows.iter().enumerate() {
        let y = number as f64 * ROW;
        svg.head(row, y);
        let width = axis.place(first(row)).max(0.2);
        svg.rect(row.whose.class(), (0.0, y + TEXT + 4.0), (width, 14.0));
    }
    svg.finish()
}

/// A line through points.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Across and up, in the units of the axes.
    pub points: Vec<(f64, f64)>,
    /// Whether to draw it dashed and in another colour.
    pub is_second: bool,
}

/// The ticks and the end of an axis of [`curves`].
#[derive(Debug, Clone, Copy)]
pub struct Scale<'a> {
    /// Positions and labels of the ticks.
    pub ticks: &'a [(f64, String)],
    /// The value at the end of the axis.
    pub max: f64,
}

/// Lines in one field. Both axes go from 0 to `max`.
pub fn curves(title: &str, curves: &[Curve], across: Scale<'_>, down: Scale<'_>) -> String {
    let mut field = String::new();
    for curve in curves {
        let second = match curve.is_second {
            true => " second",
            false => "",
        };
        field.push_str(&format!("<path class=\"curve{second}\" d=\""));
        for (number, (x, y)) in curve.points.iter().enumerate() {
            let letter = match number {
                0 => 'M',
                _ => 'L',
            };
            let (x, y) = (part(*x, across.max), 1000.0 - part(*y, down.max));
            field.push_str(&format!("{letter}{x:.1} {y:.1}"));
        }
        field.push_str("\"/>\n");
    }
    framed(title, &field, across, down)
}

/// `value` in thousandths of `max`.
fn part(value: f64, max: f64) -> f64 {
    match max > 0.0 {
        true => 1000.0 * (value / max).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// A field of 1000 by 1000 units, at any size on screen, between its axes. The labels of the vertical axis
/// are inside the field.
pub fn framed(title: &str, field: &str, across: Scale<'_>, down: Scale<'_>) -> String {
    const HEIGHT: f64 = 300.0;
    const TOP: f64 = 16.0;
    let bottom = TOP + HEIGHT;
    let mut svg = Svg::new(bottom + AXIS, title);
    for (value, text) in across.ticks {
        let at = part(*value, across.max) / 10.0;
        svg.line("grid", (at, TOP), (at, bottom));
        svg.text("tick", at, bottom + 15.0, anchor(at), text);
    }
    for (value, text) in down.ticks {
        let at = bottom - part(*value, down.max) / 1000.0 * HEIGHT;
        svg.line("grid", (0.0, at), (100.0, at));
        svg.text("tick", 0.0, at - 3.0, "start", text);
    }
    svg.add(format_args!(
        "<svg x=\"0\" y=\"{TOP:.0}\" width=\"100%\" height=\"{HEIGHT:.0}\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n{field}</svg>\n"
    ));
    svg.finish()
}

/// Ticks from 0 to `max` at round steps, with labels made by `show`.
pub fn ticks(max: f64, show: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let axis = Axis {
        from: 0.0,
        to: max.max(1e-9),
        is_log: false,
    };
    let ticks = axis.ticks().into_iter();
    ticks.map(|tick| (tick, show(tick))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, values: &[f64]) -> Row {
        Row {
            name: name.to_owned(),
            figure: "<1>".to_owned(),
            whose: Whose::Brisk,
            values: values.to_vec(),
        }
    }

    #[test]
    fn quantiles_are_between_values() {
        let values = [1.0, 2.0, 3.0, 4.0];
        let table = [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (1.0, 4.0)];
        for (part, expected) in table {
            assert_eq!(quantile(&values, part), Some(expected), "{part}");
        }
        assert_eq!(quantile(&[7.0], 0.75), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn axes_have_few_round_ticks() {
        let axis = Axis::of([0.4, 1.7].into_iter());
        assert!(!axis.is_log);
        assert_eq!(axis.ticks().len(), 4);
        let axis = Axis::of([400.0, 6300.0].into_iter());
        assert!(axis.is_log);
        assert_eq!(axis.ticks(), [500.0, 1000.0, 2000.0, 5000.0]);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 100.0));
        for odd in [&[][..], &[0.0], &[f64::NAN, -1.0], &[f64::INFINITY]] {
            let axis = Axis::of(odd.iter().copied());
            assert_eq!(
                axis.ticks(),
                [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0],
                "{odd:?}"
            );
        }
    }

    #[test]
    fn pictures_hold_no_markup_of_names_and_no_odd_number() {
        let rows = [
            row("<a>", &[1.0, 2.0, 4.0]),
            row("b", &[]),
            row("c", &[0.0, f64::MAX]),
        ];
        let lines = Lines {
            reference: Some(1.5),
            floor: Some(0.5),
        };
        for picture in [
            box_plots("<t>", &rows, lines, "ms"),
            bars("<t>", &rows, "MB"),
            standalone(
                &[Plots {
                    heading: "<t>".to_owned(),
                    rows: rows.to_vec(),
                    lines: Lines::default(),
                }],
                "ms",
            ),
        ] {
            assert!(
                !picture.contains("<a>") && !picture.contains("<t>"),
                "{picture}"
            );
            assert!(
                !picture.contains("NaN") && !picture.contains("inf"),
                "{picture}"
            );
        }
    }
}
