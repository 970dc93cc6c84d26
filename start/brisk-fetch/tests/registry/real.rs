//! Debian's docker-registry, and skopeo for a second opinion.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use brisk_remote::{Ask, Content, Download, Index, Job, Manifest, Platform, media_type};
use data_encoding::BASE64;
use minisign::KeyPair;
use serde_json::Value;

use super::{Front, Registry, Signer, packed, payload, pushed, signatures};
use crate::support::{Place, await_that, contents, text};

#[test]
fn an_image_is_pushed_and_starts_from_a_registry_and_later_without_it() {
    let place = Place::new();
    let mut registry = Registry::start(&place, false);
    let image = packed(&place);
    let url = registry.url("tools/app:1");
    let fixed = pushed(&place, &image, &url);
    assert!(
        fixed.starts_with(&registry.url("tools/app@sha256:")),
        "{fixed}"
    );
    let run = |url: &str, name: &str| {
        let script = format!("cat $BRISK_TREE/{name}");
        place.done(&["run", url, "--linger", "0", "--", "/bin/sh", "-c", &script])
    };
    assert_eq!(run(&url, "etc/text"), contents("etc/text"));
    // A second opinion.
    let raw = Command::new("skopeo")
        .args(["inspect", "--raw", "--tls-verify=false"])
        .arg(url.replace("oci://", "docker://"))
        .output()
        .expect("skopeo is installed");
    let raw = String::from_utf8(raw.stdout).expect("JSON");
    assert!(
        raw.contains("\"artifactType\":\"application/vnd.brisk.image.v1\""),
        "{raw}"
    );
    assert!(
        raw.contains("\"org.opencontainers.image.title\":\"made.img\""),
        "{raw}"
    );
    place.done(&["remote", "fetch", &url, "-q"]);
    place.done(&["remote", "fetch", &fixed, "-q"]);
    registry.end();
    for url in [&url, &fixed] {
        assert!(run(url, "data/7") == contents("data/7"));
    }
    // The digest of the manifest vouches for the root hash in it.
    for (url, vouched) in [(&url, "server_hash_tree"), (&fixed, "root_hash")] {
        let status = place.done(&["remote", "status", url, "--json"]);
        let status = String::from_utf8(status).expect("JSON");
        assert!(
            status.contains(&format!("\"vouched_by\": \"{vouched}\"")),
            "{status}"
        );
    }
}

/// Three images under one name: for a start, for a small disk, and for another machine. skopeo copies all of the list.
#[test]
fn of_several_images_under_one_name_the_one_that_is_wanted_starts() {
    let place = Place::new();
    let mut registry = Registry::start(&place, false);
    let (image, url) = (packed(&place), registry.url("app:1"));
    let tree = place.path("tree");
    let packed_as = |name: &str, codec: &str| {
        fs::write(tree.join("etc/text"), name).expect("room");
        let image = text(&place.path(name));
        place.done(&["pack", &text(&tree), "-o", &image, "--codec", codec, "-q"]);
        image
    };
    let small = packed_as("small.img", "xz");
    // The header of a program for s390x.
    let mut program = vec![0; 64];
    program[..6].copy_from_slice(b"\x7fELF\x02\x02");
    program[19] = 22;
    fs::write(tree.join("AppRun"), program).expect("room");
    fs::set_permissions(tree.join("AppRun"), fs::Permissions::from_mode(0o755)).expect("ours");
    let other = packed_as("other.img", "gzip");
    let mut unknown = fs::read(tree.join("AppRun")).expect("ours");
    unknown[19] = 99;
    fs::write(tree.join("AppRun"), unknown).expect("room");
    let unknown = packed_as("unknown.img", "gzip");
    let message = place.fails(&["push", &image, &unknown, &url]);
    assert!(message.contains("say it with --platform"), "{message}");
    let message = place.fails(&["push", &image, &small]);
    assert!(
        message.contains("expected a name in a registry behind"),
        "{message}"
    );
    let named = format!("small={small}");
    let here = Platform::here().to_string();
    let message = place.fails(&["push", &image, &format!("{url}#variant=a")]);
    assert!(message.contains("NAME=IMAGE"), "{message}");
    let message = place.fails(&["push", &image, &format!("zstd={small}"), &url]);
    assert!(
        message.contains(&format!("are both the variant zstd for {here}")),
        "{message}"
    );
    let json = ["push", &image, &named, &other, &url, "--json", "-q"];
    let printed: Value = serde_json::from_slice(&place.done(&json)).expect("JSON");
    let printed = printed.as_array().expect("one for each");
    let said = |number: usize, what: &str| printed[number][what].as_str().expect("text").to_owned();
    for (number, variant, platform) in [
        (0, "zstd", &*here),
        (1, "small", &here),
        (2, "gzip", "linux/s390x"),
    ] {
        assert_eq!(said(number, "variant"), variant);
        assert_eq!(said(number, "platform"), platform);
    }
    let skopeo = |arguments: &[&str]| {
        let done = Command::new("skopeo").args(arguments).output();
        let done = done.expect("skopeo is installed");
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{why}");
        done.stdout
    };
    let docker = url.replace("oci://", "docker://");
    let raw = skopeo(&["inspect", "--raw", "--tls-verify=false", &docker]);
    assert_eq!(Content::of(&raw, "").digest, said(0, "index_digest"));
    let list: Value = serde_json::from_slice(&raw).expect("JSON");
    assert_eq!(list["mediaType"], media_type::INDEX);
    let first = &list["manifests"][0];
    assert_eq!(first["digest"], said(0, "manifest_digest"));
    assert_eq!(first["annotations"]["dev.brisk.image.variant"], "zstd");
    assert_eq!(first["annotations"]["dev.brisk.image.codec"], "zstd");
    assert_eq!(list["manifests"][2]["platform"]["architecture"], "s390x");
    let copy = format!("oci:{}", text(&place.path("copy")));
    skopeo(&[
        "copy",
        "-q",
        "--all",
        "--src-tls-verify=false",
        &docker,
        &copy,
    ]);

    let at = |digest: &str| format!("{}@{digest}", registry.url("app"));
    let fixed = at(&said(0, "index_digest"));
    let alone = at(&said(1, "manifest_digest"));
    let chosen = [
        format!("{url}#variant=small"),
        format!("{url}#codecs=gzip+xz"),
    ];
    let wanted: [(&[&str], &[u8]); 7] = [
        (&[&url], &contents("etc/text")),
        (&[&url, "--variant", "small"], b"small.img"),
        (&[&chosen[0]], b"small.img"),
        (&[&chosen[1]], b"small.img"),
        (&[&fixed], &contents("etc/text")),
        (&[&fixed, "--variant", "small"], b"small.img"),
        (&[&alone], b"small.img"),
    ];
    let check = || {
        for (arguments, bytes) in wanted {
            let arguments = [&["cat", arguments[0], "etc/text"], &arguments[1..]].concat();
            assert!(place.done(&arguments) == bytes, "{arguments:?}");
        }
    };
    check();
    let message = place.fails(&["cat", &url, "etc/text", "--variant", "gzip"]);
    let there = format!(
        "there is none for {here} (variant=gzip), only for {here} (variant=zstd,codec=zstd), {here} (variant=small,codec=xz), \
         linux/s390x (variant=gzip,codec=gzip)"
    );
    assert!(message.contains(&there), "{message}");
    // Of two images, the first.
    place.done(&["diff", &url, &small, "--variant", "small"]);
    let message = place.fails(&["cat", &image, "etc/text", "--variant", "small"]);
    assert!(message.contains("leave out --variant"), "{message}");
    for (arguments, _) in wanted {
        place.done(&[&["remote", "fetch", "-q"], arguments].concat());
    }
    registry.end();
    check();
    let listed = String::from_utf8(place.done(&["remote", "list"])).expect("text");
    assert!(listed.contains("app:1#variant=small "), "{listed}");
    let script = "cat $BRISK_TREE/etc/text";
    let run = ["run", &*url, "--variant", "small", "--linger", "0", "--"];
    let shell = ["/bin/sh", "-c", script];
    assert!(place.done(&[&run[..], &shell].concat()) == b"small.img");
    for (url, variant, vouched) in [
        (&url, "zstd", "server_hash_tree"),
        (&chosen[0], "small", "server_hash_tree"),
        (&fixed, "zstd", "root_hash"),
        (&alone, "small", "root_hash"),
    ] {
        let status = place.done(&["remote", "status", url, "--json"]);
        let status: Value = serde_json::from_slice(&status).expect("JSON");
        assert_eq!(status["variant"], variant, "{url}");
        assert_eq!(status["vouched_by"], vouched, "{url}");
    }
}

#[test]
fn what_is_said_of_a_push_is_documented() {
    let place = Place::new();
    let registry = Registry::start(&place, false);
    let url = registry.url("app:1");
    let [verb, json] = ["push", "--json"];
    let image = packed(&place);
    let printed = place.done(&[verb, &image, &url, json, "-q"]);
    let printed: BTreeMap<String, Value> = serde_json::from_slice(&printed).expect("JSON");
    assert_eq!(printed["url"], url);
    let page = fs::read_to_string("../../docs/json.md").expect("the page");
    let section = page
        .split("## ")
        .find(|section| section.starts_with(&format!("`{verb}`")));
    let rows = section
        .expect("a section")
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    let fields: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(fields, printed.keys().map(|name| &**name).collect());
}

/// nginx takes 1 MiB in one request, unless it is told otherwise.
#[test]
fn a_push_through_a_server_that_takes_short_requests_goes_in_pieces() {
    let place = Place::new();
    let registry = Registry::start(&place, true);
    let front = Front::start(&place, &registry.host, "");
    let image = packed(&place);
    assert!(fs::metadata(&image).expect("packed").len() > 5 << 20);
    let mut user = Place::new();
    let secret = BASE64.encode(b"alice:open sesame");
    let auths = format!(
        "{{\"auths\":{{\"{}\":{{\"auth\":\"{secret}\"}}}}}}",
        front.host
    );
    fs::write(place.path("auth.json"), auths).expect("room");
    user.variables = vec![("REGISTRY_AUTH_FILE", text(&place.path("auth.json")))];
    let url = format!("oci://{}/app:1", front.host);
    pushed(&user, &image, &url);
    for name in ["etc/text", "data/1", "data/39"] {
        assert!(user.done(&["cat", &url, name]) == contents(name), "{name}");
    }
    let log = fs::read_to_string(place.path("nginx/log")).expect("it was asked");
    let patches: Vec<_> = log
        .lines()
        .filter(|line| line.starts_with("PATCH "))
        .collect();
    let sent = patches.iter().filter(|line| line.ends_with(" 202"));
    assert_eq!(
        sent.count() as u64,
        (fs::metadata(&image).expect("packed").len()).div_ceil(1 << 20),
        "{log}"
    );
    drop(front);
    let front = Front::start(&place, &registry.host, "client_max_body_size 900k;");
    let url = format!("oci://{}/app:2", front.host);
    let auths = format!(
        "{{\"auths\":{{\"{}\":{{\"auth\":\"{secret}\"}}}}}}",
        front.host
    );
    fs::write(place.path("auth.json"), auths).expect("room");
    fs::write(place.path("tree/etc/text"), "other").expect("room");
    let other = text(&place.path("other.img"));
    place.done(&["pack", &text(&place.path("tree")), "-o", &other, "-q"]);
    let message = user.fails(&["push", &other, &url, "-q"]);
    assert!(
        message.contains("of nginx, client_max_body_size says how much"),
        "{message}"
    );
}

/// docker-registry keeps no list of what is said of a manifest, so a tag stands for it.
#[test]
fn a_pack_that_was_pushed_for_an_image_says_what_comes_first() {
    let place = Place::new();
    let mut registry = Registry::start(&place, false);
    let (image, url) = (packed(&place), registry.url("app:1"));
    pushed(&place, &image, &url);
    let (profile, hot) = (crate::recorded(&place), text(&place.path("app.hot")));
    place.done(&["hot", &image, "--profile", &profile, "-q", "-o", &hot]);
    assert!(
        place
            .fails(&["push", &image, &url, "--hot"])
            .contains("is no hot pack")
    );
    // Twice is once.
    for _ in 0..2 {
        assert!(place.done(&["push", &hot, &url, "--hot", "-q"]).is_empty());
    }
    let mut program = crate::waiting(&place, &[&url]);
    // Requests for the two may be answered in any order.
    await_that("what the pack lists comes", || {
        ["data/30", "data/31"]
            .iter()
            .all(|name| crate::has_come(&place, image.as_ref(), name))
    });
    await_that("it has a list", || {
        place
            .path("cache/brisk/remote/images")
            .read_dir()
            .expect("it is here")
            .count()
            == 2
    });
    registry.end();
    for name in ["data/30", "data/31"] {
        await_that("they are here", || crate::is_here(&place, &url, name, 100));
    }
    drop(program.stdin.take());
    program.wait().expect("ours");
}

/// SingularityCE looks at types of the config and the only layer.
#[test]
fn what_is_pushed_for_singularity_has_its_types_and_starts_here() {
    let place = Place::new();
    let registry = Registry::start(&place, false);
    let image = packed(&place);
    // A header without descriptors, behind which brisk looks for an image.
    let mut sif = vec![0; 4096];
    sif[32..42].copy_from_slice(b"SIF_MAGIC\0");
    sif.extend(fs::read(&image).expect("packed"));
    let file = text(&place.path("app.sif"));
    fs::write(&file, sif).expect("room");
    for (number, (file, config, layer)) in [
        (&file, media_type::SIF_CONFIG, media_type::SIF),
        (&image, media_type::CONFIG, media_type::SYLABS_LAYER),
    ]
    .into_iter()
    .enumerate()
    {
        let url = registry.url(&format!("app:{number}"));
        let printed = place.done(&["push", file, &url, "--as", "sylabs", "-q"]);
        assert!(printed.starts_with(b"brisk run oci://"));
        let url = url.replace("oci://", "docker://");
        let inspect = |raw: &str| {
            let said = Command::new("skopeo")
                .args(["inspect", raw, "--tls-verify=false", &url])
                .output();
            let said = said.expect("skopeo is installed").stdout;
            serde_json::from_slice::<Value>(&said).unwrap_or_default()
        };
        let raw = inspect("--raw");
        assert_eq!(raw["config"]["mediaType"], config);
        assert_eq!(raw["layers"][0]["mediaType"], layer);
        if layer == media_type::SYLABS_LAYER {
            // It is a container image.
            assert_eq!(
                inspect("--config")["rootfs"]["diff_ids"][0],
                raw["layers"][0]["digest"]
            );
        }
    }
    assert!(place.done(&["cat", &registry.url("app:1"), "data/2"]) == contents("data/2"));
    let sent = place.path("sent");
    let copied = Command::new("skopeo")
        .args(["copy", "-q", "--src-tls-verify=false"])
        .arg(registry.url("app:0").replace("oci://", "docker://"))
        .arg(format!("dir:{}", text(&sent)))
        .status();
    assert!(copied.expect("skopeo is installed").success());
    let len = fs::metadata(&file).expect("ours").len();
    let mut files = fs::read_dir(&sent).expect("copied").flatten();
    assert!(files.any(|entry| entry.metadata().expect("copied").len() == len));
}

#[test]
fn every_verb_that_reads_takes_a_name_in_a_registry() {
    let place = Place::new();
    let registry = Registry::start(&place, false);
    let url = registry.url("app");
    pushed(&place, &packed(&place), &url);
    crate::read_by_each_verb(&place, &url);
    let mnt = text(&place.path("mnt"));
    place.done(&["mount", &url, &mnt]);
    assert!(fs::read(place.path("mnt/data/9")).expect("it arrives") == contents("data/9"));
    place.done(&["umount", &mnt]);
    let message = place.fails(&["cat", &registry.url("other"), "x"]);
    assert!(message.contains("has no other latest"), "{message}");
}

#[test]
fn a_tag_that_moves_is_asked_for_anew_and_a_digest_never_is() {
    let place = Place::new();
    let registry = Registry::start(&place, false);
    let (image, url) = (packed(&place), registry.url("app:1"));
    let fixed = pushed(&place, &image, &url);
    assert!(place.done(&["cat", &url, "etc/text"]) == contents("etc/text"));
    fs::write(place.path("tree/etc/text"), "later").expect("room");
    let later = text(&place.path("later.img"));
    place.done(&["pack", &text(&place.path("tree")), "-o", &later, "-q"]);
    pushed(&place, &later, &url);
    // What is here starts at once.
    assert!(place.done(&["cat", &url, "etc/text"]) == contents("etc/text"));
    assert!(place.done(&["cat", &url, "etc/text", "--refresh"]) == b"later");
    assert!(place.done(&["cat", &fixed, "etc/text", "--refresh"]) == contents("etc/text"));
    // Nothing that is there is sent again.
    let blobs = place.path("blobs/docker/registry/v2/repositories/app/_uploads");
    pushed(&place, &image, &registry.url("app:2"));
    let left = fs::read_dir(blobs).map_or(0, |left| left.flatten().count());
    assert_eq!(left, 0);
}

#[test]
fn a_trusted_key_vouches_for_what_was_pushed_under_this_tag() {
    let place = Place::new();
    let registry = Registry::start(&place, false);
    let (image, url) = (packed(&place), registry.url("app:1"));
    pushed(&place, &image, &url);
    let (key, trusted) = (text(&place.path("k.key")), text(&place.path("k.pub")));
    let keys = KeyPair::generate_unencrypted_keypair().expect("random numbers");
    let stored = keys.sk.to_box(None).expect("a key");
    fs::write(&key, stored.into_string()).expect("room");
    let stored = keys.pk.to_box().expect("a key");
    fs::write(&trusted, stored.into_string()).expect("room");
    let message = place.fails(&["cat", &url, "etc/text", "--trust", &trusted]);
    assert!(
        message.contains("push it with brisk push --key"),
        "{message}"
    );
    let fixed = place.done(&["push", &image, &url, "--key", &key, "-q"]);
    let fixed = String::from_utf8(fixed).expect("text");
    let fixed = fixed.trim().trim_start_matches("brisk run ");
    for url in [&*url, fixed] {
        let read = place.done(&["cat", url, "etc/text", "--refresh", "--trust", &trusted]);
        assert!(read == contents("etc/text"), "{url}");
    }
    // The signature covers each of several.
    fs::write(place.path("tree/etc/text"), "small").expect("room");
    let small = text(&place.path("small.img"));
    place.done(&["pack", &text(&place.path("tree")), "-o", &small, "-q"]);
    let (several, named) = (registry.url("app:3"), format!("small={small}"));
    place.done(&["push", &image, &named, &several, "--key", &key, "-q"]);
    for (variant, bytes) in [("zstd", contents("etc/text")), ("small", b"small".to_vec())] {
        let words = ["cat", &several, "etc/text", "--trust", &trusted];
        let read = place.done(&[&words[..], &["--variant", variant]].concat());
        assert!(read == bytes, "{variant}");
    }
    // Somebody gives it another tag.
    let copied = Command::new("skopeo")
        .args([
            "copy",
            "-q",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
        ])
        .arg(url.replace("oci://", "docker://"))
        .arg(registry.url("app:2").replace("oci://", "docker://"))
        .status();
    assert!(copied.expect("skopeo is installed").success());
    let other = registry.url("app:2");
    let message = place.fails(&["cat", &other, "etc/text", "--trust", &trusted]);
    assert!(
        message.contains("signed an image of the name app:1"),
        "{message}"
    );
}

/// The tag says nothing of that, and neither does a serial number.
#[test]
fn a_key_of_cosign_vouches_for_each_manifest_that_it_has_signed() {
    let place = Place::new();
    let mut registry = Registry::start(&place, false);
    let (image, url) = (packed(&place), registry.url("tools/app:1"));
    let first = pushed(&place, &image, &url);
    let signer = Signer::new(&place, "cosign.pub");
    let other = Signer::new(&place, "other.pub");
    let cat = |url: &str, more: &[&str]| {
        let verb = ["cat", url, "etc/text", "--trust", &signer.public];
        place.output(&[&verb, more].concat())
    };
    let message = |url: &str, more: &[&str]| {
        let said = cat(url, more);
        assert!(!said.status.success() && said.stdout.is_empty());
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let sign = |url: &str| {
        let (_, digest) = url.split_once('@').expect("a digest");
        let payload = payload(&format!("{}/tools/app", registry.host), digest);
        let layer = signer.sign(&payload);
        let layout = place.path("signed");
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("room");
        let config = Content::of(b"{}", "").digest;
        fs::write(blobs.join(&config["sha256:".len()..]), "{}").expect("room");
        fs::write(blobs.join(&layer.digest["sha256:".len()..]), payload).expect("room");
        let tag = format!("tools/app:{}.sig", digest.replace(':', "-"));
        copy(&layout, &signatures(vec![layer]), &registry.url(&tag));
    };
    let unsigned = "its registry has no signature by cosign of the manifest";
    assert!(message(&url, &[]).contains(unsigned));
    sign(&first);
    // What is here was read without a key.
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    for url in [&url, &first] {
        assert!(cat(url, &[]).stdout == contents("etc/text"), "{url}");
    }
    let verb = ["cat", &url, "etc/text", "--trust", &other.public];
    let said = place.fails(&verb);
    assert!(said.contains("of a key that is not trusted"), "{said}");
    assert!(!said.contains("brisk starts the image"), "{said}");
    // A newer image counts when it is signed, too, and an older one goes on counting.
    fs::write(place.path("tree/etc/text"), "later").expect("room");
    let later = text(&place.path("later.img"));
    place.done(&["pack", &text(&place.path("tree")), "-o", &later, "-q"]);
    let second = pushed(&place, &later, &url);
    assert!(message(&url, &["--refresh"]).contains(unsigned));
    assert!(cat(&url, &[]).stdout == contents("etc/text"));
    sign(&second);
    assert!(cat(&url, &["--refresh"]).stdout == b"later");
    let digest = |url: &str| url.rsplit_once('@').expect("a digest").1.to_owned();
    let back = Command::new("skopeo")
        .args(["copy", "-q", "--preserve-digests"])
        .args(["--src-tls-verify=false", "--dest-tls-verify=false"])
        .arg(format!(
            "docker://{}/tools/app@{}",
            registry.host,
            digest(&first)
        ))
        .arg(url.replace("oci://", "docker://"))
        .status();
    assert!(back.expect("skopeo is installed").success());
    assert!(cat(&url, &["--refresh"]).stdout == contents("etc/text"));
    // What was signed is known without the registry.
    place.done(&["remote", "fetch", &url, "-q", "--trust", &signer.public]);
    let status = place.done(&["remote", "status", &url, "--json"]);
    assert!(String::from_utf8_lossy(&status).contains("\"vouched_by\": \"root_hash\""));
    registry.end();
    assert!(cat(&url, &[]).stdout == contents("etc/text"));
}

/// Programs other than brisk have put them there.
#[test]
fn credentials_are_where_other_programs_put_them_and_stay_there() {
    let place = Place::new();
    let registry = Registry::start(&place, true);
    let (image, url) = (packed(&place), registry.url("app:1"));
    let message = place.fails(&["push", &image, &url, "-q"]);
    assert!(message.contains("skopeo login"), "{message}");
    let file = |name: &str, text: String| {
        let path = place.path(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("room");
        fs::write(path, text).expect("room");
    };
    let secret = BASE64.encode(b"alice:open sesame");
    let auths = format!(
        "{{\"auths\":{{\"{}\":{{\"auth\":\"{secret}\"}}}}}}",
        registry.host
    );
    let wrong = auths.replace(&secret, &BASE64.encode(b"alice:no"));
    let helper = "#!/bin/sh\nread -r host\n[ \"$host\" = HOST ] || { echo credentials not found; exit 1; }\n\
                  echo '{\"ServerURL\":\"x\",\"Username\":\"alice\",\"Secret\":\"open sesame\"}'\n";
    file(
        "tools/docker-credential-mine",
        helper.replace("HOST", &registry.host),
    );
    let tools = place.path("tools");
    fs::set_permissions(
        tools.join("docker-credential-mine"),
        fs::Permissions::from_mode(0o755),
    )
    .expect("ours");
    let path = format!("{}:{}", text(&tools), std::env::var("PATH").expect("set"));
    file("docker/config.json", auths.clone());
    file("auth.json", auths.clone());
    file("wrong.json", wrong);
    file("helper/config.json", "{\"credsStore\":\"mine\"}".into());
    for (number, (name, value)) in [
        ("DOCKER_CONFIG", text(&place.path("docker"))),
        ("REGISTRY_AUTH_FILE", text(&place.path("auth.json"))),
        ("DOCKER_CONFIG", text(&place.path("helper"))),
    ]
    .into_iter()
    .enumerate()
    {
        let mut user = Place::new();
        user.variables = vec![(name, value), ("PATH", path.clone())];
        let url = registry.url(&format!("app:{number}"));
        pushed(&user, &image, &url);
        assert!(
            user.done(&["cat", &url, "etc/text"]) == contents("etc/text"),
            "{name}"
        );
        assert!(
            !has_text(&user, "sesame") && !has_text(&user, &secret),
            "{name}"
        );
    }
    // As skopeo login writes it.
    let user = Place::new();
    fs::create_dir(user.path("run/containers")).expect("room");
    fs::write(user.path("run/containers/auth.json"), auths).expect("room");
    let url = registry.url("app:0");
    assert!(user.done(&["cat", &url, "data/4"]) == contents("data/4"));
    let mut user = Place::new();
    user.variables = vec![("REGISTRY_AUTH_FILE", text(&place.path("wrong.json")))];
    let message = user.fails(&["cat", &url, "etc/text"]);
    assert!(message.contains("does not let you in to app"), "{message}");
}

/// Whether a file that brisk has written has this text.
fn has_text(place: &Place, wanted: &str) -> bool {
    let found = Command::new("grep")
        .args(["-rlF", wanted])
        .arg(place.path("cache"))
        .output();
    !found.expect("grep is installed").stdout.is_empty()
}

/// A container image of two layers in a registry, by skopeo. Returns its manifest.
fn container(place: &Place, registry: &Registry, name: &str) -> String {
    let layout = place.path("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("room");
    let put = |bytes: &[u8], kind: &str| {
        let content = Content::of(bytes, kind);
        fs::write(blobs.join(&content.digest["sha256:".len()..]), bytes).expect("room");
        content
    };
    let layers: Vec<Content> = ["etc", "data"]
        .into_iter()
        .map(|name| {
            let tar = Command::new("tar")
                .args(["-C", &text(&place.path("tree")), "-cf", "-", name])
                .output();
            put(
                &tar.expect("tar is installed").stdout,
                "application/vnd.oci.image.layer.v1.tar",
            )
        })
        .collect();
    let sums: Vec<&str> = layers.iter().map(|layer| &*layer.digest).collect();
    let config = format!(
        "{{\"architecture\":\"amd64\",\"os\":\"linux\",\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":{}}}}}",
        serde_json::to_string(&sums).expect("JSON")
    );
    let config = put(
        config.as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    );
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{}\",\"config\":{},\"layers\":{}}}",
        media_type::MANIFEST,
        serde_json::to_string(&config).expect("JSON"),
        serde_json::to_string(&layers).expect("JSON")
    );
    copy(&layout, &manifest, &registry.url(name));
    manifest
}

/// Puts a manifest, whose blobs are in the layout, into a registry.
fn copy(layout: &Path, manifest: &str, url: &str) {
    let content = Content::of(manifest.as_bytes(), media_type::MANIFEST);
    let path = layout
        .join("blobs/sha256")
        .join(&content.digest["sha256:".len()..]);
    fs::write(path, manifest).expect("room");
    fs::write(layout.join("index.json"), Index::of(content).to_text()).expect("room");
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )
    .expect("room");
    let copied = Command::new("skopeo")
        .args([
            "copy",
            "-q",
            "--preserve-digests",
            "--dest-tls-verify=false",
        ])
        .arg(format!("oci:{}", text(layout)))
        .arg(url.replace("oci://", "docker://"))
        .status();
    assert!(copied.expect("skopeo is installed").success());
}

#[test]
fn a_container_image_becomes_a_layout() {
    let place = Place::new();
    let registry = Registry::start(&place, false);
    packed(&place);
    let manifest = container(&place, &registry, "box:1");
    let url = registry.url("box:1");
    let pull = |out: &str, platform: &str, most: u64| {
        let out = place.path(out);
        fs::create_dir(&out).expect("room");
        let mut job =
            Job::start(env!("CARGO_BIN_EXE_brisk-fetch").as_ref(), &out, None).expect("it starts");
        let ask = Ask::Pull(Download {
            url: url.clone(),
            platform: platform.into(),
            most,
        });
        let mut moved = 0;
        let done = job.run(&ask, |_| Ok(None), |bytes| moved += bytes);
        done.map(|done| (done.digest, moved))
            .map_err(|e| e.to_string())
    };
    let (digest, moved) = pull("out", "linux/amd64", u64::MAX).expect("it comes");
    assert_eq!(digest, Content::of(manifest.as_bytes(), "").digest);
    let (there, here) = (
        place.path("layout/blobs/sha256"),
        place.path("out/blobs/sha256"),
    );
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).expect("it is there").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&there), names(&here));
    let mut sum = 0;
    for name in names(&here) {
        let bytes = fs::read(here.join(&name)).expect("it is there");
        assert!(
            bytes == fs::read(there.join(&name)).expect("it is there"),
            "{name:?}"
        );
        sum += bytes.len() as u64;
    }
    assert_eq!(moved + manifest.len() as u64, sum);
    assert_eq!(
        names(&place.path("out")),
        ["blobs", "index.json", "oci-layout"]
    );
    // `brisk pack` fetches the same, and leaves nothing of it.
    let layout = format!("oci-layout:{}", text(&place.path("layout")));
    for (from, image) in [(&*url, "a.img"), (&layout, "b.img")] {
        let made = text(&place.path(&format!("made/{image}")));
        fs::create_dir_all(place.path("made")).expect("room");
        place.done(&["pack", "-q", from, "-o", &made]);
    }
    let made = |image: &str| fs::read(place.path("made").join(image)).expect("it is made");
    assert!(made("a.img") == made("b.img"));
    assert_eq!(names(&place.path("made")), ["a.img", "b.img"]);
    // A second opinion.
    let inspected = Command::new("skopeo")
        .args(["inspect", &format!("oci:{}", text(&place.path("out")))])
        .output();
    assert!(inspected.expect("skopeo is installed").status.success());
    let message = pull("small", "linux/amd64", 1000).unwrap_err();
    assert!(message.contains("allowed are 1000"), "{message}");
    assert!(
        pull("odd", "linux", 1000)
            .unwrap_err()
            .contains("is no platform")
    );
    // A blob that was changed is no part of a layout.
    let layer =
        Manifest::parse(&manifest).expect("ours").layers[0].digest["sha256:".len()..].to_owned();
    let stored = place.path(&format!(
        "blobs/docker/registry/v2/blobs/sha256/{}/{layer}/data",
        &layer[..2]
    ));
    let mut bytes = fs::read(&stored).expect("the registry has it");
    bytes[600] ^= 1;
    fs::write(&stored, bytes).expect("room");
    let message = pull("wrong", "linux/amd64", u64::MAX).unwrap_err();
    assert!(message.contains("sends bytes with the digest"), "{message}");
    assert!(!place.path("wrong/index.json").exists());
}
