//! Projects of testdata/projects as tables.

use pyindex::{
    IndexTable, Interpreter, PageForm, ProjectName, Tags, Target, platforms, table_of_page,
};

pub const PROJECTS: [(&str, &str); 4] = [
    (
        "cryptography",
        include_str!("../../testdata/projects/cryptography.tsv"),
    ),
    ("numpy", include_str!("../../testdata/projects/numpy.tsv")),
    ("pytz", include_str!("../../testdata/projects/pytz.tsv")),
    (
        "setuptools",
        include_str!("../../testdata/projects/setuptools.tsv"),
    ),
];

/// The page of a project, as an index would send it.
pub fn page(project: &str) -> String {
    let (_, lines) = PROJECTS.iter().find(|(name, _)| *name == project).unwrap();
    let files = lines.lines().enumerate().map(|(at, line)| {
        let mut parts = line.split('\t');
        let (name, requires, reason) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let digest = format!("{at:08x}{}", "0123456789abcdef".repeat(4))[..64].to_owned();
        let requires = if requires.is_empty() { serde_json::Value::Null } else { requires.into() };
        let yanked = if reason.is_empty() { false.into() } else { serde_json::Value::from(reason) };
        serde_json::json!({
            "filename": name,
            "url": format!("https://files.example/packages/{}/{}/{}/{name}", &digest[..2], &digest[2..4], &digest[4..]),
            "hashes": {"sha256": digest},
            "requires-python": requires,
            "yanked": yanked,
            "core-metadata": if name.ends_with(".whl") { serde_json::json!({"sha256": digest}) } else { false.into() },
            "size": 1000 + at,
            "upload-time": "2024-01-01T00:00:00.000000Z",
        })
    });
    serde_json::json!({"meta": {"api-version": "1.1"}, "name": project, "files": files.collect::<Vec<_>>()}).to_string()
}

pub fn table(project: &str) -> Vec<u8> {
    let address = format!("https://index.example/simple/{project}/")
        .parse()
        .unwrap();
    table_of_page(
        &ProjectName::parse(project).unwrap(),
        &address,
        PageForm::Json,
        page(project).as_bytes(),
    )
    .unwrap()
}

pub fn view(bytes: &[u8]) -> IndexTable<'_> {
    IndexTable::view(bytes.into()).unwrap().unwrap()
}

pub fn target(python: &str, platform: &str) -> Target {
    let minor = python.split('.').nth(1).unwrap().parse().unwrap();
    Target::new(
        python,
        Tags::of(&Interpreter::cpython(
            (3, minor),
            platforms(platform).unwrap(),
        )),
    )
    .unwrap()
}
