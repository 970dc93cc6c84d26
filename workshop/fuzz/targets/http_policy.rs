//! Any messages, clocks and options: what is stored, used and updated is what the rules allow, and the stored bytes decide
//! alike wherever they lie. Any stored bytes: nothing panics, and views are bounded.
#![no_main]

use arbitrary::Arbitrary;
use brisk_http::{Options, Secret, Times, Timestamp, Variants};
use http::{HeaderMap, Method, StatusCode};
use libfuzzer_sys::fuzz_target;

#[path = "../../../keep/brisk-http/tests/support/hostile.rs"]
mod hostile;

#[derive(Debug, Arbitrary)]
struct Case<'a> {
    method: u8,
    asked: Vec<Line<'a>>,
    status: u16,
    answered: Vec<Line<'a>>,
    times: [Time; 3],
    asked_again: Vec<Line<'a>>,
    newer: Vec<Line<'a>>,
    options: Choices,
    damage: Vec<(u16, u8)>,
    stored: &'a [u8],
}

#[derive(Debug, Arbitrary)]
struct Line<'a> {
    name: u8,
    value: Value<'a>,
}

#[derive(Debug, Arbitrary)]
enum Value<'a> {
    Pieces(Vec<u8>),
    Bytes(&'a [u8]),
    /// So many times the same piece.
    Long(u8, u16),
}

#[derive(Debug, Arbitrary)]
enum Time {
    Near(u8),
    Any(u64),
}

#[derive(Debug, Arbitrary)]
struct Choices {
    shared: bool,
    secret: bool,
    offline: bool,
    estimates: bool,
    min_lifetime: Option<u32>,
    max_lifetime: Option<u32>,
    negative_lifetime: Option<u32>,
    stale_while_revalidate: Option<u32>,
    stale_if_error: Option<u32>,
    stale_when_disconnected: Option<u32>,
}

fuzz_target!(|case: Case<'_>| {
    let [sent, came, now] = case.times.each_ref().map(Time::timestamp);
    let exchange = hostile::Exchange {
        method: [Method::GET, Method::HEAD, Method::POST, Method::PUT]
            [usize::from(case.method % 4)]
        .clone(),
        asked: fields(&case.asked),
        status: StatusCode::from_u16(100 + case.status % 900).expect("it has three digits"),
        answered: fields(&case.answered),
        times: Times {
            request: sent,
            response: came,
        },
        asked_again: fields(&case.asked_again),
        newer: fields(&case.newer),
        now,
        options: case.options.options(),
    };
    let hostile::Exchange {
        asked,
        asked_again,
        newer,
        options,
        ..
    } = &exchange;
    if let Some(policy) = exchange.exercise() {
        let mut variants = variants_of(&policy);
        for bytes in [&mut variants, &mut policy.clone()] {
            for (at, byte) in &case.damage {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            hostile::look_at_stored(bytes, asked, newer, now, options);
        }
    }
    hostile::look_at_stored(case.stored, asked_again, newer, now, options);
});

/// The bytes of the variants of one policy: their number, its end, and itself.
fn variants_of(policy: &[u8]) -> Vec<u8> {
    let end = u32::try_from(policy.len()).expect("it is short");
    let bytes = [&1u32.to_le_bytes(), &end.to_le_bytes(), policy].concat();
    assert_eq!(
        Variants::view(&bytes).expect("it is whole").bytes(0),
        Some(policy)
    );
    bytes
}

/// Text of pieces, whose characters are bytes.
fn fields(lines: &[Line<'_>]) -> HeaderMap {
    let piece = |at: u8| hostile::PIECES[usize::from(at) % hostile::PIECES.len()];
    let bytes = |text: String| text.chars().map(|c| c as u8).collect::<Vec<u8>>();
    let lines: Vec<_> = lines
        .iter()
        .map(|line| {
            let name = hostile::NAMES[usize::from(line.name) % hostile::NAMES.len()];
            let value = match &line.value {
                Value::Pieces(pieces) => bytes(pieces.iter().copied().map(piece).collect()),
                Value::Bytes(bytes) => bytes.to_vec(),
                Value::Long(at, times) => bytes(piece(*at).repeat(usize::from(times % 4096))),
            };
            (name, value)
        })
        .collect();
    hostile::fields(lines.iter().map(|(name, value)| (*name, &value[..])))
}

impl Time {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix(match self {
            Self::Near(seconds) => 1_700_000_000 + u64::from(*seconds),
            Self::Any(seconds) => *seconds,
        })
    }
}

impl Choices {
    fn options(&self) -> Options {
        let mut options = match self.shared {
            true => Options::shared(),
            false => Options::private(),
        };
        options.secret = self.secret.then(|| Secret::new([1; 16]));
        options.offline = self.offline;
        options.heuristic = options.heuristic.filter(|_| self.estimates);
        options.min_lifetime = self.min_lifetime;
        options.max_lifetime = self.max_lifetime;
        options.negative_lifetime = self.negative_lifetime;
        options.stale_while_revalidate = self.stale_while_revalidate;
        options.stale_if_error = self.stale_if_error;
        options.stale_when_disconnected = self.stale_when_disconnected;
        options
    }
}
