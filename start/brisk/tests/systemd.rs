//! systemd accepts the units in `packaging/systemd` without a complaint.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Verifies a unit that is installed beside this command.
fn verify(name: &str, text: &str, more: &[&str]) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join(name);
    let installed = "/usr/local/bin/brisk";
    assert!(text.contains(installed));
    fs::write(&unit, text.replace(installed, env!("CARGO_BIN_EXE_brisk"))).unwrap();
    let output = Command::new("systemd-analyze")
        .args(more)
        .args(["verify", "--man=no"])
        .arg(&unit)
        // A user's manager needs this variable, but makes nothing there.
        .env("XDG_RUNTIME_DIR", directory.path())
        .output()
        .expect("this test needs systemd-analyze: install the package systemd");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// What the process of a unit may still do, from 0 (nothing) to 100, as systemd counts it.
fn exposure(name: &str, text: &str) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join(name);
    fs::write(&unit, text).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--json=off", "--no-pager"])
        .arg(&unit)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said
        .lines()
        .find(|line| line.contains("Overall exposure level"))
        .unwrap();
    let number = line.rsplit(": ").next().unwrap();
    number.split(' ').next().unwrap().parse().unwrap()
}

/// The proxy speaks to clients and to the internet.
#[test]
fn the_unit_of_the_proxy_may_do_little() {
    let text = unit("brisk-proxy.service");
    let found = exposure("brisk-proxy.service", &text);
    assert!(found <= 2.0, "{found}");
    let open = text
        .replace("DynamicUser", "#")
        .replace("SystemCallFilter", "#");
    assert!(exposure("brisk-proxy.service", &open) > found + 1.0);
}

/// The unit of the system runs as root.
#[test]
fn the_unit_of_root_may_do_little() {
    let text = unit("brisk-warm.service");
    let found = exposure("brisk-warm.service", &text);
    assert!(found <= 3.0, "{found}");
    let open = text
        .replace("CapabilityBoundingSet", "#")
        .replace("SystemCallFilter", "#");
    assert!(exposure("brisk-warm.service", &open) > found + 1.0);
}

fn unit(name: &str) -> String {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    fs::read_to_string(units.join(name)).unwrap()
}

#[test]
fn the_units_of_the_proxy_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let verify = |service: &str| {
        let service = service.replace("/usr/local/bin/brisk", env!("CARGO_BIN_EXE_brisk"));
        let paths =
            ["brisk-proxy.socket", "brisk-proxy.service"].map(|name| directory.path().join(name));
        fs::write(&paths[0], unit("brisk-proxy.socket")).unwrap();
        fs::write(&paths[1], service).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .args(&paths)
            .output()
            .expect("this test needs systemd-analyze: install the package systemd");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let service = unit("brisk-proxy.service");
    let (good, said) = verify(&service);
    assert!(good && !said.contains("brisk-proxy"), "{said}");
    let (_, said) = verify(&service.replace("Type=exec", "Type=twoshot"));
    assert!(said.contains("twoshot"), "{said}");
}

#[test]
fn units_are_valid() {
    for (name, more) in [
        ("brisk-warm.service", &[][..]),
        ("brisk-record.service", &[]),
        ("brisk-replay.service", &["--user"]),
    ] {
        let (good, said) = verify(name, &unit(name), more);
        // systemd may complain about units of this machine, but not about ours.
        assert!(good && !said.contains(name), "{name}: {said}");
        // What is wrong is found.
        let wrong = unit(name).replace("Type=", "Type=twoshot #");
        let (_, said) = verify(name, &wrong, more);
        assert!(said.contains("twoshot"), "{name}: {said}");
    }
}
