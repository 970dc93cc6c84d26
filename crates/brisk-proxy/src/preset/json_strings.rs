//! Replaces strings of a JSON text, and leaves every other byte as it is.

use std::ops::Range;

/// The deepest nesting.
const MOST_DEPTH: usize = 64;

/// A text is no JSON, or is nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJson {
    /// Where that was found.
    pub at: usize,
}

/// Where a string stands: what holds it.
enum Holder {
    /// An object, and the key whose value comes next.
    Object(Option<Range<usize>>),
    Array,
}

/// A step from the whole text to a string in it. `None` stands for any key, or any place in an array.
pub type Step = Option<&'static str>;

/// Calls `replace` with each string that stands at one of `places`, and puts what it returns in its place.
///
/// A key with an escape in it is no step of a place.
pub fn replace(
    text: &[u8],
    places: &[&[Step]],
    mut replace: impl FnMut(&str) -> Option<String>,
) -> Result<Vec<u8>, NotJson> {
    let mut new = Vec::with_capacity(text.len());
    let mut copied = 0;
    let mut holders: Vec<Holder> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let next = at + 1;
        match byte {
            b'{' | b'[' => {
                if holders.len() == MOST_DEPTH {
                    return Err(NotJson { at });
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
                    _ => return Err(NotJson { at }),
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
                                serde_json::from_slice(whole).map_err(|_| NotJson { at })?;
                            if let Some(value) = replace(&value) {
                                new.extend_from_slice(text.get(copied..at).unwrap_or_default());
                                new.extend(serde_json::to_vec(&value).map_err(|_| NotJson { at })?);
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
                    return Err(NotJson { at });
                }
                value_ends(&mut holders);
                at += length;
            }
        }
    }
    if !holders.is_empty() {
        return Err(NotJson { at });
    }
    new.extend_from_slice(text.get(copied..).unwrap_or_default());
    Ok(new)
}

/// A value has ended: in an object, a key comes next.
fn value_ends(holders: &mut [Holder]) {
    if let Some(Holder::Object(key)) = holders.last_mut() {
        *key = None;
    }
}

/// Behind the quote that ends the string at `start`.
fn string_end(text: &[u8], start: usize) -> Result<usize, NotJson> {
    let mut at = start + 1;
    loop {
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err(NotJson { at: start }),
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

    fn upper(text: &str, places: &[&[Step]]) -> Result<String, NotJson> {
        let new = replace(text.as_bytes(), places, |value| Some(value.to_uppercase()));
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
    }
}
