//! Checks that a verb may write its output at a path.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_image::TreeRules;
use brisk_terminal::names::shown;
use rustix::fs::Access;

/// Checks that a file can be made at `output`, before the work for it is done.
///
/// `option` names another one.
pub fn check_output(output: &Path, option: &str) -> anyhow::Result<()> {
    let name = shown(output);
    if output == Path::new("-") {
        bail!(
            "cannot write to standard output, because what brisk writes appears whole, as a file; name one with {option} (./- is \
             a file that is called -)"
        );
    }
    if output.is_dir() {
        bail!("cannot write {name}: it is a directory; name a file with {option}");
    }
    let directory = directory_of(output);
    let place = shown(directory);
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            bail!("cannot write {name}: {place} is no directory; name another file with {option}")
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => bail!(
            "cannot write {name}: there is no directory {place}; make it first, or name another file with {option}"
        ),
        Err(e) => {
            return Err(e).with_context(|| format!("cannot write {name}: cannot examine {place}"));
        }
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(directory, access).with_context(|| {
        format!("cannot write {name}: name a file in a directory of yours with {option}")
    })
}

/// The directory that a file is in, or will be in.
pub fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Checks that `output` is none of the files that are read for it: each with what it is.
pub fn check_no_input<'a>(
    output: &Path,
    inputs: impl IntoIterator<Item = (&'a Path, &'a str)>,
) -> anyhow::Result<()> {
    match inputs.into_iter().find(|(input, _)| is_same(input, output)) {
        None => Ok(()),
        Some((_, what)) => bail!(
            "{}: the output would replace the {what}; name another file",
            shown(output)
        ),
    }
}

/// Checks that `output` is not inside the tree, where the next run would pack it.
pub fn check_outside(tree: &Path, output: &Path, rules: &TreeRules) -> anyhow::Result<()> {
    if let Some(inside) = path_inside(tree, output)
        && !rules.leaves_out(&inside, false)
    {
        bail!(
            "{}: the output is inside the tree and would be packed the next time; \
             write it elsewhere, or add --exclude /{}",
            output.display(),
            inside.display()
        );
    }
    Ok(())
}

/// The path of `file` from the root of `tree`, if it is inside. None if one of the two does not exist:
/// opening it fails later, with its own error.
fn path_inside(tree: &Path, file: &Path) -> Option<PathBuf> {
    let directory = directory_of(file).canonicalize().ok()?;
    let inside = directory.strip_prefix(tree.canonicalize().ok()?).ok()?;
    Some(inside.join(file.file_name()?))
}

/// True if both paths exist and lead to the same file.
pub fn is_same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some_and(|a| id(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_left_out_with_its_directory() {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        let table: &[(&[&str], &str, bool)] = &[
            (&[], "app.img", false),
            (&["/app.img"], "app.img", true),
            (&["*.img"], "out/app.img", true),
            (&["/app.img"], "out/app.img", false),
            (&["out/"], "out/deep/app.img", true),
            (&["*.img", "!app.img"], "app.img", false),
            (&["out/", "!app.img"], "out/app.img", true),
        ];
        for (patterns, path, expected) in table {
            let rules = TreeRules::default().exclude(&own(patterns)).unwrap();
            let got = rules.leaves_out(Path::new(path), false);
            assert_eq!(got, *expected, "{patterns:?} {path}");
        }
    }
}
