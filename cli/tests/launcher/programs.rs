//! Programs that join: this test program itself, with a variable that names the part it plays.

use std::time::{Duration, Instant};

use intranode::{Communicator, Error};
use nix::unistd::{Pid, getpgid, getppid, setpgid};

use crate::support::{eventually, intranode, run};

const PROGRAM: &str = "INTRANODE_TEST_PROGRAM";

/// Not a test, unless it is started as a rank.
#[test]
fn rank() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    match (program.as_str(), comm.rank()) {
        ("panics", 1) => panic!("no such case"),
        ("panics", _) => assert!(matches!(comm.barrier(), Err(Error::Poisoned { rank: 1, .. }))),
        ("polls", 0) => {
            let start = Instant::now();
            assert!(matches!(comm.barrier(), Err(Error::TimedOut { .. })));
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        }
        ("polls", _) => assert!(eventually(Duration::from_secs(60), || comm.state().unwrap().ended)),
        ("moves", 0) => {
            comm.barrier().unwrap();
            std::process::exit(3)
        }
        ("moves", 1) => {
            setpgid(Pid::from_raw(0), getpgid(Some(getppid())).unwrap()).unwrap();
            comm.barrier().unwrap();
            std::thread::sleep(Duration::from_secs(100));
        }
        ("moves", _) => comm.barrier().unwrap(),
        (code, 1) => comm.abort(code.parse().unwrap()),
        // It would never notice by itself.
        _ => std::thread::sleep(Duration::from_secs(100)),
    }
}

fn run_as_ranks(program: &str) -> crate::support::Finished {
    let itself = std::env::current_exe().unwrap();
    let mut command = intranode(["run", "-n", "3", "--kill-after", "50", "--"]);
    command.arg(itself).args(["--exact", "programs::rank", "--nocapture"]).env(PROGRAM, program);
    command.env_remove("RUST_BACKTRACE");
    run(command)
}

#[test]
fn an_abort_ends_every_rank_with_its_code() {
    let finished = run_as_ranks("7");
    assert_eq!(finished.code(), 7, "{}", finished.stderr);
    assert_eq!(finished.last_error(), "intranode: rank 1 failed first: it exited with status 7");
}

#[test]
fn an_abort_without_a_code_ends_every_rank_too() {
    let finished = run_as_ranks("0");
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
}

#[test]
fn a_time_out_holds_for_ranks_that_are_to_poll_for_longer() {
    let itself = std::env::current_exe().unwrap();
    let mut command = intranode(["run", "-n", "2", "--timeout", "1", "--"]);
    command.arg(itself).args(["--exact", "programs::rank", "--nocapture"]).env(PROGRAM, "polls");
    command.env("INTRANODE_SPIN", "20000000");
    run(command).succeeded();
}

#[test]
fn a_rank_that_has_moved_to_another_process_group_is_ended_too() {
    let finished = run_as_ranks("moves");
    assert_eq!(finished.code(), 3, "{}", finished.stderr);
}

#[test]
fn a_panic_is_reported_with_its_place_and_message() {
    let finished = run_as_ranks("panics");
    assert_eq!(finished.code(), 101);
    let error = finished.last_error();
    assert!(
        error.starts_with("intranode: rank 1 failed first: it exited with status 101: panicked at "),
        "{error}"
    );
    assert!(error.contains("programs.rs:") && error.ends_with(": no such case"), "{error}");
}
