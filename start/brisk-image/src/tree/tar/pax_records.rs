//! The records of PAX extended headers: POSIX.1-2001 `pax`, and what GNU tar, star and libarchive
//! add to it.
//!
//! A record is `LENGTH KEY=VALUE\n`; the length, in decimal, is that of the whole record, so a
//! value may hold line ends and any other byte. An empty value takes back what an earlier header
//! said. The `tar` crate splits at line ends, which tears values apart.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use data_encoding::BASE64_NOPAD;

use super::decimal::decimal;
use super::sparse::PaxSparse;
use crate::format::xattr::MAX_VALUE;
use crate::read::xattr_reader::Xattr;

/// Bytes of the longest name of an attribute that Linux allows.
const MAX_XATTR_NAME: usize = 255;

/// What extended headers say about an entry.
#[derive(Debug, Clone, Default)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// Whole seconds since 1970.
    pub(super) mtime: Option<i64>,
    pub(super) device_major: Option<u32>,
    pub(super) device_minor: Option<u32>,
    /// star's name for the size of a file with its holes.
    pub(super) schily_size: Option<u64>,
    pub(super) sparse: PaxSparse,
    /// Attributes as star and GNU tar write them.
    schily: BTreeMap<OsString, Vec<u8>>,
    /// Attributes as libarchive writes them, beside those of star.
    libarchive: BTreeMap<OsString, Vec<u8>>,
}

/// What is wrong with a record, as it goes behind "extended header ... ".
pub(super) type Fault = String;

impl PaxRecords {
    /// Adds what the records in `bytes` say to what is known.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut rest = bytes;
        // Some programs count the padding.
        while rest.iter().any(|byte| *byte != 0) {
            let record = Record::parse(rest).ok_or_else(|| {
                format!(
                    "has no record at its byte {}, allowed is LENGTH KEY=VALUE and a line end",
                    bytes.len() - rest.len()
                )
            })?;
            rest = &rest[record.len..];
            self.set(record.key, record.value)?;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let shown = || format!("{}={}", key.escape_ascii(), value.escape_ascii());
        let text = || (!value.is_empty()).then(|| value.to_vec());
        let number = || match value {
            [] => Ok(None),
            _ => decimal(value)
                .map(Some)
                .ok_or_else(|| format!("says {}, allowed is a decimal number below 2^64", shown())),
        };
        let id = || match number()?.map(u32::try_from) {
            None => Ok(None),
            Some(Ok(id)) => Ok(Some(id)),
            Some(Err(_)) => Err(format!("says {}, allowed is at most {}", shown(), u32::MAX)),
        };
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.link_path = text(),
            b"size" => self.size = number()?,
            b"uid" => self.uid = id()?,
            b"gid" => self.gid = id()?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => {
                let time = seconds(value).ok_or_else(|| {
                    format!(
                        "says {}, allowed are seconds with or without a fraction",
                        shown()
                    )
                })?;
                self.mtime = Some(time);
            }
            b"SCHILY.devmajor" => self.device_major = id()?,
            b"SCHILY.devminor" => self.device_minor = id()?,
            b"SCHILY.realsize" => self.schily_size = number()?,
            // Names are taken as bytes, whatever their characters.
            b"hdrcharset" if !matches!(value, b"" | b"BINARY" | b"ISO-IR 10646 2000 UTF-8") => {
                return Err(format!("says {}, allowed are BINARY and UTF-8", shown()));
            }
            b"SUN.holesdata" => {
                return Err(
                    "describes a sparse file in Solaris' way, which is not supported; archive it without holes, or with GNU tar or bsdtar"
                        .into(),
                );
            }
            b"GNU.volume.filename" | b"GNU.volume.size" | b"GNU.volume.offset" => {
                return Err(
                    "continues a file of another volume, which is not supported; unpack the volumes with `tar -xM` and pack the directory"
                        .into(),
                );
            }
            // The kernel keeps labels with their final NUL, and names of ACLs in its own form.
            b"RHT.security.selinux" => {
                self.add_schily(b"security.selinux", [value, b"\0"].concat())?;
            }
            b"SCHILY.acl.access" if !value.is_empty() => {
                self.add_schily(b"system.posix_acl_access", value.to_vec())?;
            }
            b"SCHILY.acl.default" if !value.is_empty() => {
                self.add_schily(b"system.posix_acl_default", value.to_vec())?;
            }
            b"SCHILY.acl.ace" if !value.is_empty() => {
                self.add_schily(b"system.nfs4_acl", value.to_vec())?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.add_schily(&decode_percent(name, b"%="), value.to_vec())?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let name = xattr_name(&decode_percent(name, b""))?;
                    let value = decode_base64(value)
                        .ok_or_else(|| format!("says {}, allowed is base 64", shown()))?;
                    self.libarchive.insert(name, checked_value(value)?);
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse
                        .set(key, value)
                        .ok_or_else(|| format!("says {}, which is not a map of holes", shown()))?;
                }
            }
        }
        Ok(())
    }

    fn add_schily(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), Fault> {
        self.schily.insert(xattr_name(name)?, checked_value(value)?);
        Ok(())
    }

    /// What these records, of a global header, say about a single entry and so cannot say about
    /// all.
    pub(super) fn not_global(&self) -> Option<&'static str> {
        let said = [
            (self.path.is_some(), "path"),
            (self.link_path.is_some(), "linkpath"),
            (self.size.is_some(), "size"),
            (self.schily_size.is_some(), "SCHILY.realsize"),
            (self.sparse != PaxSparse::default(), "GNU.sparse"),
            (!self.schily.is_empty(), "SCHILY.xattr"),
            (!self.libarchive.is_empty(), "LIBARCHIVE.xattr"),
        ];
        said.into_iter().find_map(|(said, key)| said.then_some(key))
    }

    /// The extended attributes. libarchive writes each in both forms, but in star's without
    /// escaping `=`: where its own form is there, that holds.
    pub(super) fn take_xattrs(&mut self) -> Vec<Xattr> {
        let schily = std::mem::take(&mut self.schily);
        let mut xattrs = std::mem::take(&mut self.libarchive);
        if xattrs.is_empty() {
            xattrs = schily;
        } else {
            let other = |name: &OsString| name.to_string_lossy().starts_with("system.");
            xattrs.extend(schily.into_iter().filter(|(name, _)| other(name)));
        }
        xattrs
            .into_iter()
            .map(|(name, value)| Xattr { name, value })
            .collect()
    }
}

struct Record<'a> {
    len: usize,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record that `bytes` start with.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let len = usize::try_from(decimal(&bytes[..space])?).ok()?;
        let text = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
        let equals = text.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&text[..equals], &text[equals + 1..]);
        (!key.is_empty()).then_some(Self { len, key, value })
    }
}

/// The second in which the time in `text` is, or the nearest there is a number for.
fn seconds(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        text => (false, text),
    };
    let end = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = text.split_at(end.unwrap_or(text.len()));
    let fraction = fraction.strip_prefix(b".").unwrap_or_default();
    if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let whole = decimal(whole).and_then(|whole| i64::try_from(whole).ok());
    let whole = whole.unwrap_or(i64::MAX);
    Some(match negative {
        false => whole,
        true => (-whole).saturating_sub(fraction.iter().any(|byte| *byte != b'0').into()),
    })
}

fn xattr_name(name: &[u8]) -> Result<OsString, Fault> {
    if name.len() > MAX_XATTR_NAME || name.contains(&0) {
        return Err(format!(
            "names an xattr of {} bytes, allowed are {MAX_XATTR_NAME} without NUL",
            name.len()
        ));
    }
    Ok(OsString::from_vec(name.to_vec()))
}

fn checked_value(value: Vec<u8>) -> Result<Vec<u8>, Fault> {
    if value.len() > MAX_VALUE as usize {
        return Err(format!(
            "has an xattr of {} bytes, allowed are {MAX_VALUE}",
            value.len()
        ));
    }
    Ok(value)
}

/// `text` with each `%XX` replaced by the byte it stands for; unless `only` is empty, if that byte
/// is in it.
fn decode_percent(text: &[u8], only: &[u8]) -> Vec<u8> {
    let hex = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, after @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => Some((high << 4 | low, after)),
                _ => None,
            },
            _ => None,
        };
        let escaped = escaped.filter(|(byte, _)| only.is_empty() || only.contains(byte));
        let (byte, after) = escaped.unwrap_or((*first, after));
        decoded.push(byte);
        rest = after;
    }
    decoded
}

/// Base 64 with or without padding.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().position(|byte| *byte == b'=');
    let (digits, padding) = text.split_at(end.unwrap_or(text.len()));
    match padding {
        b"" | b"=" | b"==" => BASE64_NOPAD.decode(digits).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with its length in front.
    fn record(text: &str) -> String {
        let mut len = text.len() + 2;
        while format!("{len} {text}\n").len() != len {
            len += 1;
        }
        format!("{len} {text}\n")
    }

    fn xattrs(text: &[&str]) -> Vec<(String, Vec<u8>)> {
        let mut records = PaxRecords::default();
        for text in text {
            records.add(record(text).as_bytes()).unwrap();
        }
        let xattrs = records.take_xattrs().into_iter();
        xattrs
            .map(|xattr| (xattr.name.into_string().unwrap(), xattr.value))
            .collect()
    }

    #[test]
    fn values_may_hold_line_ends_and_equals_signs() {
        let mut records = PaxRecords::default();
        let text = record("path=a\n12 b=c") + &record("uid=7") + "\0\0\0";
        records.add(text.as_bytes()).unwrap();
        assert_eq!(records.path.as_deref(), Some(b"a\n12 b=c".as_slice()));
        assert_eq!(records.uid, Some(7));
        records.add(record("uid=").as_bytes()).unwrap();
        assert_eq!(records.uid, None);
    }

    #[test]
    fn times_are_the_second_they_are_in() {
        for (text, time) in [
            ("1.999999999", Some(1)),
            ("1.", Some(1)),
            ("-1.5", Some(-2)),
            ("-1.000", Some(-1)),
            ("99999999999999999999", Some(i64::MAX)),
            ("", None),
            (".5", None),
            ("1e9", None),
            ("--1", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), time, "{text}");
        }
    }

    #[test]
    fn attributes_of_three_programs() {
        // GNU tar escapes two bytes in names; libarchive all but letters and digits.
        assert_eq!(
            xattrs(&[
                "SCHILY.xattr.user.a%3Db%25c%41=x\ny",
                "SCHILY.xattr.user.e="
            ]),
            [
                ("user.a=b%c%41".into(), b"x\ny".to_vec()),
                ("user.e".into(), b"".to_vec())
            ]
        );
        assert_eq!(
            xattrs(&[
                "LIBARCHIVE.xattr.user.a%3Db=AP+/eA",
                "SCHILY.xattr.user.a=b=torn",
                "SCHILY.acl.access=user::rwx",
                "SCHILY.acl.ace=owner@:rw::allow",
            ]),
            [
                ("system.nfs4_acl".into(), b"owner@:rw::allow".to_vec()),
                ("system.posix_acl_access".into(), b"user::rwx".to_vec()),
                ("user.a=b".into(), b"\0\xff\xbfx".to_vec())
            ]
        );
        assert_eq!(
            xattrs(&["RHT.security.selinux=system_u:object_r:bin_t:s0"]),
            [(
                "security.selinux".into(),
                b"system_u:object_r:bin_t:s0\0".to_vec()
            )]
        );
    }

    #[test]
    fn base_64() {
        for (text, value) in [
            ("", Some(b"".as_slice())),
            ("YQ", Some(b"a")),
            ("YQ==", Some(b"a")),
            ("YWI", Some(b"ab")),
            ("YWJj", Some(b"abc")),
            ("Y", None),
            ("Y Q=", None),
            ("YQ==YQ==", None),
        ] {
            assert_eq!(decode_base64(text.as_bytes()).as_deref(), value, "{text}");
        }
    }

    #[test]
    fn faults() {
        let no_record =
            "has no record at its byte 0, allowed is LENGTH KEY=VALUE and a line end".to_owned();
        for (bytes, fault) in [
            ("path=x\n", no_record.clone()),
            ("99 path=x\n", no_record.clone()),
            ("8 path=x\n", no_record.clone()),
            ("0 path=x\n", no_record.clone()),
            ("9 =xxxxx\n", no_record.clone()),
            ("-10 path=x\n", no_record),
            (
                &record("uid=-1"),
                "says uid=-1, allowed is a decimal number below 2^64".into(),
            ),
            (
                &record("gid=4294967296"),
                "says gid=4294967296, allowed is at most 4294967295".into(),
            ),
            (
                &record("mtime=now"),
                "says mtime=now, allowed are seconds with or without a fraction".into(),
            ),
            (
                &record("hdrcharset=KOI8"),
                "says hdrcharset=KOI8, allowed are BINARY and UTF-8".into(),
            ),
            (
                &record("LIBARCHIVE.xattr.user.a=*.*"),
                "says LIBARCHIVE.xattr.user.a=*.*, allowed is base 64".into(),
            ),
            (
                &record("GNU.sparse.map=1,2,3,4,5,6\x00"),
                "says GNU.sparse.map=1,2,3,4,5,6\\x00, which is not a map of holes".into(),
            ),
        ] {
            assert_eq!(
                PaxRecords::default().add(bytes.as_bytes()),
                Err(fault),
                "{bytes}"
            );
        }
    }
}
