//! What the program says about itself: its help, its manual pages, its completions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Directory, intranode, run, skipped};

fn output_of<const N: usize>(arguments: [&str; N]) -> String {
    run(intranode(arguments)).succeeded().stdout
}

/// The commands that `--help` lists, without the help itself.
fn commands() -> Vec<String> {
    let help = output_of(["--help"]);
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned());
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 2, "{help}");
    names
}

/// The flags of a command, as `--help` lists them: `-n`, `--ranks`, ….
fn flags(command: &str) -> BTreeSet<String> {
    let help = output_of([command, "--help"]);
    let options = help.split_once("Options:\n").unwrap().1;
    // A hyphen by itself begins the description of a value.
    let lines = options.lines().map(str::trim_start);
    let lines = lines.filter(|line| line.starts_with('-') && !line.starts_with("- "));
    let words = lines.flat_map(|line| line.split([' ', ',']).filter(|word| word.starts_with('-')));
    let flags: BTreeSet<String> = words.map(str::to_owned).collect();
    assert!(flags.contains("--help"), "{help}");
    flags
}

/// The text of a manual page, with plain hyphens.
fn page(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .replace("\\-", "-")
}

#[test]
fn every_command_and_every_flag_is_in_the_manual() {
    let directory = Directory::new();
    // Made with what is above it.
    let pages = directory.0.join("share/man1");
    assert_eq!(output_of(["man", pages.to_str().unwrap()]), "");

    let overview = page(&pages, "intranode.1");
    let mut expected = BTreeSet::from(["intranode.1".to_owned()]);
    for command in commands() {
        let name = format!("intranode-{command}.1");
        assert!(overview.contains(&format!("\nintranode-{command}(1)\n")), "{command}: {overview}");
        let text = page(&pages, &name);
        for flag in flags(&command) {
            // An entry of its own, with the flag in bold, and then its text.
            let entry = text
                .split(".TP\n")
                .find(|entry| entry.lines().next().unwrap().contains(&format!("\\fB{flag}\\f")));
            let entry = entry.unwrap_or_else(|| panic!("{name} has no {flag}: {text}"));
            assert!(entry.lines().nth(1).is_some_and(|line| line.len() > 5), "{name}: {flag}: {entry}");
        }
        expected.insert(name);
    }
    let made: BTreeSet<String> =
        fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(made, expected);
}

#[test]
fn a_wrong_command_line_ends_as_the_help_says() {
    // What run does not know is a program.
    for (command, wrong) in [("run", "-n"), ("bench", "--wrong"), ("top", "--wrong"), ("clean", "--wrong")] {
        let finished = run(intranode([command, wrong]));
        assert_eq!(finished.code(), 2, "{command}: {}", finished.stderr);
        let documented = format!("\n  {}\n      The command line is wrong", finished.code());
        let help = output_of([command, "--help"]);
        assert!(help.contains(&documented), "{command}: {documented}");
    }
}

#[test]
fn a_manual_that_cannot_be_written_is_an_error() {
    let directory = Directory::new();
    let file = directory.0.join("file");
    fs::write(&file, "").unwrap();
    let finished = run(intranode(["man", file.to_str().unwrap()]));
    assert_eq!(finished.code(), 125);
    assert!(finished.last_error().starts_with("intranode: cannot make "), "{}", finished.stderr);
}

/// What bash offers after these words.
fn completed_by_bash(script: &Path, words: &[&str]) -> Option<BTreeSet<String>> {
    let program = "
        source \"$1\"; shift
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1))
        _intranode intranode \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", program, "bash"]).arg(script).args(words);
    if Command::new("bash").arg("--version").output().is_err() {
        skipped("there is no bash");
        return None;
    }
    Some(run(bash).succeeded().stdout.lines().map(str::to_owned).collect())
}

#[test]
fn bash_completes_every_command_and_every_flag() {
    let directory = Directory::new();
    let script = directory.0.join("intranode");
    fs::write(&script, output_of(["completions", "bash"])).unwrap();
    let Some(mut offered) = completed_by_bash(&script, &["intranode", ""]) else { return };
    for unlisted in ["help", "-h", "-V", "--help", "--version"] {
        assert!(offered.remove(unlisted), "{unlisted}");
    }
    // And none of those that only the launcher uses.
    assert_eq!(offered, commands().into_iter().collect());
    for command in commands() {
        let offered = completed_by_bash(&script, &["intranode", &command, "-"]).unwrap();
        assert_eq!(offered, flags(&command), "{command}");
    }
}

#[test]
fn every_shell_that_is_offered_has_a_script() {
    let help = output_of(["completions", "--help"]);
    let shells = help.split_once("[possible values: ").unwrap().1.split_once(']').unwrap().0;
    for shell in shells.split(", ") {
        let script = output_of(["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
        assert!(script.contains("kill-after") && !script.contains("__rank"), "{shell}");
    }
}

#[test]
fn every_variable_that_ranks_get_is_in_the_help() {
    let mut command =
        intranode(["run", "-n", "1", "--timeout", "9", "--state", "--trace", "/dev/null", "--", "env"]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let finished = run(command).succeeded();
    let names = finished.stdout.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    // The first is the test's, the second its mark.
    let set: BTreeSet<&str> =
        names.filter(|name| *name != "PATH" && !name.starts_with("INTRANODE_TEST_")).collect();
    let help = output_of(["run", "--help"]);
    let section = help.split_once("Environment of each rank:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let terms = section.lines().filter(|line| !line.starts_with("      "));
    let documented: BTreeSet<&str> = terms.flat_map(|line| line.trim_start().split(", ")).collect();
    assert_eq!(set, documented);
}
