//! The largest pages, in a process of their own: its memory is measured.

use std::fmt::Write;
use std::fs;

use pyindex::{IndexTable, PageForm, ProjectName, table_of_page};

/// Bytes of a line of `/proc/self/status`.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.unwrap().trim_matches([':', '\t', ' ', 'k', 'B']);
    1024 * kib.parse::<usize>().unwrap()
}

#[test]
fn a_page_of_100_mb_takes_memory_of_a_small_factor() {
    let mut page = String::with_capacity(110_000_000);
    page.push_str(r#"{"meta": {"api-version": "1.1"}, "name": "some", "files": ["#);
    let mut files: usize = 0;
    while page.len() < 100_000_000 {
        let comma = if files == 0 { "" } else { "," };
        // As real pages: a version has some 40 wheels, each with its digest and that of its metadata.
        let (version, wheel) = (files / 40, files % 40);
        let name = format!(
            "some-1.{version}-cp3{wheel}-cp3{wheel}-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
        );
        let digest = format!("{files:064x}");
        write!(
            page,
            r#"{comma}{{"filename":"{name}","url":"https://files.example/packages/{}/{}/{}/{name}","hashes":{{"sha256":"{digest}"}},"requires-python":">=3.{}","size":{files},"upload-time":"2024-01-01T00:00:00.000000Z","yanked":false,"core-metadata":{{"sha256":"{digest}"}}}}"#,
            &digest[..2],
            &digest[2..4],
            &digest[4..],
            files % 10,
        )
        .unwrap();
        files += 1;
    }
    page.push_str("]}");
    let before = memory("VmRSS");
    let name = ProjectName::parse("some").unwrap();
    let address = "https://index.example/simple/some/".parse().unwrap();
    let bytes = table_of_page(&name, &address, PageForm::Json, page.as_bytes()).unwrap();
    let taken = memory("VmHWM") - before;
    let table = IndexTable::view((&*bytes).into()).unwrap().unwrap();
    assert_eq!(
        (table.files(), table.versions()),
        (files, files.div_ceil(40))
    );
    println!(
        "{} bytes of a page, {} of its table, {taken} taken",
        page.len(),
        bytes.len()
    );
    // The page itself was there before.
    assert!(
        taken < 2 * page.len(),
        "{taken} bytes for a page of {}",
        page.len()
    );
}
