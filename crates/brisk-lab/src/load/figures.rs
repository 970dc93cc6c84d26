//! What was measured, as a library that loads files takes it.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use brisk_io::{LoadFigures, Situation, Strategy};

use super::super::statistics::Spread;
use super::case::{Giving, Way};
use super::results::{LoadResults, LoadRun};

/// The figures of those runs. Of cases that a program could not tell apart when it loads, the geometric
/// mean counts, of strategies that were measured in all of them.
pub fn of(results: &LoadResults, counts: impl Fn(&LoadRun) -> bool) -> LoadFigures {
    let mut situations: Vec<(Situation, Vec<usize>)> = Vec::new();
    for (number, case) in results.cases.iter().enumerate() {
        // What the system is set to, and what is done at the end, nobody says when a file is loaded.
        let ahead = case.read_ahead_kib;
        let is_usual =
            (ahead.is_none() || ahead == results.read_ahead_kib) && case.release == Giving::Unmap;
        if !is_usual || case.faulting > 0 {
            continue;
        }
        let situation = case.situation();
        match situations.iter_mut().find(|(known, _)| *known == situation) {
            Some((_, cases)) => cases.push(number),
            None => situations.push((situation, vec![number])),
        }
    }
    let mut figures = LoadFigures::default();
    for (situation, cases) in situations {
        for strategy in Strategy::ALL {
            let median = |&case: &usize| {
                let runs = results.runs_of(case, Way::As(strategy));
                let seconds = runs.filter(|run| counts(run)).map(|run| run.exit_seconds);
                Some(Spread::of(&seconds.collect::<Vec<_>>())?.median.ln())
            };
            let medians: Option<Vec<f64>> = cases.iter().map(median).collect();
            if let Some(medians) = medians {
                let mean = (medians.iter().sum::<f64>() / medians.len() as f64).exp();
                // Seconds of a process are few.
                let nanoseconds = (mean * 1e9).round() as u64;
                figures.insert(situation, strategy, nanoseconds.max(1));
            }
        }
    }
    figures
}

/// Writes `figures` to `path`, whole or not at all, for this user alone.
pub fn save(figures: &LoadFigures, path: &Path) -> Result<()> {
    let write = || {
        let directory = path.parent().context("it is in no directory")?;
        if let Some(cache) = directory.parent() {
            fs::create_dir_all(cache)?;
        }
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.into()),
            Ok(()) | Err(_) => {}
        }
        let found = fs::symlink_metadata(directory)?;
        ensure!(
            found.is_dir()
                && found.uid() == rustix::process::geteuid().as_raw()
                && found.mode() & 0o077 == 0,
            "{} is not a directory of yours with mode 0700; move it away",
            directory.display()
        );
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(figures.to_string().as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        anyhow::Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn figures_are_saved_for_their_user() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cache/brisk/load-figures");
        let text = "brisk load figures 1\n5 resident 1 all caller shared read 9\n";
        let figures: LoadFigures = text.parse().unwrap();
        for _ in 0..2 {
            save(&figures, &path).unwrap();
        }
        let read: LoadFigures = fs::read_to_string(&path).unwrap().parse().unwrap();
        assert_eq!(read, figures);
        let directory = path.parent().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(directory)), (0o600, 0o700));
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
        fs::set_permissions(directory, fs::Permissions::from_mode(0o750)).unwrap();
        let e = save(&figures, &path).unwrap_err();
        let directory = directory.display();
        assert_eq!(
            format!("{e:#}"),
            format!(
                "cannot write {}: {directory} is not a directory of yours with mode 0700; move it away",
                path.display()
            )
        );
    }
}
