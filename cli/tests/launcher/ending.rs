//! How a job ends when a rank fails or cannot be started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::support::{Directory, intranode, run, script};

#[test]
fn a_job_without_a_failure_says_nothing() {
    let finished = run(script(["-n", "4"], "true")).succeeded();
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("", ""));
}

#[test]
fn the_first_failing_rank_decides_the_status_and_the_others_are_ended() {
    let finished = run(script(["-n", "3"], "[ $INTRANODE_RANK = 1 ] && exit 7; exec sleep 50"));
    assert_eq!(finished.code(), 7);
    assert_eq!(finished.last_error(), "intranode: rank 1 failed first: it exited with status 7");
}

#[test]
fn the_others_may_end_by_themselves_first() {
    let directory = Directory::new();
    let mut command = script(
        ["-n", "2"],
        "
        if [ $INTRANODE_RANK = 1 ]; then : > failing; exit 3; fi
        trap 'echo got SIGTERM' TERM
        while [ ! -e failing ]; do sleep 0.01; done
        echo cleaned up",
    );
    command.current_dir(&directory.0);
    let finished = run(command);
    assert_eq!(finished.code(), 3);
    assert_eq!(finished.stdout, "cleaned up\n");
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed() {
    let begin = Instant::now();
    let finished = run(script(
        ["-n", "2", "--kill-after", "1"],
        "[ $INTRANODE_RANK = 0 ] && exit 9; trap '' TERM; while :; do sleep 0.1; done",
    ));
    assert_eq!(finished.code(), 9);
    // Not before SIGTERM, and a second more.
    assert!(begin.elapsed() > Duration::from_secs(1));
}

#[test]
fn sigkill_can_be_further_away_than_the_clock_goes() {
    let never = u64::MAX.to_string();
    let finished =
        run(script(["-n", "2", "--kill-after", &never], "[ $INTRANODE_RANK = 0 ] && exit 9; exec sleep 50"));
    assert_eq!(finished.code(), 9, "{}", finished.stderr);
    assert_eq!(finished.last_error(), "intranode: rank 0 failed first: it exited with status 9");
}

#[test]
fn a_stopped_rank_is_ended_too() {
    let finished = run(script(
        ["-n", "2", "--kill-after", "50"],
        "[ $INTRANODE_RANK = 0 ] && exit 9; trap 'echo ended; exit' TERM; kill -STOP $$; sleep 50",
    ));
    assert_eq!(finished.code(), 9);
    assert_eq!(finished.stdout, "ended\n");
}

#[test]
fn a_death_by_signal_gives_the_shell_s_status() {
    for (name, number) in [("SEGV", 11), ("KILL", 9), ("ABRT", 6)] {
        let kill = format!("[ $INTRANODE_RANK = 1 ] && ulimit -c 0 && kill -{name} $$; sleep 50");
        let finished = run(script(["-n", "2"], &kill));
        assert_eq!(finished.code(), 128 + number);
        let expected = format!("intranode: rank 1 failed first: it was ended by signal {number} (SIG{name})");
        assert_eq!(finished.last_error(), expected);
    }
}

/// What Rust writes when a thread panics; `exit` as it ends then.
const PANICS: &str = "
    [ $INTRANODE_RANK = 1 ] || exec sleep 50
    echo \"thread 'main' (7) panicked at src/main.rs:2:5:\" >&2
    echo 'no such case' >&2
    echo 'note: run with RUST_BACKTRACE=1' >&2
    ulimit -c 0;";

#[test]
fn the_message_of_a_panic_is_reported() {
    for (end, code, how) in [
        ("exit 101", 101, "it exited with status 101"),
        ("kill -ABRT $$", 128 + 6, "it was ended by signal 6 (SIGABRT)"),
    ] {
        for options in [&["-n", "2"][..], &["-n", "2", "--tag"]] {
            let mut command = intranode(["run"]);
            command.args(options).args(["--", "sh", "-c", &format!("{PANICS} {end}")]);
            let finished = run(command);
            assert_eq!(finished.code(), code);
            let expected =
                format!("intranode: rank 1 failed first: {how}: panicked at src/main.rs:2:5: no such case");
            assert_eq!(finished.last_error(), expected);
            // And not in place of what the rank has written.
            assert!(finished.stderr.contains("no such case\n"), "{}", finished.stderr);
        }
    }
}

#[test]
fn a_panic_is_no_reason_for_another_end() {
    let finished = run(script(["-n", "2"], &format!("{PANICS} kill -KILL $$")));
    assert_eq!(finished.last_error(), "intranode: rank 1 failed first: it was ended by signal 9 (SIGKILL)");
}

#[test]
fn a_signal_without_a_name_is_a_failure_like_others() {
    let finished = run(script(["-n", "2"], "[ $INTRANODE_RANK = 1 ] && kill -40 $$; exec sleep 50"));
    assert_eq!(finished.code(), 128 + 40);
}

#[test]
fn a_rank_that_reacts_sooner_than_the_dead_one_is_gone_is_not_blamed() {
    let directory = Directory::new();
    let mut command = script(["-n", "2"], "
        if [ $INTRANODE_RANK = 1 ]; then : > dying; while [ ! -e reacted ]; do :; done; sleep 0.1; kill -9 $$; fi
        while [ ! -e dying ]; do sleep 0.01; done
        : > reacted; exit 1");
    command.current_dir(&directory.0);
    let finished = run(command);
    assert_eq!(finished.code(), 128 + 9);
    assert_eq!(finished.last_error(), "intranode: rank 1 failed first: it was ended by signal 9 (SIGKILL)");
}

#[test]
fn among_ranks_that_end_at_once_the_first_is_named() {
    let directory = Directory::new();
    // The launcher is stopped while rank 1 ends and then rank 0, and sees both ends together.
    let mut command = script(
        ["-n", "2"],
        "
        await() { while ! grep -q \"^State:[[:space:]]*$2\" /proc/$1/status; do sleep 0.01; done; }
        if [ $INTRANODE_RANK = 1 ]; then
            echo $$ > pid.new; mv pid.new pid
            while [ ! -e stopped ]; do sleep 0.01; done
            exit 33
        fi
        while [ ! -e pid ]; do sleep 0.01; done
        kill -STOP $PPID; await $PPID T; : > stopped
        await $(cat pid) Z
        (await $$ Z; kill -CONT $PPID) &
        exit 44",
    );
    command.current_dir(&directory.0);
    let finished = run(command);
    assert_eq!(
        (finished.code(), finished.last_error()),
        (33, "intranode: rank 1 failed first: it exited with status 33")
    );
}

#[test]
fn a_program_that_is_not_there_is_one_clear_error() {
    for program in ["no-such-program-anywhere", "./no/such/program"] {
        let finished = run(intranode(["run", "-n", "3", "--", program]));
        assert_eq!(finished.code(), 127);
        assert_eq!(
            finished.stderr,
            format!("intranode: cannot start {program}: No such file or directory (os error 2)\n")
        );
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_one_clear_error() {
    let directory = Directory::new();
    let plain = directory.0.join("plain");
    fs::write(&plain, "text").unwrap();
    for program in [&plain, &directory.0] {
        let finished = run(intranode(["run", "-n", "3", "--", program.to_str().unwrap()]));
        assert_eq!(finished.code(), 126);
        let expected =
            format!("intranode: cannot start {}: Permission denied (os error 13)\n", program.display());
        assert_eq!(finished.stderr, expected);
    }
}

#[test]
fn a_program_that_only_exec_can_judge_fails_as_rank() {
    let directory = Directory::new();
    let program = directory.0.join("program");
    fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let finished = run(intranode(["run", "-n", "2", "--", program.to_str().unwrap()]));
    assert_eq!(finished.code(), 127);
    assert!(finished.stderr.contains("cannot start"), "{}", finished.stderr);
}

#[test]
fn a_wrong_command_line_starts_nothing() {
    let wrong: [&[&str]; 5] = [
        &["-n", "0", "--", "true"],
        &["-n", "x", "--", "true"],
        &["-n", "2"],
        &["-n", "2", "--name", "no-slash", "--", "true"],
        &["-n", "2", "--timeout", "0", "--", "true"],
    ];
    for arguments in wrong {
        let mut command = intranode(["run"]);
        command.args(arguments);
        let finished = run(command);
        assert_eq!(finished.code(), 2, "{arguments:?}: {}", finished.stderr);
        assert!(finished.stderr.starts_with("error:"), "{}", finished.stderr);
    }
}

#[test]
fn an_unknown_option_is_not_taken_for_the_program() {
    for wrong in [&["--tga", "-n", "2", "--", "true"][..], &["-np", "2", "true"], &["-n", "1", "-x", "true"]] {
        let mut command = intranode(["run"]);
        command.args(wrong);
        let finished = run(command);
        assert!(
            finished.code() == 2 && finished.stderr.starts_with("error: "),
            "{wrong:?}: {}",
            finished.stderr
        );
    }
    // Those of the program are its own, and behind -- anything is a program.
    for own in [&["-n", "1", "echo", "-n", "--tag"][..], &["-n", "1", "--", "echo", "-n", "--tag"]] {
        let mut command = intranode(["run"]);
        command.args(own);
        assert_eq!(run(command).succeeded().stdout, "--tag", "{own:?}");
    }
    assert_eq!(run(intranode(["run", "-n", "1", "--", "--no-such-program"])).code(), 127);
    // Not the first directory of PATH.
    assert_eq!(run(intranode(["run", "-n", "1", "--", ""])).code(), 127);
}
