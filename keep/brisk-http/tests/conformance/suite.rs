//! The tests, as JSON has them. Members are named as in the suite.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// Which tests run: those of a cache that a browser has, or those of a proxy and a CDN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Browser,
    Proxy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Required,
    Optimal,
    Check,
}

/// What came of a test. The messages are those of the suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// The test's own assertion does not hold.
    Failed(String),
    /// What the test builds on does not hold.
    SetupFailed(String),
    /// A test that this one depends on failed.
    DependencyFailed(String),
}

pub struct Test<'a>(pub &'a Value);

impl<'a> Test<'a> {
    pub fn id(&self) -> &'a str {
        self.0["id"].as_str().expect("a test has an id")
    }

    pub fn kind(&self) -> Kind {
        match self.0["kind"].as_str() {
            None | Some("required") => Kind::Required,
            Some("optimal") => Kind::Optimal,
            Some("check") => Kind::Check,
            Some(kind) => panic!("{}: unknown kind {kind}", self.id()),
        }
    }

    pub fn requests(&self) -> &'a [Value] {
        self.0["requests"].as_array().expect("a test has requests")
    }

    fn runs_at(&self, place: Place) -> bool {
        let has = |member: &str| self.0[member] == Value::Bool(true);
        match place {
            Place::Browser => !has("cdn_only") && !has("browser_skip"),
            Place::Proxy => !has("browser_only"),
        }
    }

    fn depends_on(&self) -> impl Iterator<Item = &'a str> {
        let ids = self.0["depends_on"].as_array();
        ids.into_iter().flatten().filter_map(Value::as_str)
    }
}

pub struct Suite(Vec<Value>);

impl Suite {
    pub fn parse(json: &str) -> Self {
        let tests: Vec<Value> = serde_json::from_str(json).expect("the suite is JSON");
        Self(tests)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Runs all tests of a place, and applies their dependencies.
    pub fn run(
        &self,
        place: Place,
        run: impl Fn(&Test<'_>) -> Verdict,
    ) -> BTreeMap<String, (Kind, Verdict)> {
        let tests: HashMap<&str, Test<'_>> = self
            .0
            .iter()
            .map(Test)
            .filter(|test| test.runs_at(place))
            .map(|test| (test.id(), test))
            .collect();
        let own: HashMap<&str, Verdict> = tests.iter().map(|(id, test)| (*id, run(test))).collect();
        let mut all = BTreeMap::new();
        for (id, test) in &tests {
            let verdict = match failed_dependency(test, &tests, &own) {
                Some(failed) => Verdict::DependencyFailed(failed.to_owned()),
                None => own[id].clone(),
            };
            all.insert((*id).to_owned(), (test.kind(), verdict));
        }
        all
    }
}

fn failed_dependency<'a>(
    test: &Test<'a>,
    tests: &HashMap<&str, Test<'a>>,
    own: &HashMap<&str, Verdict>,
) -> Option<&'a str> {
    test.depends_on().find(|id| {
        // One that does not run here is not tested, so it did not pass.
        tests.get(id).is_none_or(|test| {
            own[id] != Verdict::Passed || failed_dependency(test, tests, own).is_some()
        })
    })
}
