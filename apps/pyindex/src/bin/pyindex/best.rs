use std::io::{self, Write};

use pyindex::{Choice, IndexTable, Refused, Wanted, in_parts};
use serde_json::{Value, json};

use crate::args::{Best, Common, Target};
use crate::environment::Environment;
use crate::indexes::{Indexes, Page};
use crate::requirements::Requirement;

/// Prints the best file of each requirement. False if one has none.
pub(crate) fn run(common: &Common, args: &Best) -> anyhow::Result<bool> {
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
    let mut all_found = true;
    for ((requirement, page), choice) in requirements.iter().zip(pages).zip(choices) {
        let Some(page) = page? else {
            all_found = false;
            no_project(common, requirement, &mut objects);
            continue;
        };
        let wanted = wanted(&args.target, requirement);
        let mut chosen = Some(choice);
        all_found &= indexes.look(&requirement.name, page, |page| {
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
                false => print(&mut out, requirement, &table, choice, &newer)?,
            }
            Ok(choice.is_some())
        })?;
    }
    if common.json {
        serde_json::to_writer_pretty(&mut out, &objects)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(all_found)
}

/// The choice in each page.
fn choices(
    args: &Best,
    environment: &Environment,
    requirements: &[Requirement],
    pages: &[anyhow::Result<Page>],
) -> Vec<io::Result<Option<Choice>>> {
    let looked: Vec<_> = requirements.iter().zip(pages).collect();
    in_parts(&looked, |looked| {
        let mut chooser = environment.chooser.clone();
        let choices = looked.iter().map(|(requirement, page)| match page {
            Ok(Some(page)) => chooser.choose(&page.view()?, &wanted(&args.target, requirement)),
            Ok(None) | Err(_) => Ok(None),
        });
        choices.collect()
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

pub(crate) fn wanted<'a>(target: &Target, requirement: &'a Requirement) -> Wanted<'a> {
    Wanted {
        prereleases: target.pre,
        wheels: !target.no_binary,
        sdists: !target.only_binary,
        ..Wanted::of(&requirement.specifiers)
    }
}

fn no_project(common: &Common, requirement: &Requirement, objects: &mut Vec<Value>) {
    match common.json {
        true => objects.push(json!({
            "requirement": requirement.text,
            "name": requirement.name.as_str(),
            "file": null,
            "why": "no index has the project",
        })),
        false => eprintln!(
            "pyindex: no index has the project {}",
            requirement.name.as_str()
        ),
    }
}

fn print(
    out: &mut impl Write,
    requirement: &Requirement,
    table: &IndexTable<'_>,
    choice: Option<Choice>,
    newer: &[Refused<'_>],
) -> anyhow::Result<()> {
    let name = requirement.name.as_str();
    match choice {
        Some(choice) => {
            let file = table.file(choice.version, choice.file)?;
            let version = table.version(choice.version)?;
            write!(out, "{name}=={version} {}", plain(&file.url))?;
            if let Some(digest) = &file.digest {
                write!(out, "#{}", plain(digest))?;
            }
            writeln!(out)?;
        }
        None => eprintln!(
            "pyindex: no file of {name} will do for {:?}",
            requirement.text
        ),
    }
    for Refused { version, why } in newer {
        let line = format!("  {version}: {why}");
        match choice {
            Some(_) => writeln!(out, "{}", plain(&line))?,
            None => eprintln!("{}", plain(&line)),
        }
    }
    Ok(())
}

/// Without the characters that give commands to a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
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
    Ok(object)
}
