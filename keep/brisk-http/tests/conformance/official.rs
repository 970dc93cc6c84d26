//! What the suite's own runner found over real connections, as `workshop/lab/conformance/run.mjs` writes it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::suite::{Kind, Place, Suite, Verdict};

/// The verdicts on several caches, by one version of the suite.
pub struct Run {
    suite: Suite,
    caches: Vec<Cache>,
}

/// A cache, and the verdicts on it. The suite's words stand for themselves.
pub struct Cache {
    pub name: String,
    pub place: Place,
    version: Option<String>,
    verdicts: Value,
}

impl Run {
    pub fn parse(json: &str) -> Self {
        let run: Value = serde_json::from_str(json).expect("a run is JSON");
        assert_eq!(run["format"], "brisk-conformance/1");
        let caches = run["caches"].as_array().expect("a run has caches");
        Self {
            suite: Suite::parse(&run["tests"].to_string()),
            caches: caches.iter().map(Cache::of).collect(),
        }
    }

    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    pub fn cache(&self, name: &str) -> &Cache {
        let found = self.caches.iter().find(|cache| cache.name == name);
        found.unwrap_or_else(|| panic!("the run has no cache {name}"))
    }

    /// The verdicts on a cache, with the dependencies of tests applied.
    pub fn results(&self, cache: &Cache) -> BTreeMap<String, (Kind, Verdict)> {
        self.suite.run(cache.place, |test| cache.verdict(test.id()))
    }
}

impl Cache {
    fn of(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Self {
            name: text("name").expect("a cache has a name"),
            place: match value["place"].as_str() {
                Some("shared") => Place::Proxy,
                Some("private") => Place::Browser,
                other => panic!("unknown place {other:?}"),
            },
            version: text("version"),
            verdicts: value["verdicts"].clone(),
        }
    }

    /// What a table calls it.
    pub fn title(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.name),
            None => self.name.clone(),
        }
    }

    fn verdict(&self, id: &str) -> Verdict {
        let verdict = &self.verdicts[id];
        let message = || verdict[1].as_str().unwrap_or_default().to_owned();
        match (verdict, verdict[0].as_str()) {
            (Value::Bool(true), _) => Verdict::Passed,
            (_, Some("Setup")) => Verdict::SetupFailed(message()),
            (_, Some("Assertion")) => Verdict::Failed(message()),
            // The runner itself failed, for example because nothing came.
            (_, Some(kind)) => Verdict::Failed(format!("{kind}: {}", message())),
            (_, None) => panic!("the run has no verdict on {} for {id}", self.name),
        }
    }
}
