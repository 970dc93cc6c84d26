/// A version of PEP 440 in its parts. Nothing is copied: the release and the local label stay text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionParts<'a> {
    pub(crate) epoch: u64,
    /// 1. Digits and single dots between them, and each number fits in 64 bits.
    release: &'a str,
    pub(crate) pre: Option<(Phase, u64)>,
    pub(crate) post: Option<u64>,
    pub(crate) dev: Option<u64>,
    /// What follows `+`, as it is spelled.
    pub(crate) local: Option<&'a str>,
}

/// What comes before a final release, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Alpha,
    Beta,
    Candidate,
}

impl<'a> VersionParts<'a> {
    /// The parts of a version. None if the text is none, or if a number of it needs more than 64 bits.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut rest = Rest(text.trim_ascii());
        rest.letters(&["v"]);
        let mut release = rest.release()?;
        let mut epoch = 0;
        if rest.letters(&["!"]).is_some() {
            epoch = release.parse().ok()?;
            release = rest.release()?;
        }
        // The longer spelling of two that begin alike comes first.
        let pre = match rest.suffix(&["alpha", "beta", "preview", "pre", "rc", "a", "b", "c"])? {
            Some((0 | 5, number)) => Some((Phase::Alpha, number)),
            Some((1 | 6, number)) => Some((Phase::Beta, number)),
            Some((_, number)) => Some((Phase::Candidate, number)),
            None => None,
        };
        let post = match rest.implicit_post()? {
            Some(number) => Some(number),
            None => rest
                .suffix(&["post", "rev", "r"])?
                .map(|(_, number)| number),
        };
        let dev = rest.suffix(&["dev"])?.map(|(_, number)| number);
        let local = rest.local()?;
        rest.0.is_empty().then_some(Self {
            epoch,
            release,
            pre,
            post,
            dev,
            local,
        })
    }

    /// The numbers of the release.
    pub(crate) fn release(&self) -> impl Iterator<Item = u64> + 'a {
        // By invariant 1 each is a number.
        self.release
            .split('.')
            .map(|number| number.parse().unwrap_or(u64::MAX))
    }

    /// Whether it is one that nobody gets who does not ask for such.
    pub(crate) fn is_prerelease(&self) -> bool {
        self.pre.is_some() || self.dev.is_some()
    }
}

/// What is left to parse.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes one of these beginnings, whatever its case, and says which.
    fn letters(&mut self, beginnings: &[&str]) -> Option<usize> {
        let which = beginnings.iter().position(|beginning| {
            self.0
                .as_bytes()
                .get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
        })?;
        self.0 = &self.0[beginnings[which].len()..];
        Some(which)
    }

    fn digits(&mut self) -> &'a str {
        let end = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits
    }

    /// Digits with single dots between them.
    fn release(&mut self) -> Option<&'a str> {
        let all = self.0;
        loop {
            self.digits().parse::<u64>().ok()?;
            let mut after = Rest(self.0);
            if after.letters(&["."]).is_none() || !after.0.starts_with(|c: char| c.is_ascii_digit())
            {
                return Some(&all[..all.len() - self.0.len()]);
            }
            self.0 = after.0;
        }
    }

    /// A separator if there is one, one of these words, and its number: 0 if it has none. The outer None is a number
    /// that needs more than 64 bits.
    #[allow(clippy::option_option, reason = "what is absent is not what is wrong")]
    fn suffix(&mut self, words: &[&str]) -> Option<Option<(usize, u64)>> {
        let mut after = Rest(self.0);
        after.letters(&[".", "-", "_"]);
        let Some(which) = after.letters(words) else {
            return Some(None);
        };
        self.0 = after.0;
        let mut number = Rest(self.0);
        number.letters(&[".", "-", "_"]);
        let digits = number.digits();
        // The separator belongs to it without a number too.
        self.0 = number.0;
        if digits.is_empty() {
            return Some(Some((which, 0)));
        }
        Some(Some((which, digits.parse().ok()?)))
    }

    /// `-1` is another spelling of `.post1`.
    #[allow(clippy::option_option, reason = "what is absent is not what is wrong")]
    fn implicit_post(&mut self) -> Option<Option<u64>> {
        let mut after = Rest(self.0);
        if after.letters(&["-"]).is_none() {
            return Some(None);
        }
        let digits = after.digits();
        if digits.is_empty() {
            return Some(None);
        }
        self.0 = after.0;
        Some(Some(digits.parse().ok()?))
    }

    /// The label after `+`: letters and digits with single separators between them.
    #[allow(clippy::option_option, reason = "what is absent is not what is wrong")]
    fn local(&mut self) -> Option<Option<&'a str>> {
        if self.letters(&["+"]).is_none() {
            return Some(None);
        }
        let label = self.0;
        let good = label
            .split(['.', '-', '_'])
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()));
        self.0 = "";
        good.then_some(Some(label))
    }
}
