//! Answers to questions about codecs, and about the parts of a replay and a fill, from what was measured.

use super::format::Format;
use super::recipe::Recipe;
use super::results::{AppResults, Figure, Kind, Row};
use super::statistics::Ratio;

/// How many runs of each side a comparison needs. With three of each, ranges are apart by chance one time in
/// ten, and intervals are too narrow to be believed.
pub const ENOUGH: usize = 4;

/// The remark for results with fewer runs.
pub fn too_few(runs: usize) -> &'static str {
    match runs {
        ..ENOUGH => " These are too few to tell two results apart: their intervals are too narrow.",
        _ => "",
    }
}

/// Which of two is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    First,
    Second,
    NotClear,
}

impl Verdict {
    /// What the ratio of the first to the second says. Each had at least this many runs.
    pub fn of(ratio: Ratio, runs: usize) -> Self {
        match ratio {
            _ if runs < ENOUGH => Self::NotClear,
            Ratio { high, .. } if high < 1.0 => Self::First,
            Ratio { low, .. } if low > 1.0 => Self::Second,
            _ => Self::NotClear,
        }
    }
}

/// A question, and its answer: one sentence for each pair of images.
#[derive(Debug)]
pub struct Answer {
    pub question: &'static str,
    pub sentences: Vec<String>,
}

impl Answer {
    /// The questions that have an answer.
    pub fn given(all: impl IntoIterator<Item = (&'static str, Vec<String>)>) -> Vec<Self> {
        let all = all.into_iter().map(|(question, sentences)| Self {
            question,
            sentences,
        });
        all.filter(|answer| !answer.sentences.is_empty()).collect()
    }
}

/// An image whose name says which options it has.
struct Packed<'a> {
    recipe: Recipe,
    row: &'a Row,
}

/// The questions about parts. For each, pairs of names: without the part or with another choice, and with it.
const PARTS: [(&str, &[(&str, &str)]); 6] = [
    (
        "What does the fill gain, and what does a replay gain?",
        &[("brisk", "brisk-speed"), ("directory", "directory-replay")],
    ),
    (
        "What do look-ups ahead gain?",
        &[
            ("brisk-speed-pages", "brisk-speed"),
            ("directory-replay-pages", "directory-replay"),
        ],
    ),
    (
        "What do look-ups gain alone?",
        &[
            ("brisk", "brisk-speed-names"),
            ("directory", "directory-replay-names"),
        ],
    ),
    (
        "Are exact pages better than whole blocks?",
        &[
            ("brisk-speed-blocks", "brisk-speed"),
            ("directory-replay-blocks", "directory-replay"),
        ],
    ),
    (
        "How many threads should replay?",
        &[
            ("directory-replay-1-thread", "directory-replay"),
            ("directory-replay", "directory-replay-8-threads"),
        ],
    ),
    (
        "Does a second thread fill faster?",
        &[("brisk-speed-1-thread", "brisk-speed")],
    ),
];

/// Whether these results compare codecs.
pub fn is_of_codecs(app: &AppResults) -> bool {
    app.rows.iter().any(|row| packed(row).is_some())
}

fn packed(row: &Row) -> Option<Packed<'_>> {
    let recipe = row.format.parse().ok()?;
    Some(Packed { recipe, row })
}

/// The answers that the rows of `app` give.
pub fn of(app: &AppResults) -> Vec<Answer> {
    let answers = of_codecs(app).into_iter().chain(of_parts(app));
    answers
        .filter(|answer| !answer.sentences.is_empty())
        .collect()
}

/// What each part of a replay and of a fill gains. Empty if no part was left out.
fn of_parts(app: &AppResults) -> Vec<Answer> {
    let is_ablated = |row: &Row| {
        let format: Option<Format> = row.format.parse().ok();
        format.is_some_and(|format| format.change().is_some())
    };
    if !app.rows.iter().any(is_ablated) {
        return Vec::new();
    }
    let find = |name: &str| app.rows.iter().find(|row| row.name == name);
    let sentence = |(without, with): &(&str, &str)| {
        let (a, b) = (find(without)?, find(with)?);
        let runs = runs_of(app, [a, b], Kind::Cold);
        Some(format!(
            "A cold launch of {with} takes {} of {without}.",
            times(a.cold?, b.cold?, runs)
        ))
    };
    let answers = PARTS.iter().map(|(question, pairs)| Answer {
        question,
        sentences: pairs.iter().filter_map(sentence).collect(),
    });
    answers.collect()
}

/// How many runs of this kind both rows have.
fn runs_of(app: &AppResults, rows: [&Row; 2], kind: Kind) -> usize {
    let [a, b] = rows.map(|row| app.runs_of(&row.name, kind).count());
    a.min(b)
}

/// The answers about codecs. Empty if no codecs were compared.
fn of_codecs(app: &AppResults) -> Vec<Answer> {
    let packed: Vec<_> = app.rows.iter().filter_map(packed).collect();
    let find = |recipe: Recipe| packed.iter().find(|packed| packed.recipe == recipe);
    let pairs = |pairs: &[(Recipe, Recipe)]| -> Vec<String> {
        let found = pairs
            .iter()
            .filter_map(|(a, b)| Some((find(*a)?, find(*b)?)));
        found.map(|(a, b)| compared(app, a, b)).collect()
    };
    // The lowest and the highest level, with default options.
    let ends = |codec: &str| -> Vec<String> {
        let plain = packed.iter().filter(|packed| {
            let Recipe { codec, level, .. } = packed.recipe;
            packed.recipe == Recipe::new(codec, level)
        });
        let mut levels: Vec<_> = plain
            .filter(|packed| packed.recipe.codec == codec)
            .collect();
        levels.sort_by_key(|packed| packed.recipe.level);
        match &*levels {
            [low, .., high] => vec![compared(app, low, high)],
            _ => Vec::new(),
        }
    };
    let xz = Recipe::new("xz", Some(6));
    let zstd = Recipe::new("zstd", Some(15));
    let large = |recipe: Recipe| Recipe {
        block: 1 << 20,
        ..recipe
    };
    let dict = |recipe: Recipe, bytes| Recipe {
        dict: Some(bytes),
        ..recipe
    };
    let answers = [
        (
            "What does zstd cost, compared with xz?",
            pairs(&[(xz, zstd)]),
        ),
        ("Does a lower preset of xz decode faster?", ends("xz")),
        (
            "Does a smaller dictionary of xz decode faster?",
            pairs(&[
                (xz, dict(xz, 32 << 10)),
                (large(xz), dict(large(xz), 128 << 10)),
            ]),
        ),
        (
            "Is the branch filter of xz worth it?",
            pairs(&[(xz, Recipe { bcj: true, ..xz })]),
        ),
        (
            "What do larger blocks change?",
            pairs(&[(xz, large(xz)), (zstd, large(zstd))]),
        ),
        ("Does a higher level of zstd decode slower?", ends("zstd")),
        ("What do the levels of gzip change?", ends("gzip")),
        ("What do the levels of lzo change?", ends("lzo")),
        ("What does the slow mode of lz4 change?", ends("lz4")),
        (
            "Is lz4 the fastest to read?",
            pairs(&[(zstd, Recipe::new("lz4", Some(12)))]),
        ),
    ];
    let answers = answers.into_iter().map(|(question, sentences)| Answer {
        question,
        sentences,
    });
    answers.collect()
}

/// `b` compared with `a`.
fn compared(app: &AppResults, a: &Packed<'_>, b: &Packed<'_>) -> String {
    let size = b.row.bytes as f64 / a.row.bytes.max(1) as f64;
    let size = match (size - 1.0) * 100.0 {
        more if more >= 0.05 => format!("{more:.1} % larger"),
        less if less <= -0.05 => format!("{:.1} % smaller", -less),
        _ => "of the same size".to_owned(),
    };
    let mut said = format!("{} is {size} than {}", b.recipe, a.recipe);
    if size == "of the same size" {
        said = format!("{} is {size} as {}", b.recipe, a.recipe);
    }
    if a.row.build_seconds > 0.0 {
        let times = b.row.build_seconds / a.row.build_seconds;
        said += &format!(", is packed in {times:.2} of the time");
    }
    for (what, kind) in [
        ("walked cold", Kind::Walk),
        ("launched cold", Kind::Cold),
        ("launched warm", Kind::Warm),
    ] {
        let [ours, theirs] = [a, b].map(|packed| packed.row.figure(kind));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let runs = runs_of(app, [a.row, b.row], kind);
            said += &format!(", and is {what} in {}", times(ours, theirs, runs));
        }
    }
    said + "."
}

/// `b` compared with `a`. Each has this many runs.
fn times(a: Figure, b: Figure, runs: usize) -> String {
    let (a, b) = (a.seconds, b.seconds);
    let ms = |seconds: f64| seconds * 1e3;
    let ratio = b.median / a.median;
    let sure = match (b.max < a.min || a.max < b.min, runs) {
        (false, _) => ": the ranges overlap, so the runs do not tell them apart".to_owned(),
        (true, 1) => ": one run of each is too few to tell them apart for certain".to_owned(),
        (true, ..ENOUGH) => {
            format!(": {runs} runs of each are too few to tell them apart for certain")
        }
        (true, _) => String::new(),
    };
    format!(
        "{ratio:.2} of the time ({:.0} to {:.0} ms against {:.0} to {:.0}{sure})",
        ms(b.min),
        ms(b.max),
        ms(a.min),
        ms(a.max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Measured, Run};
    use crate::statistics::Spread;

    fn row(name: &str, bytes: u64, build_seconds: f64, walks: &[f64]) -> Row {
        let spread = Spread::of(walks);
        Row {
            name: name.to_owned(),
            format: name.to_owned(),
            training: None,
            bytes,
            bytes_to_squashfs_zstd: None,
            build_seconds,
            built_by: Vec::new(),
            launched_by: Vec::new(),
            cold: None,
            warm: None,
            resident: None,
            walk: spread.map(|seconds| Figure {
                seconds,
                to_directory: None,
            }),
            cached_bytes: None,
            share_gone: None,
            share_of_bound: None,
        }
    }

    /// The results of these images: their names, bytes, seconds to pack, and seconds of walks.
    fn app(images: &[(&str, u64, f64, &[f64])]) -> AppResults {
        let rows = images.iter();
        let rows = rows.map(|(name, bytes, build, walks)| row(name, *bytes, *build, walks));
        let runs = images.iter().flat_map(|(name, _, _, walks)| {
            walks.iter().map(|seconds| Run {
                contender: 0,
                name: (*name).to_owned(),
                repetition: 0,
                place: 0,
                measured: Measured {
                    kind: Kind::Walk,
                    seconds: *seconds,
                    read_bytes: None,
                    cached_bytes: None,
                    attempt: None,
                },
            })
        });
        let words = serde_json::json!({
            "app": {
                "name": "a", "tree": "/a", "at": "/a", "command": ["a"], "train": [], "env": {},
                "binds": [], "ready": "exit", "prints": null, "prints_exactly": null,
                "home": "fresh",
            },
            "tree_files": 1, "tree_bytes": 1, "recorded": [], "rows": [], "runs": [],
        });
        AppResults {
            rows: rows.collect(),
            runs: runs.collect(),
            ..serde_json::from_value(words).unwrap()
        }
    }

    #[test]
    fn answers_are_made_of_the_figures() {
        let answers = of(&app(&[
            ("directory", 1000, 0.0, &[1.0]),
            ("xz 0", 200, 2.0, &[4.0, 4.2, 4.1, 4.1]),
            ("xz 6", 160, 6.0, &[4.0, 4.1, 3.9, 4.0]),
            ("zstd 15", 176, 3.0, &[1.0, 1.025, 1.025, 1.1]),
        ]));
        let texts: Vec<_> = answers
            .iter()
            .map(|answer| (answer.question, answer.sentences.join(" ")))
            .collect();
        assert_eq!(
            texts,
            [
                (
                    "What does zstd cost, compared with xz?",
                    "zstd 15 is 10.0 % larger than xz 6, is packed in 0.50 of the time, and is \
                     walked cold in 0.26 of the time (1000 to 1100 ms against 3900 to 4100)."
                        .to_owned()
                ),
                (
                    "Does a lower preset of xz decode faster?",
                    "xz 6 is 20.0 % smaller than xz 0, is packed in 3.00 of the time, and is \
                     walked cold in 0.98 of the time (3900 to 4100 ms against 4000 to 4200: the \
                     ranges overlap, so the runs do not tell them apart)."
                        .to_owned()
                ),
            ]
        );
        assert!(of(&app(&[("squashfs-zstd", 1, 1.0, &[1.0])])).is_empty());
    }

    #[test]
    fn what_a_part_brings_is_said_where_it_was_left_out() {
        let images = [
            ("brisk", 9, 1.0, &[1.5; 4][..]),
            ("brisk-speed", 9, 1.0, &[0.75; 4]),
            ("brisk-speed-pages", 9, 1.0, &[0.7, 0.8, 0.9, 0.8]),
        ];
        let launched = |images: &[(&str, u64, f64, &[f64])]| {
            let mut app = app(images);
            app.rows
                .iter_mut()
                .for_each(|row| row.cold = row.walk.take());
            let runs = app.runs.iter_mut();
            runs.for_each(|run| run.measured.kind = Kind::Cold);
            app
        };
        let app = launched(&images);
        assert!(!is_of_codecs(&app));
        let texts: Vec<_> = of(&app)
            .into_iter()
            .map(|a| a.sentences.join(" "))
            .collect();
        assert_eq!(
            texts,
            [
                "A cold launch of brisk-speed takes 0.50 of the time (750 to 750 ms against 1500 to 1500) \
                 of brisk.",
                "A cold launch of brisk-speed takes 0.94 of the time (750 to 750 ms against 700 to 900: the \
                 ranges overlap, so the runs do not tell them apart) of brisk-speed-pages.",
            ]
        );
        assert!(of(&launched(&images[..2])).is_empty());
    }

    #[test]
    fn few_runs_are_said_to_be_few() {
        let table: [(&[f64], &str); 3] = [
            (
                &[1.0],
                ": one run of each is too few to tell them apart for certain).",
            ),
            (
                &[1.0; 3],
                ": 3 runs of each are too few to tell them apart for certain).",
            ),
            (&[1.0; 4], "against 4000 to 4000)."),
        ];
        for (fast, end) in table {
            let slow: Vec<_> = fast.iter().map(|seconds| seconds * 4.0).collect();
            let app = app(&[("xz 6", 9, 1.0, &slow), ("zstd 15", 9, 1.0, fast)]);
            let sentences = of(&app).remove(0).sentences;
            assert!(sentences[0].ends_with(end), "{sentences:?}");
        }
    }
}
