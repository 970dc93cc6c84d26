//! `brisk cache`: what it says about caches, whole and damaged, and what it removes.

#[path = "staging/documented.rs"]
mod documented;
mod sandbox;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use brisk_cache::{About, Cache, CacheOptions, CodeCache, CodeCacheOptions, CodeKey};
use brisk_http::{
    BodyName, Engine, Options, Outcome as Came, Overrides, Request, Response, Step, Storage, Times,
    Timestamp,
};
use documented::assert_documented;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use sandbox::{Outcome, Sandbox, noise};
use serde_json::Value;

/// The directory that the first version of the format has left: its times and seeds never change.
fn with_kept() -> Sandbox {
    let sandbox = Sandbox::empty();
    let kept =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../keep/brisk-cache/testdata/compat/v1");
    fs::create_dir(sandbox.path("cache")).unwrap();
    sandbox.mode("cache", 0o700);
    for entry in fs::read_dir(kept).unwrap() {
        let entry = entry.unwrap();
        let name = format!("cache/{}", entry.file_name().to_str().unwrap());
        fs::copy(entry.path(), sandbox.path(&name)).unwrap();
        sandbox.mode(&name, 0o600);
    }
    sandbox
}

fn options() -> CacheOptions {
    CacheOptions::new().limit(4 << 20).segment_len(64 << 10)
}

fn open(sandbox: &Sandbox) -> Cache {
    Cache::open(&sandbox.path("cache"), options()).unwrap()
}

#[track_caller]
fn json(sandbox: &Sandbox, args: &[&str]) -> Value {
    let mut all = vec!["cache"];
    all.extend(args);
    all.push("--json");
    let outcome = sandbox.run(&all);
    assert!(outcome.code < 2 && outcome.stderr.is_empty(), "{outcome:?}");
    let section = match args[0] {
        "ls" => "cache ls",
        "get" => "cache get",
        "stat" if outcome.stdout.contains("old-code-cache") => "cache stat of an old cache",
        "stat" => "cache stat",
        "explain" => "cache explain",
        "verify" => "cache verify",
        _ => "cache prune and cache clear",
    };
    assert_documented(section, &outcome.stdout);
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn a_cache_of_the_first_format_is_shown() {
    let sandbox = with_kept();
    let shown = sandbox.stdout(&["cache", "stat", "cache"]);
    assert_eq!(shown, STAT);
    let shown = sandbox.stdout(&["cache", "ls", "cache"]);
    assert_eq!(shown, "key 0\nkey 2\nkey 3\nkey 4\n");
    let shown = sandbox.stdout(&["cache", "ls", "-l", "cache", "--bucket", "3"]);
    assert_eq!(shown, LONG);
    let entry = json(&sandbox, &["ls", "cache", "--bucket", "2"]);
    let fields = (&entry["key"], &entry["bytes"], &entry["own_file"]);
    assert_eq!(fields, (&"key 2".into(), &400.into(), &false.into()));
    let stat = json(&sandbox, &["stat", "cache"]);
    assert_eq!(
        (&stat["kind"], &stat["versions"]),
        (&"cache".into(), &[1][..].into())
    );
    assert_eq!(stat["ledger"]["of_this_boot"], false);

    let value: Vec<u8> = (0..400u64).map(|at| (at * 7 + 2) as u8).collect();
    let output = sandbox
        .command(&["cache", "get", "cache", "key 2"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), value));
    let output = sandbox
        .command(&["cache", "get", "cache", "--hex", "6b65792033"])
        .output();
    assert_eq!(output.unwrap().stdout.len(), 16_000);
    let got = json(&sandbox, &["get", "cache", "key 2"]);
    assert_eq!(
        (&got["is_found"], &got["bytes"]),
        (&true.into(), &400.into())
    );
    let hex = got["value_hex"].as_str().unwrap();
    assert!(hex.len() == 800 && hex.starts_with("02091017"), "{hex}");
    let none = json(&sandbox, &["get", "cache", "key 1"]);
    assert_eq!(
        (&none["outcome"], &none["value"]),
        (&"no-slot".into(), &Value::Null)
    );
    let missing = Outcome {
        code: 1,
        stdout: String::new(),
        stderr: "brisk: cache: key 1 is not found: no slot has its digest: nobody inserted it, or it was evicted or \
                 removed\n"
            .to_owned(),
    };
    assert_eq!(sandbox.run(&["cache", "get", "cache", "key 1"]), missing);
    assert_eq!(
        sandbox.failure(&["cache", "get", "cache", "--hex", "6b6"]),
        "brisk: --hex: the key is 6b6, allowed is an even number of hexadecimal digits\n"
    );

    let shown = sandbox.stdout(&["cache", "explain", "cache", "key 4"]);
    assert_eq!(shown, EXPLAINED);
    let page = include_str!("../../../docs/caches.md");
    assert!(page.contains(EXPLAINED), "the page shows it");
    let absent = sandbox.run(&["cache", "explain", "cache", "none"]);
    assert_eq!(absent.code, 1);
    let last = absent.stdout.lines().last().unwrap();
    assert_eq!(
        last,
        "not found  no slot has its digest: nobody inserted it, or it was evicted or removed"
    );
    assert_eq!(
        json(&sandbox, &["explain", "cache", "key 4"])["outcome"],
        "found"
    );
    assert_eq!(
        json(&sandbox, &["explain", "cache", "none"])["slot"],
        Value::Null
    );

    assert_eq!(
        sandbox.stdout(&["cache", "verify", "cache"]),
        "cache: read 4 entries (36400 bytes of values) in 2 files\ncache: sound\n"
    );
    assert_eq!(json(&sandbox, &["verify", "cache"])["sound"], true);
    assert!(
        !sandbox.path("cache/flights").exists(),
        "looking makes nothing"
    );
}

const STAT: &str = r"cache: a cache, format 1
  entries        4, with records of 102144 (99.75 KiB)
  layouts        1 fingerprint 0000000000000000, 1 fingerprint 0000000000000002, 1 fingerprint 0000000000000003, and 1 other
  files          332018 (324.24 KiB)
  index          1024 slots, 0.3 % in use, current
  segments       1 file of 65536 bytes, with 3 entries of 16640 bytes
  large values   1 file of 131072 bytes, with 1 entry of 85504 bytes
  ledger         4 entries with 102144 bytes of records, 327858 bytes of files; 2 files begun; of another boot or place, so the next writer counts again

  segment                          bytes   entries      records    of it
  85ca65426adbce54.segment         65536         3        16640   25.3 %  active

  bucket                                   entries      records
  0                                              1           64
  2                                              1          512
  3                                              1        16064
  4                                              1        85504
";
const LONG: &str = r"        16000   3 2026-11-24 00:47 0000000000000003 key 3
";
const EXPLAINED: &str = r"key        key 4 (5 bytes)
digest     5904e67e4030b38c5a4123e1c7cf72bc, with the seed of the index
sets       12 and 116 of block 0, from slot 2 on; 1 of 16 slots in use, 0 damaged
slot       2 of set 12, at byte 71808 of the index; its check is right
           inserted 2026-11-24 00:47, last use noted 2026-11-24 00:47, bucket 4; no use noted since, so it goes with its file
           names 85504 bytes at byte 64 of the value ea5f474c4843d10b
file       ea5f474c4843d10b.value, 131072 bytes, begun as number 2; its header is right
record     its check is right, and its key is the wanted one
value      20000 bytes at byte 65536, in 2 chunks with checks; fingerprint 0000000000000004
found      all that a look-up reads is right
";

#[test]
fn the_responses_of_a_url_are_explained_in_words() {
    let sandbox = Sandbox::empty();
    let cache = Arc::new(open(&sandbox));
    let engine = Engine::new(
        Arc::clone(&cache),
        Options::shared(),
        Overrides::default(),
        "test",
    );
    let url = "https://example.org/\u{e9}";
    let store = |accept: &'static str, body: &str| {
        let asked = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
        let request = Request {
            method: &Method::GET,
            url,
            headers: &asked,
        };
        let now = Timestamp::from(SystemTime::now());
        let Ok(Step::Ask(exchange)) = engine.begin(&request, now) else {
            panic!("{accept} is stored already");
        };
        let fields = HeaderMap::from_iter([
            (
                CACHE_CONTROL,
                HeaderValue::from_static("max-age=86400, immutable"),
            ),
            (ETAG, HeaderValue::from_static("\"1\"")),
            (VARY, HeaderValue::from_static("accept")),
        ]);
        let response = Response {
            status: StatusCode::OK,
            headers: &fields,
        };
        let Ok(Came::Pass(pass)) = engine.answered(exchange, &response, Times::at(now)) else {
            panic!("{accept} is no new response");
        };
        engine.keep(pass.keep.unwrap(), body.as_bytes()).unwrap();
    };
    store("text/html", "a page");
    store("text/plain", "text");
    let shown = sandbox.stdout(&["cache", "explain", "cache", url, "-H", "Accept: text/plain"]);
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], format!("url        {url} has 2 responses"));
    assert_eq!(lines[1], "response   1, which this request does not select");
    let second = lines
        .iter()
        .position(|line| *line == "response   2")
        .unwrap();
    assert_eq!(
        lines[second + 1].trim(),
        "used without asking the origin, because it is fresh"
    );
    assert!(
        lines[second + 2].contains("lifetime 86400 s (from max-age)"),
        "{shown}"
    );
    for line in [
        "validated by a strong entity tag",
        "depends on the request's accept",
        "immutable: a reload does not ask for it while it is fresh",
        "body of 4 bytes",
    ] {
        assert!(
            lines[second..].iter().any(|found| found.trim() == line),
            "{shown}"
        );
    }
    let value = json(&sandbox, &["explain", "cache", url]);
    assert_eq!(
        (&value["is_found"], &value["outcome"]),
        (&false.into(), &"no-slot".into())
    );
    let first = &value["responses"][0];
    assert_eq!(
        (&first["selected"], &first["action"]),
        (&false.into(), &"forward".into())
    );
    assert_eq!(
        (&first["body_bytes"], &first["body_found"]),
        (&6.into(), &true.into())
    );
    let stat = json(&sandbox, &["stat", "cache"]);
    let layouts = stat["layouts"].as_array().unwrap();
    let of = |name: &str| {
        layouts
            .iter()
            .find(|layout| layout["name"] == name)
            .unwrap()
    };
    assert_eq!(of("HTTP responses")["entries"], 1);
    assert_eq!(of("bodies of HTTP responses")["entries"], 2);
    let shown = sandbox.stdout(&["cache", "stat", "cache"]);
    assert!(
        shown.starts_with("cache: a cache of HTTP responses, format 1\n"),
        "{shown}"
    );
    cache.remove_body(url, &BodyName::of(b"a page")).unwrap();
    let value = json(&sandbox, &["explain", "cache", url]);
    assert_eq!(value["responses"][0]["body_found"], false);

    let outcome = sandbox.run(&["cache", "explain", "cache", "https://example.org/other"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""));
    assert!(
        outcome.stdout.contains("no slot has its digest"),
        "{outcome:?}"
    );
    let outcome = sandbox.run(&["cache", "explain", "cache", url, "-H", "Accept"]);
    assert_eq!(outcome.code, 2);
    assert!(
        outcome
            .stderr
            .contains("has no colon, allowed is NAME: VALUE"),
        "{outcome:?}"
    );
}

#[test]
fn damage_is_named_by_file_and_byte() {
    let sandbox = with_kept();
    let told = json(&sandbox, &["explain", "cache", "key 4"]);
    let name = told["data_file"]["name"].as_str().unwrap().to_owned();
    let at = told["record"]["value_at"].as_u64().unwrap();
    let path = format!("cache/{name}");
    let mut bytes = sandbox.bytes(&path);
    bytes[at as usize + 16_384] ^= 4;
    fs::write(sandbox.path(&path), bytes).unwrap();
    let line = format!(
        "{name}, byte {}: chunk 1 of the value differs from its check, allowed is what was written",
        at + 16_384
    );
    assert_eq!(
        sandbox.run(&["cache", "verify", "cache"]),
        Outcome {
            code: 1,
            stdout: format!(
                "{line} (key key 4)\ncache: read 3 entries (16400 bytes of values) in 2 files\ncache: damaged, 1 fault\n"
            ),
            stderr: String::new(),
        }
    );
    let told = json(&sandbox, &["verify", "cache"]);
    assert_eq!(
        (&told["sound"], &told["more_faults"]),
        (&false.into(), &0.into())
    );
    assert_eq!(
        (&told["faults"][0]["file"], &told["faults"][0]["key"]),
        (&name.into(), &"key 4".into())
    );
    // No byte of a damaged value is written.
    let got = sandbox.run(&["cache", "get", "cache", "key 4"]);
    assert_eq!((got.code, got.stdout.as_str()), (1, ""));
    assert_eq!(
        got.stderr,
        format!("brisk: cache: key 4 is not found: its value is damaged: {line}\n")
    );
    assert_eq!(
        json(&sandbox, &["explain", "cache", "key 4"])["damage"]["message"]
            .as_str()
            .unwrap()
            .split(' ')
            .next(),
        Some("chunk")
    );
}

#[test]
fn keys_cannot_give_commands_to_a_terminal() {
    let sandbox = Sandbox::empty();
    let cache = open(&sandbox);
    let evil = "a\u{1b}]0;title\u{7}\u{202e}\u{9b}2J\n";
    let key = [evil.as_bytes(), b"\xff"].concat();
    cache
        .insert(&key, &noise(20_000), About::default())
        .unwrap();
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let value = sandbox.path("cache");
    let segment = fs::read_dir(&value)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let segment = segment.filter(|path| path.to_str().unwrap().ends_with("value"));
    let segment = segment.last().unwrap();
    let listed = json(&sandbox, &["ls", "cache"]);
    assert_eq!(listed["key_hex"], hex);
    let mut outputs = vec![sandbox.run(&["cache", "explain", "cache", "--hex", &hex])];
    let mut bytes = fs::read(&segment).unwrap();
    *bytes.iter_mut().rev().find(|byte| **byte != 0).unwrap() ^= 1;
    fs::write(&segment, bytes).unwrap();
    outputs.push(sandbox.run(&["cache", "verify", "cache"]));
    outputs.push(sandbox.run(&["cache", "get", "cache", "--hex", &hex]));
    outputs.push(sandbox.run(&["cache", "explain", "cache", "--hex", &hex]));
    for output in outputs {
        let text = format!("{}{}", output.stdout, output.stderr);
        assert!(
            text.contains("a\\u{1b}]0;title\\u{7}\\u{202e}\\u{9b}2J"),
            "{text}"
        );
        assert!(
            !text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']),
            "{text}"
        );
    }
}

#[test]
fn no_damage_makes_it_panic() {
    let sandbox = with_kept();
    let files: Vec<_> = fs::read_dir(sandbox.path("cache"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let random = noise(64);
    let mut random = random.iter().map(|&byte| usize::from(byte)).cycle();
    for path in files {
        let whole = fs::read(&path).unwrap();
        for round in 0..4 {
            let mut bytes = whole.clone();
            match round {
                // The parts that mean something are at the beginning.
                0 | 1 if !bytes.is_empty() => {
                    for _ in 0..3 {
                        let at = random.next().unwrap() % bytes.len();
                        bytes[at] ^= random.next().unwrap() as u8;
                    }
                }
                2 => bytes.truncate(whole.len() / 2 + 7),
                _ => bytes.fill(0xff),
            }
            fs::write(&path, &bytes).unwrap();
            for args in [
                &["stat", "cache"][..],
                &["ls", "-l", "cache"],
                &["get", "cache", "key 3"],
                &["explain", "cache", "key 4"],
                &["verify", "cache"],
            ] {
                let mut all = vec!["cache"];
                all.extend(args);
                let output = sandbox.command(&all).output().unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.code().is_some_and(|code| code <= 2),
                    "{args:?}: {error}"
                );
                assert!(!error.contains("panicked"), "{args:?}: {error}");
            }
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn pruning_and_clearing_leave_a_cache() {
    let sandbox = Sandbox::empty();
    let cache = open(&sandbox);
    for n in 0..200 {
        cache
            .insert(
                format!("key {n:03}").as_bytes(),
                &noise(9_000),
                About::default(),
            )
            .unwrap();
    }
    assert!(
        sandbox
            .failure(&["cache", "prune", "cache"])
            .contains("--limit")
    );
    let limit = sandbox.failure(&["cache", "prune", "cache", "--limit", "100K"]);
    assert!(
        limit.starts_with("brisk: the limit is 102400 bytes "),
        "{limit}"
    );
    assert_eq!(
        sandbox.stdout(&["cache", "prune", "cache", "--max-age", "1d"]),
        {
            let bytes = cache.stat().unwrap().bytes;
            format!(
                "cache: removed 0 entries for their age and 0 entries for space; {bytes} bytes -> {bytes} bytes\n"
            )
        }
    );
    let pruned = json(&sandbox, &["prune", "cache", "--limit", "1M"]);
    let bytes = pruned["bytes"].as_u64().unwrap();
    assert!(bytes <= 1 << 20 && bytes > 700_000, "{pruned}");
    assert_eq!(bytes, cache.stat().unwrap().bytes);
    assert!(cache.get(b"key 199").unwrap().is_some() && cache.get(b"key 000").unwrap().is_none());
    assert_eq!(sandbox.run(&["cache", "verify", "cache"]).code, 0);

    // What somebody still has open is held until that ends.
    let held: Vec<_> = fs::read_dir(sandbox.path("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(".segment"))
        .map(|path| fs::File::open(path).unwrap())
        .collect();
    // That of the program, and not that of `prune`.
    assert_eq!(json(&sandbox, &["stat", "cache"])["limit_bytes"], 4 << 20);
    let held_bytes: u64 = held.iter().map(|file| file.metadata().unwrap().len()).sum();
    let cleared = json(&sandbox, &["clear", "cache"]);
    assert_eq!(cleared["entries"], cache_entries(&pruned, 200));
    assert!(cache.get(b"key 199").unwrap().is_none());
    let stat = json(&sandbox, &["stat", "cache"]);
    assert_eq!(
        (&stat["entries"], &stat["held"]["bytes"]),
        (&0.into(), &held_bytes.into())
    );
    // A child of another test that does not execute its program yet may hold them, too.
    let processes = stat["held"]["pids"].as_array().unwrap();
    assert!(processes.contains(&std::process::id().into()), "{stat}");
    // This process's own handle has it mapped, too.
    drop((held, cache));
    assert_eq!(json(&sandbox, &["stat", "cache"])["held"]["files"], 0);
    let cache = open(&sandbox);
    cache.insert(b"new", b"value", About::default()).unwrap();
    assert_eq!(sandbox.stdout(&["cache", "get", "cache", "new"]), "value");
}

fn cache_entries(pruned: &Value, before: u64) -> u64 {
    before - pruned["evicted"].as_u64().unwrap()
}

#[test]
fn only_a_cache_is_pruned_and_only_one_that_others_cannot_write() {
    let sandbox = Sandbox::empty();
    fs::create_dir(sandbox.path("other")).unwrap();
    sandbox.file("other/index", b"something else");
    let refused = "brisk: other: not a cache of brisk: no file in it begins as one of a cache does; name the directory \
                   that the program opens as its cache\n";
    for args in [
        &["stat", "other"][..],
        &["ls", "other"],
        &["get", "other", "key"],
        &["explain", "other", "key"],
        &["verify", "other"],
        &["prune", "other", "--limit", "1M"],
        &["clear", "other"],
    ] {
        let mut all = vec!["cache"];
        all.extend(args);
        assert_eq!(sandbox.failure(&all), refused, "{args:?}");
    }
    assert_eq!(fs::read_dir(sandbox.path("other")).unwrap().count(), 1);
    assert!(
        sandbox
            .failure(&["cache", "clear", "none"])
            .contains("No such file")
    );
    assert!(!sandbox.path("none").exists());

    let cache = open(&sandbox);
    cache.insert(b"key", b"value", About::default()).unwrap();
    fs::set_permissions(sandbox.path("cache"), fs::Permissions::from_mode(0o777)).unwrap();
    for args in [
        &["cache", "clear", "cache"][..],
        &["cache", "prune", "cache", "--limit", "1M"],
    ] {
        let refused = sandbox.failure(args);
        let start = "brisk: cache cache: its mode is 777, allowed is 755, because ";
        assert!(refused.starts_with(start), "{refused}");
    }
    // Looking trusts nobody anyhow.
    assert_eq!(sandbox.stdout(&["cache", "ls", "cache"]), "key\n");
}

#[test]
fn a_cache_of_generated_code_is_a_cache_and_an_older_one_is_recognised() {
    let sandbox = Sandbox::empty();
    let code = CodeCache::open(&sandbox.path("code"), CodeCacheOptions::new()).unwrap();
    let key = CodeKey {
        producer: "test",
        version: "1",
        cpu_features: "",
        flags: "",
        source: b"source",
    };
    code.store(&key, &noise(1000)).unwrap();
    let stat = json(&sandbox, &["stat", "code"]);
    assert_eq!(
        (&stat["kind"], &stat["entries"]),
        (&"cache".into(), &1.into())
    );
    assert_eq!(stat["layouts"][0]["name"], "generated code");
    let shown = sandbox.stdout(&["cache", "stat", "code"]);
    assert!(
        shown.starts_with("code: a cache of generated code, format 1\n"),
        "{shown}"
    );
    assert!(
        shown.contains("\n  layouts        1 generated code\n"),
        "{shown}"
    );
    assert_eq!(json(&sandbox, &["ls", "code"])["bytes"], 1000);
    assert_eq!(json(&sandbox, &["verify", "code"])["sound"], true);

    let mut entry = b"briskcod\x01\0\0\0".to_vec();
    entry.resize(65_736, 0);
    sandbox.file("old/e052eac5644227c96e5b70bc14074ca4.code1", &entry);
    sandbox.file("old/130e224204f2f29091cdc83fe6871f9a.code1", b"other");
    let stat = json(&sandbox, &["stat", "old"]);
    assert_eq!(
        (&stat["kind"], &stat["entries"]),
        (&"old-code-cache".into(), &1.into())
    );
    assert_eq!(
        (&stat["versions"], &stat["bytes"]),
        (&[1][..].into(), &65_736.into())
    );
    let shown = sandbox.stdout(&["cache", "stat", "old"]);
    let start = "old: a cache of generated code of an older brisk, format 1\n";
    assert!(shown.starts_with(start), "{shown}");
    assert_eq!(
        sandbox.failure(&["cache", "clear", "old"]),
        "brisk: old: a cache of generated code of an older brisk, with 1 entry, of which brisk cache stat alone knows \
         something; no program of this version finds them, so remove them\n"
    );
}
