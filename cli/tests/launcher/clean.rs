//! `intranode clean`: what it removes and what it keeps. Each test uses names of its own: other jobs may be running.

use std::fs;
use std::io::{Write, pipe};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::geteuid;

use crate::support::{eventually, intranode, run, skipped, start, unique};

const LIMIT: Duration = Duration::from_secs(30);

/// The user with the fewest rights.
const NOBODY: u32 = 65534;

fn file_of(name: &str) -> PathBuf {
    Path::new("/dev/shm").join(&name[1..])
}

/// A name that is free at the end, also after a failure.
struct Name(String);

impl Name {
    fn new() -> Self {
        Name(format!("/clean-{}", unique()))
    }

    fn file(&self) -> PathBuf {
        file_of(&self.0)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.file());
    }
}

/// A rank of a job of two that measures barriers.
struct Rank(Child);

impl Rank {
    fn start(name: &Name, rank: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_intranode"));
        command.args(["__bench", "--op", "barrier", "--repetitions", "100"]);
        command.env("INTRANODE_NAME", &name.0).env("INTRANODE_SIZE", "2");
        command.env("INTRANODE_RANK", rank.to_string()).stdout(Stdio::null());
        Rank(command.spawn().unwrap())
    }

    fn ends_well(mut self) -> bool {
        let mut status = None;
        eventually(LIMIT, || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A rank 0 that waits for the other.
fn joining(name: &Name) -> Rank {
    let rank = Rank::start(name, 0);
    assert!(eventually(LIMIT, || name.file().exists()));
    rank
}

/// Leaves what a killed rank 0 leaves. Returns its process.
fn leave(name: &Name) -> u32 {
    let rank = joining(name);
    let pid = rank.0.id();
    drop(rank);
    assert!(name.file().exists());
    pid
}

fn clean(options: &[&str], names: &[&Name]) -> Command {
    let mut command = intranode(["clean"]);
    command.args(options).args(names.iter().map(|name| &name.0));
    command
}

#[test]
fn what_a_dead_job_has_left_is_listed_and_removed() {
    let (one, other) = (Name::new(), Name::new());
    let pid = leave(&one);
    leave(&other);
    let listed = run(clean(&["--dry-run"], &[&one])).succeeded();
    let [line, end] = listed.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{}", listed.stdout) };
    assert!(line.starts_with(&format!("{}  ", one.0)), "{line}");
    assert!(line.contains(" MiB  made by process ") && line.contains(&pid.to_string()), "{line}");
    assert_eq!(end, "nothing was removed");
    assert!(one.file().exists());

    let removed = run(clean(&["--yes"], &[&one])).succeeded();
    assert!(removed.stdout.ends_with(&format!("removed {}\n", one.0)), "{}", removed.stdout);
    assert!(!one.file().exists() && other.file().exists());
    let again = run(clean(&["--yes"], &[&one])).succeeded();
    assert_eq!(again.stdout, "nothing to remove: no shared memory of jobs that have ended\n");
}

/// A region of one page, as its maker, process 42, leaves it when it is killed before all ranks have it: behind the page a
/// magic number, the version, the process, the trailer's offset, and the job's name with its length.
fn region_file(job: &Name) -> Vec<u8> {
    let mut content = vec![1; 4096];
    content.extend(u64::from_be_bytes(*b"intrapar").to_ne_bytes());
    content.extend([1u32, 42].map(u32::to_ne_bytes).concat());
    content.extend(4096u64.to_ne_bytes());
    content.extend((job.0.len() as u32).to_ne_bytes());
    content.extend(job.0.as_bytes());
    content.resize(4096 + 512, 0);
    content
}

#[test]
fn the_regions_of_a_named_job_go_with_it() {
    let name = Name::new();
    leave(&name);
    let with_suffix = |suffix| Name(format!("{}{suffix}", name.0));
    let (region, other, zeros) = (with_suffix("_region_3"), with_suffix("_other"), with_suffix("_region_4"));
    fs::write(region.file(), region_file(&name)).unwrap();
    fs::write(other.file(), region_file(&name)).unwrap();
    fs::write(zeros.file(), [0; 8192]).unwrap();
    let listed = run(clean(&["--dry-run"], &[])).succeeded();
    let line = format!("{}  8 KiB  made by process 42", region.0);
    assert!(listed.stdout.lines().any(|listed| listed.starts_with(&line)), "{}", listed.stdout);
    let removed = run(clean(&["--yes"], &[&name])).succeeded();
    assert!(
        removed.stdout.ends_with(&format!("removed {}\nremoved {}\n", name.0, region.0)),
        "{}",
        removed.stdout
    );
    assert!(!name.file().exists() && !region.file().exists());
    assert!(other.file().exists() && zeros.file().exists());
}

#[test]
fn a_reader_that_has_gone_keeps_nothing_from_being_removed() {
    let names = [Name::new(), Name::new()];
    names.iter().for_each(|name| _ = leave(name));
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let status = clean(&["--yes"], &[&names[0], &names[1]]).stdout(writer).status().unwrap();
    assert!(status.success(), "{status}");
    assert!(!names[0].file().exists() && !names[1].file().exists());
}

#[test]
fn a_question_that_nobody_can_read_is_not_answered_by_yes() {
    let name = Name::new();
    leave(&name);
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let (answers, mut yes) = pipe().unwrap();
    yes.write_all(b"y\n").unwrap();
    let status = clean(&[], &[&name]).stdin(answers).stdout(writer).status().unwrap();
    assert!(status.success(), "{status}");
    assert!(name.file().exists());
}

#[test]
fn it_asks_before_it_removes() {
    let name = Name::new();
    leave(&name);
    let noes = ["", "n\n", "\n", "what?\n"].map(|answer| (answer.as_bytes(), false));
    for (answer, removes) in noes.into_iter().chain([(&b"y\xff\n"[..], false), (b" Yes\n", true)]) {
        let mut command = clean(&[], &[&name]);
        command.stdin(Stdio::piped());
        let mut launcher = start(command);
        launcher.input().write_all(answer).unwrap();
        let finished = launcher.finish().succeeded();
        assert!(
            finished.stdout.contains("Remove it? No process uses it any more. [y/N] "),
            "{}",
            finished.stdout
        );
        assert_eq!(name.file().exists(), !removes, "after {answer:?}");
    }
}

#[test]
fn a_job_that_is_joining_is_left_alone() {
    let name = Name::new();
    let rank_0 = joining(&name);
    let finished = run(clean(&["--yes"], &[&name])).succeeded();
    assert!(finished.stdout.starts_with("nothing to remove"), "{}", finished.stdout);
    assert!(name.file().exists());
    let rank_1 = Rank::start(&name, 1);
    assert!(rank_0.ends_well() && rank_1.ends_well());
    assert!(!name.file().exists());
}

#[test]
fn a_job_that_has_joined_is_left_alone() {
    let name = Name::new();
    let rank_0 = joining(&name);
    let rank_1 = Rank::start(&name, 1);
    assert!(eventually(LIMIT, || !name.file().exists()));
    // The name is free: what is under it is another job's.
    leave(&name);
    run(clean(&["--yes"], &[&name])).succeeded();
    assert!(!name.file().exists());
    assert!(rank_0.ends_well() && rank_1.ends_well());
}

#[test]
fn files_of_other_programs_are_left_alone() {
    for content in [&b""[..], &[0; 1], &[0; 8192], &[0; 8192 + 512], b"another program's"] {
        let name = Name::new();
        let others = ["", "_region_1", "_new_1"].map(|suffix| Name(format!("{}{suffix}", name.0)));
        others.iter().for_each(|other| fs::write(other.file(), content).unwrap());
        let finished = run(clean(&["--yes"], &[&name])).succeeded();
        assert!(finished.stdout.starts_with("nothing to remove"), "{}", finished.stdout);
        others.iter().for_each(|other| assert_eq!(fs::read(other.file()).unwrap(), content, "{}", other.0));
    }
}

#[test]
fn what_belongs_to_another_user_is_left_alone() {
    if !geteuid().is_root() {
        return skipped("only root can give a file to another user");
    }
    let name = Name::new();
    leave(&name);
    // Root does not remove another user's file.
    chown(name.file(), Some(NOBODY), None).unwrap();
    assert!(run(clean(&["--yes"], &[&name])).succeeded().stdout.starts_with("nothing to remove"));
    assert!(name.file().exists());
    // Another user does not remove root's file, even if all users may read and write it.
    chown(name.file(), Some(0), None).unwrap();
    fs::set_permissions(name.file(), fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = clean(&["--yes"], &[&name]);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    // The program itself may lie where only root can read.
    if Command::new(env!("CARGO_BIN_EXE_intranode")).arg("--version").uid(NOBODY).output().is_err() {
        return skipped("another user cannot run this program");
    }
    assert!(run(command).succeeded().stdout.starts_with("nothing to remove"));
    assert!(name.file().exists());
}

#[test]
fn what_cannot_be_removed_is_an_error_that_names_it() {
    // A directory in which files can be made and not removed, in a mount namespace of its own.
    let program = env!("CARGO_BIN_EXE_intranode");
    let script = format!(
        "mount -t tmpfs none /dev/shm || exit 99
        INTRANODE_NAME=/x INTRANODE_RANK=0 INTRANODE_SIZE=2 {program} __bench & rank=$!
        while [ ! -e /dev/shm/x ]; do sleep 0.01; done
        kill -9 $rank; wait
        chattr +a /dev/shm || exit 99
        exec {program} clean --yes"
    );
    let allowed = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !allowed {
        return skipped("no mount namespaces here");
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null());
    let finished = run(command);
    if finished.code() == 99 {
        return skipped(finished.last_error());
    }
    assert_eq!(finished.code(), 1, "{} {}", finished.stdout, finished.stderr);
    assert!(finished.last_error().starts_with("intranode: /x cannot be removed: "), "{}", finished.stderr);
}

#[test]
fn a_dry_run_over_all_names_changes_nothing() {
    let name = Name::new();
    leave(&name);
    let finished = run(clean(&["--dry-run"], &[])).succeeded();
    assert!(
        finished.stdout.lines().any(|line| line.starts_with(&format!("{}  ", name.0))),
        "{}",
        finished.stdout
    );
    assert!(name.file().exists());
    assert_eq!(run(clean(&["--dry-run", "--yes"], &[])).code(), 2);
}
