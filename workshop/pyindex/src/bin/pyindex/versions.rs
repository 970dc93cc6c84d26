use std::io::{self, Write};

use anyhow::Context;
use pyindex::{ProjectName, Specifiers};
use serde_json::json;

use crate::Outcome;
use crate::args::{Common, Versions};
use crate::best::{left_out_json, wanted};
use crate::environment::Environment;
use crate::indexes::Indexes;

/// Prints the versions of a project.
pub(crate) fn run(common: &Common, args: &Versions) -> anyhow::Result<Outcome> {
    let name = ProjectName::parse(&args.name)?;
    let mut environment = Environment::of(&args.target)?;
    let indexes = Indexes::open(common)?;
    let page = indexes.pages(&[&name])?.pop().context("no page")??;
    let Some(page) = page else {
        eprintln!("pyindex: no index has the project {}", name.as_str());
        return Ok(Outcome::Missing);
    };
    let any = Specifiers::parse("")?;
    let wanted = wanted(&args.target, &any);
    let (versions, left_out) = indexes.look(&name, page, |page| {
        let mut versions = Vec::new();
        let found = |version: &str| versions.push(version.to_owned());
        let table = page.view()?;
        environment.chooser.each_version(&table, &wanted, found)?;
        Ok((versions, table.left_out()))
    })?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if common.json {
        let value = json!({
            "name": name.as_str(),
            "versions": versions,
            "left_out": left_out_json(left_out),
        });
        serde_json::to_writer_pretty(&mut out, &value)?;
        writeln!(out)?;
    } else {
        for version in &versions {
            writeln!(out, "{version}")?;
        }
    }
    out.flush()?;
    if versions.is_empty() && !common.json {
        eprintln!(
            "pyindex: no version of {} has a file that will do",
            name.as_str()
        );
        if left_out.files() > 0 {
            eprintln!("  {left_out}");
        }
    }
    Ok(match versions.is_empty() {
        true => Outcome::Missing,
        false => Outcome::Found,
    })
}
