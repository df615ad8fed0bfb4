//! The ranks' output.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};

use crate::support::{Directory, eventually, intranode, run, script, start};

#[test]
fn output_passes_through_unchanged() {
    let finished = run(script(["-n", "2"], "printf out$INTRANODE_RANK; printf err >&2")).succeeded();
    assert!(["out0out1", "out1out0"].contains(&finished.stdout.as_str()), "{}", finished.stdout);
    assert_eq!(finished.stderr, "errerr");
}

#[test]
fn a_tag_is_put_before_every_line_of_both_streams() {
    let finished = run(script(["-n", "2", "--tag"], "echo a; echo b >&2; echo c")).succeeded();
    assert_eq!(finished.sorted_lines(), ["[0] a", "[0] c", "[1] a", "[1] c"]);
    let mut errors: Vec<&str> = finished.stderr.lines().collect();
    errors.sort();
    assert_eq!(errors, ["[0] b", "[1] b"]);
}

#[test]
fn a_tagged_last_line_without_its_end_is_not_lost() {
    let finished = run(script(["-n", "2", "--tag"], "printf 'a\\nlast'")).succeeded();
    assert_eq!(finished.sorted_lines(), ["[0] a", "[0] last", "[1] a", "[1] last"]);
}

#[test]
fn tagged_lines_of_many_ranks_are_whole() {
    let text = "y".repeat(200);
    let finished = run(script(["-n", "8", "--tag"], &format!("yes {text} | head -n 2000"))).succeeded();
    let mut count = [0; 8];
    for line in finished.stdout.lines() {
        let (rank, rest) = line.strip_prefix('[').and_then(|line| line.split_once("] ")).unwrap();
        assert_eq!(rest, text);
        count[rank.parse::<usize>().unwrap()] += 1;
    }
    assert_eq!(count, [2000; 8]);
}

#[test]
fn what_was_written_before_a_failure_is_not_lost() {
    let finished = run(script(["-n", "1", "--tag"], "yes | head -n 100000; exit 3"));
    assert_eq!(finished.code(), 3);
    assert_eq!(finished.stdout.lines().filter(|line| *line == "[0] y").count(), 100_000);
    assert_eq!(finished.stdout.lines().count(), 100_000);
}

#[test]
fn the_job_ends_though_a_process_that_left_its_group_holds_the_output() {
    let directory = Directory::new();
    // `setsid` puts the sleeper out of the launcher's reach.
    let mut command = script(
        ["-n", "1", "--tag"],
        "
        setsid sh -c 'echo $$ > left; exec sleep 60' &
        while [ ! -s left ]; do sleep 0.01; done; cat left",
    );
    command.current_dir(&directory.0);
    let launcher = start(command);
    let mut left = Vec::new();
    let ended = eventually(Duration::from_secs(20), || {
        left = launcher.processes();
        left.len() == 1 && left[0] != launcher.pid()
    });
    for &process in &left {
        kill(process, Signal::SIGKILL).unwrap();
    }
    assert!(ended, "the launcher waits for a process that is no rank");
    assert_eq!(launcher.finish().stdout, format!("[0] {}\n", left[0]));
}

#[test]
fn ranks_meet_the_broken_pipe_of_a_reader_that_has_gone() {
    for options in [&["-n", "2"][..], &["-n", "2", "--tag"]] {
        let mut command = intranode(["run"]);
        command.args(options).args(["--", "yes"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut launcher = command.spawn().unwrap();
        let mut output = launcher.stdout.take().unwrap();
        output.read_exact(&mut [0; 100]).unwrap();
        drop(output);
        let mut status = None;
        let ended = eventually(Duration::from_secs(20), || {
            status = launcher.try_wait().unwrap();
            status.is_some()
        });
        if !ended {
            launcher.kill().unwrap();
            launcher.wait().unwrap();
        }
        // SIGPIPE, as in a shell.
        assert_eq!(status.and_then(|status| status.code()), Some(128 + 13), "{options:?}");
    }
}

#[test]
fn standard_error_is_a_terminal_where_the_launcher_s_is() {
    let terminal = openpty(None, None).unwrap();
    let mut command = intranode(["run", "-n", "1", "--", "sh", "-c", "[ -t 2 ] && printf 'one\ntwo' >&2"]);
    command.stdout(Stdio::null()).stderr(terminal.slave);
    let mut launcher = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    // It ends with an error when the last process has closed the terminal.
    let _ = std::fs::File::from(terminal.master).read_to_end(&mut shown);
    assert!(launcher.wait().unwrap().success());
    // The launcher's own terminal is what makes two characters of the end of a line.
    assert_eq!(String::from_utf8(shown).unwrap(), "one\r\ntwo");
}
