use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::page_error::PageError;

/// What a server has compressed for the way, as its Content-Encoding says: gzip, or nothing. It has so many bytes at most.
///
/// # Errors
///
/// [`PageError::Coding`] for another coding, [`PageError::Gzip`] if the bytes are not of the coding or end too early, and
/// [`PageError::LongInside`] if they become too many.
pub fn decoded<'b>(
    content_encoding: Option<&str>,
    body: &'b [u8],
    most: usize,
) -> Result<Cow<'b, [u8]>, PageError> {
    let coding = content_encoding.unwrap_or_default().trim_ascii();
    if coding.is_empty() || coding.eq_ignore_ascii_case("identity") {
        return Ok(Cow::Borrowed(body));
    }
    if !coding.eq_ignore_ascii_case("gzip") && !coding.eq_ignore_ascii_case("x-gzip") {
        return Err(PageError::Coding {
            found: coding.chars().take(100).collect(),
        });
    }
    let bound = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut page = Vec::new();
    MultiGzDecoder::new(body)
        .take(bound)
        .read_to_end(&mut page)
        .map_err(|e| PageError::Gzip {
            bytes: body.len(),
            why: e.to_string(),
        })?;
    if page.len() > most {
        return Err(PageError::LongInside {
            bytes: body.len(),
            most,
        });
    }
    Ok(Cow::Owned(page))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn gzip_is_undone_up_to_a_bound() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&[b' '; 1000]).unwrap();
        let packed = encoder.finish().unwrap();
        for coding in ["gzip", "X-GZIP", " gzip "] {
            let page = decoded(Some(coding), &packed, 1000).unwrap();
            assert_eq!(*page, [b' '; 1000]);
        }
        for plain in [None, Some(""), Some("identity")] {
            assert_eq!(*decoded(plain, b"<a>", 0).unwrap(), *b"<a>");
        }
        let say =
            |coding, body: &[u8], most| decoded(Some(coding), body, most).unwrap_err().to_string();
        let len = packed.len();
        assert_eq!(
            say("gzip", &packed, 999),
            format!(
                "the {len} bytes of the answer become more than 999, which are allowed; check the index URL"
            )
        );
        assert_eq!(
            say("br", &packed, 1000),
            "the answer has the coding \"br\", and allowed are gzip and none; tell whoever runs the index"
        );
        for cut in 0..len {
            let said = say("gzip", &packed[..cut], 1000);
            let start = format!("the {cut} bytes of the answer are not whole gzip: ");
            assert!(said.starts_with(&start), "{said}");
        }
    }
}
