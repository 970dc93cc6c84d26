//! What brisk says to somebody who has only just met it: what a file is, where an output cannot be, which program was
//! meant.

mod sandbox;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sandbox::{Outcome, Sandbox, outcome};

/// A sandbox with `app` and `app.img`, where `app` has programs that do not start, too.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::empty();
    for (name, text) in [
        ("bin/hello", "#!/bin/sh\necho hello\n"),
        ("usr/bin/other", "#!/bin/sh\necho other\n"),
        ("bin/script", "#!/none/python -u\n"),
    ] {
        sandbox.program(&format!("app/{name}"), text.as_bytes());
    }
    fs::create_dir(sandbox.path("run")).unwrap();
    fs::set_permissions(sandbox.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
    sandbox.pack(&[]);
    sandbox
}

/// Runs the command, with sessions and learned packs of this sandbox.
fn run(sandbox: &Sandbox, line: &str) -> Outcome {
    let words: Vec<_> = line.split(' ').collect();
    let mut command = sandbox.command(&words);
    command.env("XDG_RUNTIME_DIR", sandbox.path("run"));
    command.env("XDG_CACHE_HOME", sandbox.path("cache"));
    outcome(command.output().unwrap())
}

#[track_caller]
fn assert_says(sandbox: &Sandbox, line: &str, code: i32, stderr: &str) {
    let said = run(sandbox, line);
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (code, stderr),
        "{line}: {said:?}"
    );
}

#[test]
fn a_directory_in_place_of_an_image_is_packed_first() {
    let sandbox = sandbox();
    let said = "brisk: app is a directory: `brisk pack app -o app.img` makes an image of it\n";
    for line in [
        "ls app",
        "info app",
        "verify app",
        "cat app f",
        "mount app run",
        "extract app out",
        "repack app -o x.img",
        "verity app",
        "diff app app.img",
    ] {
        assert_says(&sandbox, line, 2, said);
    }
    assert_says(
        &sandbox,
        "trace app/ -- true",
        125,
        "brisk: app/ is a directory: brisk trace --tree app/ -- CMD traces a command that reads from it\n",
    );
    assert_says(&sandbox, "run app.img --with app -- true", 125, said);
}

/// The likeliest mistake of somebody who wants to start an installed program.
#[test]
fn a_program_is_named_behind_two_hyphens() {
    let sandbox = sandbox();
    let tip = "\n  tip: to start a program where it is, put --auto -- before it: brisk run --auto -- ls -l\n";
    for line in ["run --auto ls -l", "run ls -l", "run -- ls -l"] {
        let said = run(&sandbox, line);
        assert_eq!(
            (said.code, said.stderr.contains(tip)),
            (125, true),
            "{line}: {said:?}"
        );
    }
    let said = run(&sandbox, "run ls");
    let advice =
        "; to start a program from where it is, name it behind --: brisk run --auto -- ls\n";
    assert_eq!(
        (said.code, said.stderr.ends_with(advice)),
        (125, true),
        "{said:?}"
    );
}

#[test]
fn no_output_replaces_what_it_is_made_of() {
    let sandbox = sandbox();
    let image = "brisk: app.img: the output would replace the image; name another file\n";
    assert_says(&sandbox, "trace app.img -o app.img -- true", 125, image);
    assert_says(&sandbox, "hot app.img -o app.img --profile none", 2, image);
    sandbox.file("app.profile", b"");
    let profile = "brisk: app.profile: the output would replace the profile; name another file\n";
    for line in [
        "hot app.img -o app.profile --profile app.profile",
        "pack app -o app.profile --profile app.profile",
        "repack app.img -o app.profile --profile app.profile",
    ] {
        assert_says(&sandbox, line, 2, profile);
    }
}

#[test]
fn a_trace_of_nothing_keeps_the_profile_from_before() {
    let sandbox = sandbox();
    sandbox.file("app.profile", b"from before");
    let said = run(&sandbox, "trace --tree app -q -- true");
    let warning = "brisk: warning: the command has read nothing of what was named, so a profile is of no use; name a program in \
                   it behind --, by a path with a slash\napp.profile: stays as it was\n";
    assert_eq!((said.code, said.stderr.as_str()), (0, warning));
    assert_eq!(
        fs::read(sandbox.path("app.profile")).unwrap(),
        b"from before"
    );
}

/// The directory would be an argument of the program, and what that writes would be lost.
#[test]
fn a_layer_is_named_with_an_equals_sign() {
    let said = "brisk: --writable layer: to keep in a directory what the program writes, say --writable=layer; to give the program \
                this argument, put --args before it\n";
    assert_says(&sandbox(), "run app.img --writable layer", 125, said);
}

#[test]
fn what_is_no_image_is_said_by_its_kind() {
    let sandbox = sandbox();
    sandbox.file("text", b"text\n");
    sandbox.file("empty", b"");
    sandbox.file("script", b"#!/bin/sh\n");
    sandbox.file("app.profile", b"{\"brisk_profile\": 1}");
    let text = "text is no image: it starts with \"text\", and a SquashFS image with \"hsqs\"";
    for (line, code, said) in [
        ("ls text", 2, text),
        ("run text -- true", 125, text),
        ("mount text run", 2, text),
        ("warm text", 2, text),
        ("ls empty", 2, "empty is no image: it is empty"),
        (
            "ls app.profile",
            2,
            "app.profile is no image: it is a profile",
        ),
        (
            "ls /dev/null",
            2,
            "/dev/null is no image: it is neither a regular file nor a block device",
        ),
        (
            "ls /proc/self/exe",
            2,
            "/proc/self/exe is no image: it is a program, with no image behind it that brisk finds; if there is one, name \
             its first byte with --offset",
        ),
        (
            "ls script",
            2,
            "script is no image: it is a script, with no image behind it that brisk finds; if there is one, name its first \
             byte with --offset",
        ),
        (
            "ls text --offset 2",
            2,
            "text has no image at byte 2: what is there starts with \"xt\\n\", and a SquashFS image starts with \"hsqs\"; \
             without --offset brisk finds the image",
        ),
        (
            "ls text --offset 9",
            2,
            "text has no image at byte 9: it ends before that byte",
        ),
    ] {
        assert_says(&sandbox, line, code, &format!("brisk: {said}\n"));
    }
}

#[test]
fn what_is_no_profile_or_hot_pack_is_said_by_its_kind() {
    let sandbox = sandbox();
    sandbox.file("text", b"text\n");
    sandbox.file("app.profile", b"{\"brisk_profile\": 1}");
    let directory = "app is a directory, and no profile: `brisk trace --tree app -o app.profile -- CMD` records one";
    let empty = "app is a directory, and no file in it ends in .profile: `brisk trace --tree app -o app.profile -- CMD` \
                 records one";
    let image = "app.img is no profile: it is an image; `brisk trace app.img -- CMD` records a profile of a launch \
                 from it";
    let text =
        "text is no profile: it starts with \"text\", and a profile with {\"brisk_profile\": 1";
    for (line, code, said) in [
        ("replay app", 2, empty),
        ("profile show app", 2, directory),
        ("profile show app.img", 2, image),
        ("pack app -o x.img --profile app.img", 2, image),
        ("hot app.img --profile app.img", 2, image),
        ("profile merge text -o x", 2, text),
        ("replay text -- true", 125, text),
        ("run app --profile text -- bin/hello", 125, text),
        (
            "run app.img --hot app.img -- bin/hello",
            125,
            "app.img is no hot pack: it is an image",
        ),
        (
            "run app.img --hot app.profile -- bin/hello",
            125,
            "app.profile is no hot pack: it is a profile; `brisk hot IMAGE --profile app.profile` makes a hot pack of it",
        ),
        (
            "run app.img --hot none -- bin/hello",
            125,
            "cannot open the hot pack none: No such file or directory (os error 2)",
        ),
    ] {
        assert_says(&sandbox, line, code, &format!("brisk: {said}\n"));
    }
}

#[test]
fn nothing_is_said_in_one_line() {
    let sandbox = sandbox();
    for (line, said) in [
        (
            "stat",
            "there is no session; brisk run IMAGE -- CMD starts one\n",
        ),
        (
            "stat app.img",
            "there is no session of app.img; brisk stat without a name lists all\n",
        ),
        (
            "auto list",
            "nothing is learned yet; brisk run --auto -- PROGRAM learns from a start\n",
        ),
        (
            "auto forget --all",
            "nothing is learned yet, so there is nothing to forget\n",
        ),
        ("auto forget gcc", "nothing is learned of gcc\n"),
        ("umount --all", "there is no session to end\n"),
    ] {
        assert_says(&sandbox, line, 1, said);
    }
    let stat = run(&sandbox, "stat --json");
    assert_eq!(
        (stat.code, stat.stdout.as_str(), stat.stderr.as_str()),
        (1, "[]\n", "")
    );
}

#[test]
fn an_output_that_cannot_be_is_said_before_the_work() {
    let sandbox = sandbox();
    sandbox.file("p", b"{\"brisk_profile\": 1}");
    for (line, code) in [
        ("pack app -o none/x", 2),
        ("hot app.img --profile p -o none/x", 2),
        ("trace app.img -o none/x -- true", 125),
        ("repack app.img -o none/x", 2),
        ("verity app.img -o none/x", 2),
    ] {
        let said = "brisk: cannot write none/x: there is no directory none; make it first, or name another file with -o\n";
        assert_says(&sandbox, line, code, said);
    }
    assert_says(
        &sandbox,
        "pack app -o app.img/x",
        2,
        "brisk: cannot write app.img/x: app.img is no directory; name another file with -o\n",
    );
    assert_says(
        &sandbox,
        "pack app -o run",
        2,
        "brisk: cannot write run: it is a directory; name a file with -o\n",
    );
}

#[test]
fn a_missing_interpreter_is_named() {
    let sandbox = sandbox();
    // A program of 64 bits whose dynamic loader does not exist.
    let mut program = vec![0; 64 + 56];
    program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (program[16], program[18], program[20], program[32]) = (3, 62, 1, 64);
    (program[52], program[54], program[56]) = (64, 56, 1);
    (program[64], program[72], program[96]) = (3, 120, 9);
    program.extend(b"/none/ld\0");
    sandbox.program("app/bin/elf", &program);
    sandbox.pack(&[]);
    run(&sandbox, "trace --tree app -q -o app.profile -- bin/hello");
    let script = "its first line names the interpreter /none/python, which does not exist here; add it, or correct the \
                  line";
    let elf = "it names the dynamic loader /none/ld, which does not exist here; add it, or use a program for this system";
    for (program, said) in [("bin/script", script), ("bin/elf", elf)] {
        let said = format!("brisk: cannot run {program}: {said}\n");
        for verb in [
            "run app.img --linger 0",
            "run app --profile app.profile",
            "trace app.img -q -o p",
            "trace --tree app -q -o p",
        ] {
            let outcome = run(&sandbox, &format!("{verb} -- {program}"));
            let last = outcome.stderr.lines().last().unwrap_or_default();
            assert_eq!(
                (outcome.code, format!("{last}\n")),
                (126, said.clone()),
                "{verb}"
            );
        }
    }
}

#[test]
fn a_path_that_was_meant_is_proposed() {
    let sandbox = sandbox();
    let neither =
        "no such file, neither in the directory that was named nor from the working directory";
    for (line, said) in [
        (
            "run app.img --linger 0 -- /bin/hello",
            "cannot run /bin/hello: no such file; the image has bin/hello: name that".to_owned(),
        ),
        (
            "run app.img --linger 0 -- app/bin/hello",
            "cannot run app/bin/hello: no such file; the image has bin/hello: name that".to_owned(),
        ),
        (
            "trace app.img -o p -- bin/other",
            "cannot run bin/other: no such file; the image has usr/bin/other: name that".to_owned(),
        ),
        (
            "trace --tree app -o p -- bin/other",
            format!("cannot run bin/other: {neither}; app has usr/bin/other: name that"),
        ),
        (
            "run app.img --linger 0 -- bin/none",
            "cannot run bin/none: no such file".to_owned(),
        ),
    ] {
        assert_says(&sandbox, line, 127, &format!("brisk: {said}\n"));
    }
    for (line, said) in [
        (
            "cat app.img bin/other",
            "there is no bin/other; it has usr/bin/other: name that, or see what else there is with brisk ls -R",
        ),
        (
            "cat app.img none",
            "there is no none; brisk ls -R lists what is there",
        ),
        (
            "extract app.img out app/bin/hello",
            "nothing matches app/bin/hello; it has bin/hello: name that, or see what else there is with brisk ls -R",
        ),
    ] {
        assert_says(&sandbox, line, 2, &format!("brisk: app.img: {said}\n"));
    }
}

/// In a directory, a path from the working directory counts, too. From an image, only the image's own programs start.
#[test]
fn a_command_is_found_by_one_rule() {
    let sandbox = sandbox();
    // The profile of the directory that one is in gets its name, beside it.
    let mut trace = sandbox.command(&["trace", "--tree", ".", "-q", "--", "bin/hello"]);
    trace.current_dir(sandbox.path("app")).output().unwrap();
    assert!(sandbox.path("app.profile").exists() && !sandbox.path("app/..profile").exists());
    sandbox.file("app.profile", b"{}");
    let hello = |line: &str| {
        let said = run(&sandbox, line);
        assert_eq!(
            (said.code, said.stdout.as_str()),
            (0, "hello\n"),
            "{line}: {said:?}"
        );
    };
    for program in ["bin/hello", "./bin/hello"] {
        hello(&format!("run app.img --linger 0 -- {program}"));
        hello(&format!("trace app.img -q -o p -- {program}"));
    }
    for program in ["bin/hello", "app/bin/hello", "./app/bin/hello"] {
        hello(&format!("run app --profile app.profile -- {program}"));
        hello(&format!("trace --tree app -q -o p -- {program}"));
        // Where brisk has looked is not recorded.
        let recorded = sandbox.stdout(&["profile", "show", "p"]);
        assert!(
            recorded.contains("  look-ups   2 found, 0 absent\n"),
            "{recorded}"
        );
    }
}

#[test]
fn one_is_no_plural() {
    let sandbox = Sandbox::empty();
    sandbox.program("app/bin/hello", b"#!/bin/sh\n");
    sandbox.pack(&[]);
    assert_says(
        &sandbox,
        "trace app.img -q -o p -- bin/hello",
        0,
        "p: 1 file, 1 page (10 B, 100.0 % of the whole), look-ups: 2 found, 0 absent\n",
    );
    assert_says(
        &sandbox,
        "profile merge p p -o both",
        0,
        "both: 1 page (4.00 KiB) of 2 runs; every run needs 1 of them\n",
    );
    assert_eq!(
        sandbox.stdout(&["profile", "check", "p", "app.img"]),
        "app.img: 1 of 1 page (100.0 %) in unchanged files, 0 in changed and 0 in missing ones; 0 outside of it\n\
         app.img: 0 of 2 look-ups now have another answer\n"
    );
    let extract = run(&sandbox, "extract app.img out");
    assert!(
        extract
            .stderr
            .starts_with("out: 1 file, 2 directories, 0 links, 10 B; "),
        "{extract:?}"
    );
    assert!(
        sandbox
            .stdout(&["info", "app.img"])
            .contains("\n1 file of 10 bytes is stored as\n")
    );
}

#[test]
fn a_program_starts_in_a_directory_of_the_image() {
    let sandbox = sandbox();
    fs::create_dir_all(sandbox.path("app/share/deep")).unwrap();
    sandbox.pack(&[]);
    run(&sandbox, "trace --tree app -q -o app.profile -- bin/hello");
    for how in ["run app.img --linger 0", "run app --profile app.profile"] {
        let said = run(&sandbox, &format!("{how} --chdir share/deep -- pwd"));
        assert!(
            said.code == 0 && said.stdout.ends_with("/share/deep\n"),
            "{how}: {said:?}"
        );
        // A program of the image is found as ever.
        let said = run(&sandbox, &format!("{how} --chdir share -- bin/hello"));
        assert_eq!((said.code, said.stdout.as_str()), (0, "hello\n"), "{how}");
    }
    assert_says(
        &sandbox,
        "run app --profile app.profile --chdir none -- pwd",
        125,
        &format!(
            "brisk: cannot run pwd: it should start in {}, which cannot be entered: No such file or directory \
             (os error 2); name another directory with --chdir\n",
            sandbox.path("app/none").display()
        ),
    );
}

#[test]
fn what_a_newcomer_types_is_answered_with_what_to_type() {
    let sandbox = sandbox();
    sandbox.file("app.tar", b"an archive");
    for (line, said) in [
        (
            "pack app.tar -o new.img",
            "brisk: app.tar is no directory; if it is a tar archive: brisk pack - -o new.img < app.tar",
        ),
        (
            "pack app.img -o new.img",
            "brisk: app.img is an image already; brisk repack app.img -o new.img packs its tree again",
        ),
        (
            "pack app -o -",
            "brisk: cannot write to standard output, because what brisk writes appears whole, as a file; name one with -o \
             (./- is a file that is called -)",
        ),
        (
            "pack app -o new.img --threads 0",
            "error: invalid value '0' for '--threads <N>': allowed is a number from 1",
        ),
        (
            "pack app -o new.img --time yesterday",
            "error: invalid value 'yesterday' for '--time <SECONDS>': allowed is a number, in digits",
        ),
        (
            "auto forget",
            "brisk: name what to forget, or say --all for everything; brisk auto list shows what is learned",
        ),
    ] {
        assert_says(&sandbox, line, 2, &format!("{said}\n"));
    }
    assert_says(
        &sandbox,
        "run app.img --at / -- /bin/hello",
        125,
        "brisk: --at / would hide all of the system; to make the image the program's root directory, use --root\n",
    );
}
