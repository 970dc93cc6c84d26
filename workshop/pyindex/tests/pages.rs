//! Pages become tables, or are refused with a reason.

use pyindex::{
    FileRecord, IndexTable, LeftOut, PageForm, ProjectName, table_of_page, table_of_whole_page,
};

const ADDRESS: &str = "https://index.example/simple/some/";
const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn table(form: PageForm, page: &str) -> Result<Vec<u8>, String> {
    let project = ProjectName::parse("some").unwrap();
    table_of_page(&project, &ADDRESS.parse().unwrap(), form, page.as_bytes())
        .map_err(|e| e.to_string())
}

fn view(bytes: &[u8]) -> IndexTable<'_> {
    IndexTable::view(bytes.into()).unwrap().unwrap()
}

fn files(bytes: &[u8]) -> Vec<(String, FileRecord<'_>)> {
    let table = view(bytes);
    let mut all = Vec::new();
    for version in 0..table.versions() {
        for file in table.files_of(version).unwrap() {
            let record = table.file(version, file).unwrap();
            all.push((table.version(version).unwrap().to_owned(), record));
        }
    }
    all
}

fn json(files: &str) -> String {
    format!(
        r#"{{"meta": {{"api-version": "1.3"}}, "name": "some", "files": [{files}], "versions": ["1"], "later": {{}}}}"#
    )
}

fn html(links: &str) -> String {
    format!("<!DOCTYPE html><html><body><h1>Links for some</h1>{links}</body></html>")
}

#[test]
fn both_forms_of_a_page_make_the_same_table() {
    let tree = format!(
        "https://files.example/packages/{}/{}/{}/",
        &DIGEST[..2],
        &DIGEST[2..4],
        &DIGEST[4..]
    );
    let json = json(&format!(
        r#"{{"filename": "Some-1.10-py3-none-any.whl", "url": "{tree}Some-1.10-py3-none-any.whl",
             "hashes": {{"md5": "00", "sha256": "{DIGEST}"}}, "requires-python": ">=3.8", "core-metadata": {{"sha256": "{DIGEST}"}}}},
           {{"filename": "some-1.9.tar.gz", "url": "../../some-1.9.tar.gz", "hashes": {{"md5": "00"}}, "yanked": "b\u00e4d",
             "dist-info-metadata": false}},
           {{"filename": "some-1.9.0.zip", "url": "/{DIGEST}/some-1.9.0.zip", "hashes": {{}}, "yanked": true, "core-metadata": true}},
           {{"filename": "some-1.9-py2.7.egg", "url": "x", "hashes": {{}}}},
           {{"filename": "other-1.9.zip", "url": "x", "hashes": {{}}}},
           {{"filename": "some-not.a.version.zip", "url": "x", "hashes": {{}}}},
           {{"filename": "some-1.9-any.whl", "url": "x", "hashes": {{}}}}"#
    ));
    let html = html(&format!(
        r#"<a href="{tree}Some-1.10-py3-none-any.whl#sha256={DIGEST}" data-requires-python="&gt;=3.8"
              data-core-metadata="sha256={DIGEST}">Some-1.10-py3-none-any.whl</a><br/>
           <a href="../../some-1.9.tar.gz#md5=00" data-yanked="bäd">some-1.9.tar.gz</a>
           <a href="/{DIGEST}/some-1.9.0.zip" data-yanked data-dist-info-metadata="true">some-1.9.0.zip</a>
           <a href="x/some-1.9-py2.7.egg">egg</a> <a href="x/other-1.9.zip">other</a>
           <a href="x/some-not.a.version.zip"></a> <A HREF=x/some-1.9-any.whl></A>"#
    ));
    let (json, html) = (
        table(PageForm::Json, &json).unwrap(),
        table(PageForm::Html, &html).unwrap(),
    );
    assert_eq!(json, html);

    let found = files(&json);
    // 1.9 and 1.9.0 are one version, and it is less than 1.10.
    let names: Vec<_> = found
        .iter()
        .map(|(version, file)| (version.as_str(), file.name.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("1.9", "some-1.9.tar.gz"),
            ("1.9", "some-1.9.0.zip"),
            ("1.10", "Some-1.10-py3-none-any.whl")
        ]
    );
    let urls: Vec<_> = found.iter().map(|(_, file)| file.url.as_str()).collect();
    assert_eq!(
        urls,
        [
            "https://index.example/some-1.9.tar.gz".to_owned(),
            format!("https://index.example/{DIGEST}/some-1.9.0.zip"),
            format!("{tree}Some-1.10-py3-none-any.whl"),
        ]
    );
    let wheel = &found[2].1;
    assert_eq!(wheel.requires_python, Some(">=3.8"));
    assert_eq!(
        wheel.digest.as_deref(),
        Some(format!("sha256={DIGEST}").as_str())
    );
    assert_eq!(
        (wheel.metadata, wheel.metadata_sha256.as_deref()),
        (true, Some(DIGEST))
    );
    assert!(!wheel.yanked);
    assert_eq!(
        (found[0].1.yanked, found[0].1.yank_reason.as_deref()),
        (true, Some("bäd"))
    );
    assert_eq!(
        (found[0].1.metadata, found[0].1.digest.as_deref()),
        (false, Some("md5=00"))
    );
    assert_eq!(
        (found[1].1.yanked, found[1].1.yank_reason.as_deref()),
        (true, None)
    );
    assert_eq!(
        (found[1].1.metadata, found[1].1.metadata_sha256.as_deref()),
        (true, None)
    );
    assert_eq!(
        view(&json).left_out(),
        LeftOut {
            kind: 1,
            project: 1,
            version: 1,
            form: 1
        }
    );
}

#[test]
fn what_only_json_says_is_kept() {
    let page = json(
        r#"{"filename": "some-1.tar.gz", "url": "https://a.example/b%20c.tar.gz?d=e#f", "hashes": {}, "size": 4294967296,
            "upload-time": "1970-01-01T00:00:01.5Z", "yanked": false, "gpg-sig": true, "requires-python": null}"#,
    );
    let bytes = table(PageForm::Json, &page).unwrap();
    let (_, file) = files(&bytes).remove(0);
    assert_eq!(
        (file.size, file.uploaded),
        (Some(4_294_967_296), Some(1_500_000))
    );
    assert_eq!(file.url, "https://a.example/b%20c.tar.gz?d=e");
    assert_eq!(
        (file.requires_python, file.yanked, file.digest),
        (None, false, None)
    );
}

#[test]
fn a_file_that_is_there_twice_with_the_same_facts_counts_once() {
    let one = r#"{"filename": "some-1.zip", "url": "a/some-1.zip", "hashes": {}, "size": 1}"#;
    let twice = json(&[one, one].join(","));
    assert_eq!(view(&table(PageForm::Json, &twice).unwrap()).files(), 1);
    let differs = one.replace("\"size\": 1", "\"size\": 2");
    assert_eq!(
        table(PageForm::Json, &json(&[one, &differs].join(","))).unwrap_err(),
        "the index page has the file \"some-1.zip\" twice, with different facts; tell whoever runs the index"
    );
}

#[test]
fn each_wrong_page_is_refused_with_its_reason() {
    let field = |name: &str, value: &str| {
        let fields = [("url", "\"some-1.zip\""), ("hashes", "{}")];
        let mut all: Vec<_> = fields
            .iter()
            .filter(|(known, _)| *known != name)
            .map(|(name, value)| format!("\"{name}\": {value}"))
            .collect();
        all.push(format!("\"{name}\": {value}"));
        json(&format!(
            "{{\"filename\": \"some-1.zip\", {}}}",
            all.join(", ")
        ))
    };
    for (page, why) in [
        (
            String::new(),
            "the index page is cut off after 0 bytes, where more JSON should follow; fetch it again",
        ),
        (
            json("")[..30].to_owned(),
            "the index page is cut off after 30 bytes, where more JSON should follow; fetch it again",
        ),
        (
            "[]".to_owned(),
            "the index page is not JSON of PEP 691 at line 1, column 0: invalid type: sequence, expected an index page, which is an object; check the index URL",
        ),
        (
            "{}".to_owned(),
            "the index page is not JSON of PEP 691 at line 1, column 2: missing field `files`; check the index URL",
        ),
        (
            "{\"files\": []} x".to_owned(),
            "the index page is not JSON of PEP 691 at line 1, column 15: trailing characters; check the index URL",
        ),
        (
            r#"{"meta": {"api-version": "2.0"}, "files": []}"#.to_owned(),
            "the index page is of version \"2.0\" of the interface, and allowed is 1.x; use a later pyindex",
        ),
        (
            r#"{"name": "other", "files": []}"#.to_owned(),
            "the index page of \"some\" has the name \"other\"; tell whoever runs the index",
        ),
        (
            field("size", "-1"),
            "the index page is not JSON of PEP 691 at line 1, column 131: invalid value: integer `-1`, expected u64; check the index URL",
        ),
        (
            field("hashes", "{\"sha256\": \"00\"}"),
            "the field hashes.sha256 of the file \"some-1.zip\" is \"00\", and allowed is 64 hexadecimal digits; tell whoever runs the index",
        ),
        (
            field("upload-time", "\"today\""),
            "the field upload-time of the file \"some-1.zip\" is \"today\", and allowed is a time such as 2024-02-29T12:34:56.789Z; tell whoever runs the index",
        ),
        (
            field("url", "\"javascript:alert()\""),
            "the field url of the file \"some-1.zip\" is \"javascript:alert()\", and allowed is a URL of http, https or file, or one relative to the page; tell whoever runs the index",
        ),
    ] {
        assert_eq!(table(PageForm::Json, &page).unwrap_err(), why, "{page}");
    }

    let link = r#"<a href="some-1.zip">some-1.zip</a>"#;
    let whole = html(link);
    for (page, why) in [
        (
            whole[..whole.len() - 14].to_owned(),
            "the index page is cut off after 85 bytes, where </html> should follow; fetch it again",
        ),
        (
            whole[..whole.len() - 18].to_owned(),
            "the index page is cut off after 81 bytes, where </a> should follow; fetch it again",
        ),
        (
            whole[..whole.len() - 32].to_owned(),
            "the index page is cut off after 67 bytes, where the rest of a tag should follow; fetch it again",
        ),
        (
            "<html><form action=/login><input type=password></form></html>".to_owned(),
            "the index page is a form to log in; give credentials in the index URL, or log in to the network",
        ),
        (
            "<html><form action=/>OK</form></html>".to_owned(),
            "the index page is a form to log in; give credentials in the index URL, or log in to the network",
        ),
        (
            "<html><a href=/>Home</a></html>".to_owned(),
            "the page has 1 links, and none is to a file of a package; check that the index URL ends where the names of projects begin",
        ),
        (
            "<html>404</html>".to_owned(),
            "the page has 0 links, and none is to a file of a package; check that the index URL ends where the names of projects begin",
        ),
        (
            "<meta name=pypi:repository-version content=2.0>".to_owned(),
            "the index page is of version \"2.0\" of the interface, and allowed is 1.x; use a later pyindex",
        ),
        (
            "<a href='some-1.zip#sha256=0'></a>".to_owned(),
            "the field hashes.sha256 of the file \"some-1.zip\" is \"0\", and allowed is 64 hexadecimal digits; tell whoever runs the index",
        ),
    ] {
        assert_eq!(table(PageForm::Html, &page).unwrap_err(), why, "{page}");
    }
    assert_eq!(view(&table(PageForm::Html, &html("")).unwrap()).files(), 0);
}

#[test]
fn no_cut_of_a_page_is_a_page() {
    let json = json(r#"{"filename": "some-1.zip", "url": "some-1.zip", "hashes": {}}"#);
    for len in 0..json.len() {
        assert!(table(PageForm::Json, &json[..len]).is_err(), "{len}");
    }
    let html = html(r#"<a href="some-1.zip">some-1.zip</a>"#);
    let body_end = html.find("</body").unwrap();
    for len in 0..body_end {
        assert!(table(PageForm::Html, &html[..len]).is_err(), "{len}");
    }
}

#[test]
fn a_whole_page_may_leave_out_the_end_tags_of_its_document() {
    let whole = html(r#"<a href="some-1.zip">some-1.zip</a>"#);
    let body_end = whole.find("</body").unwrap();
    let title_end = whole.find("</h1>").unwrap();
    let link_start = whole.find("<a").unwrap();
    let link_end = whole.find("</a>").unwrap();
    let project = ProjectName::parse("some").unwrap();
    for len in 0..=whole.len() {
        let page = &whole.as_bytes()[..len];
        let address = ADDRESS.parse().unwrap();
        let made = table_of_whole_page(&project, &address, PageForm::Html, page);
        // Before any tag has ended, within a tag, and within a link it is cut all the same.
        let in_tag = whole[..len].matches('<').count() != whole[..len].matches('>').count();
        let is_cut = len < title_end + 5 || in_tag || (link_start + 1..=link_end).contains(&len);
        assert_eq!(made.is_err(), is_cut, "{len}: {made:?}");
    }
    // No tag of a document: there is none to end.
    let fragment = r#"<a href="some-1.zip">some-1.zip</a><br>"#;
    assert!(table(PageForm::Html, fragment).is_ok());
    assert_eq!(
        table(PageForm::Html, &whole[..body_end]).unwrap_err(),
        "the index page is cut off after 85 bytes, where </html> should follow; fetch it again"
    );
}

#[test]
fn versions_that_are_absurd_are_left_out_or_sorted() {
    let names = [
        "some-99999999999999999999999.zip",
        "some-1.9999999999999999999.9999999999999999999.9999999999999999999.zip",
        "some-1.9999999999999999999.9999999999999999999.9999999999999999998.zip",
        "some-1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.zip",
    ];
    let all: Vec<_> = names
        .iter()
        .map(|name| format!(r#"{{"filename": "{name}", "url": "{name}", "hashes": {{}}}}"#))
        .collect();
    let bytes = table(PageForm::Json, &json(&all.join(","))).unwrap();
    let names: Vec<_> = files(&bytes)
        .into_iter()
        .map(|(_, file)| file.name)
        .collect();
    assert_eq!(
        names,
        [
            "some-1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.zip",
            "some-1.9999999999999999999.9999999999999999999.9999999999999999998.zip",
            "some-1.9999999999999999999.9999999999999999999.9999999999999999999.zip"
        ]
    );
    assert_eq!(view(&bytes).left_out().version, 1);
}

#[test]
fn a_long_page_is_refused_before_it_is_read() {
    let page = " ".repeat(pyindex::LARGEST_PAGE + 1);
    assert_eq!(
        table(PageForm::Json, &page).unwrap_err(),
        "the index page has 134217729 bytes, and 134217728 are allowed; check the index URL"
    );
}

#[test]
fn no_wrong_byte_of_a_table_is_more_than_an_error() {
    let page = json(
        r#"{"filename": "some-1.zip", "url": "some-1.zip", "hashes": {}, "yanked": "why"}, {"filename": "some-2-py3-none-any.whl", "url": "b", "hashes": {}, "requires-python": ">3"}"#,
    );
    let bytes = table(PageForm::Json, &page).unwrap();
    for at in 0..bytes.len() {
        for wrong in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            support::look(&bytes);
        }
        // A table is whole or none.
        assert!(IndexTable::view(bytes[..at].into()).unwrap().is_none());
    }
}

mod support {
    use pyindex::{Chooser, IndexTable, Interpreter, Specifiers, Tags, Target, Wanted, platforms};

    /// Asks a table of any bytes all that it can be asked. A panic would end the test.
    pub(crate) fn look(bytes: &[u8]) {
        let Some(table) = IndexTable::view(bytes.into()).unwrap() else {
            return;
        };
        let tags = Tags::of(&Interpreter::cpython(
            (3, 12),
            platforms("win_amd64").unwrap(),
        ));
        let mut chooser = Chooser::new(Target::new("3.12", tags).unwrap());
        let specifiers = Specifiers::parse(">=0,!=7").unwrap();
        let wanted = Wanted::of(&specifiers);
        let choice = chooser.choose(&table, &wanted);
        if let Ok(Some(choice)) = choice {
            drop(table.file(choice.version, choice.file));
        }
        drop(chooser.explain(&table, &wanted, None));
    }
}
