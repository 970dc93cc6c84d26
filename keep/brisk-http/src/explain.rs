use std::fmt::Write;

use crate::decision::{Action, Decision};
use crate::head::Request;
use crate::options::Options;
use crate::stored_policy::StoredPolicy;
use crate::timestamp::Timestamp;
use crate::wire::flag;

impl StoredPolicy<'_> {
    /// What would happen to a request, and why, in words: some lines of text. It has no value of a field.
    pub fn explain(&self, request: &Request<'_>, now: Timestamp, options: &Options) -> String {
        let decision = self.decide(request, now, options);
        let mut text = sentence(&decision);
        let mut line = |line: &str| {
            text.push('\n');
            text.push_str(line);
        };
        let mut facts = format!(
            "status {}, age {} s, lifetime {} s (from {})",
            self.status().as_u16(),
            decision.age,
            decision.lifetime,
            self.lifetime_source(options)
        );
        match decision.ttl() {
            left if left > 0 => write!(facts, ", fresh for {left} s"),
            left => write!(facts, ", stale for {} s", left.unsigned_abs()),
        }
        .expect("a string takes any text");
        line(&facts);
        line(&match (
            self.validators().is_empty(),
            self.etag(),
            self.last_modified_text(),
        ) {
            (false, Some(etag), _) if etag.weak => "validated by a weak entity tag".to_owned(),
            (false, Some(_), _) => "validated by a strong entity tag".to_owned(),
            (false, None, Some(_)) => "validated by the time of its last change".to_owned(),
            _ => "no validator: it is fetched again as a whole".to_owned(),
        });
        if self.selecting_fields() > 0 {
            let names: Vec<_> = self
                .selecting_names()
                .map(|(name, _)| String::from_utf8_lossy(name))
                .collect();
            line(&format!("depends on the request's {}", names.join(", ")));
        }
        let notes = [
            (
                flag::IMMUTABLE,
                "immutable: a reload does not ask for it while it is fresh",
            ),
            (flag::MUST_REVALIDATE, "never used stale"),
            (flag::PARTIAL, "a part of the representation"),
        ];
        for (_, note) in notes.iter().filter(|(flag, _)| self.has(*flag)) {
            line(note);
        }
        line(&format!("body of {} bytes", self.body().len()));
        text
    }
}

fn sentence(decision: &Decision) -> String {
    let what = match decision.action {
        Action::Use => "used without asking the origin",
        Action::UseAndRevalidate => "used, and revalidated behind the answer",
        Action::Revalidate => "revalidated with the origin",
        Action::Forward => "not used: the request goes to the origin",
        Action::GatewayTimeout => "answered with 504",
    };
    format!("{what}, because {}", decision.reason)
}
