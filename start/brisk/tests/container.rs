//! `brisk pack oci-layout:` and `docker-archive:`: the tree is the one that umoci unpacks and podman exports, the bytes depend on the image alone, and
//! whatever a layout says is bounded and checked.

mod sandbox;
mod staging;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox::{Sandbox, paths};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use staging::each_user;

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry of a tar archive: its type, name, target and contents. Names in lower case are owned by 1:2.
fn entry(kind: u8, name: &str, target: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, if kind == b'5' { "0000755" } else { "0000640" });
    put(108, "0000001");
    put(116, "0000002");
    put(124, &format!("{:011o}", contents.len()));
    put(136, "14524767400");
    put(148, "        ");
    put(157, target);
    put(257, "ustar\x0000");
    if kind == b'3' {
        put(329, "0000001");
        put(337, "0000003");
    }
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, contents: &str) -> Vec<u8> {
    entry(b'0', name, "", contents.as_bytes())
}

fn directory(name: &str) -> Vec<u8> {
    entry(b'5', name, "", b"")
}

fn link(name: &str, target: &str) -> Vec<u8> {
    entry(b'1', name, target, b"")
}

fn soft(name: &str, target: &str) -> Vec<u8> {
    entry(b'2', name, target, b"")
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn through(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    through("gzip", &["-nc"], bytes)
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    through("zstd", &["-qc"], bytes)
}

/// The processor of this machine, as Go calls it.
fn here() -> String {
    brisk_remote::Platform::here().architecture
}

const OCI: &str = "application/vnd.oci.image";

/// A layout that a test writes, blob by blob.
struct Layout(PathBuf);

impl Layout {
    fn new(directory: PathBuf) -> Self {
        fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
        fs::write(
            directory.join("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        )
        .unwrap();
        Self(directory)
    }

    fn blob_path(&self, hex: &str) -> PathBuf {
        self.0.join("blobs/sha256").join(hex)
    }

    /// Adds a blob, and returns how it is described.
    fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        fs::write(self.blob_path(&hex(bytes)), bytes).unwrap();
        json!({"mediaType": format!("{OCI}.{kind}"), "size": bytes.len(), "digest": format!("sha256:{}", hex(bytes))})
    }

    fn json(&self, kind: &str, value: &Value) -> Value {
        self.blob(kind, value.to_string().as_bytes())
    }

    /// Adds an image of these archives, stored as `compress` makes them.
    fn image(&self, archives: &[Vec<u8>], compress: fn(&[u8]) -> Vec<u8>, config: &Value) -> Value {
        let layers: Vec<_> = archives
            .iter()
            .map(|archive| self.blob("layer.v1.tar", &compress(archive)))
            .collect();
        let ids: Vec<_> = archives
            .iter()
            .map(|archive| format!("sha256:{}", hex(archive)))
            .collect();
        self.manifest(&json!(layers), &json!(ids), config)
    }

    fn manifest(&self, layers: &Value, ids: &Value, config: &Value) -> Value {
        let config = self.json("config.v1+json", &json!({
            "architecture": here(), "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ids},
        }));
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        self.json("manifest.v1+json", &manifest)
    }

    /// Writes the index, of descriptors and the names that they have.
    fn index(&self, manifests: &[(&str, Value)]) {
        let named = manifests.iter().map(|(name, manifest)| {
            let mut manifest = manifest.clone();
            if !name.is_empty() {
                manifest["annotations"] = json!({"org.opencontainers.image.ref.name": name});
            }
            manifest
        });
        let index = json!({"schemaVersion": 2, "manifests": named.collect::<Vec<_>>()});
        fs::write(self.0.join("index.json"), index.to_string()).unwrap();
    }
}

/// The files of the sandbox's layout `l`, which is made of these archives.
fn layout(sandbox: &Sandbox, archives: &[Vec<u8>], config: &Value) -> Layout {
    let layout = Layout::new(sandbox.path("l"));
    layout.index(&[("a", layout.image(archives, gzip, config))]);
    layout
}

/// What can be told of a file in a directory, but for its number. Links of one file have the path of the first.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    seconds: i64,
    device: u64,
    contents: Vec<u8>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
    first: PathBuf,
}

fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut all, mut first) = (BTreeMap::new(), BTreeMap::new());
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).unwrap();
        let kind = metadata.file_type();
        let contents = if kind.is_symlink() {
            fs::read_link(&full)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else if kind.is_file() {
            fs::read(&full).unwrap()
        } else {
            Vec::new()
        };
        if kind.is_dir() {
            let mut names: Vec<_> = fs::read_dir(&full)
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            names.sort();
            names.reverse();
            open.extend(names.into_iter().map(|name| path.join(name)));
        }
        let seen = Seen {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            seconds: metadata.mtime(),
            device: if kind.is_char_device() || kind.is_block_device() {
                metadata.rdev()
            } else {
                0
            },
            contents,
            xattrs: xattrs(&full),
            first: match kind.is_dir() {
                true => path.clone(),
                false => first.entry(metadata.ino()).or_insert(path.clone()).clone(),
            },
        };
        all.insert(path, seen);
    }
    all
}

fn xattrs(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut names = vec![0; 4096];
    let n = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..n]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let name = std::str::from_utf8(name).unwrap();
        let mut value = vec![0; 4096];
        let n = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(n);
        (OsString::from(name), value)
    };
    names.map(value).collect()
}

fn run(program: &str, arguments: &[&str], directory: &Path) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

/// Checks that brisk's tree of the image `name` in the layout `l` is that of umoci, but for the time of the root.
#[track_caller]
fn same_as_umoci(sandbox: &Sandbox, name: &str) {
    let image = format!("l:{name}");
    let root = sandbox.path("");
    run("umoci", &["unpack", "--image", &image, "theirs"], &root);
    same(sandbox, name, "theirs/rootfs", &[""]);
}

/// The same of what podman exports of a container, as `docker export` does.
#[track_caller]
fn same_as_podman(sandbox: &Sandbox, name: &str) {
    // Its files are in the sandbox, and no daemon takes part.
    let script = "podman() { command podman --root \"$PWD/store\" --runroot \"$PWD/runs\" --storage-driver vfs \"$@\"; }
         image=$(podman pull -q oci:l:\"$1\"); container=$(podman create --network none \"$image\" /x); mkdir theirs
         podman export \"$container\" | tar -xp --xattrs --xattrs-include='*' -C theirs";
    run(
        "bash",
        &["-eo", "pipefail", "-c", script, "podman", name],
        &sandbox.path(""),
    );
    // It puts files of its own there, for a while.
    same(sandbox, name, "theirs", &["", "etc"]);
    for name in ["store", "runs"] {
        fs::remove_dir_all(sandbox.path(name)).unwrap();
    }
}

/// Checks that brisk's tree of the image `name` in the layout `l` is that in `theirs`, but for the times of the directories `touched`.
#[track_caller]
fn same(sandbox: &Sandbox, name: &str, theirs: &str, touched: &[&str]) {
    let image = format!("oci-layout:l:{name}");
    let packed = sandbox.run(&["pack", &image, "-qo", "x.img"]);
    assert_eq!(packed.code, 0, "{}", packed.stderr);
    sandbox.stdout(&["extract", "x.img", "ours", "-q"]);
    let (ours, mut theirs) = (seen(&sandbox.path("ours")), seen(&sandbox.path(theirs)));
    let names = |seen: &BTreeMap<PathBuf, Seen>| seen.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for path in touched.iter().map(Path::new) {
        theirs.get_mut(path).expect("it is there").seconds = ours[path].seconds;
    }
    for (path, seen) in &ours {
        assert_eq!(seen, &theirs[path], "{}", path.display());
    }
    for name in ["ours", "theirs"] {
        fs::remove_dir_all(sandbox.path(name)).unwrap();
    }
}

#[test]
fn the_tree_is_that_of_umoci_and_podman() {
    let sandbox = Sandbox::empty();
    let root = sandbox.path("");
    run("umoci", &["init", "--layout", "l"], &root);
    run("umoci", &["new", "--image", "l:a"], &root);
    let change = |change: &str| {
        run("umoci", &["unpack", "--image", "l:a", "b"], &root);
        run("sh", &["-ec", change], &sandbox.path("b/rootfs"));
        run("umoci", &["repack", "--image", "l:a", "b"], &root);
        fs::remove_dir_all(sandbox.path("b")).unwrap();
    };
    for layer in [
        "mkdir -p bin etc/deep/deeper gone/sub data; echo 1 > bin/one; ln bin/one bin/uno; ln -s one bin/eins
         echo conf > etc/conf; echo x > etc/deep/deeper/x; echo y > gone/sub/y; echo z > gone/z; echo d > data/d; echo e > data/e
         mknod null c 1 3; mknod pipe p; mknod disk b 8 1; chown 7:8 etc/conf; chmod 4750 bin/one; chmod 1777 data
         setfattr -n user.a -v b bin/one; setfattr -n user.of -v directory etc; setfattr -n trusted.t -v 1 etc/conf
         touch -d @1000000001 etc/conf bin etc gone data etc/deep; : > empty; head -c 300000 /dev/zero > zeros
         echo file > becomes-directory; mkdir becomes-file; echo in > becomes-file/in; touch -h -d @5 bin/eins",
        "rm -r gone/sub etc/conf; ln bin/one etc/later; rm becomes-directory; mkdir becomes-directory; echo n > becomes-directory/n
         rm -r data; mkdir data; echo new > data/new; echo 2 > etc/deep/deeper/x",
        "rm bin/uno; mv etc/deep etc/moved; chmod 700 gone; setfattr -x user.a bin/one; echo 3 >> bin/one; rm null",
    ] {
        change(layer);
    }
    // An opaque directory.
    sandbox.file("put/only", b"only");
    run(
        "umoci",
        &["insert", "--image", "l:a", "--opaque", "put", "/etc/moved"],
        &root,
    );
    same_as_podman(&sandbox, "a");
    // podman 4.3 refuses the layer that umoci makes of this.
    change("rm -r becomes-file; echo file > becomes-file");
    same_as_umoci(&sandbox, "a");
    let image = sandbox.image("x.img");
    assert!(image.lookup("etc/moved/only").unwrap().is_some());
    assert!(image.lookup("etc/moved/deeper").unwrap().is_none());
}

/// What each layer does to those below.
fn layers() -> Vec<Vec<u8>> {
    let big = sandbox::noise(300_000);
    vec![
        archive(&[
            directory("./"),
            directory("./d/"),
            entry(b'0', "d/big", "", &big),
            file("d/low", "low"),
            link("d/same", "./d/low"),
            file("gone", "gone"),
            directory("o/"),
            file("o/low", "low"),
            directory("o/sub/"),
            file("o/sub/low", "low"),
            file("was-file", "x"),
            directory("was-directory/"),
            file("was-directory/in", "x"),
            soft("link", "d"),
            file("twice", "first"),
        ]),
        archive(&[
            // Deletions are about lower layers, wherever they stand.
            file("o/new", "new"),
            file("o/.wh..wh..opq", ""),
            file("twice", "second"),
            file(".wh.twice", ""),
            file(".wh.gone", ""),
            file(".wh.never-there", ""),
            file("nowhere/.wh.name", ""),
            link("across", "d/low"),
            file("implied/by/this", "x"),
        ]),
        archive(&[
            directory("was-file/"),
            file("was-file/in", "x"),
            file("was-directory", "file"),
            directory("link/"),
            file("link/in", "x"),
            file("link/.wh.low", ""),
            file("/absolute", "x"),
            entry(b'0', "copy", "", &big),
            file("d/.wh.low", ""),
        ]),
        // Nothing, and an archive without an end.
        archive(&[]),
        file("last", "x"),
    ]
}

#[test]
fn the_image_depends_on_the_layers_alone() {
    let sandbox = Sandbox::empty();
    let config = json!({"Cmd": ["/last"]});
    let layout = layout(&sandbox, &layers(), &config);
    let packed = sandbox.run(&["pack", "oci-layout:l", "-qo", "x.img", "--threads", "1"]);
    assert_eq!(
        (packed.code, packed.stderr.as_str()),
        (
            0,
            "brisk: warning: 1 names start with \"/\" and were taken from the root of the tree (the first is entry \
             \"/absolute\" at byte 4608 of the archive)\n\
             brisk: warning: the entry starts /last, which no one may execute; pack it with --chmod '/last=a+x'\n"
        )
    );
    let image = sandbox.image("x.img");
    assert_eq!(
        paths(&image),
        [
            "absolute",
            "across",
            "copy",
            "d",
            "d/big",
            "d/same",
            "implied",
            "implied/by",
            "implied/by/this",
            "last",
            "link",
            "link/in",
            "o",
            "o/new",
            "twice",
            "was-directory",
            "was-file",
            "was-file/in"
        ]
    );
    assert_eq!(image.read("across").unwrap(), b"low");
    assert_eq!(image.lookup("across").unwrap().unwrap().nlink(), 2);
    assert_eq!(image.read("twice").unwrap(), b"second");
    assert_eq!(image.read("copy").unwrap(), sandbox::noise(300_000));
    let expected = sandbox.bytes("x.img");
    // Other threads, other compressions, an archive of Docker, and an order that is not that of the layers and back.
    let same = |arguments: &[&str]| {
        let packed = sandbox.run(&[&["pack", "-qo", "y.img"], arguments].concat());
        assert_eq!(packed.code, 0, "{}", packed.stderr);
        assert!(sandbox.bytes("y.img") == expected, "{arguments:?}");
    };
    same(&["oci-layout:l:a", "--threads", "4"]);
    let other = [
        ("zstd", layout.image(&layers(), zstd, &config)),
        ("plain", layout.image(&layers(), <[u8]>::to_vec, &config)),
    ];
    layout.index(&other);
    same(&["oci-layout:l:zstd"]);
    same(&["oci-layout:l:plain"]);
    let digest = other[0].1["digest"].as_str().unwrap();
    same(&[&format!("oci-layout:l@{digest}")]);
    run(
        "skopeo",
        &[
            "--insecure-policy",
            "copy",
            "-q",
            "oci:l:plain",
            "docker-archive:d.tar:some/app:1",
        ],
        &sandbox.path(""),
    );
    same(&["docker-archive:d.tar"]);
    same(&["docker-archive:d.tar:some/app:1"]);
    assert_eq!(
        sandbox.failure(&["pack", "docker-archive:d.tar:other", "-qo", "y.img"]),
        "brisk: d.tar: no image is named other, but docker.io/some/app:1\n"
    );
    // Files of other layers come first, and what is read twice is the same.
    sandbox.file("order", b"copy\nlast\nd/big\n");
    let packed = sandbox.run(&[
        "pack",
        "oci-layout:l:zstd",
        "-qo",
        "z.img",
        "--order",
        "order",
        "--no-deduplicate",
    ]);
    assert_eq!(packed.code, 0, "{}", packed.stderr);
    sandbox.stdout(&["diff", "x.img", "z.img"]);
}

#[test]
fn a_platform_is_chosen() {
    let sandbox = Sandbox::empty();
    let layout = Layout::new(sandbox.path("l"));
    let of = |name: &str, platform: Value| {
        let mut manifest = layout.image(&[archive(&[file(name, "")])], gzip, &json!({}));
        manifest["platform"] = platform;
        manifest
    };
    let index = json!({"schemaVersion": 2, "manifests": [
        of("here", json!({"os": "linux", "architecture": here()})),
        of("arm6", json!({"os": "linux", "architecture": "arm", "variant": "v6"})),
        of("proof", json!({"os": "unknown", "architecture": "unknown"})),
        of("risc", json!({"os": "linux", "architecture": "riscv64"})),
    ]});
    layout.index(&[("", layout.json("index.v1+json", &index))]);
    let names = |arguments: &[&str]| {
        sandbox.stdout(&[&["pack", "oci-layout:l", "-qo", "x.img"], arguments].concat());
        paths(&sandbox.image("x.img"))
    };
    assert_eq!(names(&[]), ["here"]);
    assert_eq!(names(&["--platform", "linux/arm/v6"]), ["arm6"]);
    assert_eq!(names(&["--platform", "linux/riscv64"]), ["risc"]);
    let said = sandbox.failure(&[
        "pack",
        "oci-layout:l",
        "-qo",
        "x.img",
        "--platform",
        "linux/arm",
    ]);
    assert!(
        said.starts_with("brisk: l: there is no image for linux/arm, but for linux/")
            && said.ends_with("linux/arm/v6, linux/riscv64; choose one with --platform\n"),
        "{said}"
    );
    assert_eq!(
        sandbox.failure(&["pack", "l", "-qo", "x.img", "--platform", "linux/arm"]),
        "brisk: --platform and --max-size are for container images; name one with oci://, oci-layout: or docker-archive:\n"
    );
}

#[test]
fn what_a_layer_may_not_have_is_refused_with_a_cure() {
    let sandbox = Sandbox::empty();
    let low = archive(&[
        soft("link", "d"),
        directory("d"),
        file("plain", ""),
        file("d/x", ""),
    ]);
    let refused = "marks a deletion of \"\", \".\" or \"..\", allowed is the name of a file; have the image made again";
    for (bad, said) in [
        (file("d/.wh.", ""), refused),
        (file("d/.wh..", ""), refused),
        (file("d/.wh...", ""), refused),
        (
            file(".wh..wh.plnk", ""),
            "is a mark of AUFS, allowed are .wh.NAME and .wh..wh..opq; save the image with a newer Docker",
        ),
        (
            file(".wh.d/x", ""),
            "is below \".wh.d\", which marks a deletion and is no directory; rename the directory",
        ),
        (
            file("d/../../x", ""),
            "leaves the tree by \"..\" in its name; archive it from the directory above",
        ),
        (
            file("link/x", ""),
            "is below \"link\", which is a symbolic link; archive each by its own path",
        ),
        (
            file("link/.wh.x", ""),
            "marks a deletion below \"link\", which is a symbolic link; delete by the path that it leads to",
        ),
        (
            file("plain/x", ""),
            "is below \"plain\", which is a regular file; archive each by its own path",
        ),
        (
            link("h", "link/x"),
            "is a hard link to \"link/x\", which is below a symbolic link; archive each by its own path",
        ),
        (
            link("h", "never"),
            "is a hard link to \"never\", which no earlier entry is; put that in front of it",
        ),
    ] {
        let name = String::from_utf8_lossy(&bad[..100])
            .trim_end_matches('\0')
            .to_owned();
        let bad = archive(&[bad]);
        layout(&sandbox, &[low.clone(), bad.clone()], &json!({}));
        let digest = hex(&gzip(&bad));
        assert_eq!(
            sandbox.failure(&["pack", "oci-layout:l", "-qo", "x.img"]),
            format!(
                "brisk: layer 2 of 2 (sha256:{digest}): entry {name:?} at byte 0 of the archive {said}\n"
            )
        );
        fs::remove_dir_all(sandbox.path("l")).unwrap();
    }
    assert!(!sandbox.path("x.img").exists());
}

#[test]
fn nothing_that_a_layout_says_is_believed() {
    let sandbox = Sandbox::empty();
    let good = archive(&[file("a", "a")]);
    let pack = || sandbox.failure(&["pack", "oci-layout:l", "-qo", "x.img", "--max-size", "1M"]);
    let fresh = || {
        fs::remove_dir_all(sandbox.path("l")).ok();
        Layout::new(sandbox.path("l"))
    };
    let ids = |archives: &[&Vec<u8>]| {
        json!(
            archives
                .iter()
                .map(|a| format!("sha256:{}", hex(a)))
                .collect::<Vec<_>>()
        )
    };

    // A digest that is a path.
    let layout = fresh();
    let mut manifest = layout.image(std::slice::from_ref(&good), gzip, &json!({}));
    manifest["digest"] = json!("sha256:../../../etc/passwd");
    layout.index(&[("", manifest)]);
    assert!(
        pack().contains(
            "\"sha256:../../../etc/passwd\" is no digest that brisk can check, allowed is"
        ),
        "{}",
        pack()
    );

    // Blobs that are a link, a pipe, too short, other bytes, and not there.
    for (spoil, said) in [
        (
            (|path| symlink("/etc/passwd", path).unwrap()) as fn(&Path),
            "cannot open blobs/sha256/",
        ),
        (
            |path| run("mkfifo", &[path.to_str().unwrap()], Path::new("/")),
            "is no regular file; fetch the image again",
        ),
        (
            |path| fs::write(path, "x").unwrap(),
            "has 1 bytes, and the manifest says",
        ),
        (|path| fs::write(path, [0; 79]).unwrap(), ""),
        (|_| {}, "cannot open blobs/sha256/"),
    ] {
        let layout = fresh();
        let manifest = layout.image(std::slice::from_ref(&good), gzip, &json!({}));
        layout.index(&[("", manifest)]);
        let blob = layout.blob_path(&hex(&gzip(&good)));
        let len = fs::metadata(&blob).unwrap().len();
        fs::remove_file(&blob).unwrap();
        spoil(&blob);
        let expected = match said {
            "" => {
                File::options()
                    .write(true)
                    .open(&blob)
                    .unwrap()
                    .set_len(len)
                    .unwrap();
                "the digest is sha256:"
            }
            said => said,
        };
        let said = pack();
        assert!(
            said.contains("layer 1 of 1 (sha256:") && said.contains(expected),
            "{said}"
        );
    }

    // Another archive than the configuration says, more of them, and more layers than any image has.
    let layout = fresh();
    let layer = layout.blob("layer.v1.tar+gzip", &gzip(&good));
    let other = archive(&[file("b", "b")]);
    for (layers, ids, said) in [
        (
            json!([layer]),
            ids(&[&other]),
            "the digest of what it unpacks to is sha256:",
        ),
        (
            json!([layer]),
            ids(&[&good, &good]),
            "the image has 1 layers, but its configuration describes 2",
        ),
        (
            json!(vec![&layer; 10_000]),
            ids(&vec![&good; 10_000]),
            "the image has 10000 layers, allowed are 1000; have it made with fewer",
        ),
        // Each unpacks to 2 KiB.
        (
            json!(vec![&layer; 900]),
            ids(&vec![&good; 900]),
            "unpacking the layers of the image needs 10",
        ),
    ] {
        layout.index(&[("", layout.manifest(&layers, &ids, &json!({})))]);
        let text = pack();
        assert!(text.contains(said), "{said}: {text}");
    }

    // A layer that is no archive, or of a type that is none.
    for (kind, bytes, said) in [
        (
            "layer.v1.tar",
            b"BZh9".to_vec(),
            "is compressed with bzip2 or xz, supported are gzip and zstd",
        ),
        (
            "layer.v1.tar+gzip",
            [&gzip(&good)[..40], &[7; 9]].concat(),
            "cannot be unpacked (",
        ),
        (
            "layer.v1.tar+gzip",
            [&*gzip(&good), b"x"].concat(),
            "cannot be unpacked (",
        ),
        (
            "layer.v1.tar+zstd",
            zstd(&good)[..30].to_vec(),
            "cannot be unpacked (",
        ),
        (
            "layer.v1.tar",
            b"no archive".repeat(100),
            "no tar header is at its byte 0",
        ),
        (
            "layer.v1.tar+gzip+encrypted",
            good.clone(),
            "is of the type application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
        ),
    ] {
        let layout = fresh();
        let layer = layout.blob(kind, &bytes);
        layout.index(&[(
            "",
            layout.manifest(&json!([layer]), &ids(&[&good]), &json!({})),
        )]);
        let text = pack();
        assert!(text.contains(said), "{said}: {text}");
    }

    // An artifact, what is both an index and an image, an index that leads to itself in turns, and a large one.
    let layout = fresh();
    let empty = layout.json("x", &json!({}));
    let artifact = layout.json(
        "manifest.v1+json",
        &json!({"schemaVersion": 2, "config": empty, "layers": []}),
    );
    layout.index(&[("", artifact)]);
    assert!(pack().contains(
        "it is no container image, but an artifact of the type application/vnd.oci.image.x"
    ));
    let both = layout.json(
        "manifest.v1+json",
        &json!({"schemaVersion": 2, "config": empty, "layers": [], "manifests": []}),
    );
    layout.index(&[("", both)]);
    assert!(pack().contains("has manifests and layers, allowed is one of both"));
    let mut chain = layout.json(
        "index.v1+json",
        &json!({"schemaVersion": 2, "manifests": []}),
    );
    for _ in 0..5 {
        chain = layout.json(
            "index.v1+json",
            &json!({"schemaVersion": 2, "manifests": [chain]}),
        );
    }
    layout.index(&[("", chain)]);
    assert!(pack().contains("more than 4 indexes lead to the image"));
    let index = File::create(sandbox.path("l/index.json")).unwrap();
    index.set_len(1 << 40).unwrap();
    assert!(pack().contains("the index.json has more than 4194304 bytes"));

    // Zeros that gzip makes short are refused before they are all unpacked.
    let layout = fresh();
    let zeros = archive(&[entry(b'0', "zeros", "", &vec![0; 2 << 20])]);
    layout.index(&[("", layout.image(&[zeros], gzip, &json!({})))]);
    assert!(
        pack().contains("the image is larger than is allowed; if you trust it, raise --max-size")
    );
    assert!(!sandbox.path("x.img").exists());
}

#[test]
fn several_images_are_named() {
    let sandbox = Sandbox::empty();
    let layout = Layout::new(sandbox.path("l"));
    let of = |name: &str| layout.image(&[archive(&[file(name, "")])], gzip, &json!({}));
    layout.index(&[("docker.io/app:1", of("one")), ("2", of("two"))]);
    for (name, found) in [("docker.io/app:1", "one"), ("2", "two")] {
        sandbox.stdout(&["pack", &format!("oci-layout:l:{name}"), "-qo", "x.img"]);
        assert_eq!(paths(&sandbox.image("x.img")), [found]);
    }
    for (place, said) in [
        (
            "oci-layout:l",
            "l: there are several images: 2, docker.io/app:1; name one behind a colon",
        ),
        (
            "oci-layout:l:3",
            "l: no image is named 3, but 2, docker.io/app:1",
        ),
        (
            "oci-layout:l@sha256:12",
            "\"sha256:12\" is no digest that brisk can check, allowed is sha256: and 64 digits; copy the image with skopeo copy",
        ),
        (
            "oci-layout:none",
            "none: cannot open the directory: No such file or directory (os error 2)",
        ),
        (
            "docker-archive:none:1",
            "none: cannot open the archive: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(
            sandbox.failure(&["pack", place, "-qo", "y.img"]),
            format!("brisk: {said}\n")
        );
    }
}

#[test]
fn the_program_of_the_container_is_started() {
    each_user(|stage| {
        stage.pack_root();
        let archived = Command::new("tar")
            .args(["-cC"])
            .arg(stage.path("root"))
            .arg(".")
            .output()
            .unwrap();
        let layout = Layout::new(stage.path("l"));
        let config = json!({
            "Entrypoint": ["sh", "-c", "echo $A in $(pwd) with $0"], "Cmd": ["word"], "Env": ["A=x", "A=b=c", "BRISK_X=1"],
            "WorkingDir": "/data", "User": "nobody:1", "ExposedPorts": {"80/tcp": {}},
        });
        let device = archive(&[entry(b'3', "null", "", b"")]);
        layout.index(&[("", layout.image(&[archived.stdout, device], gzip, &config))]);
        let output = Command::new(stage.executable())
            .args(["pack", "oci-layout:l", "-qo", "c.img"])
            .current_dir(stage.path(""))
            .output()
            .unwrap();
        assert_eq!(
            (
                output.status.code(),
                String::from_utf8(output.stderr).unwrap().as_str()
            ),
            (
                Some(0),
                "brisk: warning: the container runs its program as user nobody:1, and brisk run as the user who calls it\n\
                 brisk: warning: the variable BRISK_X=1 of the image was left out, as its name is brisk's own or empty\n\
                 brisk: warning: device files were kept, which only a mount by root opens (1); leave them out with an \
                 exclude pattern\n"
            )
        );
        let output = stage
            .brisk(&["run", "--linger", "0", "c.img"])
            .output()
            .unwrap();
        let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(
            (said(&output.stdout), said(&output.stderr)),
            ("b=c in /data with word\n".to_owned(), String::new())
        );
    });
}
