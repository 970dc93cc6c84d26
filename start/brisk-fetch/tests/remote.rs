//! Starts from images on a web server, whatever the server and the network do. Each row of "Images on the network" in
//! docs/reliability.md names its test. They mount images, so they need root.

mod registry;
mod s3;
mod support;
mod ways;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Manner, Place, Server, await_that, contents, files, text};

/// A place with a published image, and its server.
fn published() -> (Place, Server, String) {
    let place = Place::new();
    let root = place.publish();
    let server = Server::start(&place.path("www"));
    let url = format!("{}#sha256={root}", server.url("app.img"));
    (place, server, url)
}

/// Reads a file by another process.
fn reader(path: &std::path::Path) -> Child {
    let mut cat = Command::new("cat");
    cat.arg(path).stdout(Stdio::piped()).stderr(Stdio::null());
    cat.spawn().expect("cat is installed")
}

/// What a reader has read when it ends. It must end well.
fn read_of(reader: Child) -> Vec<u8> {
    let output = reader.wait_with_output().expect("ours");
    assert!(output.status.success());
    output.stdout
}

fn kill(pid: u32, signal: &str) {
    let killed = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(killed.expect("kill is installed").success());
}

/// Mounts the image, whose rest never arrives by itself.
fn mounted(place: &Place, url: &str) -> std::path::PathBuf {
    let mnt = place.path("mnt");
    place.done(&[
        "mount",
        url,
        &text(&mnt),
        "--background",
        "never",
        "--wait",
        "600s",
    ]);
    mnt
}

#[test]
fn a_program_starts_from_a_server_and_later_without_it() {
    let (place, server, url) = published();
    let started = place.done(&[
        "run",
        &url,
        "--linger",
        "0",
        "--",
        "/bin/sh",
        "-c",
        "cat $BRISK_TREE/etc/text",
    ]);
    assert_eq!(started, contents("etc/text"));
    place.done(&["remote", "fetch", &url, "-q"]);
    let len = fs::metadata(place.path("www/app.img"))
        .expect("published")
        .len();
    let image: u64 = server
        .asked()
        .iter()
        .filter(|asked| asked.path == "/app.img")
        .count() as u64;
    assert!(image > 0);
    let documents = fs::metadata(place.path("www/app.img.remote"))
        .expect("published")
        .len();
    // Each byte once.
    assert_eq!(server.sent(), len + documents);
    let asked = server.asked().len();
    server.behave(Manner::Down);
    let started = place.done(&[
        "run",
        &url,
        "--linger",
        "0",
        "--",
        "/bin/sh",
        "-c",
        "cat $BRISK_TREE/data/7",
    ]);
    assert!(started == contents("data/7"));
    assert_eq!(server.asked().len(), asked);
    let listed = place.done(&["remote", "list", "--json"]);
    let listed = String::from_utf8(listed).expect("JSON");
    assert!(listed.contains("\"is_complete\":true"), "{listed}");
}

/// Looks at an image by each verb that reads.
fn read_by_each_verb(place: &Place, url: &str) {
    assert!(place.done(&["cat", url, "data/3"]) == contents("data/3"));
    assert!(String::from_utf8_lossy(&place.done(&["ls", url, "etc"])).contains("text"));
    place.done(&["info", url]);
    let out = place.path("out");
    place.done(&["extract", url, &text(&out)]);
    for (name, bytes) in files() {
        assert!(
            fs::read(out.join(&name)).expect("extracted") == bytes,
            "{name}"
        );
    }
    let verified = place.done(&["verify", url]);
    let verified = String::from_utf8(verified).expect("UTF-8");
    assert!(
        !verified.contains(&text(&place.path("cache"))),
        "{verified}"
    );
    let vouched = verified.contains("whose root hash is that of the URL\n");
    assert_eq!(vouched, url.contains("#sha256="), "{verified}");
    assert!(verified.ends_with(&format!("{url}: sound\n")), "{verified}");
}

#[test]
fn every_verb_that_reads_takes_a_url() {
    let (place, server, url) = published();
    read_by_each_verb(&place, &url);
    let len = fs::metadata(place.path("www/app.img"))
        .expect("published")
        .len();
    let documents = fs::metadata(place.path("www/app.img.remote"))
        .expect("published")
        .len();
    assert!(
        server.sent() <= len + documents,
        "{} of {len}",
        server.sent()
    );
    let message = place.fails(&["verify", &url, "--offset", "4096"]);
    assert!(message.contains("magic number is"), "{message}");
}

#[test]
fn what_is_made_of_an_image_is_made_of_its_url() {
    let (place, server, url) = published();
    let (made, tree) = (text(&place.path("made.img")), text(&place.path("tree")));
    let profile = recorded(&place);
    // What is made has the name of the image, and lies here.
    let here = |arguments: &[&str]| {
        let mut brisk = place.brisk(arguments);
        let output = brisk.current_dir(place.path("home")).output();
        let output = output.expect("brisk is built");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    let of_file = text(&place.path("of-file"));
    here(&[
        "hot",
        &url,
        "--profile",
        &profile,
        "-q",
        "--background",
        "never",
    ]);
    place.done(&["hot", &made, "--profile", &profile, "-q", "-o", &of_file]);
    let read = |name: &str| fs::read(place.path(name)).expect("written");
    assert!(read("home/app.img.hot") == read("of-file"));
    let len = read("made.img").len() as u64;
    assert!(server.sent() < len / 2, "{} of {len}", server.sent());

    let copy = text(&place.path("copy"));
    place.done(&["repack", &url, "-q", "-o", &copy]);
    place.done(&["repack", &made, "-q", "-o", &of_file]);
    assert!(read("copy") == read("of-file"));
    for (was, is) in [(&url, &tree), (&made, &url)] {
        place.done(&["diff", was, is, "-q"]);
    }

    let said = here(&[
        "trace",
        &url,
        "--",
        "sh",
        "-c",
        "cat $BRISK_TREE/data/3 > /dev/null",
    ]);
    assert!(said.contains("traced when all of it is here"), "{said}");
    let shown = place.done(&[
        "profile",
        "show",
        &text(&place.path("home/app.img.profile")),
    ]);
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("data/3"), "{shown}");
    assert!(is_whole(&place));
    let (with, script) = (format!("{url}@/srv"), "cat /srv/data/4 > /dev/null");
    let profile_of_both = text(&place.path("both.profile"));
    place.done(&[
        "trace",
        &made,
        "--with",
        &with,
        "-q",
        "-o",
        &profile_of_both,
        "--",
        "sh",
        "-c",
        script,
    ]);
    let shown = place.done(&["profile", "show", &profile_of_both]);
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("data/4"), "{shown}");
    for verb in [
        &["hot", &tree, "--profile", &profile, "--verify", "key"][..],
        &["trace", "--tree", &tree, "--verify", "key", "--", "true"],
    ] {
        let message = place.fails(verb);
        assert!(message.contains("--verify needs an image"), "{message}");
    }
}

/// What a server does for a while, and then no more.
#[test]
fn what_passes_is_waited_for() {
    for manner in [
        Manner::Status(503, None),
        Manner::Status(429, Some("1")),
        Manner::Status(500, None),
        Manner::Short,
        Manner::Down,
        // Once: a block that is wrong twice is not the server's to give.
        Manner::Flipped,
    ] {
        let (place, server, url) = published();
        server.behave_for(manner, if manner == Manner::Flipped { 1 } else { 3 });
        for name in ["data/1", "data/20", "etc/text"] {
            assert!(
                place.done(&["cat", &url, name]) == contents(name),
                "{manner:?} {name}"
            );
        }
    }
}

#[test]
fn a_server_without_ranges_gives_all_of_it_once() {
    let (place, server, url) = published();
    server.behave(Manner::Whole);
    assert!(place.done(&["cat", &url, "data/30"]) == contents("data/30"));
    place.done(&["remote", "fetch", &url, "-q"]);
    // The first three ask before any answer has come.
    let asked = server.asked();
    let parts = asked.iter().filter(|asked| asked.range.is_some()).count();
    assert!(parts <= 4, "{asked:?}");
}

/// What a server does for ever ends with an error that says it, and never with wrong bytes.
#[test]
fn what_does_not_pass_is_said() {
    for (manner, said) in [
        (Manner::Status(404, None), "404"),
        (Manner::Status(403, None), "~/.netrc"),
        (
            Manner::Status(429, Some("3600")),
            "asks to come again in 3600 s",
        ),
        (
            Manner::Status(503, None),
            "nothing has come for 1 s: the server answers 503",
        ),
        (
            Manner::OtherLength,
            "when the image was begun; the next start asks the server anew",
        ),
        (Manner::Gzip, "Content-Encoding: gzip"),
        (Manner::HalfOfWhole, "nothing has come for 1 s"),
        (Manner::Silent, "nothing has come for 1 s"),
        (Manner::Down, "nothing has come for 1 s"),
        (Manner::Flipped, "the verity tree says"),
    ] {
        let (place, server, url) = published();
        server.behave(manner);
        // Only where the wait itself is meant, so that a slow machine says the same.
        let wait = if said.contains("for 1 s") {
            "1s"
        } else {
            "60s"
        };
        let message = place.fails(&["cat", &url, "data/39", "--wait", wait]);
        assert!(message.contains(said), "{manner:?}: {message}");
    }
}

#[test]
fn a_file_that_changes_on_the_server_is_not_mixed_with_the_old_one() {
    let (place, server, _) = published();
    let bare = place.path("www/bare.img");
    let tree = text(&place.path("tree"));
    place.done(&["pack", &tree, "-o", &text(&bare), "-q"]);
    // Nobody vouches for it but the server.
    let url = server.url("bare.img");
    let read = |name| place.done(&["cat", &url, name, "--background", "never"]);
    assert!(read("data/1") == contents("data/1"));
    server.behave(Manner::OtherTag);
    let message = place.fails(&["cat", &url, "data/2", "--background", "never"]);
    assert!(
        message.contains("and was 1 when the image was begun; brisk run --refresh"),
        "{message}"
    );
}

/// Mirrors behind one name have other tags, and so has a file that was only touched.
#[test]
fn a_hash_tree_needs_no_tag() {
    let (place, server, _) = published();
    let url = server.url("app.img");
    let read = |name| place.done(&["cat", &url, name, "--background", "never"]);
    assert!(read("data/1") == contents("data/1"));
    server.behave(Manner::OtherTag);
    assert!(read("data/2") == contents("data/2"));
    place.done(&["remote", "fetch", &url, "-q"]);
    assert!(is_whole(&place));
}

/// A wrong block is what tells that there is another file of the same length.
#[test]
fn another_file_with_a_hash_tree_starts_from_the_next_start_on() {
    let (place, server, _) = published();
    let url = server.url("app.img");
    let read = |name| {
        place
            .brisk(&["cat", &url, name, "--background", "never"])
            .output()
    };
    assert!(read("data/1").expect("brisk is built").stdout == contents("data/1"));
    // The same length, and other bytes.
    let (tree, image) = (place.path("tree"), place.path("later.img"));
    let mut later = contents("data/39");
    later.reverse();
    fs::write(tree.join("data/39"), &later).expect("room");
    place.done(&["pack", &text(&tree), "-o", &text(&image), "--verity", "-q"]);
    let len = |path: &Path| fs::metadata(path).expect("packed").len();
    assert_eq!(len(&image), len(&place.path("made.img")));
    let www = text(&place.path("www"));
    place.done(&[
        "publish",
        &text(&image),
        &www,
        "--name",
        "app.img",
        "--force",
    ]);
    server.behave(Manner::OtherTag);
    let message = place.fails(&["cat", &url, "data/39", "--background", "never"]);
    // Whether the server was asked what it has before the block came or after it.
    let changed = "and was 1 when the image was begun; the next start asks the server anew";
    let is_said = message.contains(changed) || message.contains("corrupt file at byte");
    assert!(is_said, "{message}");
    assert!(read("data/39").expect("brisk is built").stdout == later);
}

/// What a server says of an image whose root hash the user names, it can take back.
#[test]
fn a_server_that_has_lied_about_a_named_image_is_asked_anew() {
    let (place, _server, url) = published();
    let (image, said) = (place.path("www/app.img"), place.path("www/app.img.remote"));
    let honest = fs::read_to_string(&said).expect("published");
    let with = |field: &str, value: &str| {
        let line = |line: &str| match line.split_once(' ') {
            Some((name, _)) if name == field => format!("{field} {value}\n"),
            _ => format!("{line}\n"),
        };
        honest.lines().map(line).collect::<String>()
    };
    let len = fs::metadata(&image).expect("published").len();

    fs::write(&said, with("file-bytes", &(len + 8192).to_string())).expect("room");
    let message = place.fails(&["cat", &url, "data/1", "--background", "never"]);
    assert!(message.contains("when the image was begun"), "{message}");
    fs::write(&said, &honest).expect("room");
    let read = place.done(&["cat", &url, "data/1", "--background", "never"]);
    assert!(read == contents("data/1"));
    place.done(&["remote", "forget", &url]);

    // What is known of the parts of such a file would fill the memory.
    fs::write(&said, with("file-bytes", &(1_u64 << 42).to_string())).expect("room");
    let message = place.fails(&["cat", &url, "data/1"]);
    assert!(message.contains("allowed are 1099511627776"), "{message}");
    fs::write(&said, &honest).expect("room");

    // A digest is compared when all is here, and the root hash decides.
    fs::write(&said, with("sha256", &"ab".repeat(32))).expect("room");
    place.done(&["remote", "fetch", &url, "-q"]);
    fs::write(&said, &honest).expect("room");
    assert!(is_whole(&place));
    assert!(place.done(&["cat", &url, "data/2"]) == contents("data/2"));
    place.done(&["remote", "forget", &url]);

    // A server that says nothing of it but its length.
    fs::remove_file(&said).expect("published");
    let file = fs::File::options().write(true).open(&image);
    let file = file.expect("published");
    file.set_len(len - 8192).expect("room");
    place.fails(&["cat", &url, "data/1", "--background", "never"]);
    let whole = fs::read(place.path("made.img")).expect("packed");
    fs::write(&image, &whole).expect("room");
    let read = place.done(&["cat", &url, "data/1", "--background", "never"]);
    assert!(read == contents("data/1"));
}

/// A root hash vouches for no other file that somebody names with it, and such a file does not stand in the way of the image.
#[test]
fn a_wrong_file_under_a_right_hash_is_not_kept() {
    let (place, server, url) = published();
    let (_, root) = url.split_once('#').expect("a root hash");
    let (tree, www) = (place.path("tree"), place.path("www"));
    let bare = text(&www.join("bare.img"));
    place.done(&["pack", &text(&tree), "-o", &bare, "-q"]);
    let other = text(&www.join("other.img"));
    let part = text(&tree.join("etc"));
    place.done(&["pack", &part, "-o", &other, "--verity", "-q"]);
    let mut same_length = fs::read(&bare).expect("packed");
    let len = fs::metadata(www.join("app.img")).expect("published").len();
    same_length.resize(usize::try_from(len).expect("small"), 0);
    fs::write(www.join("padded.img"), same_length).expect("room");
    for name in ["bare.img", "other.img", "padded.img"] {
        let wrong = format!("{}#{root}", server.url(name));
        place.fails(&["cat", &wrong, "data/1", "--background", "full"]);
        let said = place.fails(&["remote", "list"]);
        assert!(said.contains("no image from the network"), "{name}: {said}");
        let read = place.done(&["cat", &url, "data/1", "--background", "never"]);
        assert!(read == contents("data/1"), "{name}");
        let listed = place.done(&["remote", "list", "--json"]);
        let listed = String::from_utf8(listed).expect("JSON");
        assert!(listed.contains("\"vouched_by\":\"root_hash\""), "{listed}");
        place.done(&["remote", "forget", &url]);
    }
}

#[test]
fn a_whole_image_starts_from_a_disk_that_takes_nothing() {
    let (place, server, url) = published();
    for url in [&server.url("app.img"), &url] {
        place.done(&["remote", "fetch", url, "-q"]);
    }
    kill_fetchers(&place);
    let full = "mount -t tmpfs -o size=64m none $1 && cp -a $2/. $1 && cat /dev/zero > $1/zeros";
    let read_only = "mount --bind $2 $1 && mount -o remount,bind,ro $1";
    let (disk, cache) = (place.path("disk"), place.path("cache"));
    fs::create_dir(&disk).expect("room");
    let read = "cat $BRISK_TREE/data/3";
    let run = ["run", "--linger", "0", "--", "/bin/sh", "-c", read];
    for mounts in [full, read_only] {
        for url in [&server.url("app.img"), &url] {
            for verb in [
                &["cat", "--", url, "data/3"][..],
                &[&run[..1], &[url], &run[1..]].concat(),
            ] {
                let brisk = place.brisk(verb);
                let script =
                    format!("{mounts} 2> /dev/null; XDG_CACHE_HOME=$1; shift 2; exec \"$@\"");
                let mut alone = Command::new("unshare");
                alone.args([
                    "--mount",
                    "sh",
                    "-c",
                    &script,
                    "sh",
                    &text(&disk),
                    &text(&cache),
                ]);
                alone.arg(brisk.get_program()).args(brisk.get_args());
                let variables = brisk.get_envs();
                alone.envs(variables.filter_map(|(name, value)| Some((name, value?))));
                let output = alone.output().expect("unshare is installed");
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.stdout == contents("data/3"),
                    "{mounts} {verb:?}: {said}"
                );
            }
        }
    }
}

/// Several threads compare all of it before, and the kernel removes them later than they end.
#[test]
fn the_kernel_mounts_a_whole_image_that_was_compared() {
    let (place, _server, url) = published();
    place.done(&["remote", "fetch", &url, "-q"]);
    let at = text(&place.path("mnt"));
    let read = "cat $BRISK_TREE/data/3";
    let run = [
        "run", &url, "--kernel", "--at", &at, "--", "/bin/sh", "-c", read,
    ];
    for _ in 0..10 {
        assert!(place.done(&run) == contents("data/3"));
    }
}

/// Makes the bytes of a file wrong in the cache. They stand in the image as they are, because they do not compress.
fn damage(place: &Place, name: &str) {
    let images = fs::read_dir(place.path("cache/brisk/remote/images")).expect("there");
    let entry = images.flatten().next().expect("one").path();
    let whole = fs::read(place.path("www/app.img")).expect("published");
    let file = contents(name);
    let start = &file[..64];
    let at = whole.windows(64).position(|bytes| bytes == start);
    let file = fs::File::options().write(true).open(entry.join("image"));
    let at = at.expect("as it is") as u64;
    file.expect("there")
        .write_all_at(b"damage", at)
        .expect("room");
}

/// Whether the image is whole, as `list` says.
fn is_whole(place: &Place) -> bool {
    let listed = place.done(&["remote", "list", "--json"]);
    String::from_utf8_lossy(&listed).contains("\"is_complete\":true")
}

#[test]
fn a_wrong_block_of_a_whole_image_is_fetched_once_more() {
    let (place, server, url) = published();
    place.done(&["remote", "fetch", &url, "-q"]);
    let asked = server.asked().len();
    damage(&place, "data/1");
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    assert!(server.asked().len() > asked);
    await_that("it is whole again", || is_whole(&place));
    // What came is on the disk, and not only in the program that asked.
    let asked = server.asked().len();
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    assert_eq!(server.asked().len(), asked);

    // A session hears of it, too.
    damage(&place, "data/2");
    let mnt = mounted(&place, &url);
    assert!(fs::read(mnt.join("data/2")).expect("it comes again") == contents("data/2"));
    await_that("it is whole again", || is_whole(&place));
    place.done(&["umount", &text(&mnt)]);

    // Wrong again, or nothing.
    damage(&place, "data/3");
    server.behave(Manner::Flipped);
    let message = place.fails(&["cat", &url, "data/3"]);
    assert!(message.contains("the verity tree says"), "{message}");
    server.behave(Manner::Sound);
    assert!(place.done(&["cat", &url, "data/3"]) == contents("data/3"));
    await_that("it is whole again", || is_whole(&place));
    // What its map says counts more than that it is whole.
    kill_fetchers(&place);
    let images = fs::read_dir(place.path("cache/brisk/remote/images")).expect("there");
    let entry = images.flatten().next().expect("one").path();
    fs::write(entry.join("map"), b"").expect("room");
    assert!(place.done(&["cat", &url, "data/3"]) == contents("data/3"));
    place.done(&["remote", "fetch", &url, "-q"]);
    assert!(!entry.join("map").exists());
    // Of what does not fit to its digest, each block is compared with the root hash.
    damage(&place, "data/4");
    place.done(&["remote", "fetch", &url, "-q"]);
    damage(&place, "data/5");
    server.behave(Manner::Gone);
    let message = place.fails(&["cat", &url, "data/5", "--wait", "1s"]);
    let said = "damaged, and must come again; start it when the server can be reached";
    assert!(message.contains(said), "{message}");
}

/// A root hash names one image, wherever it is.
#[test]
fn a_named_image_goes_on_from_another_server() {
    let (place, server, url) = published();
    let read = place.done(&["cat", &url, "data/1", "--background", "never"]);
    assert!(read == contents("data/1"));
    server.behave(Manner::Gone);
    let other = Server::start(&place.path("www"));
    other.behave(Manner::OtherTag);
    let (_, root) = url.split_once('#').expect("a root hash");
    let url = format!("{}#{root}", other.url("app.img"));
    place.done(&["remote", "fetch", &url, "-q"]);
    let len = fs::metadata(place.path("www/app.img"))
        .expect("published")
        .len();
    assert!(other.sent() < len, "{} of {len}", other.sent());
}

#[test]
fn credentials_stay_with_the_host_that_a_user_named() {
    let (place, server, url) = published();
    let other = Server::start(&place.path("www"));
    let netrc = place.path("home/.netrc");
    fs::write(&netrc, "machine 127.0.0.1 login me password secret\n").expect("room");
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).expect("ours");
    server.move_to(&format!("http://{}/", other.address));
    let (_, root) = url.split_once('#').expect("a root hash");
    let moved = format!("{}#{root}", server.url("moved/app.img"));
    assert!(place.done(&["cat", &moved, "data/5"]) == contents("data/5"));
    assert!(server.asked().iter().all(|asked| asked.has_credentials));
    assert!(!other.asked().is_empty());
    // Another port is another origin.
    assert!(other.asked().iter().all(|asked| !asked.has_credentials));

    let place = Place::new();
    server.move_to(&format!("http://{}/moved/", server.address));
    let message = place.fails(&["cat", &moved, "data/5", "--wait", "1s"]);
    assert!(message.contains("redirect"), "{message}");
}

/// The command reads it, and not the process that lives on.
#[test]
fn a_password_that_is_new_counts_at_once() {
    let (place, server, url) = published();
    let write = |password: &str| {
        let (made, netrc) = (place.path("made.netrc"), place.path("home/.netrc"));
        let text = format!("machine 127.0.0.1 login me password {password}\n");
        fs::write(&made, text).expect("room");
        fs::rename(made, netrc).expect("room");
    };
    server.lock("me:first");
    let message = place.fails(&["ls", &url]);
    assert!(message.contains("~/.netrc"), "{message}");
    write("first");
    let mnt = mounted(&place, &url);
    let read = |name: &str| {
        let is_right = fs::read(mnt.join(name)).expect("it arrives") == contents(name);
        assert!(is_right, "{name}");
    };
    read("data/1");
    write("second");
    read("data/5");
    server.lock("me:second");
    let cat = |name: &str| {
        let read = place.done(&["cat", &url, name, "--background", "never"]);
        assert!(read == contents(name), "{name}");
    };
    cat("data/9");
    read("data/13");
    kill_fetchers(&place);
    cat("data/17");
}

/// A signature lets in whoever has it, and is for one file.
#[test]
fn a_presigned_url_names_its_image_and_its_signature_is_kept_nowhere() {
    let (place, server, _) = published();
    fs::write(
        place.path("home/.netrc"),
        "machine 127.0.0.1 login me password secret\n",
    )
    .expect("room");
    let url = |signature: &str| {
        server.url(&format!(
            "app.img?X-Amz-Date=1&versionId=7&X-Amz-Signature={signature}"
        ))
    };
    let [first, second] = ["5ec2e71", "5ec2e72"];
    for (signature, name) in [(first, "data/1"), (second, "data/2")] {
        let read = place.done(&["cat", &url(signature), name, "--background", "never"]);
        assert!(read == contents(name), "{name}");
    }
    let asked = server.asked();
    let path = |signature| url(signature).replacen(&server.url(""), "/", 1);
    for asked in &asked {
        assert!(!asked.has_credentials);
        let is_known = [first, second].map(path).contains(&asked.path);
        assert!(is_known, "{asked:?}");
    }
    assert_eq!(asked.last().expect("some").path, path(second));
    let entries = fs::read_dir(place.path("cache/brisk/remote/images")).expect("there");
    assert_eq!(entries.count(), 1);
    let mut mounted = place.brisk(&["run", &url(first), "--", "/bin/sh", "-c", "true"]);
    assert!(mounted.status().expect("brisk is built").success());
    let found = Command::new("grep")
        .args(["-r", "-l", "5ec2e7"])
        .args([place.path("cache"), place.path("run")])
        .output()
        .expect("grep is installed");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let listed = place.done(&["remote", "list", "--json"]);
    let listed = String::from_utf8(listed).expect("JSON");
    assert!(listed.contains("app.img?versionId=7"), "{listed}");
    place.done(&["remote", "fetch", &url(second), "-q"]);
    server.behave(Manner::Gone);
    assert!(place.done(&["cat", &url("later"), "data/3"]) == contents("data/3"));
}

#[test]
fn plain_http_to_another_machine_needs_somebody_who_vouches() {
    let place = Place::new();
    for url in [
        "http://192.0.2.1/app.img",
        "s3://images/app.img?endpoint=http://192.0.2.1",
    ] {
        let message = place.fails(&["cat", url, "a"]);
        for way in ["#sha256=HASH", "--trust KEY.pub", "--insecure"] {
            assert!(message.contains(way), "{message}");
        }
    }
}

/// No thread that answers waits for the network, so what is here is read while others wait, and all who wait can be killed.
#[test]
fn reads_that_wait_keep_nobody_and_end_with_their_programs() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    assert!(fs::read(mnt.join("data/0")).expect("it arrives") == contents("data/0"));
    server.behave(Manner::Silent);
    let waiting: Vec<Child> = (1..33)
        .map(|number| reader(&mnt.join(format!("data/{number}"))))
        .collect();
    // One that reads by mapping, and one in the middle of a file.
    let mapped = Command::new("cmp")
        .args([mnt.join("data/34"), mnt.join("data/35")])
        .stdout(Stdio::null())
        .spawn()
        .expect("cmp is installed");
    let waits = |pid: u32| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        state.contains(") D ") || wchan.contains("folio") || wchan.contains("request_wait")
    };
    for child in waiting.iter().chain([&mapped]) {
        await_that("a read waits", || waits(child.id()));
    }
    // Bytes that have arrived, but are not in the page cache.
    drop_caches();
    assert!(fs::read(mnt.join("data/0")).expect("it is here") == contents("data/0"));
    for mut child in waiting.into_iter().chain([mapped]) {
        kill(child.id(), "-KILL");
        let ended = std::cell::RefCell::new(&mut child);
        await_that("a killed reader ends", || {
            ended.borrow_mut().try_wait().expect("ours").is_some()
        });
    }
    // The mount is as good as before.
    server.behave(Manner::Sound);
    assert!(fs::read(mnt.join("data/9")).expect("it arrives") == contents("data/9"));
}

fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "1").expect("these tests need root");
}

/// A signal that does not end a program does not end its read either.
#[test]
fn a_read_goes_on_after_a_signal() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    server.behave(Manner::Silent);
    let cat = reader(&mnt.join("data/11"));
    await_that("it asks", || {
        server.asked().iter().any(|asked| asked.range.is_some())
    });
    for signal in ["-STOP", "-CONT", "-WINCH", "-STOP", "-CONT"] {
        kill(cat.id(), signal);
    }
    server.behave(Manner::Sound);
    let read = read_of(cat);
    assert!(read == contents("data/11"));
}

#[test]
fn a_killed_fetcher_is_replaced() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    server.behave(Manner::Silent);
    let cats: Vec<_> = (0..4)
        .map(|number| reader(&mnt.join(format!("data/{number}"))))
        .collect();
    await_that("they ask", || {
        server
            .asked()
            .iter()
            .filter(|asked| asked.range.is_some())
            .count()
            > 2
    });
    // The one that asks, again and again.
    for _ in 0..3 {
        let asks = place.fetchers().pop().expect("it runs");
        kill(u32::try_from(asks).expect("a process"), "-KILL");
        await_that("it is replaced", || {
            place.fetchers().len() == 2 && !place.fetchers().contains(&asks)
        });
    }
    server.behave(Manner::Sound);
    for (number, cat) in cats.into_iter().enumerate() {
        let read = read_of(cat);
        assert!(read == contents(&format!("data/{number}")), "{number}");
    }
}

/// Kills both processes of the fetcher.
fn kill_fetchers(place: &Place) {
    let both = place.fetchers();
    for pid in &both {
        // The one that asks ends with the one that watches it.
        let kill = Command::new("kill").args(["-9", &pid.to_string()]).output();
        kill.expect("kill is installed");
    }
    await_that("they end", || {
        let now = place.fetchers();
        !both.iter().any(|pid| now.contains(pid))
    });
}

/// Nobody starts a program meanwhile.
#[test]
fn a_session_starts_another_fetcher_for_what_waits() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    // Far from each other, so that none is fetched ahead.
    for name in ["data/30", "data/10"] {
        server.behave(Manner::Silent);
        let asked = server.asked().len();
        let cat = reader(&mnt.join(name));
        await_that("it asks", || server.asked().len() > asked);
        kill_fetchers(&place);
        server.behave(Manner::Sound);
        let read = read_of(cat);
        assert!(read == contents(name));
    }

    // In namespaces, which the fetcher must not keep.
    let (place, _server, url) = published();
    let mut run = place.brisk(&["run", &url, "--linger", "0", "--background", "never"]);
    run.args(["--", "/bin/sh", "-c", "read line; cat $BRISK_TREE/data/20"]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = run.spawn().expect("brisk is built");
    await_that("it runs", || place.output(&["stat", &url]).status.success());
    kill_fetchers(&place);
    drop(run.stdin.take());
    let read = read_of(run);
    assert!(read == contents("data/20"));
    await_that("the session ends", || {
        place.output(&["stat", &url]).status.code() == Some(1)
    });
    assert!(!place.fetchers().is_empty());
}

/// A file of the cache that has no name any more can never be whole.
#[test]
fn a_session_whose_image_was_made_anew_gets_errors_and_does_not_wait() {
    let (place, _server, url) = published();
    let mnt = mounted(&place, &url);
    assert!(fs::read(mnt.join("data/0")).expect("it arrives") == contents("data/0"));
    fs::remove_dir_all(place.path("cache/brisk/remote/images")).expect("ours");
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    kill_fetchers(&place);
    assert!(fs::read(mnt.join("data/2")).is_err());
    assert!(place.done(&["cat", &url, "data/2"]) == contents("data/2"));
}

#[test]
fn a_server_of_a_session_that_is_killed_is_replaced_while_programs_wait() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    server.behave(Manner::Silent);
    let cat = reader(&mnt.join("data/12"));
    await_that("it asks", || {
        server.asked().iter().any(|asked| asked.range.is_some())
    });
    let status = String::from_utf8(place.done(&["stat", &text(&mnt), "--json"])).expect("JSON");
    let (_, pid) = status
        .split_once("\"server\":")
        .or_else(|| status.split_once("\"server_pid\":"))
        .expect("its server");
    let pid: String = pid
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    kill(pid.parse().expect("a number"), "-KILL");
    server.behave(Manner::Sound);
    let read = read_of(cat);
    assert!(read == contents("data/12"));
}

/// Many starts at once fetch as much as one.
#[test]
fn many_programs_fetch_each_byte_once() {
    let (place, server, url) = published();
    let starts: Vec<_> = (0..16)
        .map(|number| {
            let name = format!("data/{}", number % 4);
            let mut command = place.brisk(&["cat", &url, &name, "--background", "never"]);
            (
                name,
                command
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("brisk is built"),
            )
        })
        .collect();
    for (name, start) in starts {
        let output = start.wait_with_output().expect("ours");
        assert!(output.stdout == contents(&name), "{name}");
    }
    place.done(&["remote", "fetch", &url, "-q"]);
    let len = fs::metadata(place.path("www/app.img"))
        .expect("published")
        .len();
    let of_image: u64 = server.sent();
    let documents = fs::metadata(place.path("www/app.img.remote"))
        .expect("published")
        .len();
    // The server says once for each name what it has, unless two ask at the same moment.
    assert!(of_image <= len + 32 * documents, "{of_image} of {len}");
}

#[test]
fn a_torn_block_of_the_cache_is_fetched_again() {
    let (place, server, url) = published();
    assert!(place.done(&["cat", &url, "data/1", "--background", "never"]) == contents("data/1"));
    let image = fs::read_dir(place.path("cache/brisk/remote/images"))
        .expect("there")
        .flatten()
        .next()
        .expect("one");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(image.path().join("image"))
        .expect("there");
    // Zeros, as after a crash of the system in which only the map got to the disk.
    let whole = fs::read(place.path("www/app.img")).expect("published");
    let mut stored = vec![0; whole.len()];
    file.read_exact_at(&mut stored, 0).expect("a whole file");
    let there = stored
        .chunks(4096)
        .position(|unit| unit.iter().any(|b| *b != 0))
        .expect("something is there");
    let data = stored
        .chunks(4096)
        .skip(there + 1)
        .position(|unit| unit.iter().any(|b| *b != 0));
    let at = (there + 1 + data.expect("more is there")) * 4096;
    file.write_all_at(&[0; 4096], at as u64).expect("room");
    for name in ["data/1", "etc/text", "bin/app"] {
        assert!(
            place.done(&["cat", &url, name, "--background", "never"]) == contents(name),
            "{name}"
        );
    }
    drop(server);
}

/// Without a root hash, checksums tell. The disk lacks some of what the map has, and it is another boot.
#[test]
fn what_the_disk_did_not_get_before_another_boot_is_fetched_again() {
    let (place, server, _) = published();
    let said = place.path("www/app.img.remote");
    let honest = fs::read_to_string(&said).expect("published");
    let is_of_tree = |line: &&str| line.starts_with("root-hash") || line.starts_with("hash-tree");
    let lines = honest.lines().filter(|line| !is_of_tree(line));
    fs::write(
        &said,
        lines.map(|line| format!("{line}\n")).collect::<String>(),
    )
    .expect("room");
    let url = server.url("app.img");
    let names = ["data/0", "data/1", "data/2", "data/3"];
    let read_all = || {
        for name in names {
            let read = place.done(&["cat", &url, name, "--background", "never"]);
            assert!(read == contents(name), "{name}");
        }
    };
    read_all();
    let first = server.sent();
    kill_fetchers(&place);
    damage(&place, "data/1");
    let images = fs::read_dir(place.path("cache/brisk/remote/images")).expect("there");
    let about = images.flatten().next().expect("one").path().join("about");
    let text = fs::read_to_string(&about).expect("there");
    let (before, after) = text.split_once("\"boot\":\"").expect("a boot");
    fs::write(&about, format!("{before}\"boot\":\"x{after}")).expect("room");
    read_all();
    let again = server.sent() - first;
    assert!(again > 0 && again < first / 2, "{again} of {first}");
}

#[test]
fn a_cache_that_is_deleted_or_full_is_said_and_nobody_hangs() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    assert!(fs::read(mnt.join("data/0")).expect("it arrives") == contents("data/0"));
    fs::remove_dir_all(place.path("cache/brisk/remote/images")).expect("ours");
    // What was opened goes on.
    assert!(fs::read(mnt.join("data/1")).expect("it arrives") == contents("data/1"));
    place.done(&["umount", &text(&mnt)]);
    drop(server);

    let (place, _server, url) = published();
    mount_cache(&place, "size=1m");
    let message = place.fails(&["extract", &url, &text(&place.path("out")), "--wait", "5s"]);
    assert!(message.contains("No space left on device"), "{message}");
    mount_cache(&place, "remount,size=64m");
    assert!(place.done(&["cat", &url, "data/39"]) == contents("data/39"));
    give_back(&place);
}

/// Puts another disk below the cache, or changes it.
fn mount_cache(place: &Place, options: &str) {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "none"])
        .arg(place.path("cache"))
        .status();
    assert!(
        mounted.expect("mount is installed").success(),
        "these tests need root"
    );
}

/// Takes that disk away again.
fn give_back(place: &Place) {
    for pid in place.fetchers() {
        kill(u32::try_from(pid).expect("a process"), "-KILL");
    }
    await_that("nobody uses the disk", || {
        Command::new("umount")
            .arg(place.path("cache"))
            .status()
            .is_ok_and(|status| status.success())
    });
}

/// All of it arrives, and the disk has no room for the file that says so.
#[test]
fn a_fetch_ends_if_the_disk_fails_when_all_is_there() {
    let (place, _server, url) = published();
    // What is said of it would have to be written first.
    fs::remove_file(place.path("www/app.img.remote")).expect("published");
    mount_cache(&place, "size=64m");
    let read = place.done(&["cat", &url, "data/1", "--background", "never"]);
    assert!(read == contents("data/1"));
    let disk = rustix::fs::statvfs(place.path("cache")).expect("mounted");
    let used = disk.f_files - disk.f_ffree;
    mount_cache(&place, &format!("remount,nr_inodes={used}"));
    let message = place.fails(&["remote", "fetch", &url, "-q"]);
    assert!(
        message.contains("/about: No space left on device"),
        "{message}"
    );
    assert!(!is_whole(&place));
    mount_cache(&place, &format!("remount,nr_inodes={}", used + 100));
    place.done(&["remote", "fetch", &url, "-q"]);
    assert!(is_whole(&place));
    give_back(&place);
}

/// A fetcher ends a minute after its last connection.
#[test]
fn a_session_lets_the_fetcher_go_when_all_is_there() {
    let (place, server, url) = published();
    let mnt = mounted(&place, &url);
    // The list of sockets may leave one out while others come and go.
    await_that("the session is connected", || connections(&place) > 0);
    place.done(&["remote", "fetch", &url, "-q"]);
    await_that("nobody is connected", || connections(&place) == 0);
    // It is asked again when something is wrong.
    damage(&place, "data/2");
    let asked = server.asked().len();
    assert!(fs::read(mnt.join("data/2")).expect("it comes again") == contents("data/2"));
    assert!(server.asked().len() > asked);
    await_that("nobody is connected any more", || connections(&place) == 0);
}

/// How many programs are connected with the fetcher.
fn connections(place: &Place) -> usize {
    let sockets = fs::read_to_string("/proc/net/unix").expect("mounted");
    // Its listening socket has the state 01.
    let is_connected = |line: &&str| line.contains("/fetch.sock") && line.contains(" 03 ");
    let connected: Vec<_> = sockets
        .lines()
        .filter(is_connected)
        .filter_map(|line| line.split_whitespace().nth(6))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let fetchers = place.fetchers().into_iter();
    let files = fetchers.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    let links = files.flatten().flatten();
    let links = links.filter_map(|file| fs::read_link(file.path()).ok());
    links
        .filter(|link| connected.iter().any(|inode| link.as_os_str() == &**inode))
        .count()
}

/// A session of a URL is found by the URL.
#[test]
fn sessions_are_found_by_their_url() {
    let (place, _server, url) = published();
    place.done(&["run", &url, "--", "/bin/sh", "-c", ":"]);
    let (bare, _) = url.split_once('#').expect("a root hash");
    let told = String::from_utf8(place.done(&["stat", bare])).expect("text");
    assert!(told.starts_with(&format!("{bare} on ")), "{told}");
    place.done(&["umount", &url]);
    assert_eq!(place.output(&["stat", &url]).status.code(), Some(1));
}

/// Shared parts of a program may lie on the network, beside a program that is here.
#[test]
fn an_image_on_the_network_is_mounted_beside_another() {
    let (place, _server, url) = published();
    let (own, tree) = (place.path("own.img"), place.path("tree/etc"));
    place.done(&["pack", &text(&tree), "-o", &text(&own), "-q"]);
    let mnt = text(&place.path("mnt"));
    let with = format!("{url}@{mnt}");
    let read = place.done(&[
        "run",
        &text(&own),
        "--with",
        &with,
        "--linger",
        "0",
        "--",
        "/bin/cat",
        &format!("{mnt}/data/8"),
    ]);
    assert!(read == contents("data/8"));
}

#[test]
fn a_launcher_starts_a_program_on_the_network() {
    let place = Place::new();
    let tree = place.path("app");
    fs::create_dir_all(tree.join("bin")).expect("room");
    fs::write(
        tree.join("bin/app"),
        "#!/bin/sh\necho started with \"$@\"\n",
    )
    .expect("room");
    fs::set_permissions(tree.join("bin/app"), fs::Permissions::from_mode(0o755)).expect("ours");
    let (image, www) = (text(&place.path("app.img")), text(&place.path("www")));
    place.done(&[
        "pack",
        &text(&tree),
        "-o",
        &image,
        "-q",
        "--entry",
        "bin/app",
    ]);
    place.done(&["publish", &image, &www]);
    let server = Server::start(&place.path("www"));
    let launcher = text(&place.path("launcher"));
    place.done(&["wrap", &server.url("app.img"), "-o", &launcher]);
    let mut start = Command::new(&launcher);
    let brisk = place.brisk(&[]);
    for (name, value) in brisk.get_envs() {
        if let Some(value) = value {
            start.env(name, value);
        }
    }
    let output = start.args(["a b", "c"]).output().expect("it starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "started with a b c\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A name starts what it meant last, unless the user wants the newest.
#[test]
fn a_name_without_its_server_starts_what_it_meant() {
    let (place, server, _) = published();
    let url = server.url("app.img");
    place.done(&["remote", "fetch", &url, "-q"]);
    server.behave(Manner::Gone);
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    let message = place.fails(&["cat", &url, "data/1", "--refresh"]);
    assert!(
        message.contains("leave out --refresh to start the one that is here"),
        "{message}"
    );
    server.behave(Manner::Sound);
    assert!(place.done(&["cat", &url, "data/1", "--refresh"]) == contents("data/1"));
}

/// Records a launch that reads the start of two files. Returns the profile.
fn recorded(place: &Place) -> String {
    let profile = text(&place.path("profile"));
    let tree = text(&place.path("tree"));
    let reads = "head -c 100 $0/data/30 $0/data/31 > /dev/null";
    let command = ["sh", "-c", reads, &tree];
    let options = ["trace", "--tree", &tree, "-q", "-o", &profile, "--"];
    place.done(&[&options[..], &command].concat());
    profile
}

/// A program in a session of the image, that reads nothing of it and waits for its input to end.
fn waiting(place: &Place, options: &[&str]) -> Child {
    let mut program = place.brisk(&["run"]);
    program
        .args(options)
        .args(["--background", "never", "--linger", "60", "--"])
        .args(["/bin/sh", "-c", "echo started; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    program.spawn().expect("brisk is built")
}

/// Whether a program gets these bytes of a file in time, though the server is gone.
fn is_here(place: &Place, url: &str, name: &str, len: usize) -> bool {
    let read = format!("head -c {len} $BRISK_TREE/{name}");
    let command = ["run", url, "--wait", "1s", "--", "/bin/sh", "-c", &read];
    place.output(&command).stdout == contents(name)[..len]
}

/// Whether the first block of a file of the image, which does not compress, is in the cache.
fn has_come(place: &Place, image: &Path, name: &str) -> bool {
    let block = &contents(name)[..131_072];
    let published = fs::read(image).expect("it is made");
    let starts = |bytes: &[u8]| bytes == &block[..64];
    let at = published.windows(64).position(starts).expect("it is there");
    let images = fs::read_dir(place.path("cache/brisk/remote/images"));
    images.into_iter().flatten().flatten().any(|entry| {
        let image = fs::read(entry.path().join("image")).unwrap_or_default();
        image.get(at..at + block.len()) == Some(block)
    })
}

#[test]
fn the_list_of_a_pack_beside_an_image_says_what_comes_first() {
    for named in [false, true] {
        let (place, server, url) = published();
        let made = text(&place.path("made.img"));
        let hot = text(&place.path(if named {
            "www/other"
        } else {
            "www/app.img.hot"
        }));
        let profile = recorded(&place);
        place.done(&["hot", &made, "--profile", &profile, "-q", "-o", &hot]);
        let hot_url = server.url("other");
        let options = match named {
            true => vec![&*url, "--hot", &hot_url],
            false => vec![&*url],
        };
        let mut program = waiting(&place, &options);
        // Requests for the two may be answered in any order.
        await_that("what the pack lists comes", || {
            ["data/30", "data/31"]
                .iter()
                .all(|name| has_come(&place, &place.path("www/app.img"), name))
        });
        let hot_path = if named { "/other" } else { "/app.img.hot" };
        let asked = server.asked();
        assert!(asked.iter().any(|asked| asked.path == hot_path));
        server.behave(Manner::Gone);
        for name in ["data/30", "data/31"] {
            await_that("they are here", || is_here(&place, &url, name, 131_072));
        }
        drop(program.stdin.take());
        program.wait().expect("ours");
    }
}

#[test]
fn a_pack_that_is_not_there_is_asked_for_once() {
    let (place, server, url) = published();
    let asks = |options: &[&str]| {
        let before = server.asked().len();
        let run = ["run", &url, "--background", "never", "--linger", "0"];
        place.done(&[&run[..], options, &["--", "/bin/true"]].concat());
        let asked = server.asked().split_off(before);
        asked.iter().any(|asked| asked.path.contains(".img.hot"))
    };
    assert!(asks(&[]));
    assert!(!asks(&[]));
    assert!(asks(&["--refresh"]));
}

#[test]
fn a_pack_for_the_network_brings_what_is_near_its_pages() {
    let place = Place::new();
    place.publish();
    let (tree, image, www) = (
        text(&place.path("tree")),
        text(&place.path("near.img")),
        text(&place.path("www")),
    );
    let profile = recorded(&place);
    let pack = ["pack", &tree, "--profile", &profile, "--prefer", "remote"];
    place.done(&[&pack[..], &["--verity", "-q", "-o", &image]].concat());
    place.done(&["publish", &image, &www, "--name", "near.img"]);
    let server = Server::start(&place.path("www"));
    let root = fs::read_to_string(place.path("near.img.roothash")).expect("written");
    let url = format!("{}#sha256={}", server.url("near.img"), root.trim());
    let described = fs::read_to_string(place.path("www/near.img.remote")).expect("published");
    let numbers = |line: &str| -> Vec<u64> {
        let line = described.lines().find_map(|found| found.strip_prefix(line));
        let numbers = line.expect("described").split_whitespace();
        numbers
            .map(|number| number.parse().expect("a number"))
            .collect()
    };
    let (tables, frames, end) = (
        numbers("tables")[0],
        numbers("hot-frames")[1],
        numbers("hot-neighbours")[0],
    );
    assert!(frames < end);
    let mut program = place.brisk(&["run", &url, "--linger", "60", "--"]);
    program
        .args(["/bin/sh", "-c", "read line"])
        .stdin(Stdio::piped());
    let mut program = program.spawn().expect("brisk is built");
    let starts = || -> Vec<u64> {
        let asked = server.asked().into_iter();
        let ranges = asked.filter_map(|asked| asked.range);
        let starts = ranges.filter_map(|range| {
            let range = range.strip_prefix("bytes=")?.split_once('-')?;
            range.0.parse().ok()
        });
        starts.collect()
    };
    let is_near = |start: &u64| (frames - 4096..end).contains(start);
    await_that("the neighbours are asked for", || {
        starts().iter().any(is_near)
    });
    // Before the rest, which begins with the blocks of the first files.
    let starts = starts();
    let near = starts.iter().position(is_near);
    let rest = starts
        .iter()
        .position(|start| (1..tables - 4096).contains(start));
    assert!(rest.is_none_or(|rest| near < Some(rest)), "{starts:?}");
    await_that("they have come", || {
        is_here(&place, &url, "data/30", 131_072) && is_here(&place, &url, "data/31", 131_072)
    });
    server.behave(Manner::Gone);
    for name in ["data/30", "data/31"] {
        assert!(is_here(&place, &url, name, 131_072), "{name}");
    }
    drop(program.stdin.take());
    program.wait().expect("ours");
}

/// A place with a published image, a pack beside it that is signed with the serial number 10 by the key in `k.pub`, and another key in
/// `other.pub`.
fn with_signed_pack() -> (Place, Server, String) {
    let (place, server, url) = published();
    for key in ["k", "other"] {
        let (public, secret) = (place.path(&format!("{key}.pub")), place.path(key));
        let made = Command::new("minisign")
            .args(["-G", "-W", "-p", &text(&public), "-s", &text(&secret)])
            .output();
        assert!(made.expect("minisign is installed").status.success());
    }
    publish_pack(&place, "made.img", "10");
    (place, server, url)
}

/// Publishes a pack of this image as that of `app.img`.
fn publish_pack(place: &Place, image: &str, serial: &str) {
    let (profile, hot) = (recorded(place), text(&place.path("app.img.hot")));
    let image = text(&place.path(image));
    place.done(&["hot", &image, "--profile", &profile, "-q", "-o", &hot]);
    let (www, key) = (text(&place.path("www")), text(&place.path("k")));
    place.done(&[
        "publish", &hot, &www, "--key", &key, "--serial", serial, "--force", "-q",
    ]);
}

/// Starts a program in a session of its own that reads what was recorded, and returns what it read, and what brisk said of the pack.
fn run_recorded(place: &Place, url: &str, options: &[&str]) -> (Vec<u8>, String) {
    place.output(&["umount", "--all"]);
    let mut run = place.brisk(&["run", url, "-v", "--background", "never", "--linger", "0"]);
    let read = "cd $BRISK_TREE/data && head -qc 100 30 31";
    let run = run.args(options).args(["--", "/bin/sh", "-c", read]);
    let output = run.output().expect("brisk is built");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (output.stdout, said)
}

/// How many requests there were for data of the image, and not for what it needs to begin.
fn asked_for_data(place: &Place, server: &Server) -> usize {
    let said = fs::read_to_string(place.path("www/app.img.remote")).expect("published");
    let tables = said.lines().find_map(|line| line.strip_prefix("tables "));
    let tables: u64 = tables.expect("described").parse().expect("a number");
    let is_of_data = |range: &String| {
        let start = range
            .strip_prefix("bytes=")
            .and_then(|range| range.split_once('-'));
        let start: u64 = start.expect("one range").0.parse().expect("a number");
        (1..tables - 4096).contains(&start)
    };
    let asked = server.asked().into_iter();
    let ranges = asked
        .filter(|asked| asked.path == "/app.img")
        .filter_map(|asked| asked.range);
    ranges.filter(is_of_data).count()
}

/// Where the published pack has its frames.
fn frames_of_pack(place: &Place) -> (usize, usize) {
    let said = fs::read_to_string(place.path("www/app.img.hot.remote")).expect("published");
    let frames = said
        .lines()
        .find_map(|line| line.strip_prefix("hot-frames "));
    let frames = frames.and_then(|frames| frames.split_once(' '));
    let (start, end) = frames.expect("described");
    (
        start.parse().expect("a number"),
        end.parse().expect("a number"),
    )
}

/// Waits until all of the pack is here.
fn await_whole_pack(place: &Place) {
    await_that("the pack is whole", || {
        let listed = place.done(&["remote", "list", "--json"]);
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let of_pack = listed.lines().find(|line| line.contains("app.img.hot"));
        of_pack.is_some_and(|line| line.contains("\"is_complete\":true"))
    });
}

/// What `run_recorded` reads.
fn of_recorded() -> Vec<u8> {
    [&contents("data/30")[..100], &contents("data/31")[..100]].concat()
}

const SIGNED: &str = "a trusted key has signed this hot pack";
const LISTED: &str = "only the list of pages of this hot pack is used";

#[test]
fn pages_of_a_signed_pack_come_from_it_and_not_from_the_image() {
    let (place, server, url) = with_signed_pack();
    let key = text(&place.path("k.pub"));
    for _ in 0..2 {
        let (read, said) = run_recorded(&place, &url, &["--trust", &key]);
        assert!(read == of_recorded() && said.contains(SIGNED), "{said}");
        assert_eq!(asked_for_data(&place, &server), 0);
    }
    await_whole_pack(&place);
    server.behave(Manner::Gone);
    let (read, said) = run_recorded(&place, &url, &["--trust", &key]);
    assert!(read == of_recorded() && said.contains(SIGNED), "{said}");
}

/// The server vouches for the image, and for its pack a key that the user trusts for all images.
#[test]
fn an_installed_key_vouches_for_a_pack_of_an_image_that_nobody_has_signed() {
    let (place, server, _) = with_signed_pack();
    let url = server.url("app.img");
    let (_, said) = run_recorded(&place, &url, &[]);
    assert!(said.contains(LISTED), "{said}");
    let place_of_keys = place.path("home/.config/brisk/trusted.d");
    fs::create_dir_all(&place_of_keys).expect("room");
    fs::copy(place.path("k.pub"), place_of_keys.join("k.pub")).expect("room");
    let (read, said) = run_recorded(&place, &url, &[]);
    assert!(read == of_recorded() && said.contains(SIGNED), "{said}");
}

#[test]
fn a_wrong_bit_of_a_signed_pack_is_in_no_page() {
    let (place, server, url) = with_signed_pack();
    let hot = place.path("www/app.img.hot");
    let mut bytes = fs::read(&hot).expect("published");
    let (start, end) = frames_of_pack(&place);
    bytes[start + (end - start) / 2] ^= 1;
    fs::write(&hot, bytes).expect("room");
    let (read, said) = run_recorded(&place, &url, &["--trust", &text(&place.path("k.pub"))]);
    assert!(read == of_recorded() && said.contains(SIGNED), "{said}");
    assert!(asked_for_data(&place, &server) > 0);
}

/// Its frames have other bytes, and all of its own checksums are right.
#[test]
fn a_forged_pack_under_the_signature_of_another_is_in_no_page() {
    let (place, server, url) = with_signed_pack();
    let signed = ["remote", "remote.minisig"]
        .map(|end| place.path(&format!("www/app.img.hot.{end}")))
        .map(|file| (fs::read(&file).expect("published"), file));
    let before = fs::read(place.path("www/app.img.hot")).expect("published");
    let (tree, image) = (text(&place.path("tree")), text(&place.path("other.img")));
    for name in ["data/30", "data/31"] {
        let file = fs::File::options()
            .write(true)
            .open(place.path("tree").join(name));
        let file = file.expect("there");
        let time = file
            .metadata()
            .and_then(|found| found.modified())
            .expect("a time");
        file.write_all_at(b"forged", 0).expect("room");
        file.set_modified(time).expect("ours");
    }
    place.done(&["pack", &tree, "-o", &image, "--verity", "-q"]);
    publish_pack(&place, "other.img", "11");
    let forged = fs::read(place.path("www/app.img.hot")).expect("published");
    assert!(forged.len() == before.len() && forged != before);
    // Under a signature of its own, nothing tells it from the right one.
    let key = text(&place.path("k.pub"));
    let (read, said) = run_recorded(&Place::new(), &url, &["--trust", &key]);
    assert!(
        read.starts_with(b"forged") && said.contains(SIGNED),
        "{said}"
    );
    for (bytes, file) in &signed {
        fs::write(file, bytes).expect("room");
    }
    // With the tree that was signed.
    let said = String::from_utf8_lossy(&signed[0].0).into_owned();
    let tree = said
        .lines()
        .find_map(|line| line.strip_prefix("hash-tree "));
    let tree: usize = tree.expect("described").parse().expect("a number");
    let bytes = [&forged[..tree], &before[tree..]].concat();
    fs::write(place.path("www/app.img.hot"), bytes).expect("room");
    let (read, said) = run_recorded(&Place::new(), &url, &["--trust", &key]);
    assert!(read == of_recorded(), "{said}");
    assert!(asked_for_data(&place, &server) > 0);
}

#[test]
fn a_signed_pack_that_does_not_come_is_no_fault() {
    let (place, server, url) = with_signed_pack();
    let key = text(&place.path("k.pub"));
    run_recorded(&place, &url, &["--trust", &key]);
    await_whole_pack(&place);
    // What is here of it is wrong, and the server has another file by now.
    let hot = place.path("www/app.img.hot");
    let whole = fs::read(&hot).expect("published");
    fs::write(&hot, [&whole[..], b"more"].concat()).expect("room");
    let images = fs::read_dir(place.path("cache/brisk/remote/images")).expect("there");
    let mut files = images.map(|entry| entry.expect("there").path().join("image"));
    let of_pack = files.find(|file| fs::read(file).expect("there") == whole);
    let of_pack = fs::File::options()
        .write(true)
        .open(of_pack.expect("it is whole"));
    // Behind the block that a start needs to begin.
    let (start, end) = frames_of_pack(&place);
    let start = start.next_multiple_of(4096);
    let zeros = vec![0; end - start];
    let written = of_pack.expect("ours").write_all_at(&zeros, start as u64);
    written.expect("room");
    let (read, said) = run_recorded(&place, &url, &["--trust", &key]);
    assert!(read == of_recorded() && said.contains(SIGNED), "{said}");
    assert!(asked_for_data(&place, &server) > 0);
}

#[test]
fn only_a_pack_that_a_trusted_key_has_signed_for_the_image_is_used() {
    let (place, server, url) = with_signed_pack();
    let (key, other) = (text(&place.path("k.pub")), text(&place.path("other.pub")));
    let (read, said) = run_recorded(&place, &url, &["--trust", &other]);
    assert!(read == of_recorded() && said.contains(LISTED), "{said}");
    assert!(
        said.contains("the signature is by a key that is not trusted"),
        "{said}"
    );
    assert!(asked_for_data(&place, &server) > 0);
    // The list is known now, and what is said of it is not.
    let (_, again) = run_recorded(&place, &url, &["--trust", &other]);
    assert!(
        again.contains(LISTED) && !again.contains("brisk: warning"),
        "{again}"
    );

    // Without its signature, and with an older one.
    let files =
        ["remote", "remote.minisig"].map(|end| place.path(&format!("www/app.img.hot.{end}")));
    let older = files.clone().map(|file| fs::read(file).expect("published"));
    publish_pack(&place, "made.img", "11");
    let (_, said) = run_recorded(&place, &url, &["--trust", &key, "--refresh"]);
    assert!(said.contains(SIGNED), "{said}");
    for (file, bytes) in files.iter().zip(older) {
        fs::write(file, bytes).expect("room");
    }
    let (read, said) = run_recorded(&place, &url, &["--trust", &key, "--refresh"]);
    assert!(read == of_recorded() && said.contains(LISTED), "{said}");
    assert!(
        said.contains("its serial number is 10, and one with 11 was there before"),
        "{said}"
    );
    fs::remove_file(&files[1]).expect("there");
    let (read, said) = run_recorded(&place, &url, &["--trust", &key, "--refresh"]);
    assert!(
        read == of_recorded() && said.contains("the image is not signed"),
        "{said}"
    );

    // Of another image.
    fs::write(place.path("tree/bin/app"), "other").expect("room");
    let (tree, image) = (text(&place.path("tree")), text(&place.path("other.img")));
    place.done(&["pack", &tree, "-o", &image, "-q"]);
    publish_pack(&place, "other.img", "12");
    let (read, said) = run_recorded(&place, &url, &["--trust", &key, "--refresh"]);
    assert!(
        read == of_recorded() && said.contains("it belongs to another image"),
        "{said}"
    );
}
