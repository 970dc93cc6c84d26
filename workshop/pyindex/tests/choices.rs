//! Choices in pages of real projects are those of pip's rules, written once more on `packaging`.

mod support;

use std::collections::HashMap;
use std::str::FromStr;

use pep440_rs::Version;
use pyindex::{Chooser, Specifiers, Wanted, Why};
use support::{PROJECTS, table, target, view};

#[test]
fn each_file_is_the_one_that_the_rules_of_pip_choose() {
    let tables: HashMap<_, _> = PROJECTS
        .iter()
        .map(|(name, _)| (*name, table(name)))
        .collect();
    let mut choosers = HashMap::new();
    let mut compared = 0;
    for line in include_str!("../testdata/choices.txt").lines() {
        let parts: Vec<_> = line.split('\t').collect();
        let [project, python, platform, specifiers, expected] = parts[..] else {
            panic!("five parts: {line}");
        };
        let table = view(&tables[project]);
        let chooser: &mut Chooser = choosers
            .entry((python, platform))
            .or_insert_with(|| Chooser::new(target(python, platform)));
        let specifiers = Specifiers::parse(specifiers).unwrap();
        let wanted = Wanted::of(&specifiers);
        let choice = chooser.choose(&table, &wanted).unwrap();
        let name = choice.map_or("none".to_owned(), |choice| {
            table.file(choice.version, choice.file).unwrap().name
        });
        assert_eq!(name, expected, "{line}");

        // Each newer version has a reason, and the reason is not that it would do.
        let newer = chooser.explain(&table, &wanted, choice).unwrap();
        assert_eq!(
            newer.len(),
            table.versions() - choice.map_or(0, |choice| choice.version + 1)
        );
        for refused in newer {
            let allowed = specifiers.allows(refused.version);
            assert_eq!(
                refused.why == Why::NotAllowed,
                !allowed,
                "{line}: {}",
                refused.version
            );
            assert!(refused.why != Why::NoFile, "{line}: {}", refused.version);
        }
        compared += 1;
    }
    assert_eq!(compared, 850);
}

#[test]
fn the_versions_of_real_projects_are_sorted_and_fit_into_keys() {
    for (project, lines) in PROJECTS {
        let bytes = table(project);
        let table = view(&bytes);
        let versions: Vec<_> = (0..table.versions())
            .map(|at| Version::from_str(table.version(at).unwrap()).unwrap())
            .collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{project}");
        let left_out = table.left_out();
        let all = table.files()
            + usize::try_from(left_out.kind + left_out.version + left_out.form + left_out.project)
                .unwrap();
        assert_eq!(all, lines.lines().count(), "{project}");
        // Names and addresses are those of the page, though few are stored.
        let mut names: Vec<_> = (0..table.versions())
            .flat_map(|version| {
                table
                    .files_of(version)
                    .unwrap()
                    .map(move |file| (version, file))
            })
            .map(|(version, file)| table.file(version, file).unwrap())
            .inspect(|file| {
                assert!(
                    file.url.ends_with(&format!("/{}", file.name)),
                    "{}",
                    file.url
                );
            })
            .map(|file| file.name)
            .collect();
        names.sort();
        let listed: Vec<_> = lines
            .lines()
            .map(|line| line.split('\t').next().unwrap())
            .collect();
        assert!(names.iter().all(|name| listed.contains(&name.as_str())));
        names.dedup();
        assert_eq!(names.len(), table.files());
    }
}

#[test]
fn the_highest_build_wins_and_kinds_can_be_excluded() {
    let files = [
        "some-1-py3-none-any.whl",
        "some-1-9-py3-none-any.whl",
        "some-1-10-py3-none-any.whl",
        "some-1.zip",
        "some-1.tar.gz",
        "some-2a1.tar.gz",
    ];
    let all: Vec<_> = files
        .iter()
        .map(|name| format!(r#"{{"filename": "{name}", "url": "{name}", "hashes": {{}}}}"#))
        .collect();
    let page = format!(r#"{{"files": [{}]}}"#, all.join(","));
    let name = pyindex::ProjectName::parse("some").unwrap();
    let bytes = pyindex::table_of_page(
        &name,
        &"https://a.example/some/".parse().unwrap(),
        pyindex::PageForm::Json,
        page.as_bytes(),
    )
    .unwrap();
    let table = view(&bytes);
    let mut chooser = Chooser::new(target("3.12.0", "win_amd64"));
    let specifiers = Specifiers::default();
    let all = Wanted::of(&specifiers);
    let mut choose = |wanted: Wanted<'_>| {
        let choice = chooser.choose(&table, &wanted).unwrap();
        choice.map(|choice| table.file(choice.version, choice.file).unwrap().name)
    };
    assert_eq!(choose(all).as_deref(), Some("some-1-10-py3-none-any.whl"));
    assert_eq!(
        choose(Wanted {
            wheels: false,
            ..all
        })
        .as_deref(),
        Some("some-1.tar.gz")
    );
    assert_eq!(
        choose(Wanted {
            prereleases: true,
            ..all
        })
        .as_deref(),
        Some("some-2a1.tar.gz")
    );
    assert_eq!(
        choose(Wanted {
            sdists: false,
            prereleases: true,
            ..all
        })
        .as_deref(),
        Some("some-1-10-py3-none-any.whl")
    );
    assert_eq!(
        choose(Wanted {
            sdists: false,
            wheels: false,
            ..all
        }),
        None
    );
}

#[test]
fn a_yanked_file_is_chosen_only_if_all_are_yanked() {
    let name = pyindex::ProjectName::parse("some").unwrap();
    let mut chooser = Chooser::new(target("3.12.0", "win_amd64"));
    for (files, specifier, chosen) in [
        // One of the versions that == allows has a label, and is the newer one.
        (
            &[("some-1.0.zip", false), ("some-1.0+cpu.zip", true)][..],
            "==1.0",
            Some("some-1.0.zip"),
        ),
        (
            &[("some-1.0.zip", true), ("some-1.0+cpu.zip", false)],
            "==1.0",
            Some("some-1.0+cpu.zip"),
        ),
        (
            &[("some-1.0.zip", true), ("some-1.0+cpu.zip", true)],
            "==1.0",
            Some("some-1.0+cpu.zip"),
        ),
        (
            &[("some-1.0.zip", true), ("some-1.0.tar.gz", false)],
            "==1.0",
            Some("some-1.0.tar.gz"),
        ),
        (&[("some-1.0.zip", true)], "===1.0", Some("some-1.0.zip")),
        (&[("some-1.0.zip", true)], "==1.*", None),
        (&[("some-1.0.zip", true)], "", None),
    ] {
        let files: Vec<_> = files
            .iter()
            .map(|(name, yanked)| {
                format!(r#"{{"filename": "{name}", "url": "{name}", "hashes": {{}}, "yanked": {yanked}}}"#)
            })
            .collect();
        let page = format!(r#"{{"files": [{}]}}"#, files.join(","));
        let bytes = pyindex::table_of_page(
            &name,
            &"https://a.example/some/".parse().unwrap(),
            pyindex::PageForm::Json,
            page.as_bytes(),
        )
        .unwrap();
        let table = view(&bytes);
        let specifiers = Specifiers::parse(specifier).unwrap();
        let choice = chooser.choose(&table, &Wanted::of(&specifiers)).unwrap();
        let found = choice.map(|choice| table.file(choice.version, choice.file).unwrap().name);
        assert_eq!(found.as_deref(), chosen, "{specifier} {page}");
    }
}
