//! Images in object stores: a store that checks signatures by Amazon's own library, and servers that do what no store does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::read_by_each_verb;
use crate::support::{Manner, Place, Server, contents, text};

/// Where Debian has botocore.
const PYTHON: &str = "/usr/bin/python3";

const SCRIPT: &str = "tests/s3/store.py";

/// The secret of the store's keys. Their token begins with it.
const SECRET: &str = "sesame";

/// A store. It ends with the test.
struct Store {
    process: Child,
    endpoint: String,
}

impl Store {
    /// Has the image of the place as `x/app.img` in the buckets `images` and `public`.
    fn start(place: &Place, region: &str) -> Self {
        place.publish();
        for bucket in ["images", "public"] {
            let directory = place.path("store").join(bucket).join("x");
            fs::create_dir_all(&directory).expect("room");
            for name in ["app.img", "app.img.remote"] {
                fs::copy(place.path("www").join(name), directory.join(name)).expect("published");
            }
        }
        let mut process = Command::new(PYTHON)
            .args([SCRIPT, &text(&place.path("store")), region])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut port = String::new();
        let out = process.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut port).expect("it prints");
        let port = port.trim();
        assert!(!port.is_empty(), "python3-botocore is installed");
        Self {
            process,
            endpoint: format!("http://127.0.0.1:{port}"),
        }
    }

    fn end(&mut self) {
        self.process.kill().expect("ours");
        self.process.wait().expect("ours");
    }

    /// What somebody has in the environment who has a key.
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_S3", self.endpoint.clone()),
            ("AWS_ACCESS_KEY_ID", "AK".into()),
            ("AWS_SECRET_ACCESS_KEY", "sesame".into()),
        ]
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A user without anything, of the store that `place` has.
fn user(variables: &[(&'static str, String)]) -> Place {
    let mut place = Place::new();
    place.variables = variables.to_vec();
    place
}

/// What the store was asked: how it was signed, the status and the path.
fn asked(place: &Place) -> Vec<String> {
    let asked = fs::read_to_string(place.path("store/asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

/// What a program prints that starts from the image.
fn started(user: &Place, url: &str) -> Vec<u8> {
    let script = "cat $BRISK_TREE/etc/text";
    user.done(&["run", url, "--linger", "0", "--", "/bin/sh", "-c", script])
}

/// Nothing that the user's programs have left has the secret or the token.
fn keeps_no_secret(place: &Place) {
    let found = Command::new("grep")
        .args(["-r", "-l", SECRET])
        .args([place.path("cache"), place.path("run")])
        .output()
        .expect("grep is installed");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn an_image_starts_from_an_object_store_and_later_without_it() {
    let place = Place::new();
    let mut store = Store::start(&place, "us-east-1");
    let user = user(&store.variables());
    let url = "s3://images/x/app.img";
    assert_eq!(started(&user, url), contents("etc/text"));
    read_by_each_verb(&user, url);
    user.done(&["diff", url, &text(&place.path("tree")), "-q"]);
    user.done(&["remote", "fetch", url, "-q"]);
    let asked = asked(&place);
    assert!(
        asked.contains(&"signed 200 /images/x/app.img.remote".to_owned()),
        "{asked:?}"
    );
    assert!(
        asked.iter().all(|asked| asked.starts_with("signed ")),
        "{asked:?}"
    );
    store.end();
    assert!(user.done(&["cat", url, "data/7"]) == contents("data/7"));
    // The name says where it is.
    let name = format!("{url}?endpoint={}", store.endpoint);
    for url in [url, &name] {
        let status = user.done(&["remote", "status", url, "--json"]);
        let status = String::from_utf8(status).expect("JSON");
        assert!(status.contains(&name), "{status}");
    }
    keeps_no_secret(&user);
}

/// A key of the environment counts before that of a profile, and none of a profile where the store is another one.
#[test]
fn keys_are_found_where_other_programs_have_them() {
    let place = Place::new();
    let store = Store::start(&place, "eu-west-9");
    let aws = |config: &str, credentials: &str, profile: Option<&str>| {
        let user = user(
            &profile
                .map(|name| ("AWS_PROFILE", name.to_owned()))
                .into_iter()
                .collect::<Vec<_>>(),
        );
        let home = user.path("home/.aws");
        fs::create_dir(&home).expect("room");
        let config = config.replace("ENDPOINT", &store.endpoint);
        fs::write(home.join("config"), config).expect("room");
        fs::write(home.join("credentials"), credentials).expect("room");
        user
    };
    let printed = r#"{"Version":1,"AccessKeyId":"ASIA","SecretAccessKey":"sesame","SessionToken":"sesame-token"}"#;
    let url = "s3://images/x/app.img";
    for user in [
        aws(
            "[default]\nregion = eu-west-9\nendpoint_url = ENDPOINT\n",
            "[default]\naws_access_key_id = AK\naws_secret_access_key = sesame\n",
            None,
        ),
        // The region is what the store says.
        aws(
            "[profile Other]\nendpoint_url = ENDPOINT\ns3 =\n  addressing_style = path\n",
            "[Other]\naws_access_key_id=ASIA\naws_secret_access_key=sesame\naws_session_token=sesame-token\n",
            Some("Other"),
        ),
        aws(
            &format!(
                "[default]\nregion = us-west-1\nendpoint_url = ENDPOINT\ncredential_process = echo '{printed}'\n"
            ),
            "",
            None,
        ),
    ] {
        assert!(user.done(&["cat", url, "data/1"]) == contents("data/1"));
        keeps_no_secret(&user);
    }
    for (user, said) in [
        (aws("", "", Some("gone")), "AWS_PROFILE names \"gone\""),
        (
            aws(
                "[default]\nendpoint_url = ENDPOINT\nsso_session = x\n",
                "",
                None,
            ),
            "aws configure export-credentials --profile default --format env",
        ),
        (
            aws(
                "[default]\nendpoint_url = ENDPOINT\ncredential_process = echo sesame\n",
                "",
                None,
            ),
            "credential_process of the profile \"default\" prints no key",
        ),
        (
            aws(
                "[default]\nendpoint_url = ENDPOINT\n",
                "[default]\nsesame\n",
                None,
            ),
            "AccessDenied: Access Denied; it was asked without a key",
        ),
        (
            aws("[default]\nendpoint_url = s3.example.org\n", "", None),
            "endpoint_url: the endpoint is no URL",
        ),
    ] {
        let message = user.fails(&["cat", url, "data/1"]);
        assert!(message.contains(said), "{said}: {message}");
        assert!(!message.contains("sesame"), "{message}");
    }
    // What is for everybody needs none.
    let user = aws("[default]\nendpoint_url = ENDPOINT\n", "", None);
    let read = user.done(&["cat", "s3://public/x/app.img", "data/2"]);
    assert!(read == contents("data/2"));
}

#[test]
fn what_a_store_refuses_is_said_with_a_cure() {
    let place = Place::new();
    let store = Store::start(&place, "us-east-1");
    let with = |id: &str, secret: &str| {
        let mut variables = store.variables();
        variables.truncate(1);
        variables.extend([
            ("AWS_ACCESS_KEY_ID", id.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ]);
        user(&variables)
    };
    let url = "s3://images/x/app.img";
    for (user, url, said) in [
        (
            with("AK", "open"),
            url,
            "403 Forbidden: SignatureDoesNotMatch: The signature is wrong; look at the key",
        ),
        (
            with("AX", "sesame"),
            url,
            "403 Forbidden: InvalidAccessKeyId: The key does not exist in our records; look at the key",
        ),
        (
            with("ASIA", "sesame"),
            url,
            "400 Bad Request: InvalidToken: The token is malformed; get a new token",
        ),
        (with("A\nK", "sesame"), url, "has characters that none has"),
        (
            with("AK", "sesame"),
            "s3://images/x/other.img",
            "404 Not Found: NoSuchKey: The specified key does not exist; look at the URL",
        ),
        (
            with("AK", "sesame"),
            "s3://other/x/app.img",
            "404 Not Found: NoSuchBucket: The specified bucket does not exist; look at the URL",
        ),
    ] {
        let message = user.fails(&["cat", url, "data/1"]);
        assert!(message.contains(said), "{said}: {message}");
        assert!(!message.contains("asks again and again"), "{message}");
        keeps_no_secret(&user);
    }
    let user = with("AK", "sesame");
    fs::write(place.path("store/skewed"), "").expect("room");
    let message = user.fails(&["cat", url, "data/1"]);
    assert!(
        message.contains("RequestTimeTooSkewed: The difference is too large; set the clock"),
        "{message}"
    );
    fs::remove_file(place.path("store/skewed")).expect("ours");
    // What passes is waited for.
    fs::write(place.path("store/slow"), "3").expect("room");
    assert!(user.done(&["cat", url, "data/1"]) == contents("data/1"));
}

/// The fetcher outlives a token, and asks the next program for another.
#[test]
fn a_token_that_has_expired_is_asked_for_anew() {
    let place = Place::new();
    let store = Store::start(&place, "us-east-1");
    let mut variables = store.variables();
    variables[1].1 = "ASIA".into();
    variables.push(("AWS_SESSION_TOKEN", "sesame-token".into()));
    let mut user = user(&variables);
    let url = "s3://images/x/app.img";
    let cat = |user: &Place, name: &str| {
        let read = user.done(&["cat", url, name, "--background", "never"]);
        assert!(read == contents(name), "{name}");
    };
    cat(&user, "data/1");
    fs::write(place.path("store/expired"), "").expect("room");
    for _ in 0..2 {
        let message = user.fails(&["cat", url, "data/2", "--background", "never", "--refresh"]);
        assert!(
            message.contains("ExpiredToken: The provided token has expired; get a new token"),
            "{message}"
        );
    }
    user.variables = store.variables();
    cat(&user, "data/2");
}

#[test]
fn a_url_that_another_program_has_signed_is_an_image() {
    let place = Place::new();
    let store = Store::start(&place, "us-east-1");
    let user = user(&[]);
    let presigned = |name: &str| {
        let url = format!("{}/images/{name}", store.endpoint);
        let made = Command::new(PYTHON)
            .args([SCRIPT, "--presign", &url, "us-east-1"])
            .output();
        let made = String::from_utf8(made.expect("python3 is installed").stdout).expect("a URL");
        made.trim().to_owned()
    };
    let url = presigned("x/app.img");
    assert!(url.contains("X-Amz-Signature="), "{url}");
    assert_eq!(started(&user, &url), contents("etc/text"));
    let asked = asked(&place);
    assert!(
        asked
            .iter()
            .all(|asked| asked.starts_with("presigned 206 ")),
        "{asked:?}"
    );
    let wrong = format!("{}0", presigned("x/other.img"));
    let message = user.fails(&["cat", &wrong, "data/1"]);
    assert!(message.contains("SignatureDoesNotMatch"), "{message}");
    assert!(!message.contains("X-Amz"), "{message}");
}

/// Whoever makes a URL chooses the endpoint in it.
#[test]
fn a_key_is_for_the_store_of_the_settings_alone() {
    let place = Place::new();
    let store = Store::start(&place, "us-east-1");
    let mut variables = store.variables();
    variables.remove(0);
    let user = user(&variables);
    let url = |bucket: &str| format!("s3://{bucket}/x/app.img?endpoint={}", store.endpoint);
    assert!(user.done(&["cat", &url("public"), "data/1"]) == contents("data/1"));
    let message = user.fails(&["cat", &url("images"), "data/1"]);
    assert!(message.contains("AWS_ENDPOINT_URL_S3"), "{message}");
    assert!(
        asked(&place)
            .iter()
            .all(|asked| asked.starts_with("unsigned "))
    );
}

#[test]
fn no_signature_goes_where_a_store_leads() {
    let place = Place::new();
    place.publish();
    fs::rename(place.path("www"), place.path("images")).expect("ours");
    let server = Server::start(&place.path("images"));
    let other = Server::start(place.directory.path());
    server.move_to(&format!("http://{}/", other.address));
    let user = user(&[
        (
            "AWS_ENDPOINT_URL",
            format!("http://{}/moved", server.address),
        ),
        ("AWS_ACCESS_KEY_ID", "ASIA".into()),
        ("AWS_SECRET_ACCESS_KEY", "sesame".into()),
        ("AWS_SESSION_TOKEN", "sesame-token".into()),
    ]);
    let url = "s3://images/app.img";
    assert!(user.done(&["cat", url, "data/5"]) == contents("data/5"));
    assert!(server.asked().iter().all(|asked| asked.has_credentials));
    assert!(!other.asked().is_empty());
    assert!(other.asked().iter().all(|asked| !asked.has_credentials));
    // What passes, and what does not, is what it is on any server.
    other.behave_for(Manner::Status(503, Some("0")), 2);
    assert!(user.done(&["cat", url, "data/20"]) == contents("data/20"));
}
