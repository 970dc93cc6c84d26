//! `brisk cat`: which bytes it writes.

mod sandbox;

use std::os::unix::fs::symlink;

use sandbox::{Sandbox, noise};

#[test]
fn cat_writes_files_or_parts_of_them() {
    let sandbox = Sandbox::with_image();
    let big = noise(300_000);
    let cat = |args: &[&str]| {
        let args = [&["cat", "app.img"], args].concat();
        let output = sandbox.command(&args).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
        output.stdout
    };
    assert!(cat(&["lib/big.bin"]) == big);
    assert!(cat(&["lib/big.bin", "--threads", "4"]) == big);
    assert!(cat(&["lib/big.bin", "--range", "100000..200K"]) == big[100_000..204_800]);
    assert!(cat(&["lib/big.bin", "--range", "299990.."]) == big[299_990..]);
    assert_eq!(
        cat(&["etc/app.conf", "/bin/tool", "--range", "..3"]),
        b"coltoo"
    );
    assert_eq!(cat(&["bin/tool", "--range", "4.."]), b"");
}

#[test]
fn cat_says_what_it_cannot_write() {
    let sandbox = Sandbox::with_image();
    let table = [
        (
            "none",
            "brisk: app.img: there is no none; brisk ls -R lists what is there\n",
        ),
        ("bin", "brisk: app.img: bin is a directory; name a file\n"),
    ];
    for (path, message) in table {
        // Nothing of the first is written.
        assert_eq!(
            sandbox.failure(&["cat", "app.img", "bin/tool", path]),
            message
        );
    }
}

#[test]
fn cat_follows_links_inside_the_image() {
    let sandbox = Sandbox::with_app();
    for (link, target) in [
        ("usr", "/"),
        ("sbin", "../../bin"),
        ("gone", "/etc/passwd"),
        ("loop", "loop"),
        ("conf", "etc"),
    ] {
        symlink(target, sandbox.path("app").join(link)).unwrap();
    }
    sandbox.pack(&[]);
    assert_eq!(
        sandbox.stdout(&["cat", "app.img", "sbin/tool", "usr/usr/conf/app.conf"]),
        "toolcolour = no\n"
    );
    assert_eq!(
        sandbox.stdout(&["cat", "app.img", "bin/start"]),
        "#!/bin/sh\nexec true\n"
    );
    let table = [
        (
            "gone",
            "brisk: app.img: gone is a symbolic link to /etc/passwd, which the image does not have; name a file that it has\n",
        ),
        (
            "gone/more",
            "brisk: app.img: there is no gone/more; brisk ls -R lists what is there\n",
        ),
        (
            "loop",
            "brisk: app.img: \"loop\" leads through more than 40 symbolic links, which is the most that are followed; look for links that lead to each other\n",
        ),
        ("conf", "brisk: app.img: conf is a directory; name a file\n"),
    ];
    for (path, message) in table {
        assert_eq!(sandbox.failure(&["cat", "app.img", path]), message);
    }
}
