//! The ranks' output.

use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::ioctl_fionread;

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
fn the_job_ends_though_processes_that_left_its_group_go_on_writing() {
    let (mut reader, writer) = pipe().unwrap();
    let mut command =
        script(["-n", "1"], "for writer in 1 2 3 4; do setsid yes >&2 & done; echo $$; sleep 0.2");
    command.stdout(Stdio::piped()).stderr(writer);
    let mut launcher = command.spawn().unwrap();
    drop(command);
    let mut rank = String::new();
    BufReader::new(launcher.stdout.take().unwrap()).read_line(&mut rank).unwrap();
    let rank = Path::new("/proc").join(rank.trim());
    assert!(eventually(Duration::from_secs(20), || !rank.exists()));
    // Slowly, so that the writers keep the pipes full.
    let (mut bytes, mut read) = ([0; 1 << 16], 0);
    while read < 16 << 20 {
        let count = reader.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        read += count;
        thread::sleep(Duration::from_millis(1));
    }
    // The writers end by it.
    drop(reader);
    assert_eq!(launcher.wait().unwrap().code(), Some(0));
    assert!(read < 16 << 20, "the launcher goes on printing what is no rank's");
}

#[test]
fn nothing_is_lost_where_the_output_does_not_block() {
    let (mut reader, writer) = pipe().unwrap();
    // As a rank can do it that shares the launcher's output, or the reader's program.
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut command = script(["-n", "1"], "yes | head -n 200000 >&2; exit 3");
    command.stdout(Stdio::null()).stderr(writer);
    let mut launcher = command.spawn().unwrap();
    drop(command);
    let full = || ioctl_fionread(&reader).unwrap() > 60_000 || launcher.try_wait().unwrap().is_some();
    assert!(eventually(Duration::from_secs(20), full));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(3));
    let end = "intranode: rank 0 failed first: it exited with status 3\n";
    assert!(text.ends_with(end) && text.len() == 400_000 + end.len(), "{} bytes", text.len());
}

#[test]
fn a_reader_of_messages_that_has_gone_does_not_change_the_status() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    for (program, status) in [("exit 7", 7), ("exit 0", 0)] {
        let mut command = script(["-n", "2"], program);
        command.stdout(Stdio::null()).stderr(writer.try_clone().unwrap());
        assert_eq!(command.status().unwrap().code(), Some(status));
    }
    let mut command = intranode(["run", "-n", "1", "--", "/no/such/program"]);
    assert_eq!(command.stderr(writer).status().unwrap().code(), Some(127));
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

#[test]
fn ranks_have_no_descriptors_of_other_terminals() {
    let terminal = openpty(None, None).unwrap();
    let mut command = script(["-n", "3"], "ls -l /proc/$$/fd | grep -c ptmx");
    command.stderr(terminal.slave);
    let listed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    // All have those of this test, and of others that run meanwhile.
    let counts: Vec<&str> = listed.lines().collect();
    assert!(counts.len() == 3 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn rank_0_reads_on_from_a_terminal_that_a_rank_has_set_not_to_block() {
    let terminal = openpty(None, None).unwrap();
    let mut typed = std::fs::File::from(terminal.master);
    // What a rank does to its standard output, if that is the same terminal.
    fcntl_setfl(&terminal.slave, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
    let mut command = script(["-n", "1"], "echo ready; read one; echo $one; read two; echo $two");
    command.stdin(terminal.slave).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut launcher = command.spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    for text in ["first", "second"] {
        let _ = writeln!(typed, "{text}");
        assert_eq!(lines.next().as_deref(), Some(text));
    }
    assert!(launcher.wait().unwrap().success());
}

/// What the launcher prints to a full disk.
fn printed_to_a_full_disk<const N: usize>(options: [&str; N], program: &str) -> (i32, String) {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = script(options, program);
    command.stdout(full()).stderr(Stdio::piped());
    let ended = command.output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn output_that_is_lost_is_a_failure() {
    let lost = "intranode: cannot write the ranks' standard output: No space left on device";
    let (code, said) = printed_to_a_full_disk(["-n", "1", "--tag"], "echo lost");
    assert!(code == 125 && said.starts_with(lost), "{code}: {said}");
    // A rank that writes on is ended by SIGPIPE, and the reason comes before.
    let (code, said) = printed_to_a_full_disk(["-n", "2", "--tag"], "yes");
    assert!(code == 141 && said.starts_with(lost) && said.contains(" failed first: "), "{code}: {said}");
    let (code, said) = printed_to_a_full_disk(["-n", "2", "--tag"], ":");
    assert!(code == 0 && said.is_empty(), "{code}: {said}");
}

#[test]
fn standard_error_that_is_lost_is_a_failure() {
    let mut command = script(["-n", "1"], "echo lost >&2");
    command.stdout(Stdio::null()).stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
    assert_eq!(command.status().unwrap().code(), Some(125));
}

#[test]
fn ranks_write_to_a_terminal_that_stops_the_background() {
    let terminal = openpty(None, None).unwrap();
    let mut modes = tcgetattr(&terminal.slave).unwrap();
    modes.local_flags.insert(LocalFlags::TOSTOP);
    tcsetattr(&terminal.slave, SetArg::TCSANOW, &modes).unwrap();
    // The launcher is the foreground of this terminal.
    let mut command = Command::new("setsid");
    command.args(["--ctty", env!("CARGO_BIN_EXE_intranode"), "run", "-n", "2", "--", "echo", "written"]);
    let end = || Stdio::from(terminal.slave.try_clone().unwrap());
    let mut launcher = command.stdin(end()).stdout(end()).stderr(Stdio::null()).spawn().unwrap();
    let mut status = None;
    let ended = eventually(Duration::from_secs(60), || {
        status = launcher.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        let _ = launcher.kill();
        let _ = launcher.wait();
    }
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}
