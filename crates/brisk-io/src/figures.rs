/*!
What loading costs on this machine, as `brisk lab load --save` has measured it.

A file of figures is text. Its first line is `brisk load figures 1`; lines that begin with `#` are remarks;
every other line is one figure:

```text
LEN STATE PROCESSES TOUCH BY FORM STRATEGY NANOSECONDS
26214400 resident 1 all caller shared populated-map 2400000
```
*/

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::fs::OFlags;

use crate::{By, Form, Need, Strategy, Touch, cache_home};

/// The first line of a file of figures.
const HEADER: &str = "brisk load figures 1";

/// A file of figures that is larger is none.
const MOST: u64 = 1 << 20;

/// What a figure was measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Situation {
    /// Bytes that are loaded.
    pub len: u64,
    /// Whether all of them were in the page cache before.
    pub resident: bool,
    /// What for.
    pub need: Need,
}

/// How long loading, using and giving back took, by situation and [`Strategy`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadFigures {
    /// By what has to be the same (residency, touch, by, form), then by length and processes.
    groups: BTreeMap<[&'static str; 4], Group>,
}

/// Nanoseconds of strategies, by length and processes.
type Group = BTreeMap<(u64, usize), Vec<(Strategy, u64)>>;

impl LoadFigures {
    /// Takes in that `strategy` took so many nanoseconds. What was said of both before is replaced.
    pub fn insert(&mut self, situation: Situation, strategy: Strategy, nanoseconds: u64) {
        let group = self.groups.entry(key(&situation)).or_default();
        let place = (situation.len, situation.need.processes);
        let figures = group.entry(place).or_default();
        figures.retain(|(known, _)| *known != strategy);
        figures.push((strategy, nanoseconds));
        figures.sort_by_key(|&(strategy, nanoseconds)| (nanoseconds, strategy));
    }

    /// The strategies that were measured in the situation that is most like this one, the fastest first,
    /// with nanoseconds; and that situation. None if no figure was measured for such a need at all.
    pub fn nearest(&self, situation: Situation) -> Option<(Situation, &[(Strategy, u64)])> {
        let group = self.groups.get(&key(&situation))?;
        // Eight times the length is as far away as eight times the processes.
        let distance = |&(len, processes): &(u64, usize)| {
            let octaves = |a: u64, b: u64| ((a.max(1) as f64) / (b.max(1) as f64)).log2().abs();
            let processes = octaves(processes as u64, situation.need.processes as u64);
            octaves(len, situation.len) + processes
        };
        let nearest = group
            .iter()
            .min_by(|(a, _), (b, _)| distance(a).total_cmp(&distance(b)));
        nearest.map(|(&(len, processes), figures)| {
            let need = Need {
                processes,
                ..situation.need
            };
            let measured = Situation {
                len,
                need,
                ..situation
            };
            (measured, figures.as_slice())
        })
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Where the figures of this machine are kept: `$XDG_CACHE_HOME/brisk/load-figures`, else
    /// `~/.cache/brisk/load-figures`; none if neither variable is the path of a directory.
    pub fn path() -> Option<PathBuf> {
        Some(cache_home()?.join("brisk/load-figures"))
    }

    /// The figures at [`LoadFigures::path`], read once in the life of the process; no figures if there is
    /// no such file.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn of_this_machine() -> Result<&'static Self, &'static LoadFiguresError> {
        static READ: OnceLock<Result<LoadFigures, LoadFiguresError>> = OnceLock::new();
        let read = || match LoadFigures::path() {
            Some(path) => Self::read(&path),
            None => Ok(Self::default()),
        };
        READ.get_or_init(read).as_ref()
    }

    /// Those in this file; none if there is no such file.
    fn read(path: &Path) -> Result<Self, LoadFiguresError> {
        let with_path = |problem| LoadFiguresError {
            path: Some(path.to_owned()),
            problem,
        };
        let unreadable = |e| with_path(Problem::Io(e));
        // A named pipe would have the open wait.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(unreadable(e)),
        };
        let mut text = String::new();
        let read = file.take(MOST + 1).read_to_string(&mut text);
        if read.map_err(unreadable)? as u64 > MOST {
            return Err(with_path(Problem::Long));
        }
        text.parse()
            .map_err(|e: LoadFiguresError| with_path(e.problem))
    }
}

fn key(situation: &Situation) -> [&'static str; 4] {
    let need = situation.need;
    [
        if situation.resident { RESIDENT } else { ABSENT },
        name_of(&TOUCHES, need.touch),
        name_of(&BYS, need.by),
        name_of(&FORMS, need.form),
    ]
}

const RESIDENT: &str = "resident";
const ABSENT: &str = "absent";
const TOUCHES: [(&str, Touch); 4] = [
    ("all", Touch::All),
    ("part", Touch::Part),
    ("random", Touch::Random),
    ("few", Touch::Few),
];
const BYS: [(&str, By); 2] = [("caller", By::Caller), ("others", By::Others)];
const FORMS: [(&str, Form); 3] = [
    ("shared", Form::Shared),
    ("patched", Form::Patched),
    ("copied", Form::Copied),
];

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    let known = names.iter().find(|(_, known)| *known == value);
    known.map_or("", |(name, _)| name)
}

impl fmt::Display for LoadFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        writeln!(
            f,
            "# length state processes touch by form strategy nanoseconds"
        )?;
        for ([state, touch, by, form], group) in &self.groups {
            for ((len, processes), figures) in group {
                for (strategy, nanoseconds) in figures {
                    writeln!(
                        f,
                        "{len} {state} {processes} {touch} {by} {form} {strategy} {nanoseconds}"
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with a file of figures.
#[derive(Debug)]
pub struct LoadFiguresError {
    path: Option<PathBuf>,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Io(io::Error),
    Long,
    Header(String),
    Fields {
        line: usize,
        found: usize,
    },
    Field {
        line: usize,
        field: &'static str,
        found: String,
        allowed: String,
    },
}

impl fmt::Display for LoadFiguresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        match &self.problem {
            Problem::Io(_) => f.write_str("cannot be read"),
            Problem::Long => write!(
                f,
                "it has more than {MOST} bytes, and figures have at most so many"
            ),
            Problem::Header(found) => {
                write!(f, "line 1: found {}, allowed is {HEADER:?}", Quoted(found))
            }
            Problem::Fields { line, found } => {
                write!(f, "line {line}: found {found} fields, allowed are 8")
            }
            Problem::Field {
                line,
                field,
                found,
                allowed,
            } => {
                write!(
                    f,
                    "line {line}: {field}: found {}, allowed is {allowed}",
                    Quoted(found)
                )
            }
        }?;
        f.write_str("; measure again with brisk lab load --save")
    }
}

impl std::error::Error for LoadFiguresError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(e) => Some(e),
            _ => None,
        }
    }
}

/// Text of a file, as much of it as a message takes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars().take(40) {
            write!(f, "{}", c.escape_debug())?;
        }
        f.write_char('"')
    }
}

impl FromStr for LoadFigures {
    type Err = LoadFiguresError;

    fn from_str(text: &str) -> Result<Self, LoadFiguresError> {
        let wrong = |problem| LoadFiguresError {
            path: None,
            problem,
        };
        let mut lines = text.lines().zip(1..);
        let header = lines.next().map_or("", |(line, _)| line);
        if header != HEADER {
            return Err(wrong(Problem::Header(header.to_owned())));
        }
        let mut figures = Self::default();
        for (line, number) in lines {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            let [len, state, processes, touch, by, form, strategy, time] = fields[..] else {
                return Err(wrong(Problem::Fields {
                    line: number,
                    found: fields.len(),
                }));
            };
            let field = |field, found: &str, allowed: String| {
                wrong(Problem::Field {
                    line: number,
                    field,
                    found: found.to_owned(),
                    allowed,
                })
            };
            let count = |name, text: &str| {
                let count = text.parse::<u64>().ok().filter(|&n| n > 0);
                count.ok_or_else(|| field(name, text, "a number from 1".to_owned()))
            };
            let need = Need {
                touch: value_of(&TOUCHES, touch).map_err(|a| field("touch", touch, a))?,
                by: value_of(&BYS, by).map_err(|a| field("by", by, a))?,
                form: value_of(&FORMS, form).map_err(|a| field("form", form, a))?,
                processes: usize::try_from(count("processes", processes)?).unwrap_or(usize::MAX),
            };
            let states = [(RESIDENT, true), (ABSENT, false)];
            let situation = Situation {
                len: count("length", len)?,
                resident: value_of(&states, state).map_err(|a| field("state", state, a))?,
                need,
            };
            let strategy = strategy.parse().map_err(|_| {
                let names = Strategy::ALL.map(Strategy::name).join(", ");
                field("strategy", strategy, format!("one of {names}"))
            })?;
            figures.insert(situation, strategy, count("nanoseconds", time)?);
        }
        Ok(figures)
    }
}

/// The value with this name, or the names that there are.
fn value_of<T: Copy>(names: &[(&str, T)], name: &str) -> Result<T, String> {
    let known = names.iter().find(|(known, _)| *known == name);
    known.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|&(name, _)| name).collect();
        format!("one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(len: u64, processes: usize) -> Situation {
        Situation {
            len,
            resident: true,
            need: Need {
                processes,
                ..Need::default()
            },
        }
    }

    #[test]
    fn figures_are_read_as_they_are_written() {
        let mut figures = LoadFigures::default();
        figures.insert(situation(100, 1), Strategy::Read, 70);
        figures.insert(situation(100, 1), Strategy::SharedMap, 90);
        figures.insert(situation(100, 1), Strategy::SharedMap, 60);
        let absent = Situation {
            resident: false,
            need: Need {
                touch: Touch::Random,
                by: By::Others,
                form: Form::Patched,
                processes: 8,
            },
            ..situation(5, 8)
        };
        figures.insert(absent, Strategy::UringDirect, 1);
        let text = figures.to_string();
        assert_eq!(
            text,
            "brisk load figures 1\n\
             # length state processes touch by form strategy nanoseconds\n\
             5 absent 8 random others patched uring-direct 1\n\
             100 resident 1 all caller shared shared-map 60\n\
             100 resident 1 all caller shared read 70\n"
        );
        assert_eq!(text.parse::<LoadFigures>().unwrap(), figures);
    }

    #[test]
    fn the_nearest_situation_counts() {
        let mut figures = LoadFigures::default();
        for (len, processes, time) in [(1 << 20, 1, 1), (1 << 24, 1, 2), (1 << 24, 8, 3)] {
            figures.insert(situation(len, processes), Strategy::Read, time);
        }
        let time = |len, processes| {
            let (_, figures) = figures.nearest(situation(len, processes)).unwrap();
            figures[0].1
        };
        assert_eq!(time(1, 1), 1);
        assert_eq!(time(1 << 21, 1), 1);
        assert_eq!(time(1 << 23, 1), 2);
        assert_eq!(time(1 << 40, 100), 3);
        let absent = Situation {
            resident: false,
            ..situation(1 << 20, 1)
        };
        assert_eq!(figures.nearest(absent), None);
    }

    #[test]
    fn a_file_that_is_absent_or_no_file_of_figures_is_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("figures");
        assert!(LoadFigures::read(&path).unwrap().is_empty());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let message = |path: &Path| LoadFigures::read(path).unwrap_err().to_string();
        let again = "; measure again with brisk lab load --save";
        let told = format!("{}: ", path.display());
        assert_eq!(
            message(&path),
            format!("{told}line 1: found \"\", allowed is \"{HEADER}\"{again}")
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, vec![b'#'; MOST as usize + 1]).unwrap();
        assert_eq!(
            message(&path),
            format!(
                "{told}it has more than 1048576 bytes, and figures have at most so many{again}"
            )
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let message = |text: &str| text.parse::<LoadFigures>().unwrap_err().to_string();
        let again = "; measure again with brisk lab load --save";
        let first = format!("{HEADER}\n");
        for (text, expected) in [
            (
                String::new(),
                "line 1: found \"\", allowed is \"brisk load figures 1\"",
            ),
            (
                first.clone() + "\n# x\n1 2\n",
                "line 4: found 2 fields, allowed are 8",
            ),
            (
                first.clone() + "0 resident 1 all caller shared read 1",
                "line 2: length: found \"0\", allowed is a number from 1",
            ),
            (
                first.clone() + "1 warm 1 all caller shared read 1",
                "line 2: state: found \"warm\", allowed is one of resident, absent",
            ),
            (
                first.clone() + "1 resident 1 all caller shared map 1",
                "line 2: strategy: found \"map\", allowed is one of shared-map, private-map, populated-map, \
                 read, direct, uring, uring-direct",
            ),
            (
                first + "1 resident 1 all caller shared read 99999999999999999999",
                "line 2: nanoseconds: found \"99999999999999999999\", allowed is a number from 1",
            ),
        ] {
            assert_eq!(message(&text), format!("{expected}{again}"));
        }
    }
}
