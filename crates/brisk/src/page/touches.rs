//! Pictures of what a launch asks for: where in files, in which order, and how much by when.

use super::Page;
use super::chart::{Curve, Scale, curves, framed, short, ticks};
use crate::timeline::{Filling, Timeline, TouchedFile, TouchedRange};

/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// Of how many of the largest files the names are given.
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
        number => format!(" {number} ranges more are behind the last that is shown."),
    };
    page.heading(3, "What is read, in order");
    page.figure(
        &framed("File offset over order of first touch", &field, scale, down),
        &format!(
            "Each mark is a range of pages that the launch asks for: across, its place in the order \
             of first touch; down, where it is in the {} files, which stand one below the other as \
             they are first touched, {} MB together. The colours change with the file. A name stands at \
             the start of each of the largest.{left_out}",
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
        // Of several runs, a median may be before the one before it.
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
            "The same over the time of the recording, which takes longer than a launch: each page is \
             asked for one by one.",
        );
    }
}

/// Adds pictures of one launch whose fill or replay was watched.
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
            "Blue is what was put into memory ahead of the program, orange what the program waited for, \
             with what the kernel read ahead of it."
        }
        false => {
            "Blue is what the kernel was asked to read ahead of the program. What the program had asked for \
             before is not, and what it waited for is not known."
        }
    };
    let elsewhere = match filling.elsewhere {
        0 => String::new(),
        pages => format!(
            " {} MB more were waited for of files that the profile has not.",
            megabytes(pages as f64 * PAGE)
        ),
    };
    let left_out = match filling.left_out {
        0 => String::new(),
        number => format!(
            " {number} times more something was read ahead or waited for, later than what is counted here."
        ),
    };
    page.figure(
        &framed(title, &field, across, down),
        &format!(
            "One cold launch of {}, from its start until the program was ready after {ready:.0} ms; it is \
             none of those that were timed. {what} The files stand one below the other as above.{elsewhere}",
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
                "{} MB were filled in all, and {} MB waited for (dashed)",
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

/// Files that stand one below the other.
struct Stack<'a> {
    files: &'a [TouchedFile],
    /// Where each begins.
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

    /// A range as a stroke of a path at `x`, and its bytes; none of a file that is not there.
    fn mark(&self, range: &TouchedRange, x: f64) -> Option<(String, f64)> {
        let file = range.file as usize;
        let (start, len) = (self.starts.get(file)?, self.files.get(file)?.len as f64);
        let bytes = (range.count as f64 * PAGE).min(len);
        let y = |offset: f64| 1000.0 * (start + offset.min(len)) / self.height.max(1.0);
        let from = y(range.first as f64 * PAGE);
        // At least as long as a point.
        let long = (y(range.first as f64 * PAGE + bytes) - from).max(2.0);
        Some((format!("M{x:.1} {from:.1}v{long:.1}"), bytes))
    }

    /// Where the largest are. Names that would stand on each other are left out.
    fn names(&self) -> Vec<(f64, String)> {
        let mut largest: Vec<_> = self.files.iter().zip(&self.starts).collect();
        largest.sort_by_key(|(file, _)| std::cmp::Reverse(file.len));
        largest.truncate(NAMED);
        // Down from the top: the first file is there.
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

/// From 0 to `ms`.
fn time_axis(ms: f64) -> Vec<(f64, String)> {
    let mut time = ticks(ms, short);
    if let Some((_, text)) = time.first_mut() {
        text.push_str(" ms");
    }
    time
}

/// From 0 to `bytes`, which says nothing at 0.
fn bytes_axis(bytes: f64) -> Vec<(f64, String)> {
    let ticks = ticks(bytes / 1e6, |value| match value {
        0.0 => String::new(),
        _ => format!("{} MB", short(value)),
    });
    let ticks = ticks.into_iter();
    ticks.map(|(at, text)| (at * 1e6, text)).collect()
}

/// As many points as a screen can show.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(1000).max(1);
    let last = points.len().saturating_sub(1);
    let points = points.into_iter().enumerate();
    let kept = points.filter(|(number, _)| number % step == 0 || *number == last);
    kept.map(|(_, point)| point).collect()
}

/// The end of a path, which says most.
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
            // At the end, as it came behind it.
            "class=\"touch odd\" d=\"M1000.0 800.0v200.0\"",
            "brisk-&lt;b&gt;",
            "after 2 ms",
            " 1.0 MB more were waited for",
            "waited for (dashed). 9 times more something was read ahead",
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
        assert_eq!(
            html.matches(" 7 ranges more are behind the last").count(),
            2
        );
        assert!(!html.contains("NaN") && !html.contains("inf\""));
        let mut none = Page::default();
        draw(&mut none, &Timeline::default());
        assert!(!none.finish("t").contains("<svg"));
    }
}
