//! Targeted fields (RFC 9213), such as `CDN-Cache-Control`. They are Dictionaries of RFC 8941, and one that is not valid
//! as a whole does not exist.

use http::{HeaderMap, HeaderName};

use crate::directives::{MOST_SECONDS, ResponseDirectives};

/// A value of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Integer(i64),
    Boolean(bool),
    /// A decimal, string, token, byte sequence or inner list: no directive has one that counts.
    Other,
}

/// The directives of a targeted field. None if the response does not have it, if it is empty, or if it is invalid.
pub(crate) fn directives(headers: &HeaderMap, target: &HeaderName) -> Option<ResponseDirectives> {
    let mut all = ResponseDirectives {
        targeted: true,
        ..ResponseDirectives::default()
    };
    let mut members = 0;
    for line in headers.get_all(target) {
        let mut rest = Text(line.as_bytes());
        rest.skip(b" ");
        while !rest.0.is_empty() {
            let key = rest.key()?;
            let value = match rest.eat(b'=') {
                true => rest.item_or_list()?,
                false => Value::Boolean(true),
            };
            rest.parameters()?;
            apply(&mut all, key, value)?;
            members += 1;
            rest.skip(b" \t");
            if rest.0.is_empty() {
                break;
            }
            rest.eat(b',').then_some(())?;
            rest.skip(b" \t");
            // A comma at the end of the line.
            (!rest.0.is_empty()).then_some(())?;
        }
    }
    (members > 0).then_some(all)
}

/// None if a directive has a value of a type that it cannot have. The last one of a name counts (RFC 8941, section 3.2).
fn apply(all: &mut ResponseDirectives, key: &[u8], value: Value) -> Option<()> {
    let number = |value| match value {
        Value::Integer(number) => Some(
            u32::try_from(number.max(0))
                .unwrap_or(MOST_SECONDS)
                .min(MOST_SECONDS),
        ),
        _ => None,
    };
    let flag = |value| match value {
        Value::Boolean(flag) => Some(flag),
        // Names of fields. The whole response is safe to hold back, too.
        Value::Other => Some(true),
        Value::Integer(_) => None,
    };
    match key {
        b"max-age" => all.max_age = Some(number(value)?),
        b"s-maxage" => all.s_maxage = Some(number(value)?),
        b"stale-while-revalidate" => all.stale_while_revalidate = Some(number(value)?),
        b"stale-if-error" => all.stale_if_error = Some(number(value)?),
        b"no-store" => all.no_store = flag(value)?,
        b"no-cache" => all.no_cache = flag(value)?,
        b"private" => all.private = flag(value)?,
        b"public" => all.public = flag(value)?,
        b"must-revalidate" => all.must_revalidate = flag(value)?,
        b"proxy-revalidate" => all.proxy_revalidate = flag(value)?,
        b"must-understand" => all.must_understand = flag(value)?,
        b"immutable" => all.immutable = flag(value)?,
        _ => (),
    }
    Some(())
}

/// What is left of a line.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        self.take(|byte| bytes.contains(&byte));
    }

    fn eat(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let at = self.0.iter().position(|byte| !wanted(*byte));
        let (taken, rest) = self.0.split_at(at.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let begins = matches!(self.0.first()?, b'a'..=b'z' | b'*');
        begins.then(|| {
            self.take(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'))
        })
    }

    fn parameters(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.skip(b" ");
            self.key()?;
            if self.eat(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.eat(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.eat(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.0.first()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.eat(b'?');
                let flag = matches!(self.0.first()?, b'1');
                (self.eat(b'0') || self.eat(b'1')).then_some(Value::Boolean(flag))
            }
            b':' => {
                self.eat(b':');
                self.take(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.eat(b':').then_some(Value::Other)
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let negative = self.eat(b'-');
        let digits = self.take(|byte| byte.is_ascii_digit());
        if self.eat(b'.') {
            let fraction = self.take(|byte| byte.is_ascii_digit());
            let fits = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return fits.then_some(Value::Other);
        }
        if !(1..=15).contains(&digits.len()) {
            return None;
        }
        let sum = digits
            .iter()
            .fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if negative { -sum } else { sum }))
    }

    fn string(&mut self) -> Option<Value> {
        self.eat(b'"');
        loop {
            self.take(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
            if self.eat(b'"') {
                return Some(Value::Other);
            }
            let escaped = self.eat(b'\\') && (self.eat(b'"') || self.eat(b'\\'));
            escaped.then_some(())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(lines: &[&str]) -> Option<ResponseDirectives> {
        let name = HeaderName::from_static("cdn-cache-control");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, HeaderValue::from_str(line).unwrap());
        }
        directives(&headers, &name)
    }

    #[test]
    fn a_valid_dictionary_is_taken() {
        let all = of(&["max-age=60, foo;a=1;b, no-cache", "must-revalidate=?1"]).unwrap();
        assert_eq!(all.max_age, Some(60));
        assert!(all.no_cache && all.must_revalidate && all.targeted);
        assert_eq!(of(&["max-age=-5"]).unwrap().max_age, Some(0));
        assert_eq!(of(&["max-age=1,max-age=2"]).unwrap().max_age, Some(2));
        assert_eq!(
            of(&["max-age=999999999999999"]).unwrap().max_age,
            Some(MOST_SECONDS)
        );
        assert!(!of(&["no-store=?0"]).unwrap().no_store);
        assert!(
            of(&[r#"x="a\"b", y=(1 "2" z);q=1.5, z=:aGk=:, no-store"#])
                .unwrap()
                .no_store
        );
    }

    #[test]
    fn an_invalid_field_does_not_exist() {
        for lines in [
            &[][..],
            &[""],
            &["max-age=60, &&&&&"],
            &["max-age=\"60\""],
            &["max-age=60.5"],
            &["max-age"],
            &["MaX-aGe=60"],
            &["max-age =60"],
            &["max-age= 60"],
            &["max-age=60,"],
            &["max-age=60 no-store"],
            &["max-age=1234567890123456"],
            &["x=\"open, no-store"],
            &["x=(1, no-store"],
            &["no-store=1"],
            &["no-store;"],
            &["max-age=60", "&"],
        ] {
            assert_eq!(of(lines), None, "{lines:?}");
        }
    }
}
