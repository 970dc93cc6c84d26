//! An archive of Debian packages, which nobody has signed.

use super::Site;
use super::archives::{archived, gzipped, long_text, sha256, tarred};

/// The path of the package.
pub const POOLED: &str = "/debian/pool/main/f/frozen/frozen-app_1.0_all.deb";

const CONTROL: &str = "Package: frozen-app\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@test.example>\n\
                       Description: nothing\n";

/// The package.
pub fn package() -> Vec<u8> {
    let data = (
        "./usr/share/frozen-app/text".to_owned(),
        long_text("frozen-app"),
    );
    archived(&[
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            tarred(&[("./control".to_owned(), CONTROL.to_owned())]),
        ),
        ("data.tar.gz", tarred(&[data])),
    ])
}

/// The archive at `/debian`, with frozen-app.
pub fn site() -> Site {
    let mut site = Site::default();
    let package = package();
    let list = format!(
        "{CONTROL}Filename: {}\nSize: {}\nSHA256: {}\n\n",
        POOLED.trim_start_matches("/debian/"),
        package.len(),
        sha256(&package)
    );
    let coded = gzipped(list.as_bytes());
    let mut sums = String::new();
    for (name, bytes) in [("Packages", list.as_bytes()), ("Packages.gz", &coded)] {
        let sum = sha256(bytes);
        sums.push_str(&format!(
            " {sum} {} main/binary-amd64/{name}\n",
            bytes.len()
        ));
        let directory = "/debian/dists/frozen/main/binary-amd64";
        site.file(&format!("{directory}/by-hash/SHA256/{sum}"), bytes.to_vec());
        site.page(&format!("{directory}/{name}"), "text/plain", bytes.to_vec());
    }
    let release = format!(
        "Origin: test\nSuite: frozen\nCodename: frozen\nDate: Wed, 01 Jan 2020 00:00:00 UTC\nArchitectures: amd64 all\n\
         Components: main\nAcquire-By-Hash: yes\nNo-Support-for-Architecture-all: Packages\nSHA256:\n{sums}"
    );
    site.page("/debian/dists/frozen/Release", "text/plain", release);
    site.file(POOLED, package);
    site
}
