//! What a writer does with the contents of files, as a plain value.
//!
//! Nothing here knows an image format. A writer takes the placements in order, and does what they
//! say with the means of its format.

use std::path::Path;

use ignore::gitignore::Gitignore;

use crate::error::Result;
use crate::patterns::patterns;

/// What to do with every file of a tree that has contents, in the order in which to store them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Each file once.
    pub placements: Vec<Placement>,
}

/// What to do with the contents of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The file, by its number in the tree that the plan was made for.
    pub file: usize,
    /// Files of different classes share no block, so that reading one class decodes nothing of
    /// another.
    pub class: u8,
    /// Whether to compress.
    pub storage: Storage,
}

/// How the bytes of a file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// With the codec of the image, where that makes them smaller; a small file may share a block
    /// with others.
    Coded,
    /// As they are, in one piece that starts at a multiple of 4096 bytes and shares no block, so
    /// that they can be mapped and borrowed.
    Raw,
}

/// Rules for the order and the storage of files: patterns with the syntax of `.gitignore`.
#[derive(Debug, Clone, Default)]
pub struct PlanRules {
    order: Vec<String>,
    raw: Vec<String>,
}

impl PlanRules {
    /// Files that match an earlier pattern of `order` come before those that match a later one,
    /// and all of them, in a class of their own, before the rest. Files that match one of `raw`
    /// are stored raw: as they are, in one piece that can be mapped.
    ///
    /// # Errors
    ///
    /// `Input` for a pattern that cannot be read.
    pub fn new(order: Vec<String>, raw: Vec<String>) -> Result<Self> {
        let rules = Self { order, raw };
        // Read here, so that a bad pattern is said before the work starts.
        rules.matchers()?;
        Ok(rules)
    }

    /// The patterns of an order file, one on each line. Empty lines and lines that start with `#`
    /// do not count.
    pub fn parse_order(text: &str) -> Vec<String> {
        text.lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    /// The patterns of the order, in their order.
    pub fn order(&self) -> &[String] {
        &self.order
    }

    /// The patterns of files to store raw.
    pub fn raw(&self) -> &[String] {
        &self.raw
    }

    fn matchers(&self) -> Result<(Vec<Gitignore>, Gitignore)> {
        let order = self
            .order
            .iter()
            .map(|pattern| patterns([pattern.as_str()]));
        let raw = patterns(self.raw.iter().map(String::as_str))?;
        Ok((order.collect::<Result<_>>()?, raw))
    }

    /// The plan for the files that `visit` gives to what it is called with: the path from the root of the tree, the number by
    /// which the plan names the file, and its position among those of the same rule or of none. Files of the same position
    /// stay in the order in which they come.
    pub(crate) fn plan(
        &self,
        visit: impl FnOnce(&mut dyn FnMut(&Path, usize, u32)) -> Result<()>,
    ) -> Result<Plan> {
        let (order, raw) = self.matchers()?;
        let mut ranked: Vec<((usize, u32), Placement)> = Vec::new();
        visit(&mut |path, file, position| {
            let matches =
                |set: &Gitignore| set.matched_path_or_any_parents(path, false).is_ignore();
            let rank = order.iter().position(matches).unwrap_or(order.len());
            let storage = match matches(&raw) {
                true => Storage::Raw,
                false => Storage::Coded,
            };
            let class = u8::from(rank == order.len());
            let placement = Placement {
                file,
                class,
                storage,
            };
            ranked.push(((rank, position), placement));
        })?;
        // Stable: files of one rank keep their order.
        ranked.sort_by_key(|(rank, _)| *rank);
        Ok(Plan {
            placements: ranked.into_iter().map(|(_, placement)| placement).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(order: &[&str], raw: &[&str], files: &[&str]) -> Vec<(usize, u8, Storage)> {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
        let rules = PlanRules::new(own(order), own(raw)).unwrap();
        let plan = rules.plan(|add| {
            for (file, path) in files.iter().enumerate() {
                add(Path::new(path), file, 0);
            }
            Ok(())
        });
        let plan = plan.unwrap();
        plan.placements
            .iter()
            .map(|p| (p.file, p.class, p.storage))
            .collect()
    }

    #[test]
    fn without_rules_the_order_stays() {
        let files = ["b", "a/z", "c"];
        let expected: Vec<_> = (0..3).map(|i| (i, 1, Storage::Coded)).collect();
        assert_eq!(plan(&[], &[], &files), expected);
    }

    #[test]
    fn earlier_patterns_come_first_and_match_like_gitignore() {
        let files = [
            "usr/lib/b.so",
            "usr/bin/app",
            "share/doc/x",
            "usr/lib/a.so",
            "bin/app",
        ];
        let got = plan(&["/usr/bin/app", "*.so"], &["share/"], &files);
        use Storage::{Coded, Raw};
        assert_eq!(
            got,
            [
                (1, 0, Coded),
                (0, 0, Coded),
                (3, 0, Coded),
                (2, 1, Raw),
                (4, 1, Coded)
            ]
        );
    }

    #[test]
    fn an_order_file_has_comments() {
        assert_eq!(
            PlanRules::parse_order("# first\n\nbin/app\n*.so  \n"),
            ["bin/app", "*.so"]
        );
    }

    #[test]
    fn a_bad_pattern_is_said() {
        let e = PlanRules::new(vec!["a{b".into()], vec![]).unwrap_err();
        assert!(
            e.to_string()
                .starts_with("pattern \"a{b\" cannot be used: "),
            "{e}"
        );
    }
}
