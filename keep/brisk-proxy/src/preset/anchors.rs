//! Replaces the targets of links in an HTML page, and leaves every other byte as it is.
//!
//! This reads tags as HTML says (WHATWG, section 13.2.5), as far as a page of links has them: comments, quoted and unquoted
//! attributes, character references. Scripts and styles are skipped.

use std::borrow::Cow;
use std::ops::Range;

use brisk_terminal::page::encoded;

use super::links::{Unreadable, add};

/// A `href` of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link<'a> {
    /// Of an `a`.
    Anchor(&'a str),
    /// Of a `base`: what relative targets of the page stand on.
    Base(&'a str),
}

/// Calls `replace` with each link, in order, and puts what it returns in place of its target.
///
/// What comes of it has at most `most` bytes.
pub fn replace(
    page: &str,
    most: usize,
    mut replace: impl FnMut(Link<'_>) -> Option<String>,
) -> Result<Vec<u8>, Unreadable> {
    let mut new = Vec::with_capacity(most.min(page.len() + page.len() / 8));
    let mut copied = 0;
    let mut at = 0;
    while let Some(open) = page.get(at..).and_then(|rest| rest.find('<')) {
        let start = at + open;
        let rest = page.get(start..).unwrap_or_default();
        if rest.starts_with("<!--") {
            at = end_of(page, start + 4, "-->");
            continue;
        }
        let name_len = rest
            .bytes()
            .skip(1)
            .take_while(u8::is_ascii_alphanumeric)
            .count();
        let name = rest.get(1..1 + name_len).unwrap_or_default();
        if name.is_empty() {
            at = start + 1;
            continue;
        }
        let tag = Tag::read(page, start + 1 + name_len);
        at = tag.end;
        for raw in ["script", "style"] {
            if name.eq_ignore_ascii_case(raw) {
                at = end_of_raw(page, at, raw);
            }
        }
        let is_base = name.eq_ignore_ascii_case("base");
        if !is_base && !name.eq_ignore_ascii_case("a") {
            continue;
        }
        let Some(href) = tag.href else { continue };
        let target = decoded(page.get(href.clone()).unwrap_or_default().trim());
        let link = match is_base {
            true => Link::Base(&target),
            false => Link::Anchor(&target),
        };
        if let Some(target) = replace(link) {
            let before = page.get(copied..href.start).unwrap_or_default();
            add(&mut new, before.as_bytes(), most)?;
            // A target without quotes ends at a blank, and URLs have none.
            add(&mut new, encoded(&target).as_bytes(), most)?;
            copied = href.end;
        }
    }
    let rest = page.get(copied..).unwrap_or_default();
    add(&mut new, rest.as_bytes(), most)?;
    Ok(new)
}

fn end_of(page: &str, from: usize, mark: &str) -> usize {
    let found = page.get(from..).and_then(|rest| rest.find(mark));
    found.map_or(page.len(), |found| from + found + mark.len())
}

/// Behind the tag that ends a script or a style.
fn end_of_raw(page: &str, from: usize, name: &str) -> usize {
    let rest = page.get(from..).unwrap_or_default().as_bytes();
    let mark = format!("</{name}");
    let found = rest
        .windows(mark.len())
        .position(|window| window.eq_ignore_ascii_case(mark.as_bytes()));
    found.map_or(page.len(), |found| from + found)
}

/// The attributes of a tag, as far as they matter.
struct Tag {
    href: Option<Range<usize>>,
    end: usize,
}

impl Tag {
    /// Reads the attributes at `at`.
    fn read(page: &str, mut at: usize) -> Self {
        let bytes = page.as_bytes();
        let get = |at: usize| bytes.get(at).copied();
        let is_blank = |byte: u8| byte.is_ascii_whitespace();
        let mut href = None;
        loop {
            while get(at).is_some_and(|byte| is_blank(byte) || byte == b'/') {
                at += 1;
            }
            match get(at) {
                None => return Self { href, end: at },
                Some(b'>') => return Self { href, end: at + 1 },
                Some(_) => {}
            }
            let name_start = at;
            // A name may begin with an equals sign.
            at += 1;
            while get(at).is_some_and(|byte| !is_blank(byte) && !b"/>=".contains(&byte)) {
                at += 1;
            }
            let name = name_start..at;
            while get(at).is_some_and(is_blank) {
                at += 1;
            }
            if get(at) != Some(b'=') {
                continue;
            }
            at += 1;
            while get(at).is_some_and(is_blank) {
                at += 1;
            }
            let value = match get(at) {
                Some(quote @ (b'"' | b'\'')) => {
                    let start = at + 1;
                    at = start;
                    while get(at).is_some_and(|byte| byte != quote) {
                        at += 1;
                    }
                    let value = start..at;
                    at += 1;
                    value
                }
                _ => {
                    let start = at;
                    while get(at).is_some_and(|byte| !is_blank(byte) && byte != b'>') {
                        at += 1;
                    }
                    start..at
                }
            };
            let is_href = bytes
                .get(name)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"href"));
            // Of an attribute that comes twice, the first one counts.
            if is_href && href.is_none() {
                href = Some(value);
            }
            at = at.min(bytes.len());
        }
    }
}

/// Text without character references. One that is not known stays as it is: URLs have no others.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let named = [
            ("amp;", '&'),
            ("lt;", '<'),
            ("gt;", '>'),
            ("quot;", '"'),
            ("apos;", '\''),
        ];
        let found = named
            .iter()
            .find_map(|(name, c)| Some((*c, after.strip_prefix(name)?)))
            .or_else(|| numbered(after));
        match found {
            Some((c, behind)) => {
                plain.push(c);
                rest = behind;
            }
            None => {
                plain.push('&');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// The character of `#38;` or `#x26;`, and what stands behind it.
fn numbered(text: &str) -> Option<(char, &str)> {
    let (number, behind) = text.strip_prefix('#')?.split_once(';')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    Some((char::from_u32(code.ok()?)?, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(page: &str) -> String {
        let new = replace(page, 1000, |link| match link {
            Link::Anchor(target) => Some(format!("[{target}]")),
            Link::Base(target) => Some(format!("({target})")),
        });
        String::from_utf8(new.unwrap()).unwrap()
    }

    #[test]
    fn a_page_does_not_outgrow_its_bound() {
        let page = "<a href=x>".repeat(10);
        let grown = |most| replace(&page, most, |_| Some("y".repeat(9))).map(|new| new.len());
        assert_eq!(grown(180), Ok(180));
        assert!(grown(179).is_err());
        // What grew must leave room for what stays.
        let page = format!("<a href=x>{}", "y".repeat(100));
        assert!(replace(&page, 110, |_| Some("yy".to_owned())).is_err());
    }

    #[test]
    fn targets_of_links_are_replaced_and_nothing_else() {
        for (page, expected) in [
            ("<a href=\"x\">y</a>", "<a href=\"[x]\">y</a>"),
            (
                "<A  HREF = 'x' data-a=\"b>c\" >",
                "<A  HREF = '[x]' data-a=\"b>c\" >",
            ),
            ("<a href=x>y", "<a href=[x]>y"),
            (
                "<a data-href=\"x\" href=\" y \">",
                "<a data-href=\"x\" href=\"[y]\">",
            ),
            (
                "<a href=\"x&amp;y&#38;z&#x26;&lt;\">",
                "<a href=\"[x&amp;y&amp;z&amp;&lt;]\">",
            ),
            ("<a href=\"x?a=1&b=2\">", "<a href=\"[x?a=1&amp;b=2]\">"),
            ("<a href=\"x\" href=\"y\">", "<a href=\"[x]\" href=\"y\">"),
            (
                "<base href=\"x\"><a href=\"y\"/>",
                "<base href=\"(x)\"><a href=\"[y]\"/>",
            ),
            (
                "<!-- <a href=\"x\"> --><a href=\"y\">",
                "<!-- <a href=\"x\"> --><a href=\"[y]\">",
            ),
            (
                "<abbr href=\"x\"><link href=\"y\">",
                "<abbr href=\"x\"><link href=\"y\">",
            ),
            (
                "<script>'<a href=\"x\">'</SCRIPT><a href=\"y\">",
                "<script>'<a href=\"x\">'</SCRIPT><a href=\"[y]\">",
            ),
            ("a < b <a href=\"x", "a < b <a href=\"[x]"),
            ("<a href>x</a><a>", "<a href>x</a><a>"),
            ("<a title=\"href='x'\">", "<a title=\"href='x'\">"),
            ("<!DOCTYPE html><!--", "<!DOCTYPE html><!--"),
            ("<a href=\"\u{e4}\">\u{e4}", "<a href=\"[\u{e4}]\">\u{e4}"),
        ] {
            assert_eq!(marked(page), expected, "{page}");
        }
    }

    #[test]
    fn any_cut_of_a_page_can_be_read() {
        let page = "<!-- c --><base href='a'><a href=\"b&#x26;\" data-x=y\u{e4}>t</a><script>x</script><a href=c>";
        for end in (0..=page.len()).filter(|end| page.is_char_boundary(*end)) {
            let cut = page.get(..end).unwrap();
            assert_eq!(replace(cut, 1000, |_| None), Ok(cut.into()));
            marked(cut);
        }
    }
}
