//! The public suite of cache tests, on a clock that nobody waits for.

mod client;
mod known;
mod official;
mod origin;
mod suite;

use std::collections::BTreeMap;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::MemoryStorage;

use client::run;
use known::Known;
use official::Run;
use suite::{Kind, Place, Suite, Verdict};

type Results = BTreeMap<String, (Kind, Verdict)>;

/// Runs the suite at several fractions of a second, and wants the same verdicts at each.
fn results(suite: &Suite, place: Place) -> Results {
    let at = |phase| {
        suite.run(place, |test| {
            run(test, place, MemoryStorage::default(), phase)
        })
    };
    let first = at(0);
    for phase in [1, 500, 990, 999] {
        let passed = |results: &Results| -> Vec<(String, bool)> {
            let each = results.iter();
            each.map(|(id, (_, verdict))| (id.clone(), *verdict == Verdict::Passed))
                .collect()
        };
        assert_eq!(passed(&at(phase)), passed(&first), "at {phase} ms");
    }
    first
}

fn score(results: &Results, kind: Kind) -> (usize, usize) {
    let all = results.values().filter(|(found, _)| *found == kind);
    let passed = all
        .clone()
        .filter(|(_, verdict)| *verdict == Verdict::Passed);
    (passed.count(), all.count())
}

/// The passed and all tests of each kind, as the documentation has them.
fn scores(results: &Results) -> String {
    let [required, optimal, check] = [Kind::Required, Kind::Optimal, Kind::Check].map(|kind| {
        let (passed, all) = score(results, kind);
        format!("{passed} / {all}")
    });
    format!("{required} | {optimal} | {check}")
}

/// Wants exactly the known tests of this place not to pass.
fn check(results: &Results, known: &[Known]) {
    let known: BTreeMap<&str, &str> = known
        .iter()
        .flat_map(|(ids, reason)| ids.iter().map(move |id| (*id, *reason)))
        .filter(|(id, _)| results.contains_key(*id))
        .collect();
    let mut wrong = Vec::new();
    for (id, (kind, verdict)) in results {
        match (known.get(id.as_str()), verdict) {
            (None, Verdict::Passed) | (Some(_), Verdict::Failed(_) | Verdict::SetupFailed(_)) => (),
            (None, verdict) => wrong.push(format!("{kind:?} {id}: {verdict:?}")),
            (Some(reason), verdict) => {
                wrong.push(format!(
                    "{id}: {verdict:?}, but it was known that: {reason}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const PACKAGED: &str = include_str!("../cache-tests/suite.json");

fn packaged() -> Suite {
    Suite::parse(PACKAGED)
}

const PAGE: &str = include_str!("../../../../docs/conformance.md");

/// Wants the documentation to have these scores and reasons.
fn check_page(title: &str, results: &[(Place, &Results)], known: &[Known]) {
    for (place, results) in results {
        let name = match place {
            Place::Proxy => "shared",
            Place::Browser => "private",
        };
        let line = format!("| {title}, {name} | {} |", scores(results));
        assert!(
            PAGE.contains(&line),
            "docs/conformance.md has no line\n{line}"
        );
    }
    check_reasons(known);
}

/// Wants the documentation to have these reasons.
fn check_reasons(known: &[Known]) {
    for (ids, reason) in known {
        let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
        let line = format!("| {} | {reason} |", ids.join(", "));
        assert!(
            PAGE.contains(&line),
            "docs/conformance.md has no line\n{line}"
        );
    }
}

#[test]
fn the_package() {
    let suite = packaged();
    assert_eq!(suite.len(), 334);
    let proxy = results(&suite, Place::Proxy);
    let browser = results(&suite, Place::Browser);
    let known = known::package();
    check(&proxy, &known);
    check(&browser, &known);
    let all = [(Place::Proxy, &proxy), (Place::Browser, &browser)];
    check_page("http-cache-tests 0.4.5", &all, &known);
}

#[test]
fn a_directory_gives_the_verdicts_of_memory() {
    let suite = packaged();
    let home = tempfile::tempdir().unwrap();
    for place in [Place::Proxy, Place::Browser] {
        let in_directory = suite.run(place, |test| {
            let directory = home.path().join(format!("{place:?}-{}", test.id()));
            let options = CacheOptions::new().limit(64 << 20);
            let cache = Cache::open(&directory, options).unwrap();
            let verdict = run(test, place, cache, 0);
            std::fs::remove_dir_all(directory).unwrap();
            verdict
        });
        let in_memory = suite.run(place, |test| run(test, place, MemoryStorage::default(), 0));
        assert_eq!(in_directory, in_memory);
    }
}

/// The suite at commit b55b8bda, as `tests/cache-tests/export.mjs` writes it, is not part of this repository.
#[test]
#[ignore = "BRISK_CACHE_TESTS must be the path of the suite's export: see docs/conformance.md"]
fn the_current_suite() {
    let path = std::env::var("BRISK_CACHE_TESTS").expect("BRISK_CACHE_TESTS is a path");
    let suite = Suite::parse(&std::fs::read_to_string(path).unwrap());
    assert_eq!(suite.len(), 370);
    let proxy = results(&suite, Place::Proxy);
    let browser = results(&suite, Place::Browser);
    let known = known::current();
    check(&proxy, &known);
    check(&browser, &known);
    let all = [(Place::Proxy, &proxy), (Place::Browser, &browser)];
    check_page("cache-tests b55b8bda", &all, &known);
}

/// Wants a run of the suite's own runner to have failed where this one does, and where connections are known to matter.
fn check_official(run: &Run, known: &[Known]) {
    let all = [known, known::OVER_CONNECTIONS].concat();
    for (name, more) in [("brisk proxy", known::OF_PROXY), ("brisk private", &[])] {
        println!("{name}");
        check(&run.results(run.cache(name)), &[&*all, more].concat());
    }
}

/// The run at `BRISK_CONFORMANCE_RUN` of the suite at `BRISK_CACHE_TESTS`: `make conformance` makes both.
#[test]
#[ignore = "needs a run of the suite's own runner: make conformance"]
fn the_suites_own_runner_agrees() {
    let read = |name| {
        let path = std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let (text, run) = (read("BRISK_CACHE_TESTS"), read("BRISK_CONFORMANCE_RUN"));
    let (suite, run) = (Suite::parse(&text), Run::parse(&run));
    for cache in run.caches() {
        println!("| {} | {} |", cache.title(), scores(&run.results(cache)));
    }
    let known = match (text == PACKAGED, suite.len()) {
        (true, _) => known::package(),
        (false, 370) => known::current(),
        (false, len) => {
            panic!("a suite with {len} tests: it is neither http-cache-tests 0.4.5 nor b55b8bda")
        }
    };
    check(&results(&suite, Place::Proxy), &known);
    check(&results(&suite, Place::Browser), &known);
    check_official(&run, &known);
    check_reasons(known::OVER_CONNECTIONS);
    check_reasons(known::OF_PROXY);
}
