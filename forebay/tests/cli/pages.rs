//! Manual pages and completions on the command line.

use crate::scene::Place;
use std::collections::BTreeSet;
use std::process::Command;

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[test]
fn every_verb_has_a_manual_page() {
    let place = Place::new();
    let directory = place.path("man");
    place.done(&["man", directory.to_str().expect("a plain path")]);
    let mut expected = BTreeSet::from(["forebay.1".to_owned()]);
    expected.extend(verbs(&place.done(&["--help"])).iter().map(|verb| format!("forebay-{verb}.1")));
    let of_lab = verbs(&place.done(&["lab", "--help"]));
    expected.extend(of_lab.iter().map(|verb| format!("forebay-lab-{verb}.1")));
    let of_config = verbs(&place.done(&["config", "--help"]));
    expected.extend(of_config.iter().map(|verb| format!("forebay-config-{verb}.1")));
    expected.insert("forebay.toml.5".to_owned());
    assert!(expected.len() > 20 && expected.contains("forebay-lab-verify.1"), "{expected:?}");
    let pages = std::fs::read_dir(&directory).expect("the directory was made");
    let pages: BTreeSet<String> = pages
        .map(|page| page.expect("it is read").file_name().into_string().expect("a plain name"))
        .collect();
    assert_eq!(pages, expected);
    for page in &pages {
        let text = std::fs::read_to_string(directory.join(page)).expect("a page");
        assert!(text.contains(".TH") && text.contains(".SH NAME"), "{page} is no manual page: {text}");
    }
    let create = std::fs::read_to_string(directory.join("forebay-create.1")).expect("a page");
    assert!(
        create.contains("\\-\\-origin") && create.contains("nothing is written to the origin"),
        "{create}"
    );
}

#[test]
fn manual_pages_need_a_place() {
    let place = Place::new();
    let file = place.path("file");
    std::fs::write(&file, "").expect("a file for the test");
    let inside = file.join("man");
    place.refused(
        &["man", inside.to_str().expect("a plain path")],
        1,
        &["the manual pages cannot be written to"],
    );
}

#[test]
fn shells_get_their_completions() {
    let place = Place::new();
    for (shell, part) in
        [("bash", "complete -F _forebay"), ("zsh", "#compdef forebay"), ("fish", "complete -c forebay")]
    {
        let script = place.done(&["completions", shell]);
        assert!(script.contains(part) && script.contains("detach"), "{shell}: {script}");
    }
    let script = place.path("completion");
    std::fs::write(&script, place.done(&["completions", "bash"])).expect("a file for the test");
    let line = "source \"$1\"; COMP_WORDS=(forebay det); COMP_CWORD=1; _forebay forebay det forebay; \
                echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", line, "bash"]).arg(&script).output().expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "detach", "{output:?}");
    place.refused(&["completions", "tcsh"], 2, &["tcsh"]);
}
