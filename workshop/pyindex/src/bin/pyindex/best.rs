use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use pyindex::{Choice, IndexTable, LeftOut, Refused, Specifiers, Wanted, in_parts};
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::{Best, Common, Target};
use crate::environment::Environment;
use crate::indexes::{Found, Indexes};
use crate::requirements::Requirement;

/// Prints the best file of each requirement.
pub(crate) fn run(common: &Common, args: &Best) -> anyhow::Result<Outcome> {
    let mut environment = Environment::of(&args.target)?;
    let requirements = requirements(args, &environment)?;
    let indexes = Indexes::open(common)?;
    let names: Vec<_> = requirements
        .iter()
        .map(|requirement| &requirement.name)
        .collect();
    let pages = indexes.pages(&names)?;
    let choices = choices(args, &environment, &requirements, &pages);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut objects = Vec::new();
    let mut lines = Lines::default();
    let mut outcome = Outcome::Found;
    for ((requirement, page), choice) in requirements.iter().zip(pages).zip(choices) {
        let looked = match page {
            Ok(Some(page)) => {
                let wanted = wanted(&args.target, &requirement.specifiers);
                let mut chosen = Some(choice);
                indexes.look(&requirement.name, page, |page| {
                    // A page that was fetched again has another table.
                    let chosen = chosen.take();
                    let table = page.view()?;
                    let choice = match chosen {
                        Some(choice) => choice?,
                        None => environment.chooser.choose(&table, &wanted)?,
                    };
                    let newer = match args.explain || choice.is_none() {
                        true => environment.chooser.explain(&table, &wanted, choice)?,
                        false => Vec::new(),
                    };
                    match common.json {
                        true => objects.push(to_json(requirement, &table, choice, &newer)?),
                        false => lines.say(requirement, &table, choice, &newer, args.explain)?,
                    }
                    Ok(match choice {
                        Some(_) => Outcome::Found,
                        None => Outcome::Missing,
                    })
                })
            }
            Ok(None) => {
                none(common, requirement, NO_PROJECT, &mut objects);
                Ok(Outcome::Missing)
            }
            Err(e) => Err(e),
        };
        // The others are there all the same.
        let looked = looked.unwrap_or_else(|e| {
            lines.clear();
            match common.json {
                true => none(common, requirement, &format!("{e:#}"), &mut objects),
                false => eprintln!("pyindex: {e:#}"),
            }
            Outcome::Failed
        });
        outcome = outcome.max(looked);
        lines.write(&mut out)?;
    }
    if common.json {
        serde_json::to_writer_pretty(&mut out, &objects)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(outcome)
}

/// The choice in each page.
fn choices(
    args: &Best,
    environment: &Environment,
    requirements: &[Requirement],
    pages: &[anyhow::Result<Found>],
) -> Vec<io::Result<Option<Choice>>> {
    let looked: Vec<_> = requirements.iter().zip(pages).collect();
    let begin = || environment.chooser.clone();
    in_parts(&looked, begin, |chooser, (requirement, page)| match page {
        Ok(Some(page)) => chooser.choose(
            &page.view()?,
            &wanted(&args.target, &requirement.specifiers),
        ),
        Ok(None) | Err(_) => Ok(None),
    })
}

fn requirements(args: &Best, environment: &Environment) -> anyhow::Result<Vec<Requirement>> {
    let mut all = Vec::new();
    for text in &args.requirements {
        all.extend(Requirement::parse(text, &environment.markers)?);
    }
    for file in &args.requirement {
        all.extend(Requirement::of_file(file, &environment.markers)?);
    }
    Ok(all)
}

pub(crate) fn wanted<'a>(target: &Target, specifiers: &'a Specifiers) -> Wanted<'a> {
    Wanted {
        prereleases: target.pre,
        wheels: !target.no_binary,
        sdists: !target.only_binary,
        ..Wanted::of(specifiers)
    }
}

const NO_PROJECT: &str = "no index has the project";

/// Says why there is no file of a requirement, and no table to look for it.
fn none(common: &Common, requirement: &Requirement, why: &str, objects: &mut Vec<Value>) {
    let name = requirement.name.as_str();
    match common.json {
        true => objects.push(json!({
            "requirement": requirement.text,
            "name": name,
            "file": null,
            "why": why,
        })),
        false => eprintln!("pyindex: {why} {name}"),
    }
}

/// What is said of one requirement, until all of it is known.
#[derive(Default)]
struct Lines {
    out: String,
    err: String,
}

impl Lines {
    fn say(
        &mut self,
        requirement: &Requirement,
        table: &IndexTable<'_>,
        choice: Option<Choice>,
        newer: &[Refused<'_>],
        explain: bool,
    ) -> anyhow::Result<()> {
        let name = requirement.name.as_str();
        let text = match choice {
            Some(choice) => {
                let file = table.file(choice.version, choice.file)?;
                let version = table.version(choice.version)?;
                write!(self.out, "{name}=={version} {}", plain(&file.url))?;
                if let Some(digest) = &file.digest {
                    write!(self.out, "#{}", plain(digest))?;
                }
                writeln!(self.out)?;
                &mut self.out
            }
            None => {
                writeln!(
                    self.err,
                    "pyindex: no file of {name} will do for {:?}",
                    requirement.text
                )?;
                &mut self.err
            }
        };
        for Refused { version, why } in newer {
            writeln!(text, "{}", plain(&format!("  {version}: {why}")))?;
        }
        let left_out = table.left_out();
        if (explain || choice.is_none()) && left_out.files() > 0 {
            writeln!(text, "  {left_out}")?;
        }
        Ok(())
    }

    /// Writes and forgets what was said.
    fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.out.as_bytes())?;
        eprint!("{}", self.err);
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.out.clear();
        self.err.clear();
    }
}

/// Without the characters that give commands to a terminal.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => Cow::Owned(text.chars().filter(|c| !c.is_control()).collect()),
        false => Cow::Borrowed(text),
    }
}

fn to_json(
    requirement: &Requirement,
    table: &IndexTable<'_>,
    choice: Option<Choice>,
    newer: &[Refused<'_>],
) -> anyhow::Result<Value> {
    let mut object = json!({
        "requirement": requirement.text,
        "name": requirement.name.as_str(),
        "file": null,
    });
    if let Some(choice) = choice {
        let file = table.file(choice.version, choice.file)?;
        object["version"] = table.version(choice.version)?.into();
        object["file"] = file.name.into();
        object["url"] = file.url.into();
        object["digest"] = file.digest.into();
        object["size"] = file.size.into();
        object["requires_python"] = file.requires_python.into();
        object["yanked"] = file.yanked.into();
        object["metadata"] = file.metadata.into();
    } else {
        object["why"] = "no file will do".into();
    }
    let newer: Vec<_> = newer
        .iter()
        .map(|refused| json!({"version": refused.version, "why": refused.why.to_string()}))
        .collect();
    object["newer"] = newer.into();
    object["left_out"] = left_out_json(table.left_out());
    Ok(object)
}

pub(crate) fn left_out_json(left_out: LeftOut) -> Value {
    json!({
        "kind": left_out.kind,
        "project": left_out.project,
        "version": left_out.version,
        "form": left_out.form,
    })
}
