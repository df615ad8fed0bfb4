//! Signals on their way through the launcher.

use nix::sys::signal::Signal;

use crate::support::{Directory, eventually, intranode, run, script, start};

/// Prints each signal that it gets, and ends at SIGTERM.
const LISTENER: &str = "
    for signal in HUP INT QUIT USR1 USR2; do trap \"echo $INTRANODE_RANK $signal\" $signal; done
    trap 'exit 5' TERM
    echo $INTRANODE_RANK ready
    while :; do sleep 0.01; done";

#[test]
fn a_signal_reaches_every_rank() {
    let mut launcher = start(script(["-n", "2"], LISTENER));
    assert_eq!(launcher.lines(2), ["0 ready", "1 ready"]);
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2] {
        launcher.signal(signal);
        let name = signal.as_str().strip_prefix("SIG").unwrap();
        assert_eq!(launcher.lines(2), [format!("0 {name}"), format!("1 {name}")]);
    }
    launcher.signal(Signal::SIGTERM);
    let finished = launcher.finish();
    assert_eq!(finished.code(), 5);
}

#[test]
fn an_interrupt_from_the_terminal_is_delivered_once() {
    let mut launcher = start(script(["-n", "2"], LISTENER));
    launcher.lines(2);
    launcher.signal_group(Signal::SIGINT);
    assert_eq!(launcher.lines(2), ["0 INT", "1 INT"]);
    // A second delivery would have come before this.
    launcher.signal_group(Signal::SIGUSR1);
    assert_eq!(launcher.lines(2), ["0 USR1", "1 USR1"]);
    launcher.signal_group(Signal::SIGTERM);
    assert_eq!(launcher.finish().stdout, "");
}

#[test]
fn ranks_that_do_not_handle_a_signal_end_by_it() {
    for (signal, number) in [(Signal::SIGTERM, 15), (Signal::SIGINT, 2)] {
        let mut launcher = start(script(["-n", "3"], "echo ready; exec sleep 50"));
        launcher.lines(3);
        launcher.signal(signal);
        let finished = launcher.finish();
        assert_eq!(finished.code(), 128 + number);
        assert!(finished.last_error().ends_with(&format!("ended by signal {number} ({signal})")));
    }
}

#[test]
fn a_rank_that_reacts_to_a_death_by_a_signal_is_not_blamed() {
    let directory = Directory::new();
    // Rank 1 is gone, and was waited for, before the signal ends rank 0.
    let mut command = script(
        ["-n", "2"],
        "
        if [ $INTRANODE_RANK = 1 ]; then
            echo $$ > pid.new; mv pid.new pid
            trap 'exit 1' HUP
        else
            trap 'while kill -0 $(cat pid); do :; done 2>&-; trap - HUP; kill -HUP $$' HUP
            while [ ! -e pid ]; do sleep 0.01; done
        fi
        echo ready
        while :; do sleep 0.01; done",
    );
    command.current_dir(&directory.0);
    let mut launcher = start(command);
    launcher.lines(2);
    launcher.signal(Signal::SIGHUP);
    let finished = launcher.finish();
    assert_eq!(
        (finished.code(), finished.last_error()),
        (128 + 1, "intranode: rank 0 failed first: it was ended by signal 1 (SIGHUP)")
    );
}

#[test]
fn signals_are_not_blocked_in_the_ranks() {
    // Not through a shell, which may unblock them itself.
    let finished = run(intranode(["run", "-n", "1", "grep", "SigBlk", "/proc/self/status"])).succeeded();
    assert_eq!(finished.stdout, "SigBlk:\t0000000000000000\n");
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    let mut command = std::process::Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_intranode"));
    command.args([
        "run",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "trap 'exit 6' USR1; echo ready; while :; do sleep 0.01; done",
    ]);
    command.stdin(std::process::Stdio::null());
    let mut launcher = start(command);
    launcher.lines(2);
    launcher.signal(Signal::SIGHUP);
    launcher.signal(Signal::SIGUSR1);
    assert_eq!(launcher.finish().code(), 6);
}

#[test]
fn ends_are_seen_though_sigchld_was_ignored_at_the_start() {
    // `env` of coreutils can ignore a signal for what it starts; a shell cannot be relied on to.
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_intranode")]);
    command.args(["run", "-n", "2", "--", "sh", "-c", "exit 8"]);
    assert_eq!(run(command).code(), 8);
}

#[test]
fn a_stopped_job_continues() {
    let mut launcher = start(script(["-n", "2"], LISTENER));
    launcher.lines(2);
    let states = |launcher: &crate::support::Launcher| -> Vec<char> {
        let state = |pid: &nix::unistd::Pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
        };
        launcher.processes().iter().filter_map(state).collect()
    };
    launcher.signal(Signal::SIGTSTP);
    // The launcher and both ranks; only what stands guard goes on.
    let limit = std::time::Duration::from_secs(20);
    let stopped = eventually(limit, || states(&launcher).iter().filter(|&&state| state == 'T').count() >= 3);
    launcher.signal(Signal::SIGCONT);
    assert!(stopped);
    launcher.signal(Signal::SIGUSR1);
    assert_eq!(launcher.lines(2), ["0 USR1", "1 USR1"]);
    launcher.signal(Signal::SIGTERM);
    assert_eq!(launcher.finish().code(), 5);
}
