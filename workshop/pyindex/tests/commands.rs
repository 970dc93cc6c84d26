//! The program, against indexes on the loopback.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What an index answers to a path: status, fields, body.
type Answer = (u16, String, Vec<u8>);

/// A request that came: its path and its fields, with names in lower case.
type Asked = (String, HashMap<String, String>);

/// An index, until this is dropped. Its thread waits for connections as long as the test runs.
struct Index {
    address: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_gone: Arc<Mutex<bool>>,
}

impl Index {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let index = Self {
            address: format!("127.0.0.1:{}", listener.local_addr().unwrap().port()),
            answers: Arc::default(),
            asked: Arc::default(),
            is_gone: Arc::default(),
        };
        let (answers, asked, is_gone) = (
            Arc::clone(&index.answers),
            Arc::clone(&index.asked),
            Arc::clone(&index.is_gone),
        );
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
                let is_gone = Arc::clone(&is_gone);
                thread::spawn(move || {
                    // A client that leaves is no failure.
                    if !*is_gone.lock().unwrap() {
                        serve(&stream.unwrap(), &answers, &asked).ok();
                    }
                });
            }
        });
        index
    }

    fn url(&self) -> String {
        format!("http://{}/simple", self.address)
    }

    fn set(&self, path: &str, status: u16, fields: &str, body: impl Into<Vec<u8>>) {
        let answer = (status, fields.to_owned(), body.into());
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn page(&self, name: &str, files: Value) {
        self.page_at(&format!("/simple/{name}/"), name, files);
    }

    fn page_at(&self, path: &str, name: &str, files: Value) {
        let page = json!({"meta": {"api-version": "1.1"}, "name": name, "files": files});
        let fields = "content-type: application/vnd.pypi.simple.v1+json\r\ncache-control: max-age=600\r\netag: \"1\"\r\n";
        self.set(path, 200, fields, page.to_string());
    }

    fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn paths(&self) -> Vec<String> {
        self.take().into_iter().map(|(path, _)| path).collect()
    }

    fn go(&self) {
        *self.is_gone.lock().unwrap() = true;
    }
}

fn serve(
    stream: &TcpStream,
    answers: &Mutex<HashMap<String, Answer>>,
    asked: &Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let Some(first) = lines.next() else {
            return Ok(());
        };
        let path = first?.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut fields = HashMap::new();
        for line in lines.by_ref() {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            fields.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let missing = || (404, String::new(), b"no such page".to_vec());
        let (mut status, head, mut body) = answers
            .lock()
            .unwrap()
            .get(&path)
            .cloned()
            .unwrap_or_else(missing);
        let is_same = |etag: &String| head.contains(&format!("etag: {etag}\r\n"));
        if fields.get("if-none-match").is_some_and(is_same) && status == 200 {
            (status, body) = (304, Vec::new());
        }
        asked.lock().unwrap().push((path, fields));
        let mut stream = stream;
        let len = match head.contains("content-length: ") {
            true => String::new(),
            false => format!("content-length: {}\r\n", body.len()),
        };
        write!(stream, "HTTP/1.1 {status} X\r\n{head}{len}\r\n")?;
        stream.write_all(&body)?;
    }
}

fn wheel(name: &str, version: &str, more: Value) -> Value {
    let file = format!("{name}-{version}-py3-none-any.whl");
    let mut file = json!({"filename": file, "url": format!("../../files/{file}"), "hashes": {"sha256": "0".repeat(64)}});
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    file
}

struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(home: &Path, environment: &[(&str, &str)], args: &[&str]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_pyindex"))
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome {
        code: output.status.code().unwrap(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

const TARGET: [&str; 4] = ["--python", "3.12", "--platform", "manylinux_2_28_x86_64"];

fn best(home: &Path, index: &Index, args: &[&str]) -> Outcome {
    let url = index.url();
    let all = [&["best", "--index-url", &url], &TARGET[..], args].concat();
    run(home, &[], &all)
}

#[test]
fn the_best_file_is_found_in_what_is_stored() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    index.page(
        "some",
        json!([
            wheel("some", "1.0", json!({})),
            wheel("some", "1.1", json!({"size": 5, "core-metadata": true})),
            wheel("some", "2.0", json!({"requires-python": ">=3.13"})),
            wheel("some", "2.1", json!({"yanked": "broken"})),
            wheel("some", "3.0rc1", json!({})),
        ]),
    );
    let expected = format!(
        "some==1.1 http://{}/files/some-1.1-py3-none-any.whl#sha256={}\n",
        index.address,
        "0".repeat(64)
    );
    for requests in [1, 0] {
        let found = best(home.path(), &index, &["some>=1"]);
        assert_eq!(
            (found.code, found.stdout.as_str(), found.stderr.as_str()),
            (0, expected.as_str(), "")
        );
        assert_eq!(index.paths().len(), requests);
    }
    let explained = best(home.path(), &index, &["--explain", "Some>=1"]);
    assert_eq!(
        explained.stdout,
        format!(
            "{expected}  3.0rc1: it is a pre-release; --pre allows them\n  2.1: it is yanked (broken); only == takes it, if all else is yanked\n  \
             2.0: its files that would do need another Python (>=3.13; 1 files)\n"
        )
    );
    let told: Value =
        serde_json::from_str(&best(home.path(), &index, &["--json", "some", "some==2.0"]).stdout)
            .unwrap();
    assert_eq!(
        (&told[0]["version"], &told[0]["size"], &told[0]["metadata"]),
        (&"1.1".into(), &5.into(), &true.into())
    );
    assert_eq!(
        (&told[1]["file"], &told[1]["why"]),
        (&Value::Null, &"no file will do".into())
    );
    assert_eq!(told[1]["newer"].as_array().unwrap().len(), 5);
    assert_eq!(
        best(home.path(), &index, &["--pre", "some"])
            .stdout
            .split(' ')
            .next(),
        Some("some==3.0rc1")
    );
    assert_eq!(best(home.path(), &index, &["some>4"]).code, 1);

    let url = index.url();
    let listed = [&["versions", "--index-url", &url, "some"], &TARGET[..]].concat();
    assert_eq!(run(home.path(), &[], &listed).stdout, "1.1\n1.0\n");
    assert_eq!(index.paths().len(), 0);

    // A reload asks whether it holds; without an index, what is stored counts.
    assert_eq!(
        best(home.path(), &index, &["--refresh", "some"]).stdout,
        expected
    );
    let asked = index.take();
    assert_eq!(
        (asked.len(), asked[0].1["if-none-match"].as_str()),
        (1, "\"1\"")
    );
    index.go();
    let found = best(home.path(), &index, &["--refresh", "some"]);
    assert_eq!(found.stdout, expected, "{}", found.stderr);
    assert_eq!(
        best(home.path(), &index, &["--offline", "some"]).stdout,
        expected
    );
    let missing = best(home.path(), &index, &["--offline", "other"]);
    assert_eq!(missing.code, 2);
    assert_eq!(
        missing.stderr,
        format!("pyindex: {url}/other/ is not stored, and --offline asks nobody\n")
    );
}

#[test]
fn the_first_index_that_has_a_project_is_the_only_one() {
    let home = tempfile::tempdir().unwrap();
    let (private, public) = (Index::start(), Index::start());
    private.page("own", json!([wheel("own", "1.0", json!({}))]));
    public.page("own", json!([wheel("own", "9.0", json!({}))]));
    public.page("other", json!([wheel("other", "2.0", json!({}))]));
    let (private_url, public_url) = (private.url(), public.url());
    let named = [
        ("PIP_INDEX_URL", &*public_url),
        ("PIP_EXTRA_INDEX_URL", &*private_url),
    ];
    let args = [&["best", "own", "other"], &TARGET[..]].concat();
    let found = run(home.path(), &named, &args);
    let versions: Vec<_> = found
        .stdout
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(versions, ["own==1.0", "other==2.0"], "{}", found.stderr);
    assert_eq!(public.paths(), ["/simple/other/"]);
    // An option counts before the variable.
    let option = ["--extra-index-url", &public_url];
    let found = run(home.path(), &named, &[&args[..], &option].concat());
    assert!(found.stdout.starts_with("own==9.0 "), "{}", found.stderr);
    let missing = run(
        home.path(),
        &named,
        &[&["best", "none", "own"], &TARGET[..]].concat(),
    );
    assert_eq!(missing.code, 1);
    assert_eq!(missing.stderr, "pyindex: no index has the project none\n");
    assert!(missing.stdout.starts_with("own==1.0 "));
}

/// Flips a bit of the one place below a directory that has these bytes.
fn flip(directory: &Path, wanted: &[u8]) {
    let mut places = Vec::new();
    for path in files_below(directory) {
        let bytes = fs::read(&path).unwrap();
        let found = bytes.windows(wanted.len()).enumerate();
        let found = found.filter(|(_, bytes)| *bytes == wanted);
        places.extend(found.map(|(at, _)| (path.clone(), at as u64)));
    }
    let [(path, at)] = &*places else {
        panic!("one place has them: {places:?}");
    };
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[wanted[0] ^ 1], *at).unwrap();
}

#[test]
fn a_table_that_turns_out_to_be_damaged_is_fetched_again() {
    // Tables that are checked as a whole, and in chunks.
    for versions in [10, 1000, 4000] {
        let home = tempfile::tempdir().unwrap();
        let index = Index::start();
        let files = (1..=versions).map(|minor| wheel("some", &format!("1.{minor}"), json!({})));
        index.page("some", files.collect());
        let url = index.url();
        let listed = [&["versions", "--index-url", &url, "some"], &TARGET[..]].concat();
        let expected = best(home.path(), &index, &["some"]).stdout;
        assert!(expected.starts_with(&format!("some==1.{versions} ")));
        assert_eq!(index.paths().len(), 1);
        flip(home.path(), b"-py3-none-any.whl");
        for requests in [1, 0] {
            let found = best(home.path(), &index, &["some"]);
            assert_eq!(
                (found.stdout, found.stderr),
                (expected.clone(), String::new())
            );
            assert_eq!(index.paths().len(), requests, "{versions} versions");
        }
        let asked = [&["metadata", "--index-url", &url, "some"], &TARGET[..]].concat();
        let none = format!("the index has no metadata of some-1.{versions}-py3-none-any.whl");
        for command in [&listed, &asked] {
            // The damaged table may still lie in the file, where nothing names it.
            fs::remove_dir_all(home.path().join(".cache")).unwrap();
            best(home.path(), &index, &["some"]);
            index.take();
            flip(home.path(), b"-py3-none-any.whl");
            let found = run(home.path(), &[], command);
            let is_right = match command == &listed {
                true => found.stdout.lines().count() == versions,
                false => found.stderr.contains(&none),
            };
            assert!(is_right, "{command:?}: {}", found.stderr);
            assert_eq!(index.paths().len(), 1, "{versions} versions");
        }
    }
}

#[test]
fn credentials_are_sent_to_their_index_and_stored_nowhere() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    index.page("some", json!([wheel("some", "1.0", json!({}))]));
    let with = index.url().replace("//", "//me:s3cr3t-w0rd@");
    let args = [&["best", "--index-url", &with, "some"], &TARGET[..]].concat();
    for requests in [1, 0] {
        let found = run(home.path(), &[], &args);
        assert_eq!(found.code, 0, "{}", found.stderr);
        let asked = index.take();
        assert_eq!(asked.len(), requests);
        for (_, fields) in asked {
            assert_eq!(fields["authorization"], "Basic bWU6czNjcjN0LXcwcmQ=");
        }
    }
    // Others do not get what was stored for them.
    assert_eq!(best(home.path(), &index, &["some"]).code, 0);
    assert_eq!(index.paths().len(), 1);
    for file in files_below(&home.path().join(".cache")) {
        let bytes = fs::read(&file).unwrap();
        for secret in ["s3cr3t-w0rd", "bWU6czNjcjN0LXcwcmQ="] {
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{}", file.display());
        }
    }
    let url = index.url();
    index.set("/simple/locked/", 401, "", "");
    let locked = best(home.path(), &index, &["locked"]);
    assert_eq!(locked.code, 2);
    assert_eq!(
        locked.stderr,
        format!(
            "pyindex: {url}/locked/: the index answers 401 Unauthorized to these credentials; give them in the index URL\n"
        )
    );
}

#[test]
fn a_secret_that_is_damaged_is_said_to_be_so() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    index.page("some", json!([wheel("some", "1.0", json!({}))]));
    assert_eq!(best(home.path(), &index, &["some"]).code, 0);
    let directory = home.path().join(".cache/brisk/pyindex");
    let secret = directory.join("secret");
    assert_eq!(fs::read(&secret).unwrap().len(), 16);
    for (bytes, found) in [(15, "15"), (17, "more than 16")] {
        fs::write(&secret, vec![7; bytes]).unwrap();
        let wrong = best(home.path(), &index, &["some"]);
        assert_eq!(wrong.code, 2);
        assert_eq!(
            wrong.stderr,
            format!(
                "pyindex: {}: {} has {found} bytes, and allowed are 16; remove it, and what is stored for credentials is fetched \
                 anew\n",
                directory.display(),
                secret.display()
            )
        );
    }
    fs::remove_file(&secret).unwrap();
    assert_eq!(best(home.path(), &index, &["some"]).code, 0);
}

#[test]
fn proxies_are_those_of_the_environment() {
    let home = tempfile::tempdir().unwrap();
    let proxy = Index::start();
    let page = json!({"files": [wheel("some", "1.0", json!({}))]}).to_string();
    let path = "http://index.example/simple/some/";
    let fields = "content-type: application/vnd.pypi.simple.v1+json\r\n";
    proxy.set(path, 200, fields, page);
    let url = format!("http://{}", proxy.address);
    let index = ("PIP_INDEX_URL", "http://index.example/simple");
    let args = [&["best", "--refresh", "some"], &TARGET[..]].concat();
    for variable in ["http_proxy", "ALL_PROXY"] {
        let found = run(home.path(), &[index, (variable, &url)], &args);
        assert_eq!(found.code, 0, "{variable}: {}", found.stderr);
        assert_eq!(proxy.paths(), [path], "{variable}");
    }
}

fn files_below(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files
}

#[test]
fn a_page_that_is_refused_leaves_the_one_before() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    index.page("some", json!([wheel("some", "1.0", json!({}))]));
    assert_eq!(best(home.path(), &index, &["some"]).code, 0);
    let log_in = "<html><body><form><input type=password name=p></form></body></html>";
    index.set(
        "/simple/some/",
        200,
        "content-type: text/html\r\netag: \"2\"\r\n",
        log_in,
    );
    let refused = best(home.path(), &index, &["--refresh", "some"]);
    assert_eq!(refused.code, 2);
    let asked = index.take().pop().unwrap();
    assert_eq!(asked.1["if-none-match"], "\"1\"");
    let url = index.url();
    assert!(
        refused.stderr.starts_with(&format!(
            "pyindex: {url}/some/: the index page is a form to log in; "
        )),
        "{}",
        refused.stderr
    );
    // What was stored is still there, and is fresh.
    let found = best(home.path(), &index, &["some"]);
    assert!(found.stdout.starts_with("some==1.0 "), "{}", found.stderr);
    assert_eq!(index.paths().len(), 0);
    index.set("/simple/some/", 503, "", "");
    let other = tempfile::tempdir().unwrap();
    let failed = best(other.path(), &index, &["some"]);
    assert!(
        failed
            .stderr
            .ends_with("the index answers 503 Service Unavailable; try again later\n"),
        "{}",
        failed.stderr
    );
}

#[test]
fn files_that_are_left_out_are_counted_by_reason() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let names = [
        "some-1.0.zip",
        "some-1.0-py2.7.egg",
        "some-1.0.exe",
        "other-1.0.zip",
        "some-99999999999999999999999.zip",
        "some-not.a.version.zip",
        "some-1.0-any.whl",
    ];
    let page = |names: &[&str]| {
        let files = names
            .iter()
            .map(|name| json!({"filename": name, "url": name, "hashes": {}}));
        files.collect::<Value>()
    };
    index.page("some", page(&names));
    let told = "6 files of the page are left out: 2 of kinds that no installer takes, 1 of other projects, 2 with versions that \
                PEP 440 does not know, 1 with too few or too many parts in their names";
    let url = format!("http://{}/simple/some/some-1.0.zip", index.address);
    assert_eq!(
        best(home.path(), &index, &["some"]).stdout,
        format!("some==1.0 {url}\n")
    );
    assert_eq!(
        best(home.path(), &index, &["--explain", "some"]).stdout,
        format!("some==1.0 {url}\n  {told}\n")
    );
    assert_eq!(
        best(home.path(), &index, &["some>1"]).stderr,
        format!(
            "pyindex: no file of some will do for \"some>1\"\n  1.0: the specifiers do not allow it\n  {told}\n"
        )
    );
    let counts = json!({"kind": 2, "project": 1, "version": 2, "form": 1});
    let json: Value =
        serde_json::from_str(&best(home.path(), &index, &["--json", "some"]).stdout).unwrap();
    assert_eq!(json[0]["left_out"], counts);

    index.page("none", page(&["none-1.0.exe"]));
    let index_url = index.url();
    let list = |more: &[&str]| {
        let args = ["versions", "--index-url", &index_url];
        run(home.path(), &[], &[&args[..], &TARGET, more].concat())
    };
    assert_eq!(
        list(&["none"]).stderr,
        "pyindex: no version of none has a file that will do\n  1 files of the page are left out: 1 of kinds that no installer \
         takes\n"
    );
    let json: Value = serde_json::from_str(&list(&["--json", "some"]).stdout).unwrap();
    assert_eq!(json["left_out"], counts);
}

#[test]
fn pages_that_are_too_long_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let most = 128 << 20;
    // It is refused before it comes.
    let long = format!(
        "content-type: text/html\r\ncontent-length: {}\r\n",
        most + 1
    );
    index.set("/simple/long/", 200, &long, "");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..128 {
        encoder.write_all(&[b' '; 1 << 20]).unwrap();
    }
    encoder.write_all(b" ").unwrap();
    let packed = encoder.finish().unwrap();
    let len = packed.len();
    let fields = "content-type: text/html\r\ncontent-encoding: gzip\r\n";
    index.set("/simple/packed/", 200, fields, packed);
    index.page("some", json!([wheel("some", "1.0", json!({}))]));
    let found = best(home.path(), &index, &["long", "packed", "some"]);
    assert_eq!(found.code, 2);
    assert!(found.stdout.starts_with("some==1.0 "), "{}", found.stderr);
    let url = index.url();
    assert_eq!(
        found.stderr,
        format!(
            "pyindex: {url}/long/: the body of a response has more than the {most} bytes that are allowed\n\
             pyindex: {url}/packed/: the {len} bytes of the answer become more than {most}, which are allowed; check the index URL\n"
        )
    );
}

#[test]
fn pages_come_compressed() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let file = wheel("some", "1.0", json!({"core-metadata": true}));
    let page = gzip(&json!({"name": "some", "files": [file]}).to_string());
    let fields = "content-type: application/vnd.pypi.simple.v1+json\r\ncache-control: max-age=600\r\nvary: accept-encoding\r\n";
    let packed = format!("{fields}content-encoding: gzip\r\n");
    index.set("/simple/some/", 200, &packed, page.clone());
    for requests in [1, 0] {
        let found = best(home.path(), &index, &["some"]);
        assert!(found.stdout.starts_with("some==1.0 "), "{}", found.stderr);
        let asked = index.take();
        assert_eq!(asked.len(), requests);
        for (_, fields) in asked {
            assert_eq!(fields["accept-encoding"], "gzip");
        }
    }
    let path = "/files/some-1.0-py3-none-any.whl.metadata";
    index.set(path, 200, "content-encoding: gzip\r\n", gzip("Name: some"));
    let url = index.url();
    let args = [&["metadata", "--index-url", &url, "some"], &TARGET[..]].concat();
    let found = run(home.path(), &[], &args);
    assert_eq!(found.stdout, "Name: some", "{}", found.stderr);

    index.set("/simple/cut/", 200, &packed, &page[..page.len() - 1]);
    let other = format!("{fields}content-encoding: br\r\n");
    index.set("/simple/other/", 200, &other, "");
    let html = "content-type: text/html\r\n";
    let open = "<!doctype html><html><body><a href=open-1.zip>open-1.zip</a>";
    index.set("/simple/open/", 200, html, open);
    let found = best(home.path(), &index, &["open", "cut", "other"]);
    assert_eq!(found.code, 2);
    assert!(found.stdout.starts_with("open==1 "), "{}", found.stderr);
    let said: Vec<_> = found.stderr.lines().collect();
    let [cut, coding] = said[..] else {
        panic!("{said:?}");
    };
    let start = format!(
        "pyindex: {url}/cut/: the {} bytes of the answer are not whole gzip: ",
        page.len() - 1
    );
    assert!(cut.starts_with(&start), "{cut}");
    assert_eq!(
        coding,
        format!(
            "pyindex: {url}/other/: the answer has the coding \"br\", and allowed are gzip and none; tell whoever runs the index"
        )
    );
}

#[test]
fn metadata_are_read_from_their_own_file() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let text = "Metadata-Version: 2.1\nName: some\n";
    let digest = HEXLOWER.encode(&Sha256::digest(text));
    index.page(
        "some",
        json!([
            wheel("some", "1.0", json!({"core-metadata": {"sha256": digest}})),
            wheel(
                "some",
                "1.1",
                json!({"core-metadata": {"sha256": "0".repeat(64)}})
            ),
            wheel("some", "1.2", json!({})),
        ]),
    );
    for version in ["1.0", "1.1"] {
        let fields = "cache-control: max-age=600, immutable\r\n";
        index.set(
            &format!("/files/some-{version}-py3-none-any.whl.metadata"),
            200,
            fields,
            text,
        );
    }
    let url = index.url();
    let get = |requirement: &str| {
        let args = [&["metadata", "--index-url", &url, requirement], &TARGET[..]].concat();
        run(home.path(), &[], &args)
    };
    for requests in [2, 0] {
        let found = get("some==1.0");
        assert_eq!(
            (found.code, found.stdout.as_str()),
            (0, text),
            "{}",
            found.stderr
        );
        assert_eq!(index.paths().len(), requests);
    }
    let wrong = get("some==1.1");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    assert!(
        wrong.stderr.contains("and the index says 0000"),
        "{}",
        wrong.stderr
    );
    let without = get("some");
    assert_eq!(without.code, 1);
    assert!(
        without
            .stderr
            .contains("no metadata of some-1.2-py3-none-any.whl as a file of their own")
    );
}

#[test]
fn metadata_are_asked_for_with_the_credentials_of_their_index() {
    let home = tempfile::tempdir().unwrap();
    let (index, files) = (Index::start(), Index::start());
    let at = |host: &Index| format!("http://{}/f/some-1.0-py3-none-any.whl", host.address);
    for (project, host) in [("some", &index), ("far", &files)] {
        let mut file = wheel(project, "1.0", json!({"core-metadata": true}));
        file["url"] = at(host).into();
        index.page_at(
            &format!("/second/simple/{project}/"),
            project,
            json!([file]),
        );
        host.set(
            "/f/some-1.0-py3-none-any.whl.metadata",
            200,
            "",
            "Name: some",
        );
    }
    let user = |user: &str, path: &str| format!("http://{user}:x@{}/{path}", index.address);
    // The one that is asked last has the project.
    let (first, second) = (
        user("first", "first/simple"),
        user("second", "second/simple"),
    );
    let base = [
        "metadata",
        "--extra-index-url",
        &first,
        "--index-url",
        &second,
    ];
    for (project, host, authorization) in [
        ("some", &index, Some("Basic c2Vjb25kOng=")),
        ("far", &files, None),
    ] {
        let found = run(home.path(), &[], &[&base[..], &TARGET, &[project]].concat());
        assert_eq!(found.stdout, "Name: some", "{}", found.stderr);
        let (path, fields) = host.take().pop().unwrap();
        assert_eq!(path, "/f/some-1.0-py3-none-any.whl.metadata");
        assert_eq!(
            fields.get("authorization").map(String::as_str),
            authorization
        );
    }
    // What is not stored is said to be so.
    index.page_at(
        "/second/simple/new/",
        "new",
        json!([wheel("new", "1.0", json!({"core-metadata": true}))]),
    );
    run(
        home.path(),
        &[],
        &[&["best"], &base[1..], &TARGET, &["new"]].concat(),
    );
    let offline = run(
        home.path(),
        &[],
        &[&base[..], &TARGET, &["--offline", "new"]].concat(),
    );
    assert_eq!(offline.code, 2);
    assert_eq!(
        offline.stderr,
        format!(
            "pyindex: http://{}/second/files/new-1.0-py3-none-any.whl.metadata: it is not stored, and --offline asks nobody\n",
            index.address
        )
    );
}

#[test]
fn a_page_that_is_not_to_be_had_does_not_hide_the_others() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    for name in ["some", "other"] {
        index.page(name, json!([wheel(name, "1.0", json!({}))]));
    }
    let page = "<html><form action=/login></form></html>";
    index.set("/simple/form/", 200, "content-type: text/html\r\n", page);
    index.set("/simple/locked/", 403, "", "");
    let names = ["some", "form", "none", "locked", "other"];
    let found = best(home.path(), &index, &names);
    assert_eq!(found.code, 2);
    let lines: Vec<_> = found
        .stdout
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(lines, ["some==1.0", "other==1.0"]);
    let url = index.url();
    let expected = [
        format!("pyindex: {url}/form/: the index page is a form to log in; "),
        "pyindex: no index has the project none".to_owned(),
        format!("pyindex: {url}/locked/: the index answers 403 Forbidden to these credentials; "),
    ];
    let said: Vec<_> = found.stderr.lines().collect();
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for (said, expected) in said.iter().zip(&expected) {
        assert!(said.starts_with(expected), "{said}");
    }
    let told = best(home.path(), &index, &[&["--json"], &names[..]].concat());
    assert_eq!((told.code, told.stderr.as_str()), (2, ""));
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let of = |at: usize| {
        (
            told[at]["name"].as_str().unwrap(),
            told[at]["file"].is_string(),
        )
    };
    assert_eq!(
        [0, 1, 2, 3, 4].map(of),
        [
            ("some", true),
            ("form", false),
            ("none", false),
            ("locked", false),
            ("other", true)
        ]
    );
    assert!(
        told[1]["why"]
            .as_str()
            .unwrap()
            .contains("is a form to log in")
    );
    assert_eq!(told[2]["why"], "no index has the project");
}

#[test]
fn offline_the_first_page_counts_that_is_stored() {
    let home = tempfile::tempdir().unwrap();
    let (first, second) = (Index::start(), Index::start());
    first.set("/simple/some/", 404, "cache-control: no-store\r\n", "none");
    second.page("some", json!([wheel("some", "1.0", json!({}))]));
    let (first_url, second_url) = (first.url(), second.url());
    let urls = ["--extra-index-url", &first_url, "--index-url", &second_url];
    let args = [&["best", "some"], &TARGET[..], &urls].concat();
    assert_eq!(run(home.path(), &[], &args).code, 0);
    // Nobody else may say that the first has it not.
    assert_eq!(run(home.path(), &[], &args).code, 0);
    assert_eq!((first.paths().len(), second.paths().len()), (2, 1));
    let found = run(home.path(), &[], &[&args[..], &["--offline"]].concat());
    assert_eq!(found.code, 0, "{}", found.stderr);
    assert!(found.stdout.starts_with("some==1.0 "));
    let missing = run(
        home.path(),
        &[],
        &[&args[..], &["--offline", "other"]].concat(),
    );
    assert!(missing.stdout.starts_with("some==1.0 "));
    assert_eq!(
        missing.stderr,
        format!("pyindex: {first_url}/other/ is not stored, and --offline asks nobody\n")
    );
    assert_eq!((first.paths().len(), second.paths().len()), (0, 0));
}

#[test]
fn hundreds_of_requirements_come_from_files() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let mut text = "# many\n-r more.txt\n".to_owned();
    for number in 0..300 {
        let name = format!("package-{number}");
        index.page(
            &name,
            json!([wheel(&format!("package_{number}"), "1.0", json!({}))]),
        );
        text.push_str(&format!(
            "Package_{number} >=1.0 ; python_version >= \"3.8\" --hash=sha256:00\n"
        ));
    }
    fs::write(home.path().join("all.txt"), text).unwrap();
    fs::write(
        home.path().join("more.txt"),
        "never-there ; sys_platform == 'win32'\npackage.0 \\\n  ==1.0\n",
    )
    .unwrap();
    let file = home.path().join("all.txt");
    for requests in [300, 0] {
        let found = best(home.path(), &index, &["-r", file.to_str().unwrap()]);
        assert_eq!(
            (found.code, found.stdout.lines().count()),
            (0, 301),
            "{}",
            found.stderr
        );
        assert!(found.stdout.starts_with("package-0==1.0 "));
        assert_eq!(index.paths().len(), requests);
    }
    fs::write(home.path().join("more.txt"), "ok\n\nnot a requirement\n").unwrap();
    let wrong = best(home.path(), &index, &["-r", file.to_str().unwrap()]);
    assert_eq!(wrong.code, 2);
    let place = format!(
        "pyindex: {}, line 2: {}, line 3: ",
        file.display(),
        home.path().join("more.txt").display()
    );
    assert!(wrong.stderr.starts_with(&place), "{}", wrong.stderr);
}

#[test]
fn wheels_that_were_built_here_are_taken_here_only() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let here = format!("some-1.0-py3-none-linux_{}.whl", std::env::consts::ARCH);
    index.page(
        "some",
        json!([{"filename": here, "url": here, "hashes": {}}]),
    );
    let url = index.url();
    let args = ["best", "--index-url", &url, "--python", "3.12", "some"];
    let found = run(home.path(), &[], &args);
    assert_eq!(found.code, 0, "{}", found.stderr);
    assert!(found.stdout.contains(&here), "{}", found.stdout);
    assert_eq!(best(home.path(), &index, &["some"]).code, 1);
}

#[test]
fn an_abi_can_be_chosen() {
    let home = tempfile::tempdir().unwrap();
    let index = Index::start();
    let names = [
        "cp312-cp312",
        "cp313-cp313",
        "cp313-cp313t",
        "pp311-pypy311_pp73",
    ]
    .map(|tags| format!("some-1.0-{tags}-manylinux_2_17_x86_64.whl"));
    let files = names
        .iter()
        .map(|name| json!({"filename": name, "url": name, "hashes": {}}));
    index.page("some", files.collect());
    for (python, abi, chosen) in [
        ("3.12", None, "-cp312-cp312-"),
        ("3.13", None, "-cp313-cp313-"),
        ("3.13", Some("cp313t"), "-cp313-cp313t-"),
        ("3.11", Some("pypy311_pp73"), "-pp311-pypy311_pp73-"),
    ] {
        let mut args = vec!["--python", python];
        args.extend(abi.into_iter().flat_map(|abi| ["--abi", abi]));
        let url = index.url();
        let all = ["best", "--index-url", &url, "--platform", TARGET[3], "some"];
        let found = run(home.path(), &[], &[&all[..], &args].concat());
        assert!(found.stdout.contains(chosen), "{args:?}: {}", found.stderr);
    }
}

#[test]
fn no_index_is_built_in() {
    let home = tempfile::tempdir().unwrap();
    let outcome = run(home.path(), &[], &[&["best", "some"], &TARGET[..]].concat());
    assert_eq!(outcome.code, 2);
    assert_eq!(
        outcome.stderr,
        "pyindex: no index is named; name one with --index-url URL or in PIP_INDEX_URL\n"
    );
}
