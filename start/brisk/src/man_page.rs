//! The man page of a verb: what clap knows of it, and what a manual has besides.
//!
//! The help of a verb ends with paragraphs. One that begins with "Exits" becomes EXIT STATUS, the examples become
//! EXAMPLES, and the others NOTES. The files, variables and related pages of each verb are in a table here.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What the help of a verb does not say.
struct More {
    /// The name of the page.
    page: &'static str,
    /// For a verb whose help has no examples.
    examples: &'static [&'static str],
    files: &'static [Named],
    environment: &'static [Named],
    see: &'static [&'static str],
}

/// A file or a variable, and what it is.
type Named = (&'static str, &'static str);

const SESSIONS: Named = (
    "$XDG_RUNTIME_DIR/brisk, /run/brisk or /tmp/brisk-UID",
    "The sessions of the user: a socket for each, and the logs of those that failed.",
);
const LEARNED: Named = (
    "$XDG_CACHE_HOME/brisk/hot or ~/.cache/brisk/hot",
    "The hot packs and profiles that brisk run --auto has learned.",
);
const REMOTE: Named = (
    "$XDG_CACHE_HOME/brisk/remote or ~/.cache/brisk/remote",
    "The images from the network, as far as they have arrived.",
);
const DEVICES: Named = (
    "$XDG_CACHE_HOME/brisk/devices or ~/.cache/brisk/devices",
    "How fast each disk reads, as brisk has measured it.",
);
const PROFILES: Named = (
    "/var/lib/brisk/profiles",
    "The profiles that brisk-warm.service replays at boot. brisk-record.service records boot.profile there.",
);
const HOT: Named = ("IMAGE.hot", "The hot pack beside an image.");
const VERITY: Named = (
    "IMAGE.verity, IMAGE.roothash",
    "The hash tree of an image, and its root hash.",
);
const SIGNED: Named = (
    "IMAGE.manifest, IMAGE.manifest.minisig",
    "What is signed of an image, and the signature.",
);
const PUBLISHED: Named = (
    "NAME.remote, NAME.remote.minisig",
    "What a publisher says of the image NAME, and the signature.",
);
const KEYS: Named = (
    "/etc/brisk/trusted.d/*.pub, $XDG_CONFIG_HOME/brisk/trusted.d/*.pub or ~/.config/brisk/trusted.d/*.pub",
    "The keys that are trusted if --trust names none.",
);
const LINKS: Named = (
    "$XDG_DATA_HOME/brisk/bin or ~/.local/share/brisk/bin",
    "The links of brisk auto on.",
);
const TREE: Named = (
    "BRISK_TREE",
    "brisk sets it for the program: the directory that the image is mounted on, or the directory that was named.",
);
const PATH: Named = (
    "PATH",
    "Where a program is looked up whose name has no slash.",
);
const RUNTIME: Named = (
    "XDG_RUNTIME_DIR",
    "Where sessions are found. Set it to the same directory for all runs.",
);
const CACHES: Named = (
    "XDG_CACHE_HOME, HOME",
    "Where brisk keeps what it has learned and measured.",
);
const EPOCH: Named = (
    "SOURCE_DATE_EPOCH",
    "A number of seconds since 1970. No time in the image is later.",
);

const MORE: &[More] = &[
    More {
        page: "brisk",
        examples: &[
            "brisk trace --tree app -o app.profile -- app/bin/app",
            "brisk pack app -o app.img --profile app.profile",
            "brisk run app.img -- bin/app",
            "brisk run --auto -- libreoffice",
        ],
        files: &[SESSIONS, LEARNED, DEVICES, LINKS, KEYS],
        environment: &[TREE, PATH, RUNTIME, CACHES],
        see: &["brisk-run", "brisk-pack", "brisk-trace", "brisk-doctor"],
    },
    More {
        page: "brisk-pack",
        examples: &[],
        files: &[HOT, VERITY],
        environment: &[EPOCH],
        see: &["brisk-repack", "brisk-trace", "brisk-run", "brisk-verify"],
    },
    More {
        page: "brisk-repack",
        examples: &[],
        files: &[HOT, VERITY],
        environment: &[],
        see: &["brisk-pack", "brisk-hot", "brisk-diff"],
    },
    More {
        page: "brisk-ls",
        examples: &["brisk ls -R app.img", "brisk ls -l app.img usr/bin"],
        files: &[],
        environment: &[],
        see: &["brisk-cat", "brisk-extract", "brisk-info"],
    },
    More {
        page: "brisk-cat",
        examples: &[
            "brisk cat app.img etc/app.conf",
            "brisk cat app.img --range ..512 bin/app",
        ],
        files: &[VERITY],
        environment: &[],
        see: &["brisk-ls", "brisk-extract"],
    },
    More {
        page: "brisk-extract",
        examples: &[
            "brisk extract app.img tree",
            "brisk extract app.img tree '/usr/share/*'",
        ],
        files: &[VERITY],
        environment: &[],
        see: &["brisk-ls", "brisk-pack"],
    },
    More {
        page: "brisk-info",
        examples: &["brisk info app.img", "brisk info app.img --json"],
        files: &[],
        environment: &[],
        see: &["brisk-ls", "brisk-verify"],
    },
    More {
        page: "brisk-diff",
        examples: &["brisk diff old.img new.img", "brisk diff app.img app"],
        files: &[],
        environment: &[],
        see: &["brisk-verify", "brisk-info"],
    },
    More {
        page: "brisk-verify",
        examples: &["brisk verify app.img", "brisk verify --rebuild app.img"],
        files: &[HOT, VERITY, SIGNED, KEYS],
        environment: &[("TMPDIR", "Where --rebuild packs the tree again.")],
        see: &["brisk-verity", "brisk-sign", "brisk-diff"],
    },
    More {
        page: "brisk-verity",
        examples: &["brisk verity app.img"],
        files: &[VERITY],
        environment: &[],
        see: &["brisk-sign", "brisk-verify", "brisk-run"],
    },
    More {
        page: "brisk-sign",
        examples: &["brisk sign app.img --key app.key"],
        files: &[SIGNED, VERITY],
        environment: &[],
        see: &["brisk-verity", "brisk-verify", "brisk-run"],
    },
    More {
        page: "brisk-publish",
        examples: &[],
        files: &[PUBLISHED],
        environment: &[(
            "SOURCE_DATE_EPOCH",
            "The serial number if --serial gives none: a number of seconds since 1970.",
        )],
        see: &["brisk-pack", "brisk-verity", "brisk-sign", "brisk-run"],
    },
    More {
        page: "brisk-push",
        examples: &[],
        files: &[(
            "~/.docker/config.json, ~/.config/containers/auth.json, $REGISTRY_AUTH_FILE",
            "The user and the password for a registry, or the program that has them.",
        )],
        environment: &[(
            "SOURCE_DATE_EPOCH",
            "The serial number if --serial gives none: a number of seconds since 1970.",
        )],
        see: &["brisk-publish", "brisk-run", "brisk-hot"],
    },
    More {
        page: "brisk-hot",
        examples: &[
            "brisk hot app.img --profile app.profile",
            "brisk hot app.img --profile one --profile two --prefer size",
        ],
        files: &[HOT],
        environment: &[],
        see: &["brisk-trace", "brisk-profile", "brisk-run"],
    },
    More {
        page: "brisk-profile",
        examples: &[
            "brisk profile show app.profile app",
            "brisk profile check app.profile app.img",
        ],
        files: &[],
        environment: &[],
        see: &["brisk-trace", "brisk-hot", "brisk-replay"],
    },
    More {
        page: "brisk-trace",
        examples: &[],
        files: &[DEVICES, PROFILES],
        environment: &[
            TREE,
            PATH,
            (
                "DISPLAY",
                "The X display whose windows --ready window waits for.",
            ),
        ],
        see: &["brisk-profile", "brisk-pack", "brisk-hot", "brisk-run"],
    },
    More {
        page: "brisk-run",
        examples: &[],
        files: &[HOT, SESSIONS, LEARNED, KEYS],
        environment: &[
            TREE,
            PATH,
            RUNTIME,
            CACHES,
            ("BRISK_THOROUGH", "If it is not empty, as --thorough."),
            (
                "APPDIR, APPIMAGE, ARGV0, OWD",
                "brisk sets them for the program of an AppImage, as AppImage's own runtime does.",
            ),
        ],
        see: &[
            "brisk-stat",
            "brisk-umount",
            "brisk-trace",
            "brisk-auto",
            "brisk-doctor",
        ],
    },
    More {
        page: "brisk-bundle",
        examples: &[],
        files: &[
            SESSIONS,
            (
                "APP.home, APP.config",
                "Directories beside the bundle that are HOME and XDG_CONFIG_HOME of its program, if they are there.",
            ),
        ],
        environment: &[
            RUNTIME,
            (
                "APPIMAGE_EXTRACT_AND_RUN",
                "If it is set, a bundle starts its program from a directory, as with --appimage-extract-and-run.",
            ),
            (
                "TARGET_APPIMAGE",
                "The AppImage that a bundle takes instead of itself.",
            ),
        ],
        see: &["brisk-run", "brisk-repack", "brisk-wrap", "fusermount3"],
    },
    More {
        page: "brisk-wrap",
        examples: &[],
        files: &[(
            "$XDG_DATA_HOME/applications, ~/.local/share/applications or /usr/local/share/applications",
            "Entries of menus, brisk-LAUNCHER.desktop. The icons are in brisk/icons beside applications.",
        )],
        environment: &[
            PATH,
            ("XDG_DATA_HOME, HOME", "Where the menus of the user are."),
        ],
        see: &["brisk-run", "brisk-pack", "brisk-repack"],
    },
    More {
        page: "brisk-replay",
        examples: &[
            "brisk replay app.profile -- /opt/app/bin/app",
            "brisk replay app.profile --at /opt/app",
            "brisk replay /var/lib/brisk/profiles",
        ],
        files: &[DEVICES, PROFILES],
        environment: &[PATH, CACHES],
        see: &["brisk-trace", "brisk-run", "brisk-warm"],
    },
    More {
        page: "brisk-warm",
        examples: &["brisk warm app.img", "brisk warm app --budget 1G"],
        files: &[HOT],
        environment: &[],
        see: &["brisk-replay", "brisk-run"],
    },
    More {
        page: "brisk-auto",
        examples: &[],
        files: &[LEARNED, LINKS],
        environment: &[
            PATH,
            CACHES,
            (
                "XDG_DATA_HOME",
                "Where links and entries of menus are made.",
            ),
        ],
        see: &["brisk-run"],
    },
    More {
        page: "brisk-remote",
        examples: &[],
        files: &[REMOTE],
        environment: &[(
            "XDG_CACHE_HOME, HOME",
            "Where images from the network are kept.",
        )],
        see: &["brisk-run", "brisk-publish"],
    },
    More {
        page: "brisk-cache",
        examples: &["brisk cache stat DIR", "brisk cache verify DIR"],
        files: &[],
        environment: &[],
        see: &["brisk-proxy", "brisk-db"],
    },
    More {
        page: "brisk-db",
        examples: &[],
        files: &[(
            "FILE-lock",
            "The readers of a database, and the lock of its writers, as LMDB keeps them.",
        )],
        environment: &[],
        see: &["brisk-cache"],
    },
    More {
        page: "brisk-mount",
        examples: &[
            "brisk mount app.img /mnt",
            "brisk mount --foreground app.img /mnt",
        ],
        files: &[HOT, SESSIONS, KEYS],
        environment: &[RUNTIME],
        see: &["brisk-umount", "brisk-stat", "brisk-run", "fusermount3"],
    },
    More {
        page: "brisk-stat",
        examples: &["brisk stat", "brisk stat -v app.img"],
        files: &[SESSIONS],
        environment: &[RUNTIME],
        see: &["brisk-run", "brisk-umount"],
    },
    More {
        page: "brisk-umount",
        examples: &["brisk umount app.img", "brisk umount --all"],
        files: &[SESSIONS],
        environment: &[RUNTIME],
        see: &["brisk-run", "brisk-mount", "brisk-stat"],
    },
    More {
        page: "brisk-doctor",
        examples: &["brisk doctor", "brisk doctor --json"],
        files: &[],
        environment: &[],
        see: &["brisk-run", "brisk-mount"],
    },
];

/// What most verbs exit with.
const STATUS: &str = "0 done; 1 the answer is no; 2 wrong usage or a failure.";

/// The name of the file of the page, and its text. `command` is a verb, with its name as a page.
pub fn man_page(command: &Command) -> std::io::Result<(String, Vec<u8>)> {
    let page = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let more = MORE.iter().find(|more| more.page == page);
    let help = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (help, mut examples) = match help.split_once("Examples:\n") {
        Some((before, examples)) => (before, examples.lines().map(str::trim).collect()),
        None => (help.as_str(), Vec::new()),
    };
    if examples.is_empty() {
        examples.extend(more.map_or(&[][..], |more| more.examples));
    }
    let paragraphs = help.split("\n\n").map(str::trim_end);
    let paragraphs = paragraphs.filter(|text| !text.is_empty());
    let (status, notes): (Vec<_>, Vec<_>) = paragraphs.partition(|text| text.starts_with("Exits "));

    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        notes
            .iter()
            .for_each(|paragraph| add_paragraph(&mut roff, paragraph));
    }
    roff.control("SH", ["EXIT STATUS"]);
    match &status[..] {
        [] => add_paragraph(&mut roff, STATUS),
        status => status
            .iter()
            .for_each(|paragraph| add_paragraph(&mut roff, paragraph)),
    }
    if let Some(more) = more {
        for (heading, table) in [("ENVIRONMENT", more.environment), ("FILES", more.files)] {
            if !table.is_empty() {
                roff.control("SH", [heading]);
            }
            for (name, what) in table {
                roff.control("TP", []);
                roff.text([bold(*name)]);
                roff.text([roman(*what)]);
            }
        }
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        add_lines(&mut roff, &examples);
    }
    let see = more.map_or(&[][..], |more| more.see);
    // A page of a verb leads to the page of all verbs at least.
    let whole = (page != "brisk").then_some("brisk");
    let see: Vec<_> = whole
        .iter()
        .chain(see)
        .map(|page| format!("{page}(1)"))
        .collect();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(see.join(", "))]);
    roff.to_writer(&mut text)?;
    if page == "brisk" {
        man.render_version_section(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// Adds a paragraph. Lines that are indented stay lines.
fn add_paragraph(roff: &mut Roff, paragraph: &str) {
    roff.control("PP", []);
    let (lines, prose): (Vec<_>, Vec<_>) =
        paragraph.lines().partition(|line| line.starts_with(' '));
    roff.text([roman(prose.join(" "))]);
    if !lines.is_empty() {
        add_lines(roff, &lines);
    }
}

fn add_lines(roff: &mut Roff, lines: &[&str]) {
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_verb_has_more_than_its_help() {
        let mut brisk = crate::args::Brisk::command();
        brisk.build();
        let verbs = brisk.get_subcommands().filter(|verb| !verb.is_hide_set());
        // These have their own programs, and others add to their pages.
        let verbs = verbs.filter(|verb| !["lab", "proxy", "help"].contains(&verb.get_name()));
        let mut pages: Vec<_> = verbs
            .map(|verb| format!("brisk-{}", verb.get_name()))
            .collect();
        pages.push("brisk".to_owned());
        let mut known: Vec<_> = MORE.iter().map(|more| more.page.to_owned()).collect();
        pages.sort();
        known.sort();
        assert_eq!(pages, known);
        for page in MORE.iter().flat_map(|more| more.see) {
            assert!(
                pages.iter().any(|known| known == page)
                    || ["fusermount3", "brisk-proxy"].contains(page),
                "{page}"
            );
        }
        // The examples name options that there are.
        for more in MORE {
            for example in more.examples {
                let words = example.split(' ').map(|word| word.trim_matches('\''));
                let parsed = crate::args::Brisk::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
            }
        }
    }
}
