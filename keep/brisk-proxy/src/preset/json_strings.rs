//! Replaces strings of a JSON text, and leaves every other byte as it is.

use std::ops::Range;

use super::links::{Unreadable, add};

/// The deepest nesting.
const MOST_DEPTH: usize = 64;

/// The text is no JSON, or is nested too deeply.
const NOT_JSON: Unreadable = Unreadable("it is no JSON");

/// Where a string stands: what holds it.
enum Holder {
    /// An object, and the key whose value comes next.
    Object(Option<Range<usize>>),
    Array,
}

/// A step from the whole text to a string in it. `None` stands for any key, or any place in an array.
pub type Step = Option<&'static str>;

/// Calls `replace` with each string that stands at one of `places`, and puts what it returns in its place. What comes of it has
/// at most `most` bytes.
///
/// A key with an escape in it is no step of a place.
pub fn replace(
    text: &[u8],
    places: &[&[Step]],
    most: usize,
    mut replace: impl FnMut(&str) -> Option<String>,
) -> Result<Vec<u8>, Unreadable> {
    let mut new = Vec::with_capacity(most.min(text.len()));
    let mut copied = 0;
    let mut holders: Vec<Holder> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let next = at + 1;
        match byte {
            b'{' | b'[' => {
                if holders.len() == MOST_DEPTH {
                    return Err(NOT_JSON);
                }
                holders.push(match byte {
                    b'{' => Holder::Object(None),
                    _ => Holder::Array,
                });
                at = next;
            }
            b'}' | b']' => {
                match (holders.pop(), byte) {
                    (Some(Holder::Object(None)), b'}') | (Some(Holder::Array), b']') => {}
                    _ => return Err(NOT_JSON),
                }
                value_ends(&mut holders);
                at = next;
            }
            b'"' => {
                let end = string_end(text, at)?;
                let inner = next..end - 1;
                match holders.last_mut() {
                    Some(Holder::Object(key @ None)) => *key = Some(inner),
                    _ => {
                        if is_at(text, &holders, places) {
                            let whole = text.get(at..end).unwrap_or_default();
                            let value: String =
                                serde_json::from_slice(whole).map_err(|_| NOT_JSON)?;
                            if let Some(value) = replace(&value) {
                                add(&mut new, text.get(copied..at).unwrap_or_default(), most)?;
                                let value = serde_json::to_vec(&value).map_err(|_| NOT_JSON)?;
                                add(&mut new, &value, most)?;
                                copied = end;
                            }
                        }
                        value_ends(&mut holders);
                    }
                }
                at = end;
            }
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' => at = next,
            _ => {
                let rest = text.get(at..).unwrap_or_default();
                let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = rest.iter().take_while(|byte| is_word(byte)).count();
                if length == 0 || matches!(holders.last(), Some(Holder::Object(None))) {
                    return Err(NOT_JSON);
                }
                value_ends(&mut holders);
                at += length;
            }
        }
    }
    if !holders.is_empty() {
        return Err(NOT_JSON);
    }
    add(&mut new, text.get(copied..).unwrap_or_default(), most)?;
    Ok(new)
}

/// A value has ended: in an object, a key comes next.
fn value_ends(holders: &mut [Holder]) {
    if let Some(Holder::Object(key)) = holders.last_mut() {
        *key = None;
    }
}

/// Behind the quote that ends the string at `start`.
fn string_end(text: &[u8], start: usize) -> Result<usize, Unreadable> {
    let mut at = start + 1;
    loop {
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err(NOT_JSON),
        }
    }
}

fn is_at(text: &[u8], holders: &[Holder], places: &[&[Step]]) -> bool {
    places.iter().any(|place| {
        place.len() == holders.len()
            && place
                .iter()
                .zip(holders)
                .all(|(step, holder)| match (step, holder) {
                    (None, _) => true,
                    (Some(step), Holder::Object(Some(key))) => {
                        text.get(key.clone()) == Some(step.as_bytes())
                    }
                    (Some(_), _) => false,
                })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper(text: &str, places: &[&[Step]]) -> Result<String, Unreadable> {
        let new = replace(text.as_bytes(), places, 1000, |value| {
            Some(value.to_uppercase())
        });
        new.map(|new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn only_strings_at_the_places_are_replaced() {
        let files: &[Step] = &[Some("files"), None, Some("url")];
        for (text, expected) in [
            (
                r#"{"a": "url", "files" : [ {"url":"a\/b\u00e4", "x":"url"}, {"y":{"url":"c"},"url" :"d"} ]}"#,
                r#"{"a": "url", "files" : [ {"url":"A/BÄ", "x":"url"}, {"y":{"url":"c"},"url" :"D"} ]}"#,
            ),
            (r#"{"files":[],"url":"a"}"#, r#"{"files":[],"url":"a"}"#),
            (
                r#"{"files":{"x":{"url":"a"}}}"#,
                r#"{"files":{"x":{"url":"A"}}}"#,
            ),
            (
                r#"{"files":[{"url":null,"n":-1.5e+3,"t":true}]}"#,
                r#"{"files":[{"url":null,"n":-1.5e+3,"t":true}]}"#,
            ),
            (
                r#"[{"files":[{"url":"a"}]}]"#,
                r#"[{"files":[{"url":"a"}]}]"#,
            ),
            (r#""files""#, r#""files""#),
            ("  {\n}\n", "  {\n}\n"),
        ] {
            assert_eq!(upper(text, &[files]), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "{",
            "]",
            "{]",
            r#"{"a"#,
            r#"{"a":1"#,
            r#"{"a\"}"#,
            "<html>",
            "{1:2}",
            r#"{"a"}"#,
        ] {
            assert!(upper(text, &[]).is_err(), "{text}");
        }
        assert!(upper(&"[".repeat(1000), &[]).is_err());
        let grown = |most| replace(b"[\"a\"]", &[&[None]], most, |_| Some("abc".to_owned()));
        assert_eq!(grown(7), Ok(b"[\"abc\"]".into()));
        assert!(grown(6).is_err());
    }
}
