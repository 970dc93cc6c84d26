//! Pictures of what a launch reads: where in the files, in which order, and how much by when.

use brisk_terminal::page::Page;

use super::chart::{Curve, Scale, curves, framed, short, ticks};
use crate::timeline::{Filling, Timeline, TouchedFile, TouchedRange};

/// Bytes in a page.
const PAGE: f64 = 4096.0;

/// How many of the largest files are labelled with their names.
const NAMED: usize = 6;

/// Adds pictures of `timeline`.
pub fn draw(page: &mut Page, timeline: &Timeline) {
    let count = timeline.touches.len();
    if count == 0 {
        return;
    }
    let stack = Stack::of(timeline);
    let mut paths = [String::new(), String::new()];
    let mut total = 0.0;
    let mut sums = vec![(0.0, 0.0)];
    let mut over_time = vec![(0.0, 0.0)];
    for (number, touch) in timeline.touches.iter().enumerate() {
        let x = 1000.0 * (number as f64 + 0.5) / count as f64;
        let Some((mark, bytes)) = stack.mark(touch, x) else {
            continue;
        };
        paths[touch.file as usize % 2].push_str(&mark);
        total += bytes;
        sums.push((number as f64 + 1.0, total));
        over_time.push((touch.at as f64 / 1000.0, total));
    }
    let field = format!(
        "<path class=\"touch\" d=\"{}\"/>\n<path class=\"touch odd\" d=\"{}\"/>\n",
        paths[0], paths[1]
    );
    let across = ticks(count as f64, short);
    let names = stack.names();
    let scale = Scale {
        ticks: &across,
        max: count as f64,
    };
    let down = Scale {
        ticks: &names,
        max: stack.height,
    };
    let left_out = match timeline.left_out {
        0 => String::new(),
        number => format!(" {number} later ranges are not shown."),
    };
    page.heading(3, "What is read, in order");
    page.figure(
        &framed("File offset over order of first touch", &field, scale, down),
        &format!(
            "Each mark is a range of pages that the launch asks for. From left to right: the order of \
             first touch. From top to bottom: the position in the {} files, {} MB together, in the order \
             of their first touch. Two colours alternate from file to file. The largest files are named \
             at their start.{left_out}",
            timeline.files.len(),
            megabytes(stack.height),
        ),
    );
    let bytes = bytes_axis(total);
    let down = Scale {
        ticks: &bytes,
        max: total,
    };
    page.heading(3, "How much is read");
    page.figure(
        &curves(
            "Cumulative bytes over order",
            &[Curve {
                points: thinned(sums),
                is_second: false,
            }],
            scale,
            down,
        ),
        &format!(
            "Bytes asked for up to each range: {} MB in {count} ranges.{left_out}",
            megabytes(total)
        ),
    );
    let last = over_time.last().map_or(0.0, |(at, _)| *at);
    if last > 0.0 {
        // With several runs, a median may be earlier than the one before it.
        let mut latest = 0.0_f64;
        for (at, _) in &mut over_time {
            latest = latest.max(*at);
            *at = latest;
        }
        let time = time_axis(latest);
        let scale = Scale {
            ticks: &time,
            max: latest,
        };
        page.figure(
            &curves(
                "Cumulative bytes over time",
                &[Curve {
                    points: thinned(over_time),
                    is_second: false,
                }],
                scale,
                down,
            ),
            "The same over the time of the recording. A recording takes longer than a launch, because \
             each page is asked for alone.",
        );
    }
}

/// Adds pictures of one launch whose fill or replay was recorded.
pub fn draw_filling(page: &mut Page, timeline: &Timeline, filling: &Filling) {
    let stack = Stack::of(timeline);
    let ready = filling.ready as f64 / 1000.0;
    let mut marks = [String::new(), String::new()];
    let mut sums = [vec![(0.0, 0.0)], vec![(0.0, 0.0)]];
    let mut totals = [0.0, 0.0];
    let ranges = [Some(&filling.stored), filling.waited.as_ref()];
    for (at, ranges) in ranges.into_iter().enumerate() {
        for range in ranges.into_iter().flatten() {
            let ms = range.at as f64 / 1000.0;
            let x = 1000.0 * (ms / ready.max(1e-3)).clamp(0.0, 1.0);
            let Some((mark, bytes)) = stack.mark(range, x) else {
                continue;
            };
            marks[at].push_str(&mark);
            totals[at] += bytes;
            sums[at].push((ms.min(ready), totals[at]));
        }
        sums[at].push((ready, totals[at]));
    }
    if totals == [0.0, 0.0] {
        return;
    }
    let [stored, waited] = marks;
    let field = format!(
        "<path class=\"touch\" d=\"{stored}\"/>\n<path class=\"touch odd\" d=\"{waited}\"/>\n"
    );
    let time = time_axis(ready);
    let across = Scale {
        ticks: &time,
        max: ready,
    };
    let names = stack.names();
    let down = Scale {
        ticks: &names,
        max: stack.height,
    };
    let is_fill = filling.waited.is_some();
    page.heading(
        3,
        match is_fill {
            true => "What is filled, and what is waited for",
            false => "What is replayed",
        },
    );
    if is_fill {
        page.html(
            "<p class=\"keys\"><span><i class=\"k-brisk\"></i>filled</span>\
             <span><i class=\"k-second\"></i>waited for</span></p>\n",
        );
    }
    let title = "File offset over time";
    let what = match is_fill {
        true => {
            "Blue: brisk put this into memory ahead of the program. Orange: the program waited for this, \
             or the kernel read it ahead along with that."
        }
        false => {
            "Blue: brisk asked the kernel to read this ahead of the program, except for what the program had \
             asked for already. What the program waited for is not known."
        }
    };
    let elsewhere = match filling.elsewhere {
        0 => String::new(),
        pages => format!(
            " The program also waited for {} MB of files that the profile does not have.",
            megabytes(pages as f64 * PAGE)
        ),
    };
    let left_out = match filling.left_out {
        0 => String::new(),
        number => format!(" {number} later events are not counted here."),
    };
    page.figure(
        &framed(title, &field, across, down),
        &format!(
            "One cold launch of {}, from its start until the program was ready after {ready:.0} ms. It is \
             not one of the timed launches. {what} The files are in the same order as above.{elsewhere}",
            filling.name
        ),
    );
    let [stored, waited] = totals;
    let most = stored.max(waited);
    let bytes = bytes_axis(most);
    let down = Scale {
        ticks: &bytes,
        max: most,
    };
    let mut second = false;
    let both = sums.map(|points| Curve {
        points: thinned(points),
        is_second: std::mem::replace(&mut second, true),
    });
    let (lines, up_to) = match is_fill {
        true => (
            &both[..],
            format!(
                "{} MB filled in all, and {} MB waited for (dashed)",
                megabytes(stored),
                megabytes(waited)
            ),
        ),
        false => (
            &both[..1],
            format!("{} MB were asked for in all", megabytes(stored)),
        ),
    };
    page.figure(
        &curves("Cumulative bytes over time", lines, across, down),
        &format!("Up to each moment: {up_to}.{left_out}"),
    );
}

/// The files of a timeline, one below the other.
struct Stack<'a> {
    files: &'a [TouchedFile],
    /// The vertical position at which each file starts.
    starts: Vec<f64>,
    height: f64,
}

impl<'a> Stack<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        let mut starts = Vec::with_capacity(timeline.files.len());
        let mut height = 0.0;
        for file in &timeline.files {
            starts.push(height);
            height += file.len as f64;
        }
        Self {
            files: &timeline.files,
            starts,
            height,
        }
    }

    /// A range as a vertical stroke at `x`, and its bytes. None if its file is not in the timeline.
    fn mark(&self, range: &TouchedRange, x: f64) -> Option<(String, f64)> {
        let file = range.file as usize;
        let (start, len) = (self.starts.get(file)?, self.files.get(file)?.len as f64);
        let bytes = (range.count as f64 * PAGE).min(len);
        let y = |offset: f64| 1000.0 * (start + offset.min(len)) / self.height.max(1.0);
        let from = y(range.first as f64 * PAGE);
        // At least as long as a dot.
        let long = (y(range.first as f64 * PAGE + bytes) - from).max(2.0);
        Some((format!("M{x:.1} {from:.1}v{long:.1}"), bytes))
    }

    /// Where to write the names of the largest files. Names that would overlap are left out.
    fn names(&self) -> Vec<(f64, String)> {
        let mut largest: Vec<_> = self.files.iter().zip(&self.starts).collect();
        largest.sort_by_key(|(file, _)| std::cmp::Reverse(file.len));
        largest.truncate(NAMED);
        // From top to bottom: the first file is at the top.
        largest.sort_by(|a, b| a.1.total_cmp(b.1));
        let mut names: Vec<(f64, String)> = Vec::new();
        for (file, start) in largest {
            let at = self.height - start;
            let far = names
                .last()
                .is_none_or(|(last, _)| last - at > self.height / 16.0);
            if far {
                names.push((at, name_of(&file.path)));
            }
        }
        names
    }
}

/// The axis from 0 to `ms`.
fn time_axis(ms: f64) -> Vec<(f64, String)> {
    let mut time = ticks(ms, short);
    if let Some((_, text)) = time.first_mut() {
        text.push_str(" ms");
    }
    time
}

/// The axis from 0 to `bytes`. The label at 0 is empty.
fn bytes_axis(bytes: f64) -> Vec<(f64, String)> {
    let ticks = ticks(bytes / 1e6, |value| match value {
        0.0 => String::new(),
        _ => format!("{} MB", short(value)),
    });
    let ticks = ticks.into_iter();
    ticks.map(|(at, text)| (at * 1e6, text)).collect()
}

/// No more points than a screen can show.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(1000).max(1);
    let last = points.len().saturating_sub(1);
    let points = points.into_iter().enumerate();
    let kept = points.filter(|(number, _)| number % step == 0 || *number == last);
    kept.map(|(_, point)| point).collect()
}

/// The last name of a path, which says most.
fn name_of(path: &str) -> String {
    const MOST: usize = 40;
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let timeline: Timeline = serde_json::from_value(serde_json::json!({
            "files": [{"path": "a", "len": 600_000}],
            "touches": ["0 0 147 1000"],
            "left_out": 0,
        }))
        .unwrap();
        let mut page = Page::default();
        draw(&mut page, &timeline);
        let html = page.finish("t");
        for text in ["0.2 MB", "0.4 MB", "0.6 MB", "0.2", "0.8"] {
            assert!(html.contains(&format!(">{text}</text>")), "{text}: {html}");
        }
    }

    #[test]
    fn what_is_filled_stands_beside_what_is_waited_for() {
        let timeline: Timeline = serde_json::from_value(serde_json::json!({
            "files": [{"path": "a", "len": 40_960}], "touches": [], "left_out": 0,
        }))
        .unwrap();
        let mut filling: Filling = serde_json::from_value(serde_json::json!({
            "name": "brisk-<b>", "ready": 2000,
            "stored": ["0 0 5 500", "0 5 1 1500", "7 0 1 0"], "waited": ["0 8 2 9000"],
            "elsewhere": 256, "left_out": 9,
        }))
        .unwrap();
        let mut page = Page::default();
        draw_filling(&mut page, &timeline, &filling);
        let html = page.finish("t");
        for part in [
            "class=\"touch\" d=\"M250.0 0.0v500.0M750.0 500.0v100.0\"",
            // At the end of the axis, because it came after the end.
            "class=\"touch odd\" d=\"M1000.0 800.0v200.0\"",
            "brisk-&lt;b&gt;",
            "after 2 ms",
            "also waited for 1.0 MB of files",
            "waited for (dashed). 9 later events are not counted",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        filling.waited = None;
        let mut replayed = Page::default();
        draw_filling(&mut replayed, &timeline, &filling);
        let html = replayed.finish("t");
        assert!(
            html.contains("What is replayed") && html.contains("0.0 MB were asked for"),
            "{html}"
        );
        assert!(!html.contains("touch odd\" d=\"M"), "{html}");
        filling.stored = Vec::new();
        let mut none = Page::default();
        draw_filling(&mut none, &timeline, &filling);
        assert!(!none.finish("t").contains("<svg"));
    }

    #[test]
    fn every_range_is_a_mark_and_odd_ones_do_no_harm() {
        let timeline: Timeline = serde_json::from_value(serde_json::json!({
            "files": [{"path": "a/<b>", "len": 40_960}, {"path": "", "len": 0}],
            "touches": [
                "0 3 2 1000", "1 0 1 500", "9 0 1 0",
                "0 18446744073709551615 18446744073709551615 18446744073709551615",
            ],
            "left_out": 7,
        }))
        .unwrap();
        let mut page = Page::default();
        draw(&mut page, &timeline);
        let html = page.finish("t");
        assert_eq!(html.matches("class=\"touch").count(), 2);
        let marks = html.split("class=\"touch\" d=\"").nth(1).unwrap();
        assert!(
            marks.starts_with("M125.0 300.0v200.0M875.0 1000.0v"),
            "{marks}"
        );
        assert!(html.contains("&lt;b&gt;"));
        // Under the marks, and under their sums.
        assert_eq!(html.matches(" 7 later ranges are not shown").count(), 2);
        assert!(!html.contains("NaN") && !html.contains("inf\""));
        let mut none = Page::default();
        draw(&mut none, &Timeline::default());
        assert!(!none.finish("t").contains("<svg"));
    }
}
