//! The live view of `intranode top`, in a terminal: the screen is what a terminal emulator makes of its output.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::support::{eventually, unique};
use crate::top::seen;

const LIMIT: Duration = Duration::from_secs(60);

/// `intranode top` in a terminal of its own. What it shows is parsed by a thread.
struct Top {
    process: Child,
    keyboard: File,
    /// Kept open: without it the screen would be gone with the program.
    terminal: Option<OwnedFd>,
    screen: Arc<Mutex<vt100::Parser>>,
    parsing: Option<JoinHandle<()>>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Top {
    fn start(rows: u16, columns: u16, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, size(rows, columns)).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        // No other process that the test starts has the terminal. It has to be the session's leader, so that it is told of a new size.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_intranode"), "top"]).args(arguments);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let process = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let keyboard = File::from(master);
        let (mut output, parsed) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        let parsing = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means that no process has the terminal any more.
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                parsed.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..len]);
            }
        });
        Top { process, keyboard, terminal: Some(terminal), screen, parsing: Some(parsing) }
    }

    fn screen(&self) -> MutexGuard<'_, vt100::Parser> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn modes(&self) -> Termios {
        tcgetattr(self.terminal.as_ref().unwrap()).unwrap()
    }

    /// Waits until the screen is like this.
    fn shows(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        if !eventually(LIMIT, || is_so(self.screen().screen())) {
            panic!("{what} is not seen:\n{}", self.screen().screen().contents());
        }
    }

    /// As a window that is dragged. What was on it is forgotten, so that only a whole new picture fills it.
    fn resize(&self, rows: u16, columns: u16) {
        *self.screen() = vt100::Parser::new(rows, columns, 0);
        tcsetwinsize(self.terminal.as_ref().unwrap(), size(rows, columns)).unwrap();
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn ends(&mut self) -> i32 {
        self.end().code().unwrap()
    }

    /// The signal.
    fn ends_by(&mut self) -> Option<i32> {
        self.end().signal()
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(LIMIT, || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "it goes on:\n{}", self.screen().screen().contents());
        status.unwrap()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
        drop(self.terminal.take());
        if let Some(parsing) = self.parsing.take() {
            let _ = parsing.join();
        }
    }
}

/// Three ranks that make the same call again and again. No launcher ends the others when one dies.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(name: &str) -> Self {
        let mut ranks = Ranks(Vec::new());
        (0..3).for_each(|_| ranks.start_next(name));
        ranks
    }

    fn start_next(&mut self, name: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_intranode"));
        command.args(["__bench", "--op", "allreduce", "--bytes", "8192", "--repetitions", "1000000000"]);
        command.env("INTRANODE_NAME", name).env("INTRANODE_RANK", self.0.len().to_string());
        let command = command.env("INTRANODE_SIZE", "3").stdin(Stdio::null()).stdout(Stdio::null());
        self.0.push(command.spawn().unwrap());
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// The rows of the table with this text, each with whether all of its text is red.
fn rows_with(screen: &vt100::Screen, text: &str) -> Vec<(String, bool)> {
    let (_, columns) = screen.size();
    let is_red = |row: usize| {
        let mut cells = (0..columns).filter_map(|column| screen.cell(row as u16, column));
        cells.all(|cell| cell.contents().trim().is_empty() || cell.fgcolor() == vt100::Color::Idx(1))
    };
    let rows = screen.rows(0, columns).enumerate();
    // Below the line that says what red means.
    let rows = rows.skip(1);
    rows.filter(|(_, line)| line.contains(text)).map(|(row, line)| (line, is_red(row))).collect()
}

#[test]
fn the_live_view_follows_a_job_and_gives_the_terminal_back() {
    let name = format!("/live-{}", unique());
    let mut job = Ranks::start(&name);
    let pids = [0, 1, 2].map(|rank: usize| Pid::from_raw(job.0[rank].id().cast_signed()));
    seen(&name);

    let mut top = Top::start(30, 150, &["--interval", "0.2", &name]);
    let title = format!("{name}: 3 ranks, segment ");
    top.shows("the job", |screen| {
        screen.contents().contains(&title) && screen.contents().contains("waits for")
    });
    top.shows("each rank in its operation", |screen| {
        let rows = rows_with(screen, "allreduce");
        let has = |pid: &Pid| rows.iter().any(|(row, is_red)| row.contains(&pid.to_string()) && !is_red);
        pids.iter().all(has)
    });
    assert!(top.screen().screen().alternate_screen());
    assert!(!top.modes().local_modes.contains(LocalModes::ICANON), "keys are read one by one");

    kill(pids[1], Signal::SIGSTOP).unwrap();
    let of_rank = |screen: &vt100::Screen, state: &str, number: usize| {
        let is_of = |row: &str| row.split_whitespace().find(|word| *word != "*") == Some(&number.to_string());
        matches!(&rows_with(screen, state)[..], [(row, true)] if is_of(row))
    };
    top.shows("the frozen rank in red", |screen| of_rank(screen, "frozen", 1));
    kill(pids[1], Signal::SIGCONT).unwrap();
    top.shows("the rank that goes on", |screen| rows_with(screen, "frozen").is_empty());

    // A rank that dies while the others cannot leave.
    [0, 1].iter().for_each(|number: &usize| kill(pids[*number], Signal::SIGSTOP).unwrap());
    job.0[2].kill().unwrap();
    job.0[2].wait().unwrap();
    top.shows("the dead rank in red", |screen| of_rank(screen, "dead", 2));
    top.shows("the others in red", |screen| {
        rows_with(screen, "frozen").iter().filter(|(_, is_red)| *is_red).count() == 2
    });

    top.resize(12, 100);
    top.shows("a whole picture of the new size", |screen| {
        screen.contents().contains(&title) && of_rank(screen, "dead", 2)
    });

    top.resize(12, 50);
    top.shows("whole numbers where there is little room", |screen| {
        let rows = rows_with(screen, "frozen");
        let has = |pid: &Pid| rows.iter().any(|(row, _)| row.contains(&format!(" {pid} ")));
        pids[..2].iter().all(has) && of_rank(screen, "dead", 2)
    });

    top.press("q");
    assert_eq!(top.ends(), 0);
    // What it has written last may not have been parsed yet.
    top.shows("the screen of before", |screen| !screen.alternate_screen() && !screen.hide_cursor());
    assert!(top.modes().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
}

#[test]
fn ranks_that_join_later_are_not_taken_for_dead_ones() {
    let name = format!("/live-{}", unique());
    let mut job = Ranks(Vec::new());
    job.start_next(&name);
    let mut top = Top::start(30, 150, &["--interval", "0.2", &name]);
    let joining = |screen: &vt100::Screen| rows_with(screen, "joining").len();
    // The job is looked for again and again, so the view begins without it perhaps.
    top.shows("the two that are not there", |screen| joining(screen) == 2);
    job.start_next(&name);
    top.shows("the one that is not there", |screen| joining(screen) == 1);
    job.start_next(&name);
    top.shows("each rank with its process", |screen| {
        let rows = rows_with(screen, "allreduce");
        let has = |rank: &Child| {
            rows.iter().any(|(row, is_red)| row.contains(&format!(" {} ", rank.id())) && !is_red)
        };
        job.0.iter().all(has)
    });
    top.press("q");
    assert_eq!(top.ends(), 0);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        // A long interval, of which nothing is waited for.
        let mut top = Top::start(10, 60, &["--interval", "3600"]);
        top.shows("the view", |screen| screen.alternate_screen() && screen.contents().contains("q: quit"));
        kill(Pid::from_raw(top.process.id().cast_signed()), signal).unwrap();
        assert_eq!(top.ends_by(), Some(signal as i32));
        top.shows("the screen of before", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        assert!(top.modes().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{signal}");
    }
}
