//! `brisk info`: what an image records, and where its bytes are.

mod looking;

use brisk_image::{Compression, ImageWriter};
use looking::{Place, assert_help};
use serde_json::{Value, json};

#[test]
fn help() {
    assert_help("info");
}

#[test]
fn everything_that_is_recorded_is_shown() {
    let place = Place::new();
    place.tree("tree");
    // Uncompressed, so that no library's version changes a number.
    let writer = ImageWriter::new()
        .compression(Compression::None)
        .time(1_700_000_000)
        .place("/opt/app".into());
    place.pack(&writer, "tree", "a.img");
    let said = place.brisk(&["info", "a.img", "--top", "2", "--curve"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let version = env!("CARGO_PKG_VERSION");
    let used = brisk_image::Image::open(place.path("a.img"))
        .unwrap()
        .bytes_used();
    let section = used.next_multiple_of(4096) + 64;
    let lines: Vec<&str> = said.out.lines().collect();
    let recipe = lines.iter().find(|l| l.starts_with("  recipe ")).unwrap();
    assert!(
        recipe.starts_with(&format!("  recipe          {{\"brisk\":\"{version}\",")),
        "{recipe}"
    );
    let recipe_len = recipe.len() - "  recipe          ".len();
    let expected = format!(
        "\
a.img
  format          SquashFS 4.0
  codec           none (says gzip), options not recorded (the default)
  block size      131072 bytes (128.00 KiB)
  flags           0x0bcb: inodes stored raw, data stored raw, fragments stored raw, deduplicated, \
exportable, xattrs stored raw, no xattrs, ids stored raw
  inodes          8
  shared blocks   1
  made            2023-11-14T22:13:20Z
  starts at byte  0
  image           {used} bytes ({})
  file            {} bytes ({})
  place           /opt/app
  entry           none
{recipe}
  sections        rcpe ({recipe_len} bytes at byte {section}), plac (8 bytes at byte {})

4 files of 600034 bytes are stored as

                            bytes         stored
  compressed                    0              0
  raw                      600000         600000
  in shared blocks             34             34
  sparse                        0              0
  duplicates                    0              0
",
        kib(used),
        place.read("a.img").len(),
        kib(place.read("a.img").len() as u64),
        section + 4096,
    );
    assert!(said.out.starts_with(&expected), "{}\n{expected}", said.out);
    let rest = "
The largest files

            bytes         stored      in shared  path
           300000         300000              0  noise
           300000         300000              0  text

Files by size

     at most       files    share             bytes    share
       1 KiB           2   50.0 %                34    0.0 %
       2 KiB           2   50.0 %                34    0.0 %
       4 KiB           2   50.0 %                34    0.0 %
       8 KiB           2   50.0 %                34    0.0 %
      16 KiB           2   50.0 %                34    0.0 %
      32 KiB           2   50.0 %                34    0.0 %
      64 KiB           2   50.0 %                34    0.0 %
     128 KiB           2   50.0 %                34    0.0 %
     256 KiB           2   50.0 %                34    0.0 %
     512 KiB           4  100.0 %            600034  100.0 %
";
    assert!(said.out.ends_with(rest), "{}", said.out);
}

fn kib(bytes: u64) -> String {
    // All images of these tests are between 1 KiB and 1 MiB.
    format!("{:.2} KiB", bytes as f64 / 1024.0)
}

#[test]
fn json_has_the_same_numbers() {
    let place = Place::new();
    place.tree("tree");
    place.mksquashfs(
        "tree",
        "a.img",
        &["-comp", "xz", "-Xbcj", "x86,arm", "-b", "64K"],
    );
    let said = place.brisk(&["info", "a.img", "--json", "--top", "1"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let info: Value = serde_json::from_str(&said.out).unwrap();
    for (field, expected) in [
        ("version", json!("4.0")),
        ("codec", json!("xz")),
        (
            "codec_options",
            json!({"dict_size": 65536, "filters": ["x86", "arm"]}),
        ),
        ("uncompressed", json!(false)),
        ("block_size", json!(65536)),
        (
            "flag_names",
            json!(["deduplicated", "exportable", "codec options"]),
        ),
        ("inodes", json!(8)),
        ("shared_blocks", json!(1)),
        ("offset", json!(0)),
        ("file_bytes", json!(place.read("a.img").len())),
        ("place", Value::Null),
        ("recipe", Value::Null),
        ("sections", json!([])),
        ("files", json!(4)),
        ("bytes", json!(600_034)),
    ] {
        assert_eq!(info[field], expected, "{field}");
    }
    assert_eq!(
        info["stored"]["raw"],
        json!({"bytes": 300_000, "stored_bytes": 300_000})
    );
    assert_eq!(info["stored"]["compressed"]["bytes"], 300_000);
    assert_eq!(info["largest"][0]["path"], "noise");
    assert_eq!(info["largest"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        info["curve"].as_array().and_then(|c| c.last()),
        Some(&json!({"at_most_bytes": 524_288, "files": 4, "bytes": 600_034}))
    );
    // Every byte of the image is in one class.
    let stored = &info["stored"];
    let classes = ["compressed", "raw", "shared"].map(|class| &stored[class]["stored_bytes"]);
    let tables = stored["tables"].as_array().unwrap().iter();
    let tables = tables.map(|table| &table["stored_bytes"]);
    let sum: u64 = classes
        .into_iter()
        .chain(tables)
        .chain([&stored["other_bytes"]])
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(Some(sum), info["bytes_used"].as_u64());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    for arguments in [
        &["info", "a.img"][..],
        &["info", "a.img", "--json"],
        &["verify", "a.img"],
        &["doctor"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(arguments).stdout(writer).output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(0), &b""[..]),
            "{arguments:?}"
        );
    }
}

#[test]
fn names_cannot_drive_the_terminal() {
    let place = Place::new();
    let root = place.tree("tree");
    looking::write(&root.join("a\u{1b}[2Jb"), &looking::noise(400_000));
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let said = place.brisk(&["info", "a.img", "--top", "1"]);
    assert!(said.out.ends_with("  a\\u{1b}[2Jb\n"), "{}", said.out);
}
