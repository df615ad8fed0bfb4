//! Joining a hostile program's file under a job's name. The rank refuses it with a reason. If the header is valid, the rank
//! may join and then fail. It never crashes, and does not change a file that it refuses.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use intranode::segment::layout::Layout;
use intranode::{Communicator, Config, Error, InitFailure, ReduceOp};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::header::Made;
use super::input::Input;
use super::model::{Header, MAGIC, Map};

/// How long to wait for a job that does not exist.
const SHORT: Duration = Duration::from_millis(1);

/// Larger segments take long to fill, and find no more errors.
const MOST_RANKS: u64 = 1024;

/// The input: the state of the lock, this process's rank and size, a time-out, a header as in `header`, and the bytes after
/// it. Returns whether the rank joined.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let [lock, rank, patience] = input.bytes();
    let lock = if rank == 0 { Lock::Job } else { Lock::of(lock) };
    let size = input.size();
    let made = Made::new(&mut input);
    let Ok(file) = Hostile::new(&made, lock) else { return false };
    let header = Header::read(&made.bytes[..visible(&made)], made.length);
    if let Some(header) = header.filter(|header| header.ranks <= MOST_RANKS) {
        file.fill(&header, input).expect("the file is as long as its map says");
    }
    let config = Config::new(file.name.as_str(), rank.into(), size).timeout(SHORT);
    check(config, &file, &made, Case { rank: rank.into(), size, lock, header, patience })
}

/// The file that the rank opens.
struct Case {
    rank: usize,
    size: usize,
    lock: Lock,
    header: Option<Header>,
    patience: u8,
}

fn check(config: Config, file: &Hostile, made: &Made, case: Case) -> bool {
    let joined = config.join_timeout(patience(&case)).join();
    let magic = &made.bytes[..visible(made).min(8)];
    let begins_right = *magic == MAGIC.to_ne_bytes();
    if case.size == 0 || case.size > 65_536 || case.rank >= case.size {
        assert!(matches!(joined, Err(Error::InvalidConfiguration(_))), "{joined:?}");
    } else if case.rank == 0 {
        assert!(failure(joined).reason.contains("live job"));
    } else if case.lock != Lock::Job && !begins_right {
        assert!(failure(joined).reason.contains("another program"));
    } else if case.lock != Lock::Job {
        assert_eq!(failure(joined).missing, [0]);
    } else if case.header.is_none() {
        let refusal =
            Layout::decode(&made.bytes[..visible(made)], made.length).map(drop).expect_err("the model's");
        let failure = failure(joined);
        assert!(failure.missing.is_empty() && failure.reason == refusal.to_string(), "{failure:?}");
    } else if case.header.is_some_and(|header| header.ranks != case.size as u64) {
        // Or it could not be mapped.
        assert!(!failure(joined).reason.is_empty());
        return false;
    } else if let Ok(comm) = joined {
        assert_eq!((comm.rank(), comm.size()), (case.rank, case.size));
        call(&comm);
        return true;
    } else {
        assert!(!failure(joined).reason.is_empty());
        return false;
    }
    file.assert_untouched(made);
    false
}

/// The input's time-out if joining must return at once, so that a wait is an error of the library.
fn patience(case: &Case) -> Option<Duration> {
    let refused = case.header.is_none() && case.lock == Lock::Job;
    match case.patience {
        1 if refused => None,
        2 if refused => Some(Duration::MAX),
        3 => Some(Duration::from_nanos(1)),
        _ => Some(SHORT),
    }
}

fn failure(joined: Result<Communicator, Error>) -> Box<InitFailure> {
    match joined {
        Err(Error::InitializationFailed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

/// Peers that are only bytes in a file do not follow the protocol. Any result is allowed.
fn call(comm: &Communicator) {
    let own = [comm.rank() as u64; 4];
    let mut all = vec![0; 4 * comm.size()];
    let mut sum = [0; 4];
    let mut long = vec![0u8; 5000];
    let results = [
        comm.barrier(),
        comm.allgather(&own, &mut all),
        comm.allreduce(&own, &mut sum, ReduceOp::Sum),
        comm.broadcast(&mut long, 0),
    ];
    for error in results.into_iter().filter_map(Result::err) {
        assert!(!error.to_string().is_empty());
    }
}

/// The state of the file's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Unlocked,
    Job,
    Reclaimer,
}

impl Lock {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Lock::Unlocked,
            1 => Lock::Reclaimer,
            _ => Lock::Job,
        }
    }

    fn take(self, file: &File) -> io::Result<()> {
        let l_len = match self {
            Lock::Unlocked => return Ok(()),
            Lock::Job => 1,
            Lock::Reclaimer => 2,
        };
        let (l_type, l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
        let lock = libc::flock { l_type, l_whence, l_start: 0, l_len, l_pid: 0 };
        fcntl(file, FcntlArg::F_OFD_SETLK(&lock))?;
        Ok(())
    }
}

/// The length of the header in the file.
fn visible(made: &Made) -> usize {
    made.bytes.len().min(usize::try_from(made.length).unwrap_or(usize::MAX))
}

/// A file under a name of its own, removed on drop.
struct Hostile {
    name: String,
    path: PathBuf,
    file: File,
}

impl Hostile {
    /// An error means that a file of this length is not possible, or that another program's file has the name.
    fn new(made: &Made, lock: Lock) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("/intranode-fuzz-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(format!("/dev/shm{name}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let hostile = Hostile { name, path, file };
        hostile.file.set_len(made.length)?;
        hostile.file.write_all_at(&made.bytes[..visible(made)], 0)?;
        lock.take(&hostile.file)?;
        Ok(hostile)
    }

    /// Writes the contents of a new segment after its header, and overwrites them as the input says.
    ///
    /// The mutexes are not overwritten: they contain pointers of the C library, which cannot be validated.
    fn fill(&self, header: &Header, mut input: Input<'_>) -> io::Result<()> {
        let map = Map::new(header.ranks.into(), header.chunk.into()).expect("the header is right");
        let ranks = header.ranks;
        let slots = map.slots as u64;
        let word = |cell: u64| slots + 128 * (cell % (2 * ranks));
        (0..ranks).try_for_each(|rank| self.put(word(2 * rank + 1), &(u32::MAX << 4).to_ne_bytes()))?;
        while !input.is_empty() {
            let (part, at, value) = (input.byte(), input.number(), input.number());
            let (cell, inside) = (at % (2 * ranks), at / (2 * ranks));
            let (short, long) = ((value as u32).to_ne_bytes(), value.to_ne_bytes());
            match part % 8 {
                0 => self.put(128, &long)?,
                1 => self.put(256 + 4 * (at % ranks), &short)?,
                2 => self.put(word(cell), &short)?,
                3 => self.put(word(cell) + 4 + inside % 117, &long)?,
                4 => self.put(
                    map.staging((cell / 2).into(), (cell % 2).into()).start as u64
                        + inside % (header.chunk - 7),
                    &long,
                )?,
                5 => self.put(64 + at % (map.pairs - 71) as u64, &long)?,
                6 => self.put(136, &short)?,
                // All ranks except `at` have arrived at this round, with the call in `part`.
                _ => {
                    for other in (0..ranks).filter(|rank| *rank != at) {
                        for round in [value, value.wrapping_add(1)] {
                            let cell = word(2 * other + round % 2);
                            self.put(cell, &(round as u32).wrapping_shl(4).to_ne_bytes())?;
                            self.put(cell + 4, &[part / 8])?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // Only bytes after the header, which stays valid.
        if at < 64 { Ok(()) } else { self.file.write_all_at(bytes, at) }
    }

    fn assert_untouched(&self, made: &Made) {
        let mut bytes = vec![0; visible(made)];
        let there = std::fs::metadata(&self.path).map(|metadata| metadata.len());
        assert_eq!(there.ok(), Some(made.length));
        self.file.read_exact_at(&mut bytes, 0).expect("the file's first bytes");
        assert_eq!(bytes, made.bytes[..visible(made)]);
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // An error cannot be reported.
        let _ = std::fs::remove_file(&self.path);
    }
}
